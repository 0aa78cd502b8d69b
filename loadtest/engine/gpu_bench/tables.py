"""Markdown of records: the settings of each part in a line, and a table for each of its lists of rows.

    python -m loadtest.engine.gpu_bench.tables A.json B.json

If several records hold the same part, the last one counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

Row = dict[str, Any]
# keys of a part that are rendered elsewhere
APART: Final = ("status", "seconds", "error", "not_run", "failed", "said")
MACHINE: Final = (
    "date",
    "device",
    "driver",
    "cuda",
    "torch",
    "onnxruntime",
    "tensorrt",
    "python",
    "revision",
)
LONGEST_CELL: Final = 90  # characters, to shorten names of kernels


def markdown(records: Sequence[Row]) -> str:
    """Render everything that was measured, and the reasons for missing parts."""
    parts: dict[str, Row] = {}
    for record in records:
        parts |= record["parts"]
    lines = ["# GPU", "", *map(_machine, records), ""]
    for name, part in parts.items():
        lines += [f"## {name}", "", *_section({k: v for k, v in part.items() if k not in APART}), ""]
    return "\n".join([*lines, *_missing(parts)])


def table(rows: Sequence[Row]) -> list[str]:
    """Render rows as a table with all columns, followed by a table for each nested list of rows."""
    columns = list(dict.fromkeys(key for row in rows for key in row if not _is_rows(row[key])))
    lines = [_line(columns), "|---" * len(columns) + "|"]
    lines += [_line([_cell(row.get(column)) for column in columns]) for row in rows]
    for row in rows:
        title = ", ".join(_cell(value) for value in row.values() if isinstance(value, str | int))
        for key, inner in row.items():
            lines += ["", f"{key} of {title}:", "", *table(inner)] if _is_rows(inner) else []
    return lines


def _section(values: Row) -> list[str]:
    """Return the lines of a part: its settings on one line, then a table for each list of rows."""
    entries = [f"{key} {_cell(value)}" for key, value in values.items() if value and not _is_rows(value)]
    lines = ["; ".join(entries) + "."] if entries else []
    for rows in filter(_is_rows, values.values()):
        lines += ["", *table(rows)]
    return lines


def _is_rows(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _cell(value: object) -> str:
    """Return a number rounded by its size, a summary of runs as median and spread, and nested values
    rendered."""
    if value is None:
        return ""
    if isinstance(value, bool | str | int):
        return str(value).replace("|", "\\|")[:LONGEST_CELL]
    if isinstance(value, float):
        return f"{value:,.0f}" if 100 <= abs(value) < 1e9 else f"{value:.3g}"
    if isinstance(value, dict) and "median" in value and "runs" in value:
        return f"{_cell(value['median'])} ({_cell(min(value['runs']))} to {_cell(max(value['runs']))})"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_cell(inner)}" for key, inner in value.items())
    return ", ".join(map(_cell, value)) if isinstance(value, list | tuple) else str(value)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _machine(record: Row) -> str:
    """Return the line about the machine and the command of a record."""
    machine = record.get("machine", {})
    entries = [f"{name} {machine[name]}" for name in MACHINE if machine.get(name) is not None]
    warning = " **Tiny models and runs: nothing here is a figure.**" if machine.get("scale") == "tiny" else ""
    return f"{', '.join(entries)}. `{record.get('command', '')}`{warning}"


def _missing(parts: dict[str, Row]) -> list[str]:
    """Return the failed parts and the contenders that did not run, with each reason once."""
    lines = [f"- {name}: {part['error']}" for name, part in parts.items() if part.get("status") == "failed"]
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, part in parts.items():
        for key, why in {**part.get("not_run", {}), **part.get("failed", {})}.items():
            reasons.setdefault((key.rpartition(", ")[2], why), []).append(name)
    for (contender, why), where in reasons.items():
        lines.append(f"- {contender} ({', '.join(dict.fromkeys(where))}): {why}")
    return ["## Not run", "", *lines, ""] if lines else []


if __name__ == "__main__":
    print(markdown([json.loads(Path(path).read_text("utf-8")) for path in sys.argv[1:]]))
