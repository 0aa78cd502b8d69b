"""Tokenizer of tensor2tensor's translation models (`SubwordTextEncoder`).

A text is cut where letters or digits meet other characters. Each token gets an end mark and is cut into the
longest subtokens of the vocabulary. Characters that the vocabulary lacks are written as numbers, so every
text can be encoded.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Final

from engine.bundle.bundle import Bundle
from engine.errors import BundleError
from engine.text.tokenizers.left_to_right import LeftToRight

END: Final = "_"  # ends a token
ESCAPE_CHARACTERS: Final = frozenset("\\_u;0123456789")
ESCAPED: Final = re.compile(r"\\u|\\\\|\\([0-9]+);")
CACHED_TOKENS: Final = 65_536
RESERVED: Final = 2  # ids of padding and end-of-sentence


class SubwordVocabulary:
    """Cuts tokens into subtokens.

    subtokens: subtoken of each id.
    """

    def __init__(self, subtokens: Sequence[str]) -> None:
        self.subtokens = tuple(subtokens)
        self._ids = {s: i for i, s in enumerate(self.subtokens) if s and i >= RESERVED}
        self._longest = max(map(len, self._ids), default=1)
        self._alphabet = frozenset("".join(self.subtokens)) | ESCAPE_CHARACTERS
        self._cut = lru_cache(CACHED_TOKENS)(self._cut_token)

    def encode(self, text: str) -> list[int]:
        return [i for token in split(text) for i in self._cut(token)]

    def missing(self) -> list[str]:
        """Return the escape characters that are no subtokens. Every one is needed to encode all texts."""
        return sorted(c for c in ESCAPE_CHARACTERS if c not in self._ids)

    def _cut_token(self, token: str) -> tuple[int, ...]:
        """Return the ids of the longest subtokens of a token."""
        plain = token.replace("\\", "\\\\").replace("_", "\\u")
        alphabet = self._alphabet - {"\n"}
        spelling = "".join(c if c in alphabet else f"\\{ord(c)};" for c in plain) + END
        ids, at = [], 0
        while at < len(spelling):
            ends = range(min(len(spelling), at + self._longest), at, -1)
            end = next((end for end in ends if spelling[at:end] in self._ids), 0)
            if not end:  # no single subtoken for this letter
                at += 1
                continue
            ids.append(self._ids[spelling[at:end]])
            at = end
        return tuple(ids)


class Subwords(LeftToRight):
    """A tokenizer with a subword vocabulary for each side, which may be the same."""

    def __init__(self, source: SubwordVocabulary, target: SubwordVocabulary) -> None:
        self._source, self._target = source, target

    def encode(self, text: str) -> list[int]:
        return self._source.encode(text)

    def encode_target(self, text: str) -> list[int]:
        return self._target.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return join(_tokens(self.pieces([t for t in tokens if t >= RESERVED], target=True)))

    def decode_whole_words(self, tokens: Sequence[int]) -> str:
        """Decode whole words: tokens with an end mark, except the last; the next one may be joined to it."""
        pieces = self.pieces([t for t in tokens if t >= RESERVED], target=True)
        whole = "".join(pieces).rpartition(END)[0]
        text = join(_tokens([whole + END])) if whole else ""
        return text[: len(text) - len(text.split(" ")[-1])].rstrip()

    def words(self, tokens: Sequence[int], *, target: bool) -> list[int]:
        pieces = self.pieces(tokens, target=target)
        return [i for i in range(len(pieces)) if not i or pieces[i - 1].endswith(END)]

    def word(self, tokens: Sequence[int], *, target: bool) -> str:
        return "".join(_tokens(self.pieces(tokens, target=target))).strip()

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        subtokens = (self._target if target else self._source).subtokens
        return [subtokens[t] if t < len(subtokens) else "" for t in tokens]


def split(text: str) -> list[str]:
    """Split a text into runs of letters and digits, and other runs, without single spaces between them."""
    runs = ["".join(run) for _, run in groupby(text, _is_word)]
    return [run for i, run in enumerate(runs) if run != " " or i in (0, len(runs) - 1)]


def join(tokens: Sequence[str]) -> str:
    """Join tokens to a text, with a space between tokens that both begin with a letter or digit."""
    spaced = (
        f" {token}" if before and _is_word(before[0]) and _is_word(token[0]) else token
        for before, token in zip(["", *tokens], tokens, strict=False)
    )
    return "".join(spaced)


def _is_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LN"


def _tokens(pieces: Sequence[str]) -> list[str]:
    """Join subtokens to tokens, without their escapes."""
    written = "".join(pieces).split(END)
    return [token for token in (ESCAPED.sub(_unescape, part) for part in written) if token]


def _unescape(escape: re.Match[str]) -> str:
    if escape[1] is None:
        return "_" if escape[0] == "\\u" else "\\"
    number = int(escape[1][:8])  # U+3013 replaces an invalid code, as in Tensor2Tensor
    return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\u3013"


def read_subtokens(path: Path) -> list[str]:
    """Read subtokens by id: one a line, most between quotes. Raises BundleError naming the file."""
    try:
        lines = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{path}: not readable as UTF-8 ({error}); copy the vocabulary again") from error
    subtokens = []
    for line in lines:
        text = line.rstrip()
        quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
        subtokens.append(text[1:-1] if quoted else text)
    return subtokens


def read_subwords(path: Path, size: int) -> SubwordVocabulary:
    """Read a vocabulary.

    path: file of the subtokens.
    size: number of tokens of the model, which may have more than the vocabulary.

    Raises BundleError naming the file.
    """
    vocabulary = SubwordVocabulary(read_subtokens(path))
    if not RESERVED < len(vocabulary.subtokens) <= size:
        raise BundleError(
            f"{path}: has {len(vocabulary.subtokens)} subtokens, the model {size}; convert it again"
        )
    missing = vocabulary.missing()
    if missing:
        raise BundleError(f"{path}: lacks {missing}, so it is no subword vocabulary of tensor2tensor")
    return vocabulary


def open_subwords(bundle: Bundle) -> Subwords:
    """Open the tokenizer of a bundle with tensor2tensor's subword vocabularies.

    Settings: {"kind": "subwords", "source": file name, "target": file name}. Raises BundleError.
    """
    names = {side: bundle.text.get(side) for side in ("source", "target")}
    unknown = sorted(set(bundle.text) - {"kind", *names})
    if unknown or not all(isinstance(name, str) for name in names.values()):
        raise BundleError(f"{bundle.path}: text settings must be 'source' and 'target', names of files")
    config = bundle.config
    if (config.pad, config.eos) != (0, 1):
        raise BundleError(f"{bundle.path}: a subword vocabulary needs pad and eos to be 0 and 1")
    source = read_subwords(bundle.file(str(names["source"])), config.source_vocab)
    same = names["source"] == names["target"]
    return Subwords(
        source, source if same else read_subwords(bundle.file(str(names["target"])), config.target_vocab)
    )
