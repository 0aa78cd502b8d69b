"""Learning a shortlist from sentence pairs: translation probabilities of IBM model 1 (Brown et al. 1993).

Every target token of a pair was made by one of the source's tokens, end-of-sentence standing for none of
them; expectation and maximisation find which are likely to. Nothing is drawn at random.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.errors import InvalidRequest
from engine.shortlist import Shortlist

ROUNDS: Final = 4  # the ranks of likely translations hardly change after
Whole = NDArray[np.int64]


def learn(
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    vocabularies: tuple[int, int],
    eos: int,
    sizes: tuple[int, int],
) -> Shortlist:
    """pairs: source and target tokens without end-of-sentence. vocabularies: source and target. sizes: likely
    targets of each source token, and frequent targets that any source may have. Raises InvalidRequest without
    any pair."""
    source_vocab, target_vocab = vocabularies
    likely, frequent = sizes
    links, groups, counts = _links(pairs, target_vocab, eos)
    if not len(links):
        raise InvalidRequest("no sentence pairs to learn a shortlist from")
    known, of = np.unique(links, return_inverse=True)  # a link is source * target_vocab + target
    source, target = known // target_vocab, known % target_vocab
    probability = np.ones(len(known))
    for _ in range(ROUNDS):
        weight = probability[of]
        weight /= np.bincount(groups, weights=weight)[groups]
        expected = np.bincount(of, weights=weight, minlength=len(known))
        probability = expected / np.bincount(source, weights=expected, minlength=source_vocab)[source]
    return Shortlist(
        _best(source, target, probability, (source_vocab, likely)),
        np.unique([*np.argsort(-counts, kind="stable")[:frequent], eos]).astype(np.int32),
    )


def _links(
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]], target_vocab: int, eos: int
) -> tuple[Whole, Whole, Whole]:
    """Of every target token and every source token of its pair: the link, and the number of the target token.
    And how often each target token occurs."""
    links, groups, number = [], [], 0
    counts = np.zeros(target_vocab, np.int64)
    for source, target in pairs:
        words, made = np.unique([*source, eos]), np.asarray(target, np.int64)
        links.append((made[:, None] + words * target_vocab).ravel())
        groups.append(np.repeat(np.arange(number, number + len(made)), len(words)))
        counts += np.bincount(made, minlength=target_vocab)
        number += len(made)
    nothing = np.zeros(0, np.int64)
    return np.concatenate([nothing, *links]), np.concatenate([nothing, *groups]), counts


def _best(
    source: Whole, target: Whole, probability: NDArray[np.float64], shape: tuple[int, int]
) -> NDArray[np.int32]:
    """The most probable targets of each source token, [source_vocab, likely], -1 where there are fewer."""
    order = np.lexsort((target, -probability, source))
    source, target = source[order], target[order]
    rank = np.arange(len(source)) - np.searchsorted(source, source)
    kept = rank < shape[1]
    found = np.full(shape, -1, np.int32)
    found[source[kept], rank[kept]] = target[kept]
    return found
