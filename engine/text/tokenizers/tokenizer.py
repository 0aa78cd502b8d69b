"""Text to token ids and back: the protocol, and the table of kinds that a bundle may name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from engine.bundle.bundle import Bundle
from engine.errors import BundleError
from engine.text.tokenizers import byte_bpe, mapped_pieces, marian, pieces, subwords, utf8_bytes


class Tokenizer(Protocol):
    """Text to token ids and back, safe to use from several threads at once.

    No text ever yields the ids of begin, padding or end; what the vocabulary lacks becomes unk. Texts are
    valid Unicode: the door (`engine.answers.options.check_text`) refuses half a surrogate pair.

    placeholders: words like "<ph0>" that are one token each and come back unchanged.
    replaces_unk: whether `replace_unknown` is more than `decode`.
    beginning: ids without a text that each target begins with, such as the one of its language.
    """

    placeholders: tuple[str, ...]
    replaces_unk: bool
    beginning: tuple[int, ...]

    def lacks(self, character: str) -> bool:
        """Tell whether the source vocabulary has no way to write a character."""

    def encode(self, text: str) -> list[int]:
        """Encode a text as source ids, without end-of-sentence."""

    def encode_target(self, text: str) -> list[int]:
        """Encode a text as target ids, without end-of-sentence: for prefixes."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode target ids to a text; begin, padding and end are left out."""

    def replace_unknown(self, tokens: Sequence[int], attention: Any, source: str) -> str:
        """Decode target ids with source words in the place of unknown words.

        tokens: target ids.
        attention: float array [at least the tokens, source tokens with end-of-sentence].
        source: the text that was encoded.
        """

    def decode_whole_words(self, tokens: Sequence[int]) -> str:
        """Return a text of whole words that `decode` of these tokens and any that may follow begins with."""

    def words(self, tokens: Sequence[int], *, target: bool) -> list[int]:
        """List the indices of the tokens that begin a word, 0 the first; none without tokens."""

    def word(self, tokens: Sequence[int], *, target: bool) -> str:
        """Return how the tokens of one word read."""

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        """List the vocabulary's symbol of each id, special ones included."""


def _open_fairseq(bundle: Bundle) -> Tokenizer:
    from engine.text.tokenizers.fairseq import open_fairseq  # the tables of its tokenizer take 0.2 seconds

    return open_fairseq(bundle)


def _open_symbols(bundle: Bundle) -> Tokenizer:
    from engine.text.tokenizers.symbols import open_symbols  # for the same reason

    return open_symbols(bundle)


KINDS: Final[dict[str, Callable[[Bundle], Tokenizer]]] = {
    "sentencepiece": pieces.open_pieces,
    "fairseq": _open_fairseq,
    "marian": marian.open_marian,
    "subwords": subwords.open_subwords,
    "symbols": _open_symbols,
    "mapped-pieces": mapped_pieces.open_mapped_pieces,
    "byte-bpe": byte_bpe.open_byte_bpe,
    "bytes": utf8_bytes.open_utf8_bytes,
}


def open_tokenizer(bundle: Bundle) -> Tokenizer:
    """Open the tokenizer of a bundle.

    Raises BundleError on an unknown kind, on wrong settings, and on a vocabulary that differs from the model
    in its size or its special ids.
    """
    kind = bundle.text["kind"]
    if kind not in KINDS:
        raise BundleError(f"{bundle.path}: unknown text kind {kind!r}; this version knows {sorted(KINDS)}")
    return KINDS[kind](bundle)
