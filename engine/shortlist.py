"""Vocabulary selection: which target tokens a source makes likely at all (ConvS2S, section 5.4).

A shortlist makes the output projection of a step a few hundred columns wide instead of thousands. Which
tokens a sentence may be answered with depends on its own source alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from engine.errors import BundleError

SHORTLIST: Final = "shortlist.safetensors"  # in a bundle
Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shortlist:
    """likely: int32 [source_vocab, K], the targets of each source token, -1 where there are fewer. always:
    int32 [A], targets that any source may have: the frequent ones and end-of-sentence."""

    likely: NDArray[np.int32]
    always: NDArray[np.int32]

    def of(self, source: Sequence[int]) -> Ids:
        """The target tokens of a source, ascending."""
        own = self.likely[np.asarray(source, np.int64)].ravel()
        found = np.unique(np.concatenate([self.always, own]))
        return found[found >= 0].astype(np.int64)

    def dump(self) -> bytes:
        """What `load_shortlist` reads; in 16 bits where tokens fit into them."""
        most = max(int(part.max(initial=0)) for part in (self.likely, self.always))
        kind = np.int16 if most < 2**15 else np.int32
        return save({"likely": self.likely.astype(kind), "always": self.always.astype(kind)})


def load_shortlist(data: bytes, vocabularies: tuple[int, int], eos: int) -> Shortlist:
    """From the bytes of a bundle's file. vocabularies: source and target. Raises BundleError on what does not
    fit the model."""
    try:
        tensors = load(data)
        found = Shortlist(tensors["likely"], tensors["always"])
    except (SafetensorError, KeyError, ValueError) as error:
        raise BundleError(f"{SHORTLIST} is damaged ({error}); run: convoy shortlist") from None
    source, target = vocabularies
    whole = (found.likely, found.always)
    fits = (
        all(part.dtype in (np.int16, np.int32) for part in whole)
        and found.likely.shape[:1] == (source,)
        and found.likely.ndim == 2
        and found.always.ndim == 1
        and all(part.size == 0 or (part.min() >= -1 and part.max() < target) for part in whole)
        and eos in found.always
    )
    if not fits:
        raise BundleError(f"{SHORTLIST} was made for another model; run: convoy shortlist")
    return Shortlist(*(part.astype(np.int32) for part in whole))
