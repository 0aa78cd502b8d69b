"""CTranslate2's vocabulary map (`vmap.txt`) as a shortlist: the target tokens that a source makes likely.

A line is a phrase of source symbols, a tab, and target symbols between spaces; the phrase "" is part of every
source. CTranslate2 looks up every phrase of a source, a shortlist only single symbols: here the targets of a
longer phrase belong to its first symbol, so that no token that CTranslate2 allows is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from engine.bundle.shortlist import Shortlist
from engine.errors import CheckpointError
from export.importers.ctranslate2.vocabularies import FileVocabularies

MAP_FILE: Final = "vmap.txt"
MAX_MAP_BYTES: Final = 256_000_000
MAX_SYMBOL_TARGETS: Final = 4_096
MAX_TABLE_CELLS: Final = 100_000_000  # symbols x targets of a symbol


def read_map(folder: Path, vocabularies: FileVocabularies) -> Shortlist | None:
    """Return the shortlist of a folder's vocabulary map, or None if it has no map.

    Raises CheckpointError if the file is damaged or too large.
    """
    path = folder / MAP_FILE
    if not path.is_file():
        return None
    ids = {symbol: i for i, symbol in enumerate(vocabularies.source)}
    targets = {symbol: i for i, symbol in enumerate(vocabularies.target)}
    phrases: dict[str, list[int]] = {}  # a later line replaces an earlier one of the same phrase
    for number, line in enumerate(_read_lines(path), 1):
        phrase, tab, named = line.partition("\t")
        if not tab:
            raise CheckpointError(f"{path}: line {number} has no tab; copy it again, or leave it out")
        phrases[phrase] = [targets[symbol] for symbol in named.split(" ") if symbol in targets]
    always = {i for i in (vocabularies.eos, vocabularies.unk, vocabularies.start) if i is not None}
    always.update(phrases.pop("", ()))
    likely = _targets_by_first_symbol(phrases, ids)
    width = max((len(tokens) for tokens in likely.values()), default=0)
    if width > MAX_SYMBOL_TARGETS or width * len(ids) > MAX_TABLE_CELLS:
        raise CheckpointError(
            f"{path}: allows {width:,} targets for one symbol of {len(ids):,}; leave it out, and learn a "
            "shortlist from pairs (convoy shortlist)"
        )
    table = np.full((len(vocabularies.source), width), -1, np.int32)
    for symbol, tokens in likely.items():
        table[symbol, : len(tokens)] = sorted(tokens)
    return Shortlist(table, np.array(sorted(always), np.int32))


def _targets_by_first_symbol(phrases: Mapping[str, list[int]], ids: Mapping[str, int]) -> dict[int, set[int]]:
    """Return the allowed target ids by the id of each phrase's first symbol."""
    likely: dict[int, set[int]] = {}
    for phrase, allowed in phrases.items():
        first = phrase.split(" ")[0]
        if first in ids:
            likely.setdefault(ids[first], set()).update(allowed)
    return likely


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a map. Raises CheckpointError if it is too large or not readable."""
    try:
        if path.stat().st_size > MAX_MAP_BYTES:
            raise CheckpointError(f"{path}: is larger than {MAX_MAP_BYTES:,} bytes; leave it out")
        return path.read_bytes().decode("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not readable ({error}); copy it again, or leave it out") from error
