"""The protocol of a translation that projecting formats needs; results of the engine satisfy it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class SentenceAlignment(Protocol):
    """The alignment of one sentence.

    source, target: pieces of the sentence, ending with end-of-sentence.
    matrix: float array [target, source], the attention of each target piece; rows sum to 1.
    source_places, target_places: characters [begin, end) of each piece in its text, or None.
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
    """A phrase in a translation that was copied from the source or from a glossary.

    begin, end: characters [begin, end) of the translation.
    span: number of the kept span of the source, or -1 for another phrase.
    """

    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def span(self) -> int: ...


class TranslatedText(Protocol):
    """A translation.

    text: translated text.
    alignment: attention of each sentence, in the order of the text.
    kept: copied phrases in the translation.
    """

    @property
    def text(self) -> str: ...
    @property
    def alignment(self) -> Sequence[SentenceAlignment]: ...
    @property
    def kept(self) -> Sequence[KeptPhrase]: ...
