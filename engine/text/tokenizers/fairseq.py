"""Tokenizers of fairseq models: Moses with BPE, or SentencePiece, and dictionaries (docs/reference.md 0).

BPE codes of subword-nmt and fastBPE differ only in their files.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.apply_bpe import encode as segment

from engine.bundle.bundle import Bundle
from engine.errors import BundleError
from engine.text.tokenizers.dictionary import Dictionary, is_whole, read_dictionary
from engine.text.tokenizers.fairseq_pieces import Characters, DictionaryPieces
from engine.text.tokenizers.left_to_right import LeftToRight
from engine.text.tokenizers.pieces import read_processor
from engine.text.tokenizers.unknown import read_table, replace_unknown, word_of_each

SEPARATOR: Final = "@@"
HYPHEN: Final = "@-@"  # Moses' hyphen within a word
PLAIN_PUNCTUATION: Final = ("pre_replace_unicode_punct", "post_remove_control_chars")
CACHED_WORDS: Final = 65_536


@dataclass(frozen=True, slots=True)
class FairseqSettings:
    """`text` of config.json for the kind "fairseq".

    source_dictionary, target_dictionary, bpe, sentencepiece: names of files in the bundle; at most one of the
        last two. With sentencepiece the Moses options are ignored.
    normalize: language of the rules that normalise punctuation, or null.
    aggressive: whether to split at hyphens ("@-@").
    escape: whether to write XML entities such as &amp;.
    lowercase: whether to lower words after tokenisation.
    pretokenized: whether texts are symbols between spaces; only "@@ " is removed from answers.
    plain_punctuation: whether to write punctuation of other scripts in ASCII and remove control characters.
    unk_dictionary: name of a file of words for unknown words (`engine.text.tokenizers.unknown`).
    characters: whether each character of a text is a symbol, without Moses.
    """

    source_dictionary: str
    target_dictionary: str
    bpe: str | None = None
    source_language: str = "en"
    target_language: str = "en"
    normalize: str | None = "en"
    aggressive: bool = True
    escape: bool = True
    lowercase: bool = False
    pretokenized: bool = False
    sentencepiece: str | None = None
    plain_punctuation: bool = False
    unk_dictionary: str | None = None
    characters: bool = False


def read_bpe(path: Path) -> BPE:
    """Read BPE codes of subword-nmt, version 0.1 or 0.2, or of fastBPE with a count on each line.

    Raises BundleError naming the line.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{path}: not readable as UTF-8 ({error}); copy the BPE codes again") from error
    # the library ends the process on a wrong line, so lines are checked before
    lines = text.rstrip("\n").split("\n")
    header = lines[0].startswith("#version:")
    if header and lines[0].split()[-1] not in ("0.1", "0.2"):
        raise BundleError(
            f"{path}: BPE codes of {lines[0].strip()!r} are unknown; versions 0.1 and 0.2 are read"
        )
    # the header is one line: `header` and `counted` count as 0 or 1
    units = [line.strip("\r\n ").split(" ") for line in lines[header:]]
    counted = not header and len(units[0]) == 3
    for number, parts in enumerate(units, 1 + header):
        if len(parts) != 2 + counted or (counted and not is_whole(parts[2])):
            expected = "two units and a count" if counted else "two units"
            line = " ".join(parts)
            raise BundleError(f"{path}, line {number}: must be {expected}, not {line!r}; is it complete?")
    if counted:  # fastBPE marks the end of a word as version 0.2 does
        text = "\n".join(["#version: 0.2", *(" ".join(parts[:2]) for parts in units)])
    return BPE(io.StringIO(text))


class MosesSide:
    """Splits text of one language into symbols. Using the library's objects does not change them."""

    def __init__(self, settings: FairseqSettings, spoken: str, bpe: BPE | None) -> None:
        self._settings = settings
        plain = dict.fromkeys(PLAIN_PUNCTUATION, settings.plain_punctuation)
        language = settings.normalize
        self._normalizer = MosesPunctNormalizer(lang=language, **plain) if language else None
        self._tokenizer = MosesTokenizer(lang=spoken)
        # the library's own cache has no limit
        self._segment = lru_cache(CACHED_WORDS)(lambda word: _segments(bpe, word) if bpe else (word,))

    def __call__(self, text: str) -> list[str]:
        """Split a text into symbols of the dictionary."""
        if self._normalizer:
            text = self._normalizer.normalize(text)
        settings = self._settings
        words = self._tokenizer.tokenize(
            text, aggressive_dash_splits=settings.aggressive, escape=settings.escape
        )
        if settings.lowercase:
            words = [word.lower() for word in words]
        return [symbol for word in words for symbol in self._segment(word)]


