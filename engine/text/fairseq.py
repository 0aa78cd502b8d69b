"""The text pipeline of fairseq models: Moses tokenisation, subword-nmt BPE, dictionaries (REFERENCE.md 0)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.apply_bpe import encode as segment

from engine.bundle import Bundle
from engine.errors import BundleError

SPECIALS: Final = ("<s>", "<pad>", "</s>", "<unk>")  # ids 0 to 3
UNK: Final = SPECIALS.index("<unk>")
OVERWRITE: Final = "#fairseq:overwrite"
SEPARATOR: Final = "@@"
CACHED_WORDS: Final = 65_536


@dataclass(frozen=True, slots=True)
class Settings:
    """`text` of config.json for the kind "fairseq".

    source_dictionary, target_dictionary, bpe: names of files in the bundle (bpe may be null). normalize: the
    language whose rules normalise punctuation, or null. aggressive: split at hyphens ("@-@"). escape: write
    &amp; and so on. lowercase: after tokenisation. pretokenized: text comes and goes as tokens between
    spaces, already segmented for the dictionary; only "@@ " is removed from the output.
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


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Symbols by id, and ids by symbol. The four special symbols are never found by `ids`."""

    symbols: tuple[str, ...]
    ids: dict[str, int]


def read_dictionary(path: Path) -> Dictionary:
    """Read dict.LANGUAGE.txt: ids 0 to 3 are special, then one symbol per line from 4, "symbol count".

    A symbol that occurred before must be marked "#fairseq:overwrite"; then the later id counts. Raises
    BundleError naming the line.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{path}: not readable as UTF-8 ({error}); copy the dictionary again") from error
    symbols = list(SPECIALS)
    seen = set(SPECIALS)
    ids: dict[str, int] = {}
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        symbol, _, count = line.rstrip().rpartition(" ")
        overwrite = count == OVERWRITE
        if overwrite:
            symbol, _, count = symbol.rpartition(" ")
        if not symbol or not _whole(count):
            raise BundleError(f"{path}, line {number}: must be 'symbol count', not {line.strip()!r}")
        if symbol in seen and not overwrite:
            raise BundleError(f"{path}, line {number}: {symbol!r} occurs twice; remove it or add {OVERWRITE}")
        seen.add(symbol)
        if symbol not in SPECIALS:
            ids[symbol] = len(symbols)
        symbols.append(symbol)
    return Dictionary(tuple(symbols), ids)


def read_bpe(path: Path) -> BPE:
    """Read subword-nmt codes, version 0.1 or 0.2. Raises BundleError naming the line."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{path}: not readable as UTF-8 ({error}); copy the BPE codes again") from error
    # checked here because the library ends the process on a wrong line
    lines = text.rstrip("\n").split("\n")
    header = lines[0].startswith("#version:")
    if header and lines[0].split()[-1] not in ("0.1", "0.2"):
        raise BundleError(
            f"{path}: BPE codes of {lines[0].strip()!r} are unknown; versions 0.1 and 0.2 are read"
        )
    for number, line in enumerate(lines[header:], 1 + header):
        parts = line.strip("\r\n ").split(" ")
        if len(parts) != 2:
            remedy = (
                "cut -d ' ' -f 1,2 turns fastBPE codes into these" if len(parts) == 3 else "is it complete?"
            )
            raise BundleError(f"{path}, line {number}: must be two units, not {line.strip()!r}; {remedy}")
    return BPE(io.StringIO(text))


class MosesSide:
    """One language's way from text to symbols. The library's objects are not changed by use."""

    def __init__(self, settings: Settings, language: str, bpe: BPE | None) -> None:
        self._settings = settings
        self._normalizer = MosesPunctNormalizer(lang=settings.normalize) if settings.normalize else None
        self._tokenizer = MosesTokenizer(lang=language)
        # the library's own cache grows without end
        self._segment = lru_cache(CACHED_WORDS)(lambda word: _segments(bpe, word) if bpe else (word,))

    def __call__(self, text: str) -> list[str]:
        if self._normalizer:
            text = self._normalizer.normalize(text)
        settings = self._settings
        words = self._tokenizer.tokenize(
            text, aggressive_dash_splits=settings.aggressive, escape=settings.escape
        )
        if settings.lowercase:
            words = [word.lower() for word in words]
        return [symbol for word in words for symbol in self._segment(word)]


class Fairseq:
    """Text to ids of two dictionaries. A symbol that a user's text spells like a special one becomes unk."""

    placeholders: tuple[str, ...] = ()

    def __init__(self, settings: Settings, source: Dictionary, target: Dictionary, bpe: BPE | None) -> None:
        self._source, self._target = source, target
        plain = settings.pretokenized
        self._split_source = str.split if plain else MosesSide(settings, settings.source_language, bpe)
        self._split_target = str.split if plain else MosesSide(settings, settings.target_language, bpe)
        self._detokenizer = None if plain else MosesDetokenizer(lang=settings.target_language)
        self._unescape = settings.escape

    def encode(self, text: str) -> list[int]:
        return [self._source.ids.get(symbol, UNK) for symbol in self._split_source(text)]

    def encode_target(self, text: str) -> list[int]:
        return [self._target.ids.get(symbol, UNK) for symbol in self._split_target(text)]

    def decode(self, tokens: Sequence[int]) -> str:
        symbols = self.pieces([t for t in tokens if t >= UNK], target=True)
        joined = (" ".join(symbols) + " ").replace(SEPARATOR + " ", "").rstrip()
        if self._detokenizer is None:
            return joined
        text: str = self._detokenizer.detokenize(joined.split(), unescape=self._unescape)
        return text

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        symbols = (self._target if target else self._source).symbols
        return [symbols[t] for t in tokens]


def open_fairseq(bundle: Bundle) -> Fairseq:
    """Settings: those of `Settings`. Raises BundleError on wrong ones and on dictionaries of another size."""
    settings = _settings(bundle)
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
    return Fairseq(settings, source, target, read_bpe(bundle.file(settings.bpe)) if settings.bpe else None)


def _segments(bpe: BPE, word: str) -> tuple[str, ...]:
    *parts, last = segment(word, bpe.bpe_codes, bpe.bpe_codes_reverse, None, SEPARATOR, bpe.version, {})
    return (*(part + SEPARATOR for part in parts), last)


def _whole(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def _settings(bundle: Bundle) -> Settings:
    known = {f.name: f for f in fields(Settings)}
    given = {key: value for key, value in bundle.text.items() if key != "kind"}
    wrong = [f"{key} is unknown" for key in sorted(set(given) - set(known))]
    kinds: dict[str, Any] = {"str": str, "bool": bool, "str | None": (str, type(None))}
    for name, spec in known.items():
        if name not in given and spec.default is MISSING:
            wrong.append(f"{name} is missing")
        elif name in given and not isinstance(given[name], kinds[str(spec.type)]):
            wrong.append(f"{name} must be {spec.type}, not {given[name]!r}")
    if wrong:
        raise BundleError(f"{bundle.path}: text settings: {'; '.join(wrong)}; convert the bundle again")
    return Settings(**given)
