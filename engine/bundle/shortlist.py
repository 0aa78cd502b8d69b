"""Vocabulary selection: which target tokens a source makes likely at all (ConvS2S, section 5.4).

A shortlist makes the output projection of a step a few hundred columns wide instead of thousands. Which
tokens a sentence may be answered with depends on its own source, and on the language that its target is to
be in: a model of many languages has a list of the tokens of each.
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

SHORTLIST: Final = "shortlist.safetensors"  # in a bundle
FLAGS: Final = ("by_source", "copies")
LARGEST_MULTIPLE: Final = 1024
Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shortlist:
    """The targets that each source token, and each target language, makes likely.

    likely: int32 [source_vocab, K], the targets of each source token, -1 where there are fewer.
    always: int32 [A], targets that any source may have: the frequent ones and end-of-sentence.
    multiple: lists are filled up to one with the lowest ids that they lack, as Marian fills up to 8; 1: they
        are not.
    languages: the token that names a target language, to the targets of that language. Where there are some,
        a language without a list has all of `target_vocab`.
    by_source: whether that token is among the first two of the source, not the first of the target.
    copies: whether a source's own tokens are among its targets; for one vocabulary of both sides.
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
        """List the target tokens of a source, ascending.

        prefix: what its targets begin with.
        """
        tokens = np.asarray(source, np.int64)
        own: list[NDArray[Any]] = [self.always, self.likely[tokens].ravel()]
        if self.languages:
            first = source[:2] if self.by_source else prefix[:1]
            named = next((int(token) for token in first if token in self.languages), None)
            if named is None:
                return np.arange(self.target_vocab)
            own += [self.languages[named], np.array([named], np.int32)]
        if self.copies:
            own.append(tokens)
        candidates = np.concatenate(own)
        # a flag for each token, which is quicker than sorting them, and one more at the end, which -1 is
        flags = np.zeros(max(int(candidates.max(initial=0)), len(candidates) + self.multiple) + 2, bool)
        flags[candidates] = True
        flags[-1] = False
        count = int(np.count_nonzero(flags))
        lacking = -count % self.multiple
        if lacking:
            flags[np.flatnonzero(~flags[: count + lacking])[:lacking]] = True
        return np.flatnonzero(flags)

    def dump(self) -> bytes:
        """Return what `load_shortlist` reads; in 16 bits where tokens fit into them."""
        named = sorted(self.languages)
        lists = [self.languages[token] for token in named]
        parts: dict[str, NDArray[Any]] = {"likely": self.likely, "always": self.always}
        parts |= {"multiple": np.array([self.multiple])} if self.multiple > 1 else {}
        if named:
            parts |= {"named": np.array(named), "listed": np.concatenate(lists)}
            parts["counts"] = np.array([len(own) for own in lists])
        parts |= {flag: np.ones(1, np.int64) for flag in FLAGS if getattr(self, flag)}
        most = max(int(part.max(initial=0)) for part in parts.values())
        kind = np.int16 if most < 2**15 else np.int32
        return save({name: np.ascontiguousarray(part, kind) for name, part in parts.items()})


def load_shortlist(data: bytes, vocabularies: tuple[int, int], eos: int) -> Shortlist:
    """Read the bytes of a bundle's file.

    data: content of the file, safetensors.
    vocabularies: source and target.
    eos: id of end-of-sentence.

    Raises BundleError on what does not fit the model.
    """
    try:
        tensors = load(data)
        likely, always = tensors["likely"], tensors["always"]
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
    narrow = {part.dtype for part in tensors.values()} <= {np.dtype(np.int16), np.dtype(np.int32)}
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


def _in_vocabulary(tokens: NDArray[Any], size: int) -> bool:
    """Whether all are tokens, or -1 for none."""
    return tokens.size == 0 or bool(tokens.min() >= -1 and tokens.max() < size)


def _fits_lists(named: NDArray[Any], listed: NDArray[Any], counts: NDArray[Any]) -> bool:
    """Whether `counts` cuts `listed` into a list for each of `named`."""
    whole = int(counts.sum(dtype=np.int64)) == len(listed)
    return named.shape == counts.shape and bool(counts.min(initial=0) >= 0) and whole


def _lists(named: NDArray[Any], listed: NDArray[Any], counts: NDArray[Any]) -> dict[int, NDArray[np.int32]]:
    """The list of each token of `named`."""
    cuts = np.cumsum(counts, dtype=np.int64)[:-1]
    lists = np.split(listed.astype(np.int32), cuts) if len(named) else []
    return dict(zip(named.tolist(), lists, strict=True))
