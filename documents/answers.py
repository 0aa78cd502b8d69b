"""What formats need to know of a translation, whoever made it; the engine's results have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Aligned(Protocol):
    """One sentence: its pieces on both sides, each ending with end-of-sentence, and the share of attention
    [target, source] that each piece of the target paid to those of the source."""

    @property
    def source(self) -> Sequence[str]: ...
    @property
    def target(self) -> Sequence[str]: ...
    @property
    def matrix(self) -> Any: ...


class Place(Protocol):
    """Characters [begin, end) of a translation that hold the source's phrase number `span`; -1: another."""

    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def span(self) -> int: ...


class Answer(Protocol):
    """A translation. alignment: of its sentences, in order. kept: where phrases stand that stayed as they
    are. via: the one in a third language that this is a translation of."""

    @property
    def text(self) -> str: ...
    @property
    def alignment(self) -> Sequence[Aligned]: ...
    @property
    def kept(self) -> Sequence[Place]: ...
    @property
    def via(self) -> Answer | None: ...
