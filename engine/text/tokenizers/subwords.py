"""tensor2tensor's subword vocabulary (`SubwordTextEncoder`): text of its translation models.

A text is cut where letters or digits meet anything else; each token is written with an end mark and cut
into the longest subtokens that the vocabulary has. Characters that it lacks are written as their number, so
no text is unknown.
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

END: Final = "_"  # of a token
ESCAPE_CHARACTERS: Final = frozenset("\\_u;0123456789")  # what escapes are made of
ESCAPED: Final = re.compile(r"\\u|\\\\|\\([0-9]+);")
CACHED_TOKENS: Final = 65_536
RESERVED: Final = 2  # padding and end-of-sentence, which no text holds


class SubwordVocabulary:
    """Subtokens by id, and how a token is cut into them."""

    def __init__(self, subtokens: Sequence[str]) -> None:
        self.subtokens = tuple(subtokens)
        self._ids = {s: i for i, s in enumerate(self.subtokens) if s and i >= RESERVED}
        self._longest = max(map(len, self._ids), default=1)
        self._alphabet = frozenset("".join(self.subtokens)) | ESCAPE_CHARACTERS
        self._cut = lru_cache(CACHED_TOKENS)(self._cut_token)

    def encode(self, text: str) -> list[int]:
        return [i for token in split(text) for i in self._cut(token)]

    def missing(self) -> list[str]:
        """List the characters of escapes that no subtoken is: without one of them some texts have no ids."""
        return sorted(c for c in ESCAPE_CHARACTERS if c not in self._ids)

    def _cut_token(self, token: str) -> tuple[int, ...]:
        plain = token.replace("\\", "\\\\").replace("_", "\\u")
        alphabet = self._alphabet - {"\n"}
        spelling = "".join(c if c in alphabet else f"\\{ord(c)};" for c in plain) + END
        ids, at = [], 0
        while at < len(spelling):
            ends = range(min(len(spelling), at + self._longest), at, -1)
            end = next((end for end in ends if spelling[at:end] in self._ids), 0)
            if not end:  # a letter that only longer subtokens hold
                at += 1
                continue
            ids.append(self._ids[spelling[at:end]])
            at = end
        return tuple(ids)


class Subwords(LeftToRight):
    """One vocabulary for both sides, or one for each."""

    beginning: tuple[int, ...] = ()

    def __init__(self, source: SubwordVocabulary, target: SubwordVocabulary) -> None:
        self._source, self._target = source, target

    def lacks(self, character: str) -> bool:
        return False

    def encode(self, text: str) -> list[int]:
        return self._source.encode(text)

    def encode_target(self, text: str) -> list[int]:
        return self._target.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return join(_tokens(self.pieces([t for t in tokens if t >= RESERVED], target=True)))

    def decode_whole_words(self, tokens: Sequence[int]) -> str:
        """Decode whole words.

        A token is whole when its end mark is there; the one after it decides on a space.
        """
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
    """Split into runs of letters and digits, and of all else; a single space between two runs is left out."""
    runs = ["".join(run) for _, run in groupby(text, _is_word)]
    return [run for i, run in enumerate(runs) if run != " " or i in (0, len(runs) - 1)]


def join(tokens: Sequence[str]) -> str:
    """Join tokens to a text, with a space between two that both begin with a letter or digit."""
    spaced = (
        f" {token}" if before and _is_word(before[0]) and _is_word(token[0]) else token
        for before, token in zip(["", *tokens], tokens, strict=False)
    )
    return "".join(spaced)


def _is_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LN"


def _tokens(pieces: Sequence[str]) -> list[str]:
    """Whole tokens of subtokens, without their escapes."""
    written = "".join(pieces).split(END)
    return [token for token in (ESCAPED.sub(_unescape, part) for part in written) if token]


def _unescape(escape: re.Match[str]) -> str:
    if escape[1] is None:
        return "_" if escape[0] == "\\u" else "\\"
    number = int(escape[1][:8])
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
    """Read a vocabulary for a model of `size` tokens; the model may have more rows than the vocabulary.

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
