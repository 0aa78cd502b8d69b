"""Messages between the server and the processes that read files."""

import errno
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from documents.spans import Segment, Span
from documents.worker import LENGTH_BYTES, encode_message, from_lines, to_lines

SPANS = st.builds(Span, st.integers(), st.integers(), st.integers(), st.booleans(), st.booleans())
SEGMENTS = st.builds(Segment, st.text(), st.lists(SPANS).map(tuple))


@given(st.lists(SEGMENTS))
def test_segments_survive_the_transfer_between_processes(segments):
    assert list(from_lines(b"".join(to_lines(segments)))) == segments
    assert encode_message({"verb": "read"}, b"abc").endswith(b"abc")


def test_message_larger_than_memory_ends_the_process_with_enomem():
    head = b'{"verb": "read", "size": %d}' % (2 << 30)
    message = len(head).to_bytes(LENGTH_BYTES, "big") + head
    done = subprocess.run([sys.executable, "-m", "documents.worker"], input=message, check=False)
    assert done.returncode == errno.ENOMEM
