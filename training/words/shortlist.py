"""Learn a shortlist from sentence pairs, or from text in one language. Nothing is drawn at random.

Pairs give translation probabilities of IBM model 1 (Brown et al. 1993): each target token of a pair is
produced by one source token, where end-of-sentence represents no token, and expectation maximisation
estimates the probabilities. Text gives the most frequent tokens of the language.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.bundle.config import ModelConfig
from engine.bundle.shortlist import Shortlist
from engine.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class LanguageToken:
    """The token that names a language, and whether it begins the source (otherwise the target)."""

    token: int
    by_source: bool


ROUNDS: Final = 4  # more rounds barely change the ranks of likely translations
Whole = NDArray[np.int64]


def learn(
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    vocabularies: tuple[int, int],
    eos: int,
    sizes: tuple[int, int],
) -> Shortlist:
    """Return the shortlist learnt from sentence pairs.

    pairs: source and target tokens without end-of-sentence.
    vocabularies: sizes of the source and target vocabulary.
    eos: id of end-of-sentence.
    sizes: number of likely targets of each source token, and of frequent targets for every source.

    Raises InvalidRequest if there are no pairs.
    """
    source_vocab, target_vocab = vocabularies
    likely, frequent = sizes
    links, groups, counts = _links(pairs, target_vocab, eos)
    if not len(links):
        raise InvalidRequest("no sentence pairs to learn a shortlist from")
    unique_links, link_of = np.unique(links, return_inverse=True)  # link = source * target_vocab + target
    source, target = unique_links // target_vocab, unique_links % target_vocab
    probability = np.ones(len(unique_links))
    for _ in range(ROUNDS):
        # expectation: share each target token among the source tokens of its pair
        weight = probability[link_of]
        weight /= np.bincount(groups, weights=weight)[groups]
        expected = np.bincount(link_of, weights=weight, minlength=len(unique_links))
        # maximisation: the probabilities of a source token's targets have the sum 1
        probability = expected / np.bincount(source, weights=expected, minlength=source_vocab)[source]
    return Shortlist(
        _best(source, target, probability, (source_vocab, likely)),
        np.unique([*np.argsort(-counts, kind="stable")[:frequent], eos]).astype(np.int32),
    )


def language_tokens(
    sentences: Iterable[Sequence[int]], target_vocab: int, most: int
) -> tuple[NDArray[np.int32], float]:
    """Return the most frequent tokens of a language, int32 ascending, and their share of the text.

    sentences: target tokens without end-of-sentence.
    target_vocab: size of the target vocabulary.
    most: number of tokens.

    Raises InvalidRequest if there is not a token.
    """
    counts = np.zeros(target_vocab, np.int64)
    for tokens in sentences:
        np.add.at(counts, np.asarray(tokens, np.int64), 1)
    if not counts.any():
        raise InvalidRequest("no text to learn a language's tokens from")
    best = np.argsort(-counts, kind="stable")[: min(most, np.count_nonzero(counts))]
    return np.sort(best).astype(np.int32), float(counts[best].sum() / counts.sum())


def with_language(
    old: Shortlist | None, config: ModelConfig, tokens: NDArray[np.int32], symbol: LanguageToken | None
) -> Shortlist:
    """Return a shortlist with the tokens of a language added.

    old: previous shortlist, or None.
    config: configuration of the model.
    tokens: tokens of the language.
    symbol: token that names the language; None: the model has only one target language.
    """
    copies = config.share_embeddings  # with one vocabulary, source tokens are also targets
    if old is None:
        ends = np.array([config.eos], np.int32)
        old = Shortlist(np.zeros((config.source_vocab, 0), np.int32), ends, target_vocab=config.target_vocab)
    if symbol is None:
        return replace(old, always=np.union1d(old.always, tokens), copies=copies)
    languages = {**old.languages, symbol.token: tokens}
    return replace(old, languages=languages, by_source=symbol.by_source, copies=copies)


def _links(
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]], target_vocab: int, eos: int
) -> tuple[Whole, Whole, Whole]:
    """Return links, groups and counts.

    A link is a target token with a source token of its pair, as source * target_vocab + target. Its group is
    the number of the target token's occurrence in the corpus. A count is the occurrences of a target token.
    """
    links, groups, number = [], [], 0
    counts = np.zeros(target_vocab, np.int64)
    for source, target in pairs:
        words, tokens = np.unique([*source, eos]), np.asarray(target, np.int64)
        links.append((tokens[:, None] + words * target_vocab).ravel())
        groups.append(np.repeat(np.arange(number, number + len(tokens)), len(words)))
        counts += np.bincount(tokens, minlength=target_vocab)
        number += len(tokens)
    nothing = np.zeros(0, np.int64)
    return np.concatenate([nothing, *links]), np.concatenate([nothing, *groups]), counts


def _best(
    source: Whole, target: Whole, probability: NDArray[np.float64], shape: tuple[int, int]
) -> NDArray[np.int32]:
    """Return the most probable targets of each source token, [source_vocab, likely], padded with -1."""
    order = np.lexsort((target, -probability, source))
    source, target = source[order], target[order]
    # rank of each target among those of its source token, from 0
    rank = np.arange(len(source)) - np.searchsorted(source, source)
    best = rank < shape[1]
    likely = np.full(shape, -1, np.int32)
    likely[source[best], rank[best]] = target[best]
    return likely
