"""The document that the reader of every format returns, and checks for all readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from documents.errors import OversizedDocument, Unreadable
from documents.spans import Segment

MAX_SEGMENTS: Final = 100_000
MAX_SEGMENT_CHARACTERS: Final = 100_000  # characters of a segment


@dataclass(frozen=True, slots=True)
class Document:
    """A file as prose in an unchanged structure.

    segments: the prose, in order.
    write: returns the file with a new segment for each old one; an old one given again leaves its text
        unchanged, byte by byte. It may be called once.
    notices: sentences for the user, for example about a guessed encoding.
    write_in: like `write`, for a format that names its language: also takes the code of the new one.
    complete: returns the whole document and its new segments, if `segments` are only a part of it.
    """

    segments: list[Segment]
    write: Callable[[Sequence[Segment]], bytes]
    notices: tuple[str, ...] = ()
    write_in: Callable[[Sequence[Segment], str], bytes] | None = None
    complete: Callable[[Sequence[Segment]], tuple[Document, list[Segment]]] | None = None


def check_sizes(segments: Sequence[Segment]) -> None:
    """Raise OversizedDocument on too many segments, or on a segment that is too long."""
    if len(segments) > MAX_SEGMENTS:
        raise OversizedDocument(f"the file has more than {MAX_SEGMENTS} paragraphs or lines: split it")
    if any(len(segment.text) > MAX_SEGMENT_CHARACTERS for segment in segments):
        raise OversizedDocument(
            f"a paragraph or line of the file has more than {MAX_SEGMENT_CHARACTERS} characters: break it"
        )


def unreadable(kind: str) -> Unreadable:
    return Unreadable(f"the file can't be read as {kind}; is it complete?")
