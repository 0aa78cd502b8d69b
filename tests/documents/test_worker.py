"""What passes between the server and the processes that read files."""

from hypothesis import given
from hypothesis import strategies as st

from documents.spans import Segment, Span
from documents.worker import from_lines, to_lines

SPANS = st.builds(Span, st.integers(0), st.integers(0), st.integers(-1), st.booleans(), st.booleans())
SEGMENTS = st.builds(Segment, st.text(), st.lists(SPANS).map(tuple))


@given(st.lists(SEGMENTS))
def test_segments_reach_another_process_as_they_were(segments):
    assert list(from_lines(b"".join(to_lines(segments)))) == segments
