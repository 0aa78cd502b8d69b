"""Read lexical shortlists of Marian's students: text (TARGET SOURCE PROBABILITY) or its binary form."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.bundle.shortlist import Shortlist
from engine.errors import CheckpointError
from export.importers.marian.compressed import contents

MAGIC: Final = 0xF11A48D5013417F5
HEADER: Final = 6  # numbers of 8 bytes: magic, checksum, first, best, offsets, ids
MULTIPLE: Final = 8  # intgemm needs the number of columns to be a multiple
NOBODY: Final = "NULL"  # aligned with words without a translation
MAX_SOURCE_TARGETS: Final = 1000  # published lists have 50 or 100


@dataclass(frozen=True, slots=True)
class StudentVocabularies:
    """The vocabularies of a student.

    source, target: symbol to id.
    size: number of rows of the model's tables.
    unk: id of the unknown symbol.
    shared: whether both sides have the same file, so that every source token may be copied.
    """

    source: Mapping[str, int]
    target: Mapping[str, int]
    size: int
    unk: int
    shared: bool


@dataclass(frozen=True, slots=True)
class Pruning:
    """Pruning of a text file.

    first: number of ids that are in every list.
    best: number of targets for each source symbol.
    threshold: lower bound of a pair's probability.
    """

    first: int = 100
    best: int = 100
    threshold: float = 0.0


def read_shortlist(
    path: Path, vocabularies: StudentVocabularies, choice: Pruning, *, check: bool
) -> Shortlist:
    """Read a shortlist, text or binary.

    path: the file.
    vocabularies: vocabularies of the student.
    choice: pruning of a text file.
    check: whether the checksum of a binary file is compared.

    Raises CheckpointError that names the file, also if it was made for other vocabularies.
    """
    data = contents(path)
    binary = data[:8] == MAGIC.to_bytes(8, "little")
    try:
        if binary:
            lists, first = _read_binary(data, vocabularies, check=check)
        else:
            lists, first = _read_text(data, vocabularies, choice)
    except ValueError as error:
        raise CheckpointError(f"{path}: not a readable shortlist ({error}); download it again") from error
    width = max(map(len, lists.values()), default=0) + vocabularies.shared
    likely = np.full((vocabularies.size, max(width, 1)), -1, np.int32)
    for source, targets in lists.items():
        likely[source, : len(targets)] = targets
    if vocabularies.shared:
        count = len(vocabularies.source)
        likely[:count, -1] = np.arange(count)  # the copy of each source token
    return Shortlist(likely, np.arange(first, dtype=np.int32), MULTIPLE)


def _read_binary(
    data: bytes, vocabularies: StudentVocabularies, *, check: bool
) -> tuple[dict[int, NDArray[Any]], int]:
    """Read a binary shortlist: target ids by source id, and the number of ids in every list."""
    header = np.frombuffer(data, "<u8", HEADER)
    # first: number of ids in every list; count: number of all ids
    checksum, first, _, offset_count, count = (int(n) for n in header[1:])
    ids_at = 8 * (HEADER + offset_count)
    if offset_count > len(data) or count > len(data) or ids_at + 4 * count != len(data):
        raise ValueError(f"{len(data)} bytes are not those of {offset_count} offsets and {count} ids")
    offsets = np.frombuffer(data, "<u8", offset_count, 8 * HEADER)
    ids = np.frombuffer(data, "<u4", count, ids_at)
    if offset_count != len(vocabularies.source) + 1:
        raise ValueError(
            f"it has lists of {offset_count - 1} words, the vocabulary {len(vocabularies.source)}"
        )
    if offsets[0] != 0 or offsets[-1] != count or (offsets[1:] < offsets[:-1]).any():
        raise ValueError("its offsets do not rise from the first id to the last")
    if count and ids.max() >= len(vocabularies.target):
        raise ValueError(f"it has the id {ids.max()}, the vocabulary {len(vocabularies.target)} pieces")
    if np.diff(offsets).max(initial=0) > MAX_SOURCE_TARGETS:
        raise ValueError(f"a list is longer than {MAX_SOURCE_TARGETS}")
    if check and _checksum(data[16:]) != checksum:
        raise ValueError("its checksum is not that of its content")
    ends = offsets.astype(np.int64)
    return {i: ids[ends[i] : ends[i + 1]] for i in range(len(ends) - 1)}, _first(first, vocabularies)


def _checksum(data: bytes) -> int:
    """Return Marian's hash of 8-byte numbers, which ignores the last of an odd number of 4-byte ids."""
    value, most = 0, (1 << 64) - 1
    for word in np.frombuffer(data, "<u8", len(data) // 8).tolist():
        value ^= (word + 0x9E3779B9 + ((value << 6) & most) + (value >> 2)) & most
    return value


def _read_text(
    data: bytes, vocabularies: StudentVocabularies, choice: Pruning
) -> tuple[dict[int, NDArray[Any]], int]:
    """Prune like Marian's LexicalShortlistGenerator.

    The last probability of a repeated pair counts; among equal probabilities the greater id is chosen.
    """
    pairs: dict[int, dict[int, float]] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        fields = line.decode("utf-8").split()
        if len(fields) != 3:
            raise ValueError(f"line {number} is not TARGET SOURCE PROBABILITY")
        target, source, probability = fields[0], fields[1], float(fields[2])
        if math.isnan(probability):
            raise ValueError(f"line {number} holds no probability")
        if NOBODY not in (target, source):
            row = pairs.setdefault(vocabularies.source.get(source, vocabularies.unk), {})
            row[vocabularies.target.get(target, vocabularies.unk)] = probability
    lists = {}
    for i, row in pairs.items():
        likely = ((p, token) for token, p in row.items() if p > choice.threshold)
        lists[i] = np.array([token for _, token in heapq.nlargest(choice.best, likely)], np.int32)
    return lists, _first(choice.first, vocabularies)


def _first(first: int, vocabularies: StudentVocabularies) -> int:
    """Return the number of ids in every list. Raises ValueError if the vocabulary is smaller."""
    if not 2 <= first <= len(vocabularies.target):
        raise ValueError(f"{first} ids are in every list, of {len(vocabularies.target)}")
    return first
