"""Work on pages and segments that runs in workers: parsing, formats in translations, writing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from documents.formats.attributes import AttributedPage
from documents.formats.html import Page, read_html
from documents.formats.outline import outline
from documents.formats.tags import MarkupRules
from documents.projection import project
from documents.spans import Segment
from engine.api import Slices, TextResult

SomePage = TypeVar("SomePage", bound=Page | AttributedPage)


def parse_pages(reader: Callable[[str], SomePage], texts: Sequence[str]) -> Slices[list[SomePage]]:
    """Parse texts with tags, a text in each slice.

    reader: function that parses one text.
    texts: HTML or XML.
    """
    pages = []
    for text in texts:
        pages.append(reader(text))
        yield
    return pages


def read_by_rules(rules: MarkupRules, outlined: bool, text: str) -> Page:
    """Parse a text with tags.

    rules: meaning of the tags.
    outlined: whether elements that hold sentences end a sentence too.
    text: HTML or XML.
    """
    return read_html(text, replace(rules, blocks=rules.blocks | outline(text, rules)) if outlined else rules)


def project_segments(
    segments: Sequence[Segment], results: Sequence[TextResult | None]
) -> Slices[list[Segment | None]]:
    """Copy the formats of segments to their translations, in slices.

    segments: segments of the source.
    results: translation of each segment, with its alignment; None: the segment stays unchanged.

    Returns None for a segment that stays unchanged.
    """
    projected: list[Segment | None] = []
    for segment, result in zip(segments, results, strict=True):
        projected.append((yield from project(segment, result)) if result else None)
        yield
    return projected


def join_pages(pages: Sequence[SomePage], results: Sequence[TextResult | None]) -> Slices[list[str]]:
    """Write pages with the translations of their segments, in slices.

    pages: parsed pages.
    results: translation of each segment of all pages, as for `project_segments`.
    """
    segments = [segment for page in pages for segment in page.segments]
    projected = yield from project_segments(segments, results)
    rest: Iterator[Segment] = (new or old for new, old in zip(projected, segments, strict=True))
    written = []
    for page in pages:
        written.append(page.join([next(rest) for _ in page.segments]))
        yield
    return written
