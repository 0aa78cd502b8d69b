"""Protocol of tokenizers, and the table of kinds that a bundle may name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from engine.bundle.bundle import Bundle
from engine.errors import BundleError
from engine.text.tokenizers import (
    byte_bpe,
    mapped_pieces,
    marian,
    pieces,
    subwords,
    utf8_bytes,
    word_pieces,
)


class Tokenizer(Protocol):
    """Converts text to token ids and back; safe to use from several threads at once.

    No text yields the ids of begin, padding or end; unknown parts become unk. Texts are valid Unicode:
    `engine.answers.options.check_text` refuses lone surrogates.

    placeholders: symbols such as "<ph0>" that are one token each and come back unchanged.
    replaces_unk: whether `replace_unknown` differs from `decode`.
    beginning: ids without a text at the beginning of each target, such as the id of its language.
    """

    placeholders: tuple[str, ...]
    replaces_unk: bool
    beginning: tuple[int, ...]

    def lacks(self, character: str) -> bool:
        """Return whether the source vocabulary cannot represent a character."""

    def encode(self, text: str) -> list[int]:
        """Encode a text as source ids, without end-of-sentence."""

    def encode_target(self, text: str) -> list[int]:
        """Encode the prefix of a target as target ids, without end-of-sentence."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode target ids to a text, without begin, padding and end."""

    def replace_unknown(self, tokens: Sequence[int], attention: Any, source: str) -> str:
        """Decode target ids, with source words in the place of unknown words.

        tokens: target ids.
        attention: float array [at least the tokens, source tokens with end-of-sentence].
        source: text that was encoded.
        """

    def decode_whole_words(self, tokens: Sequence[int]) -> str:
        """Return the whole words of a growing target: `decode` of any continuation begins with them."""

    def words(self, tokens: Sequence[int], *, target: bool) -> list[int]:
        """Return the indices of tokens that begin a word.

        tokens: ids of a text.
        target: whether the ids belong to the target vocabulary, otherwise to the source vocabulary.
        """

    def word(self, tokens: Sequence[int], *, target: bool) -> str:
        """Return the text of one word.

        tokens: ids of the word.
        target: whether the ids belong to the target vocabulary, otherwise to the source vocabulary.
        """

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        """Return the vocabulary's symbol of each id, special ids included.

        tokens: ids of a text.
        target: whether the ids belong to the target vocabulary, otherwise to the source vocabulary.
        """


def _open_fairseq(bundle: Bundle) -> Tokenizer:
    # loading the tables of sacremoses takes 0.2 seconds
    from engine.text.tokenizers.fairseq import open_fairseq

    return open_fairseq(bundle)


def _open_symbols(bundle: Bundle) -> Tokenizer:
    from engine.text.tokenizers.symbols import open_symbols  # imports fairseq.py

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
    "word-pieces": word_pieces.open_word_pieces,
}


# tokenizers shared by forked processes, by the digests of bundles
_SHARED: Final = dict[str, Tokenizer]()


def share_tokenizers(bundles: Iterable[Bundle]) -> None:
    """Open tokenizers once for this process and the processes that it forks. Raises the errors of
    `open_tokenizer`."""
    for bundle in bundles:
        _SHARED[bundle.digest] = open_tokenizer(bundle)


def open_tokenizer(bundle: Bundle) -> Tokenizer:
    """Open the tokenizer of a bundle, or return the shared one.

    Raises BundleError on an unknown kind, on wrong settings, and on a vocabulary that differs from the model
    in its size or its special ids.
    """
    if bundle.digest in _SHARED:
        return _SHARED[bundle.digest]
    kind = bundle.text["kind"]
    if kind not in KINDS:
        raise BundleError(f"{bundle.path}: unknown text kind {kind!r}; this version knows {sorted(KINDS)}")
    return KINDS[kind](bundle)
