"""Dictionaries, which map ids to symbols; fairseq's are files dict.LANGUAGE.txt (docs/reference.md 0)."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.errors import BundleError

SPECIALS: Final = ("<s>", "<pad>", "</s>", "<unk>")  # ids 0 to 3
UNK: Final = SPECIALS.index("<unk>")
OVERWRITE: Final = "#fairseq:overwrite"


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Symbols and their ids.

    symbols: symbol of each id.
    ids: id by symbol, without special symbols.
    silent: ids without a text: begin, padding and end.
    unk: id of unknown symbols.
    """

    symbols: tuple[str, ...]
    ids: dict[str, int]
    silent: frozenset[int] = frozenset(range(UNK))
    unk: int = UNK


def read_dictionary(path: Path) -> Dictionary:
    """Read dict.LANGUAGE.txt: ids 0 to 3 are special, then one symbol per line from 4, "symbol count".

    A symbol that occurs again must be marked "#fairseq:overwrite"; its later id counts. Raises BundleError
    naming the line.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{path}: not readable as UTF-8 ({error}); copy the dictionary again") from error
    symbols = list(SPECIALS)
    seen = set(SPECIALS)
    ids: dict[str, int] = {}
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        symbol, _, count = line.rstrip().rpartition(" ")
        overwrite = count == OVERWRITE
        if overwrite:
            symbol, _, count = symbol.rpartition(" ")
        if not symbol or not is_whole(count):
            raise BundleError(f"{path}, line {number}: must be 'symbol count', not {line.strip()!r}")
        if symbol in seen and not overwrite:
            raise BundleError(f"{path}, line {number}: {symbol!r} occurs twice; remove it or add {OVERWRITE}")
        seen.add(symbol)
        if symbol not in SPECIALS:
            ids[symbol] = len(symbols)
        symbols.append(symbol)
    return Dictionary(tuple(symbols), ids)


def is_whole(text: str) -> bool:
    """Return whether a count is a whole number."""
    try:
        int(text)
    except ValueError:
        return False
    return True
