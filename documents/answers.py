"""What formats need to know of a translation, whoever made it; the engine's results have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class SentenceAlignment(Protocol):
    """One sentence.

    source, target: its pieces, ending with end-of-sentence.
    matrix: the share of attention [target, source] that each piece of the target paid to those of the source.
    source_places, target_places: of each piece the characters [begin, end) of the texts, if it has some.
    """

    @property
    def source(self) -> Sequence[str]: ...
    @property
    def target(self) -> Sequence[str]: ...
    @property
    def matrix(self) -> Any: ...
    @property
    def source_places(self) -> Sequence[tuple[int, int] | None]: ...
    @property
    def target_places(self) -> Sequence[tuple[int, int] | None]: ...


class KeptPhrase(Protocol):
    """Characters [begin, end) of a translation that hold the source's phrase number `span`; -1: another."""

    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def span(self) -> int: ...


class TranslatedText(Protocol):
    """A translation.

    alignment: of its sentences, in order.
    kept: where phrases stand that stayed as they are, or that a glossary gave.
    """

    @property
    def text(self) -> str: ...
    @property
    def alignment(self) -> Sequence[SentenceAlignment]: ...
    @property
    def kept(self) -> Sequence[KeptPhrase]: ...