class Fairseq(LeftToRight):
    """A tokenizer by `FairseqSettings`. A special symbol in a user's text becomes unk."""

    replaces_unk = True

    def __init__(
        self,
        settings: FairseqSettings,
        sides: tuple[Dictionary, Dictionary],
        bpe: BPE | None,
        table: Mapping[str, str] | None = None,
        *,
        first: tuple[int, ...] = (),
        beginning: tuple[int, ...] = (),
    ) -> None:
        """Make a tokenizer.

        settings: settings of the bundle.
        sides: dictionaries of source and target.
        bpe: BPE codes, or None.
        table: source word to the word that replaces an unknown target word attending to it.
        first: ids that every source begins with.
        beginning: ids that every target begins with.
        """
        self._first, self.beginning = first, beginning
        self._source, self._target = sides
        self._table = table or {}
        plain = settings.pretokenized
        self._split_source = str.split if plain else MosesSide(settings, settings.source_language, bpe)
        self._split_target = str.split if plain else MosesSide(settings, settings.target_language, bpe)
        self._detokenizer = None if plain else MosesDetokenizer(lang=settings.target_language)
        self._unescape = settings.escape
        self._letters = frozenset("".join(self._source.symbols))

    def lacks(self, character: str) -> bool:
        """Return whether the source dictionary lacks a character.

        Moses may write a character in another form ("&" as "&amp;"): then the letters of the form suffice.
        """
        return character not in self._letters and not self._letters.issuperset(
            "".join(self._split_source(character))
        )

    def encode(self, text: str) -> list[int]:
        ids, unk = self._source.ids, self._source.unk
        return [*self._first, *(ids.get(symbol, unk) for symbol in self._split_source(text))]

    def encode_target(self, text: str) -> list[int]:
        return [self._target.ids.get(symbol, self._target.unk) for symbol in self._split_target(text)]

    def decode(self, tokens: Sequence[int]) -> str:
        return self._detokenize(_join_symbols(self.pieces(self._drop_silent(tokens), target=True)))

    def replace_unknown(self, tokens: Sequence[int], attention: Any, source: str) -> str:
        # the ids that every source begins with belong to no word
        words = ["" for _ in self._first] + word_of_each(self._split_source(source), SEPARATOR)
        unknown = [i for i, token in enumerate(tokens) if token == self._target.unk]
        symbols = replace_unknown(self.pieces(tokens, target=True), unknown, words, attention, self._table)
        silent = self._target.silent
        return self._detokenize(
            _join_symbols([s for s, t in zip(symbols, tokens, strict=True) if t not in silent])
        )

    def decode_whole_words(self, tokens: Sequence[int]) -> str:
        """Decode whole words.

        The Moses rules depend on the next word, and a hyphen ("@-@") joins its neighbours. The Czech rules
        depend on the end of the sentence, so the result is "" until then.
        """
        symbols = self.pieces(self._drop_silent(tokens), target=True)
        while symbols and symbols[-1].endswith(SEPARATOR):
            symbols.pop()
        joined = _join_symbols(symbols)
        if self._detokenizer is None:
            return joined
        words = joined.split()
        last = len(words) - 1  # the first word left out
        if last <= 0 or self._detokenizer.lang == "cs":
            return ""
        text, longer = (self._detokenize(" ".join(words[:end])) for end in (last, last + 1))
        # a last word that the next word is joined to is not whole
        whole = longer.startswith(text) and longer[len(text) :][:1].isspace()
        return text if whole else " ".join(text.split(" ")[:-1])

    def words(self, tokens: Sequence[int], *, target: bool) -> list[int]:
        """Return the index of the first symbol of each word."""
        pieces = self.pieces(tokens, target=target)
        return [i for i in range(len(pieces)) if not i or not pieces[i - 1].endswith(SEPARATOR)]

    def word(self, tokens: Sequence[int], *, target: bool) -> str:
        """Return the text of a word's tokens."""
        joined = _join_symbols(self.pieces(tokens, target=target))
        return self._detokenizer.unescape_xml(joined) if self._detokenizer and self._unescape else joined

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        symbols = (self._target if target else self._source).symbols
        return [symbols[t] for t in tokens]

    def _drop_silent(self, tokens: Sequence[int]) -> list[int]:
        return [t for t in tokens if t not in self._target.silent]

    def _detokenize(self, joined: str) -> str:
        """Return the text of words between spaces, joined by the rules of Moses."""
        if self._detokenizer is None:
            return joined
        text: str = self._detokenizer.detokenize(joined.split(), unescape=self._unescape)
        return text


def _join_symbols(symbols: Sequence[str]) -> str:
    """Join symbols to words between spaces."""
    return (" ".join(symbols) + " ").replace(SEPARATOR + " ", "").rstrip()


def open_fairseq(bundle: Bundle) -> Fairseq | DictionaryPieces:
    """Open the tokenizer of a bundle with fairseq's dictionaries.

    Raises BundleError on wrong settings (`FairseqSettings`) and on dictionaries of another size.
    """
    settings = bundle.text_settings(FairseqSettings)
    source = read_dictionary(bundle.file(settings.source_dictionary))
    target = read_dictionary(bundle.file(settings.target_dictionary))
    config = bundle.config
    sides = ((source, config.source_vocab, "source"), (target, config.target_vocab, "target"))
    for dictionary, size, side in sides:
        if len(dictionary.symbols) != size:
            raise BundleError(
                f"{bundle.path}: the {side} dictionary has {len(dictionary.symbols)} symbols with the 4 "
                f"special ones, the model {size}; the bundle mixes files of two models: convert it again"
            )
    if (config.bos, config.pad, config.eos, config.unk) != (0, 1, 2, 3):
        raise BundleError(f"{bundle.path}: a fairseq dictionary needs bos, pad, eos, unk to be 0, 1, 2, 3")
    if settings.sentencepiece and not settings.pretokenized:
        processor = read_processor(bundle.file(settings.sentencepiece))
        return DictionaryPieces((processor, processor), source, target)
    if settings.characters and not settings.pretokenized:
        return DictionaryPieces((Characters(), Characters()), source, target)
    bpe = read_bpe(bundle.file(settings.bpe)) if settings.bpe else None
    table = read_table(bundle.file(settings.unk_dictionary)) if settings.unk_dictionary else None
    return Fairseq(settings, (source, target), bpe, table)


def _segments(bpe: BPE, word: str) -> tuple[str, ...]:
    """Return the BPE units of a word, each but the last with the separator."""
    *parts, last = segment(word, bpe.bpe_codes, bpe.bpe_codes_reverse, None, SEPARATOR, bpe.version, {})
    return (*(part + SEPARATOR for part in parts), last)
