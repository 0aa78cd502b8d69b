"""The section of docs/benchmarks.md that one or more records make.

    python -m loadtest.engine.gpu_bench.render *.json

Of parts that several records hold, the last one counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from loadtest.engine.gpu_bench import models

Row = dict[str, Any]
# (what, unit, model, paper or peer, aim) of issue 4's table, by the part that measures it
PAPER: Final = {
    models.SIX: ("batch 1, beam 1, 6 decoder layers", 111.0, 6_000.0),
    models.ONE: ("batch 1, beam 1, 1 decoder layer (k=31)", 423.0, 15_000.0),
}
SENTENCES: Final = ("newstest2013, 200M model", 62.6, 6_000.0)


def markdown(records: Sequence[dict[str, Any]]) -> str:
    """Render tables of everything that was measured, and what was not, with the reasons."""
    parts: dict[str, Row] = {}
    for record in records:
        parts |= record["parts"]
    lines = ["## GPU", "", *[_facts(record) for record in records], ""]
    for write in (_summary, _floors, _checks, _single, _throughput, _arrivals, _real, _profiles, _missing):
        if section := write(parts):
            lines += [*section, ""]
    return "\n".join(lines)


def _facts(record: dict[str, Any]) -> str:
    facts = record.get("facts", {})
    named = ("date", "device", "driver", "cuda", "torch", "onnxruntime", "tensorrt", "python", "revision")
    entries = [f"{name} {facts[name]}" for name in named if facts.get(name) is not None]
    warning = " **Tiny models and runs: nothing here is a figure.**" if facts.get("scale") == "tiny" else ""
    return f"{', '.join(entries)}. `{record.get('command', '')}`{warning}"


def _summary(parts: dict[str, Row]) -> list[str]:
    """Issue 4's table."""
    rows = []
    for name, (what, paper, aim) in PAPER.items():
        rows += _aims(f"{what}, tok/s", _best(parts, "single", name), paper, aim)
        rows += _against(parts, "single", name, what)
    beam, slots = (parts.get("throughput", {}).get(key) for key in ("beam", "slots"))
    what = f"beam {beam}, batch {slots}, {SENTENCES[0]}"
    rows += _aims(f"{what}, sent/s", _best(parts, "throughput", models.SIX), *SENTENCES[1:])
    rows += _against(parts, "throughput", models.SIX, what)
    for part in ("single", "throughput"):
        rows += _twins(parts, part)
    facts = parts.get("arrivals", {})
    if "ratio" in facts:
        text = (
            f"p99 of {facts['requests']} requests at random at {facts['share']:.0%} of the peak: best window "
        )
        text += f"batcher / in flight ({facts['contender']})"
        rows.append((text, f"{facts['ratio']['median']:.2f}x", "1x", ">= 2x"))
    if not rows:
        return []
    head = ["| figure | measured | paper or peer | aim |", "|---|---:|---:|---:|"]
    return [*head, *(f"| {' | '.join(row)} |" for row in rows)]


def _aims(what: str, row: Row | None, paper: float, aim: float) -> list[tuple[str, str, str, str]]:
    if row is None:
        return []
    value = f"{row['median']:,.0f} ({_who(row)})"
    return [(what, value, f"{paper:,.1f} (paper, P100)", f">= {aim:,.0f}")]


def _against(parts: dict[str, Row], part: str, name: str, what: str) -> list[tuple[str, str, str, str]]:
    """Our best beside fairseq's best."""
    ours, theirs = _best(parts, part, name), _best(parts, part, name, peer=True)
    if not ours or not theirs:
        return []
    ratio = f"{ours['median'] / theirs['median']:.1f}x"
    return [(f"{what}: Convoy / fairseq", ratio, f"1x ({theirs['median']:,.1f}, {_who(theirs)})", ">= 10x")]


def _twins(parts: dict[str, Row], part: str) -> list[tuple[str, str, str, str]]:
    """DynamicConv beside our own Transformer, both on the backend that suits each best."""
    ours, theirs = _best(parts, part, models.SIX), _best(parts, part, models.ATTENTION)
    if not ours or not theirs:
        return []
    where = "batch 1, beam 1" if part == "single" else "in flight"
    ratio = f"{ours['median'] / theirs['median']:.2f}x"
    return [(f"DynamicConv / self-attention, {where}", ratio, "1.20x (paper)", ">= 1.20x")]


def _best(parts: dict[str, Row], part: str, name: str, *, peer: bool = False) -> Row | None:
    rows = [r for r in _rows(parts, part) if r["model"] == name and (r["backend"] == "fairseq") == peer]
    return max(rows, key=lambda r: float(r["median"]), default=None)


def _rows(parts: dict[str, Row], part: str) -> list[Row]:
    rows: list[Row] = parts.get(part, {}).get("rows", [])
    return rows


def _who(row: Row) -> str:
    return f"{row['backend']} {row['precision']}"


def _floors(parts: dict[str, Row]) -> list[str]:
    facts = parts.get("floors", {})
    if "bandwidth" not in facts:
        return []
    rates = ", ".join(f"{p} {rate / 1e12:,.1f} TFLOP/s" for p, rate in facts["matrix"].items())
    lines = [
        f"Floors: copying {facts['bandwidth'] / 1e12:.3f} TB/s (read and written); square products {rates}."
    ]
    lines += ["", "| product | precision | rows | TFLOP/s | weights, TB/s |", "|---|---|---:|---:|---:|"]
    for row in facts["shapes"]:
        cells = f"{row['operations'] / 1e12:.2f} | {row['bytes'] / 1e12:.3f}"
        lines.append(f"| {row['what']} | {row['precision']} | {row['shape'][0]} | {cells} |")
    return lines


