"""Read the vocabularies of CTranslate2's folders, with special symbols at the same ids on both sides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.errors import CheckpointError
from engine.text.tokenizers.symbols import MAX_SYMBOL_CHARACTERS

PADDING: Final = ("<blank>", "<pad>", "[PAD]")
ADDED: Final = "<padding>"  # added if no symbol of the file is free for padding


@dataclass(frozen=True, slots=True)
class FileVocabularies:
    """Symbols by id, and special symbols.

    Our models have the same id for a special symbol on both sides, so that the order of the source symbols
    may differ from the file's.

    orders: source and target; for each symbol, its row in the file's table of embeddings.
    fewest: source and target; number of symbols in the file. OpenNMT-tf leaves the last one, the unknown
        symbol, out of the file.
    rows: source and target; number of symbols with the unknown symbol; further symbols have no rows.
    shared: whether both sides have the same vocabulary.
    eos, unk, pad, start: ids of special symbols; None: there is no such symbol.
    begin: symbol that every source begins with, or None.
    unknown: symbol of `unk`.
    """

    source: list[str]
    target: list[str]
    orders: tuple[list[int], list[int]]
    fewest: tuple[int, int]
    rows: tuple[int, int]
    shared: bool
    eos: int
    unk: int | None
    pad: int
    start: int
    begin: str | None
    unknown: str


def read_vocabularies(folder: Path, options: Mapping[str, Any]) -> FileVocabularies:
    """Read the vocabularies of a folder; `options` is the content of its config.json.

    Raises CheckpointError if a file is missing or damaged, or lacks a special symbol.
    """
    source, target = _read_both(folder)
    shared = source == target
    eos, unknown, start = options["eos_token"], options["unk_token"], options["decoder_start_token"]
    begin = options["bos_token"] if options["add_source_bos"] else None
    _check_symbols("source", source, [eos, *([] if begin is None else [begin])])
    _check_symbols("target", target, [eos])
    fewest = len(source), len(target)
    for symbols in (source, target):
        if unknown not in symbols:  # CTranslate2 appends it too
            symbols.append(unknown)
    rows = len(source), len(target)
    # like CTranslate2; Marian's models begin with zeros anyway, and without a symbol the family has one
    start = eos if start is None else start if start in target else unknown
    free = _shared([*PADDING, options["bos_token"]], source, target, {eos, unknown})
    most = max(len(source), len(target))
    if not free:
        _extend_to(source, most + 1)
        _extend_to(target, most + 1)
    pad = target.index(free[0]) if free else most
    _extend_to(source, 1 + max(pad, target.index(eos)))
    order = list(range(len(source)))
    # move the source's special symbols to the ids that they have in the target
    for symbol, at in ((eos, target.index(eos)), *((symbol, pad) for symbol in free[:1])):
        _swap(source, order, source.index(symbol), at)
    unk = target.index(unknown)
    return FileVocabularies(
        source,
        target,
        (order, list(range(len(target)))),
        fewest,
        rows,
        shared,
        eos=target.index(eos),
        unk=unk if unk < len(source) else None,
        pad=pad,
        start=target.index(start),
        begin=begin,
        unknown=unknown,
    )


def _shared(symbols: list[str], source: list[str], target: list[str], specials: set[str]) -> list[str]:
    """Return the symbols that both vocabularies have, except special symbols."""
    return [s for s in symbols if s in target and s in source and s not in specials]


def _check_symbols(name: str, symbols: list[str], needed: list[str]) -> None:
    missing = [symbol for symbol in needed if symbol not in symbols]
    if missing:
        raise CheckpointError(f"the {name} vocabulary lacks {missing}")


def _extend_to(symbols: list[str], size: int) -> None:
    """Append padding symbols up to a number of symbols."""
    symbols += [ADDED] * (size - len(symbols))


def _swap(symbols: list[str], order: list[int], a: int, b: int) -> None:
    """Exchange two symbols and their rows."""
    symbols[a], symbols[b] = symbols[b], symbols[a]
    order[a], order[b] = order[b], order[a]


def _read_both(folder: Path) -> tuple[list[str], list[str]]:
    """Return source and target symbols."""
    path = _find(folder, "shared_vocabulary")
    if path is not None:
        return _read_symbols(path), _read_symbols(path)
    if _find(folder, "source_1_vocabulary") is not None:
        raise CheckpointError("several features of each source token are not supported")
    paths = [_find(folder, f"{side}_vocabulary") for side in ("source", "target")]
    if paths[0] is None or paths[1] is None:
        raise CheckpointError("its folder lacks shared_vocabulary.json, or the source's and the target's")
    return _read_symbols(paths[0]), _read_symbols(paths[1])


def _find(folder: Path, name: str) -> Path | None:
    paths = [folder / f"{name}{end}" for end in (".json", ".txt")]
    return next((path for path in paths if path.is_file()), None)


def _read_symbols(path: Path) -> list[str]:
    """Read a JSON list, or one symbol a line; carriage returns are dropped if all lines have one."""
    try:
        text = path.read_bytes().decode("utf-8")
        symbols = json.loads(text) if path.suffix == ".json" else text.removesuffix("\n").split("\n")
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path.name}: not readable ({error}); copy it again") from error
    if not isinstance(symbols, list) or not all(
        isinstance(s, str) and len(s) <= MAX_SYMBOL_CHARACTERS for s in symbols
    ):
        raise CheckpointError(f"{path.name}: must be a list of symbols")
    if path.suffix == ".txt" and all(symbol.endswith("\r") for symbol in symbols):
        symbols = [symbol[:-1] for symbol in symbols]
    return symbols
