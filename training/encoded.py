"""Encoded training pairs of both directions of a corpus in one compressed file (`training.encode_corpus`)."""

from __future__ import annotations

import io
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from training.data import Pairs

ENDING: Final = ".encoded"
BOTH: Final = "both:"  # beginning of the group of both directions; the recipe with its order follows
VALID: Final = "valid:"  # beginning of the groups of validation pairs; the name of the corpus follows
PRESET: Final = 6  # of lzma


def path_of(corpora: Path, folder: str) -> Path:
    """Return the path of the file of a corpus."""
    return corpora / f"{folder}{ENDING}"


def write(path: Path, groups: Mapping[str, Pairs]) -> None:
    """Write groups of pairs whose tokens are below 65,536."""
    arrays = {}
    for name, pairs in groups.items():
        for side, rows in (("s", pairs.sources), ("t", pairs.targets)):
            arrays[f"{name}.{side}"] = np.concatenate([np.zeros(0, np.int32), *rows]).astype(np.uint16)
            arrays[f"{name}.{side}n"] = np.array([len(row) for row in rows], np.uint16)
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]  # names are no keywords of savez
    path.write_bytes(lzma.compress(content.getvalue(), preset=PRESET))


def read(path: Path) -> dict[str, Pairs]:
    """Return the groups of pairs of a file."""
    with np.load(io.BytesIO(lzma.decompress(path.read_bytes()))) as arrays:
        names = dict.fromkeys(name.rpartition(".")[0] for name in arrays.files)

        def rows(name: str) -> list[NDArray[np.int32]]:
            """Return the sequences of a side."""
            tokens, lengths = arrays[name].astype(np.int32), arrays[f"{name}n"].astype(np.int64)
            return np.split(tokens, np.cumsum(lengths)[:-1]) if len(lengths) else []

        return {name: Pairs(rows(f"{name}.s"), rows(f"{name}.t")) for name in names}


def swapped(pairs: Pairs) -> Pairs:
    """Return the pairs of the opposite direction."""
    return Pairs(pairs.targets, pairs.sources)


def joined(first: Pairs, second: Pairs) -> Pairs:
    """Return the pairs of two groups."""
    return Pairs(first.sources + second.sources, first.targets + second.targets)


def pairs_of(path: Path, name: str) -> list[Pairs]:
    """Return the training pairs of a recipe, and the validation pairs of each of its corpora.

    path: the file.
    name: name of the recipe.
    """
    groups = read(path)
    (both,) = (group for group in groups if group.startswith(BOTH))
    forward = both == BOTH + name
    shared, *valid = (
        pairs if forward else swapped(pairs)
        for group, pairs in groups.items()
        if group == both or group.startswith(VALID)
    )
    return [joined(shared, groups[name]), *valid]
