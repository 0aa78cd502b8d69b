"""Text to token ids and back: the protocol, and the table of kinds that a bundle may name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from engine.bundle import Bundle
from engine.errors import BundleError
from engine.text import fairseq, pieces


class Tokenizer(Protocol):
    """Safe to use from several threads at once.

    No text ever yields the ids of begin, padding or end; what the vocabulary lacks becomes unk.
    """

    placeholders: tuple[str, ...]  # words like "<ph0>" that are one token each and come back unchanged

    def encode(self, text: str) -> list[int]:
        """Source ids, without end-of-sentence."""

    def encode_target(self, text: str) -> list[int]:
        """Target ids, without end-of-sentence: for prefixes."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of target ids; begin, padding and end are left out."""

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        """The vocabulary's symbol of each id, special ones included."""


KINDS: Final[dict[str, Callable[[Bundle], Tokenizer]]] = {
    "sentencepiece": pieces.open_pieces,
    "fairseq": fairseq.open_fairseq,
}


def open_tokenizer(bundle: Bundle) -> Tokenizer:
    """The tokenizer of a bundle. Raises BundleError on an unknown kind, wrong settings or a vocabulary whose
    size or special ids are not those of the model."""
    kind = bundle.text["kind"]
    if kind not in KINDS:
        raise BundleError(f"{bundle.path}: unknown text kind {kind!r}; this version knows {sorted(KINDS)}")
    return KINDS[kind](bundle)
