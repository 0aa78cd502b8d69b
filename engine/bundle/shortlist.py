"""Vocabulary selection: the target tokens that are likely for a source (ConvS2S, section 5.4).

A shortlist makes the output projection of a step a few hundred columns wide instead of thousands. The
candidates of a sentence depend on its source tokens and on the target language: a multilingual model has a
list of tokens for each language.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from engine.errors import BundleError

SHORTLIST: Final = "shortlist.safetensors"  # file name in a bundle
FLAGS: Final = ("by_source", "copies")
LARGEST_MULTIPLE: Final = 1024
NARROW: Final = frozenset({np.dtype(np.int16), np.dtype(np.int32)})  # types of the tensors in the file
MAX_LIKELY: Final = 1 << 26  # values of `Shortlist.likely`, padding included
Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shortlist:
    """Likely target tokens for each source token and each target language.

    likely: int32 [source_vocab, K], target tokens for each source token, padded with -1.
    always: int32 [A], candidates for any source: frequent tokens and end-of-sentence.
    multiple: the number of candidates is rounded up to a multiple of this with the lowest ids that are not
        yet candidates, as Marian rounds up to 8; 1: no rounding.
    languages: candidates by the token that names their target language. If there are any, a language without
        a list has all of `target_vocab`.
    by_source: the language token is one of the first two source tokens, instead of the first target token.
    copies: the source tokens are candidates; only for one vocabulary on both sides.
    target_vocab: size of the target vocabulary.
    """

    likely: NDArray[np.int32]
    always: NDArray[np.int32]
    multiple: int = 1
    languages: Mapping[int, NDArray[np.int32]] = field(default_factory=dict)
    by_source: bool = False
    copies: bool = False
    target_vocab: int = 0

    def of(self, source: Sequence[int], prefix: Sequence[int] = ()) -> Ids:
        """Return the ids of the candidates for a source, ascending.

        source: tokens of the source.
        prefix: tokens with which the target must begin.
        """
        tokens = np.asarray(source, np.int64)
        lists: list[NDArray[Any]] = [self.always, self.likely[tokens].ravel()]
        if self.languages:
            first = source[:2] if self.by_source else prefix[:1]
            language = next((int(token) for token in first if token in self.languages), None)
            if language is None:
                return np.arange(self.target_vocab)
            lists += [self.languages[language], np.array([language], np.int32)]
        if self.copies:
            lists.append(tokens)
        candidates = np.concatenate(lists)
        # flags are faster than sorting; the last flag catches the padding -1
        flags = np.zeros(max(int(candidates.max(initial=0)), len(candidates) + self.multiple) + 2, bool)
        flags[candidates] = True
        flags[-1] = False
        count = int(np.count_nonzero(flags))
        # round up with the lowest ids that are not yet candidates
        lacking = -count % self.multiple
        if lacking:
            flags[np.flatnonzero(~flags[: count + lacking])[:lacking]] = True
        return np.flatnonzero(flags)

    def dump(self) -> bytes:
        """Return the file that `load_shortlist` reads, without padding, in 16 bits if all tokens fit."""
        named = sorted(self.languages)
        lists = [self.languages[token] for token in named]
        filled = self.likely >= 0
        parts: dict[str, NDArray[Any]] = {"likely": self.likely[filled], "always": self.always}
        parts["lengths"] = filled.sum(axis=1)  # of the rows of `likely`
        parts |= {"multiple": np.array([self.multiple])} if self.multiple > 1 else {}
        if named:  # the language tokens, their lists joined, and the length of each list
            parts |= {"named": np.array(named), "listed": np.concatenate(lists)}
            parts["counts"] = np.array([len(tokens) for tokens in lists])
        parts |= {flag: np.ones(1, np.int64) for flag in FLAGS if getattr(self, flag)}
        most = max(int(part.max(initial=0)) for part in parts.values())
        kind = np.int16 if most < 2**15 else np.int32
        return save({name: np.ascontiguousarray(part, kind) for name, part in parts.items()})


def load_shortlist(data: bytes, vocabularies: tuple[int, int], eos: int) -> Shortlist:
    """Parse the shortlist file of a bundle.

    data: content of the file, in the format safetensors.
    vocabularies: sizes of the source and the target vocabulary.
    eos: id of end-of-sentence.

    Raises BundleError if the file is damaged or does not fit the model.
    """
    try:
        tensors = load(data)
        likely, always = _padded(tensors["likely"], tensors.get("lengths")), tensors["always"]
        multiple = tensors.get("multiple", np.ones(1, np.int16))
    except (SafetensorError, KeyError, ValueError) as error:
        raise BundleError(f"{SHORTLIST} is damaged ({error}); run: convoy shortlist") from None
    source, target = vocabularies
    named, listed, counts = (tensors.get(n, np.zeros(0, np.int16)) for n in ("named", "listed", "counts"))
    fits = (
        all(part.ndim == 1 for part in (always, named, listed, counts))
        and all(_in_vocabulary(part, target) for part in (likely, always, named, listed))
        and (likely.ndim, *likely.shape[:1]) == (2, source)
        and eos in always
        and _fits_lists(named, listed, counts)
        and ("copies" not in tensors or source == target)
    )
    narrow = {part.dtype for part in tensors.values()} <= NARROW
    if not (fits and narrow) or multiple.shape != (1,) or not 1 <= multiple[0] <= LARGEST_MULTIPLE:
        raise BundleError(f"{SHORTLIST} was made for another model; run: convoy shortlist")
    return Shortlist(
        likely.astype(np.int32),
        always.astype(np.int32),
        int(multiple[0]),
        _lists(named, listed, counts),
        target_vocab=target,
        **{flag: flag in tensors for flag in FLAGS},
    )


def _padded(likely: NDArray[Any], lengths: NDArray[Any] | None) -> NDArray[Any]:
    """Return the rows of `likely` padded with -1. Raises ValueError if they are too long or not whole.

    likely: tokens of all rows; the padded rows in files of 0.6 and earlier.
    lengths: number of tokens of each row; None in those files.
    """
    if lengths is None:
        return likely
    if lengths.dtype not in NARROW or lengths.ndim != 1 or not _fits_lists(lengths, likely, lengths):
        raise ValueError("its rows have other lengths")
    longest = int(lengths.max(initial=0))
    if len(lengths) * longest > MAX_LIKELY:
        raise ValueError("its rows are too long")
    rows = np.full((len(lengths), longest), -1, likely.dtype)
    rows[np.arange(longest) < lengths[:, None]] = likely
    return rows


def _in_vocabulary(tokens: NDArray[Any], size: int) -> bool:
    """Return whether all values are tokens or the padding -1."""
    return tokens.size == 0 or bool(tokens.min() >= -1 and tokens.max() < size)


def _fits_lists(named: NDArray[Any], listed: NDArray[Any], counts: NDArray[Any]) -> bool:
    """Return whether `counts` splits `listed` into one list for each token of `named`."""
    whole = int(counts.sum(dtype=np.int64)) == len(listed)
    return named.shape == counts.shape and bool(counts.min(initial=0) >= 0) and whole


def _lists(named: NDArray[Any], listed: NDArray[Any], counts: NDArray[Any]) -> dict[int, NDArray[np.int32]]:
    """Return the list of each token of `named`."""
    cuts = np.cumsum(counts, dtype=np.int64)[:-1]
    lists = np.split(listed.astype(np.int32), cuts) if len(named) else []
    return dict(zip(named.tolist(), lists, strict=True))
