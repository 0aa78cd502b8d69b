"""The directions that a set of languages needs: direct ones, or two by way of English."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Final

from engine.bundle.bundle import Bundle
from engine.text.codes import short
from export.fetching.installing import bundles_at
from export.fetching.offers import ModelOffer, request_code

PIVOT: Final = "en"

Pair = tuple[str, str]


def wanted_pairs(languages: Sequence[str]) -> list[Pair]:
    """Return every direction between languages; the first languages come first."""
    codes = list(dict.fromkeys(plain_code(language) for language in languages))
    if len(codes) == 1 and codes != [PIVOT]:
        codes.append(PIVOT)
    pairs = permutations(range(len(codes)), 2)
    ordered = sorted(pairs, key=lambda pair: (max(pair), pair))
    return [(codes[source], codes[target]) for source, target in ordered]


def with_pivot(languages: Sequence[str]) -> tuple[str, ...]:
    """Return languages with English, which most directions need."""
    return tuple(dict.fromkeys((*languages, PIVOT))) if languages else ()


def pairs_on_disk(folders: Iterable[Path], *, demonstrations: bool = False) -> set[Pair]:
    """Return the directions of the translation models in folders of bundles.

    folders: folders of bundles.
    demonstrations: return those of the shipped demonstrations instead of all others.
    """
    bundles = (bundle for folder in folders for bundle in bundles_at(folder))
    return {
        pair
        for bundle in bundles
        if _is_demonstration(bundle) == demonstrations
        for pair in _pairs_of(bundle)
    }


def missing_pairs(wanted: Iterable[Pair], there: Collection[Pair]) -> list[Pair]:
    """Return the directions that no models serve, neither one model nor two by way of English."""
    return [pair for pair in wanted if not set(_legs(pair)) <= set(there) and pair not in there]


def missing_legs(missing: Iterable[Pair], there: Collection[Pair]) -> list[Pair]:
    """Return the directions to or from English that missing directions need and that are not on disk."""
    return list(dict.fromkeys(leg for pair in missing for leg in _legs(pair) if leg not in there))


def plan(
    missing: Iterable[Pair], there: Collection[Pair], offers: Iterable[ModelOffer]
) -> tuple[dict[Pair, ModelOffer], list[Pair]]:
    """Choose the models for the missing directions.

    missing: directions that no models serve.
    there: directions on disk.
    offers: models of the source.

    Returns the model of each direction to fetch, in order, and the directions that nothing offers.
    """
    offered: dict[Pair, ModelOffer] = {}
    for offer in offers:
        offered.setdefault((plain_code(offer.source), plain_code(offer.target)), offer)
    chosen: dict[Pair, ModelOffer] = {}
    lacking = []
    for pair in missing:
        legs = [pair] if pair in offered else _legs(pair)
        if all(leg in offered or leg in there for leg in legs):
            chosen |= {leg: offered[leg] for leg in legs if leg not in there}
        else:
            lacking += [leg for leg in legs if leg not in offered and leg not in there]
    return chosen, list(dict.fromkeys(lacking))


def name_of(pair: Pair) -> str:
    return "-".join(pair)


def _legs(pair: Pair) -> list[Pair]:
    """Return a direction by way of English."""
    source, target = pair
    return [pair] if PIVOT in pair else [(source, PIVOT), (PIVOT, target)]


def _pairs_of(bundle: Bundle) -> Iterable[Pair]:
    """Return the directions of a bundle; none of a model for another task."""
    if bundle.task != "translate":
        return []
    text: Mapping[str, Sequence[str]] = bundle.text
    sources = {plain_code(code) for code in (bundle.source, *text.get("sources", ()))}
    targets = {plain_code(code) for code in (bundle.target, *text.get("languages", ()))}
    return [(source, target) for source in sources for target in targets]


def _is_demonstration(bundle: Bundle) -> bool:
    return bundle.provenance is not None and bundle.provenance.is_demonstration


def plain_code(code: str) -> str:
    """Return the code of a language that requests use."""
    return short(request_code(code).casefold())