def _checks(parts: dict[str, Row]) -> list[str]:
    lines = []
    if "tests" in parts:
        summary, verdict = (
            parts["tests"].get("said", [""])[-1],
            "passed" if parts["tests"].get("ok") else "FAILED",
        )
        lines += [f"Tests on the GPU: {verdict} ({summary.strip('= ')}).", ""]
    facts = parts.get("checks", {})
    if not facts.get("rows"):
        return lines
    lines.append(
        f"Answers of {facts['model']} ({facts['sentences']} lines, {facts['text']}) beside the CPU's:"
    )
    lines += ["", "| backend | equal answers | equal tokens | score, at most | alone = in a batch |"]
    lines.append("|---|---:|---:|---:|---:|")
    for r in facts["rows"]:
        cells = f"{r['equal']:.1%} | {r['tokens']:.1%} | {r['score_difference']:.1e} | {r['alone']:.1%}"
        lines.append(f"| {_who(r)} | {cells} |")
    return lines


def _single(parts: dict[str, Row]) -> list[str]:
    rows = _rows(parts, "single")
    if not rows:
        return []
    lines = ["| batch 1, beam 1 | backend | tok/s | spread | step, us | floor of the weights, us | share |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|")
    for r in rows:
        step = f"{r['step']['median'] * 1e6:,.0f}" if "step" in r else ""
        share = r.get("step_share", r["share"])
        cells = f"{_speed(r)} | {step} | {r['floor_step'] * 1e6:,.1f} | {share:.1%}"
        lines.append(f"| {r['model']} | {_who(r)} | {cells} |")
    return lines


def _throughput(parts: dict[str, Row]) -> list[str]:
    rows, facts = _rows(parts, "throughput"), parts.get("throughput", {})
    if not rows:
        return []
    title = f"beam {facts['beam']}, {facts['slots']} in flight ({facts['lengths']})"
    lines = [f"| {title} | backend | sentences | sent/s | spread | floor of the products, sent/s | share |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|")
    for r in rows:
        floor = f"{r['floor']:,.0f} | {r['share']:.1%}" if "floor" in r else " | "
        lines.append(f"| {r['model']} | {_who(r)} | {r['sentences']} | {_speed(r)} | {floor} |")
    return lines


def _arrivals(parts: dict[str, Row]) -> list[str]:
    facts = parts.get("arrivals", {})
    if "ratio" not in facts:
        return []
    best = f"{facts['window'] * 1e3:g} ms x {facts['batch']}"
    text = (
        f"{facts['requests']} requests at random, {facts['rate']:,.1f} a second ({facts['share']:.0%} of the "
    )
    text += "lower peak: " + ", ".join(f"{k} {v:,.1f}" for k, v in facts["peaks"].items())
    text += f"), {facts['contender']}, "
    lines = [f"{text}beam {facts['beam']}; best window {best}:", ""]
    lines += ["| batching | p50, ms | p99, ms | spread of p99 |", "|---|---:|---:|---:|"]
    for name, r in facts["p99"].items():
        spread = f"{min(r['runs']) * 1e3:,.1f} to {max(r['runs']) * 1e3:,.1f}"
        middle = facts["p50"][name]["median"] * 1e3
        lines.append(f"| {name} | {middle:,.1f} | {r['median'] * 1e3:,.1f} | {spread} |")
    return lines


def _real(parts: dict[str, Row]) -> list[str]:
    rows, facts = _rows(parts, "real"), parts.get("real", {})
    if not rows:
        return []
    title = f"{facts['model']}, {facts['text']}, beam {facts['beam']}, {facts['slots']} in flight"
    lines = [f"| {title} | lines | lines/s | spread |", "|---|---:|---:|---:|"]
    return lines + [f"| {_who(r)} | {r['lines']} | {_speed(r)} |" for r in rows]


def _profiles(parts: dict[str, Row]) -> list[str]:
    lines: list[str] = []
    for r in _rows(parts, "profiles"):
        times = (
            f"{r['step_microseconds']:,.0f} us, of which the device is busy for {r['busy_microseconds']:,.0f}"
        )
        lines.append(f"A step of {r['sentences']} x beam {r['beam']} ({r['contender']}): {times}.")
        lines += ["", "| kernel | calls a step | us a step | share |", "|---|---:|---:|---:|"]
        for kernel in r["kernels"]:
            name = kernel["name"].replace("|", "\\|")[:90]
            cells = f"{kernel['calls']:.1f} | {kernel['microseconds']:.1f} | {kernel['share']:.1%}"
            lines.append(f"| `{name}` | {cells} |")
        lines.append("")
    return lines[:-1]


def _missing(parts: dict[str, Row]) -> list[str]:
    """What failed, and who did not run: the same reason of the same backend once for all models and parts."""
    lines = [f"- {name}: {part['error']}" for name, part in parts.items() if part.get("status") == "failed"]
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, part in parts.items():
        for key, why in {**part.get("not_run", {}), **part.get("failed", {})}.items():
            reasons.setdefault((key.rpartition(", ")[2], why), []).append(name)
    for (who, why), where in reasons.items():
        lines.append(f"- {who} ({', '.join(dict.fromkeys(where))}): {why}")
    return ["Not run:", "", *lines] if lines else []


def _speed(row: Row) -> str:
    runs = row["runs"]
    return f"{row['median']:,.1f} | {min(runs):,.1f} to {max(runs):,.1f}"


if __name__ == "__main__":
    print(markdown([json.loads(Path(path).read_text("utf-8")) for path in sys.argv[1:]]))
