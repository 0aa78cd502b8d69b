"""Reads and writes files in a separate process with limits: `python -m documents.worker`.

The parent sends requests to standard input and reads answers from standard output. A message is four bytes
with the length of its head, the head in JSON, and `size` more bytes:

    {"verb": "read", "name": "a.docx", "size": 10, "options": {}}      the file
    {"verb": "write", "name": "a.docx", "size": 30, "file": 10, ...}   the file, then segments, a line each
    {"verb": "recall", "name": "a.tmx", "size": 30, "file": 10, ...}   the memory, then segments, a line each
    {"size": 20}                                                       segments, or the new file
    {"size": 0, "error": "unreadable", "message": "..."}               or "swollen"

A segment without a translation in the memory is answered by one without text.

A head with `seconds` limits the processor time of the answer: a longer one ends the process by SIGPROF. The
process ends with the exit code errno.ENOMEM if a message does not fit into its memory.
"""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from typing import IO, Any, Final

from documents import FileOptions, OversizedDocument, Unreadable, format_of, read_document
from documents.bilingual import check_bilingual, write_bilingual
from documents.spans import Segment, Span

if sys.platform != "win32":  # Windows has no such limits; only the timeout of the parent ends a reader
    import resource

MAX_MEMORY_BYTES: Final = 1 << 30  # bytes of address space
MAX_PROCESSOR_SECONDS: Final = 30  # processor time for a file
NICENESS: Final = 5  # decoding has priority over files
LENGTH_BYTES: Final = 4  # bytes that hold the length of a head
NO_SEGMENT: Final = Segment("")
OUT_OF_MEMORY: Final = f"the file takes more than {MAX_MEMORY_BYTES >> 20} MiB of memory: split it"


def main() -> None:
    """Answer requests until the input ends."""
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.nice(NICENESS)
    try:
        _serve(sys.stdin.buffer, sys.stdout.buffer)
    except MemoryError:
        sys.exit(errno.ENOMEM)


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until the stream ends, each within a limit of processor time."""
    while (message := read_message(requests)) is not None:
        if kind := format_of(message[0]["name"]):
            kind.load()  # costs the first file of a kind nothing of its time
        _limit_processor_time(MAX_PROCESSOR_SECONDS, message[0].get("seconds", 0.0))
        head, body = _answer(*message)
        _limit_processor_time(MAX_PROCESSOR_SECONDS)
        answers.write(encode_message(head, body))
        answers.flush()


def encode_message(head: dict[str, Any], body: bytes) -> bytes:
    """Return a message as bytes."""
    text = json.dumps(head | {"size": len(body)}).encode()
    return len(text).to_bytes(LENGTH_BYTES, "big") + text + body


def read_message(stream: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    """Return the next message, or None at the end of the stream."""
    length = stream.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    head = json.loads(stream.read(int.from_bytes(length, "big")))
    return head, stream.read(head["size"])


def to_lines(segments: Iterable[Segment]) -> Iterator[bytes]:
    """Yield each segment as a line of JSON; a span is the list of its fields."""
    for segment in segments:
        yield json.dumps([segment.text, [astuple(span) for span in segment.spans]]).encode() + b"\n"


def from_lines(text: bytes) -> Iterator[Segment]:
    """Yield the segments in the lines of `to_lines`.

    Raises ValueError, TypeError or KeyError on other bytes.
    """
    for line in io.BytesIO(text):
        words, spans = json.loads(line)
        yield Segment(words, tuple(Span(*span) for span in spans))


def _answer(head: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
    """Return head and body of the answer to one request: segments, a written document, or an error."""
    options = FileOptions(**head["options"])
    try:
        if head["verb"] == "read":
            document = read_document(head["name"], body, options)
            check_bilingual(head["name"], options.bilingual)
            return {"notices": list(document.notices)}, b"".join(to_lines(document.segments))
        file, segments = body[: head["file"]], list(from_lines(body[head["file"] :]))
        languages = head.get("source", ""), head.get("target", "")
        if head["verb"] == "recall":
            from documents.memory import read_memory, recall

            found, notice = recall(read_memory(file, *languages), segments)
            return {"notices": [notice]}, b"".join(to_lines(new or NO_SEGMENT for new in found))
        document = read_document(head["name"], file, options)
        return {}, write_bilingual(document, segments, options.bilingual, languages)
    except OversizedDocument as error:
        return {"error": "swollen", "message": str(error)}, b""
    except Unreadable as error:
        return {"error": "unreadable", "message": str(error)}, b""
    except MemoryError:
        return {"error": "swollen", "message": OUT_OF_MEMORY}, b""


def _limit_processor_time(seconds: int, fewer: float = 0.0) -> None:
    """Limit the processor time of this process to `seconds` more seconds.

    fewer: a lower limit, which may be a part of a second; 0: none.
    """
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, fewer)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        most = int(usage.ru_utime + usage.ru_stime) + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
