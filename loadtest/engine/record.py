"""Measure everything about this processor, and write its page, docs/lab/record-*.md.

    python -m loadtest.engine.record

Runs the comparisons with CTranslate2 for each instruction set of this machine, the server's own share, the
memory of servers and the field's protocol, one after the other, each in a process of its own. The page has
their output with the command of each table; the records that `make bench-check` compares with are files in
docs/benchmarks. Takes about twelve minutes of a quiet machine; needs ctranslate2 from PyPI and the extra
`torch`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

from loadtest.engine.processor import processor
from loadtest.texts import sentences

PAGES: Final = Path("docs/lab")
FOLDER: Final = Path("docs/benchmarks")
# further instruction sets to measure, by the best one of the machine
OTHERS: Final = {"avx512vnni": ("avx512", "avx2"), "avx512": ("avx2",), "avxvnni": ("avx2",)}
# variables that limit CTranslate2 to each set; its products are oneDNN's (except on Intel), which checks the
# CPU
PEER: Final = {
    "avx512": {"CT2_FORCE_CPU_ISA": "AVX512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "avx2": {"CT2_FORCE_CPU_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
}
LINE_CHARACTERS: Final = 150  # longest line of code in the page
MODELS: Final = ("models/tatoeba-de-en", "models/tatoeba-en-de", "models/arxiv-title-en")
ENGLISH: Final = Path("tests/everyday/en-de.tsv")
ROW_SECONDS: Final = 10  # time after which a row of a comparison has no further run
LINES, PARAGRAPHS = 300, 20  # of the files for the efficiency protocol


@dataclass(frozen=True, slots=True)
class RecordPart:
    """One measurement: heading, module, arguments and additional environment variables.

    quoted: the output is plain text, not a table.
    """

    heading: str
    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    quoted: bool = False

    def command(self) -> str:
        """Return the command as typed in a shell."""
        given = [f"{name}={value}" for name, value in self.environment.items()]
        return " ".join([*given, "python -m", self.module, *self.arguments])


def texts(folder: Path) -> dict[str, Path]:
    """Write a file for each shipped model: random news, everyday lines, and paragraphs of them.

    Returns the files by the folder of the model.
    """
    english = [line.split("\t")[0] for line in ENGLISH.read_text(encoding="utf-8").splitlines()]
    lines = {
        "news.de": list(islice(sentences(7), LINES)),
        "everyday.en": english,
        "paragraphs.en": [" ".join(english[5 * i : 5 * i + 5]) for i in range(PARAGRAPHS)],
    }
    for name, content in lines.items():
        (folder / name).write_text("".join(f"{line}\n" for line in content), encoding="utf-8")
    return {model: folder / name for model, name in zip(MODELS, lines, strict=True)}


def parts(record: str, own: str, runs: int, files: Mapping[str, Path]) -> list[RecordPart]:
    """List the parts of a record.

    record: prefix of the record's file names.
    own: best instruction set of this machine.
    runs: number of runs of each comparison.
    files: text file of each model, as returned by `texts`.
    """
    limits = ["--runs", str(runs), "--seconds", str(ROW_SECONDS)]
    fixed = ["--beams", "4", *limits]
    ours = [*limits, "--kernels", "native", "--precisions", "int8"]
    compare = "loadtest.engine.cpu_compare"
    first = ["--threads", "1", *limits, "--json", f"{record}-cpu-compare-iwslt-{own}.json"]
    many = ["--threads", "1", *ours, "--beams", "1", "--sentences", "128"]
    entries = [
        RecordPart(f"DynamicConv, {own}", compare, first),
        RecordPart("DynamicConv, a batch of many sentences", compare, many),
    ]
    for name in OTHERS.get(own, ()):
        environment = {"CONVOY_KERNELS_ISA": name, **PEER[name]}
        heading = f"DynamicConv, {name}, both held to it"
        arguments = ["--threads", "1", *fixed, "--json", f"{record}-cpu-compare-iwslt-{name}.json"]
        entries.append(RecordPart(heading, compare, arguments, environment))
    overhead = ["--model", MODELS[0], "--concurrency", "1,32", "--requests", "100", "--runs", "2"]
    entries += [
        RecordPart(
            "The same weights, OPUS-MT's size",
            "loadtest.engine.marian_compare",
            ["--threads", "1", *fixed, "--kernels", "native", "--json", f"{record}-marian-compare.json"],
        ),
        RecordPart(
            "DynamicConv, two threads",
            compare,
            ["--threads", "2", *ours, "--beams", "4", "--sentences", "1,32"],
        ),
        *(
            RecordPart(
                f"All else than the model, {p}", "loadtest.http.overhead", [*overhead, "--precision", p]
            )
            for p in ("int8", "fp32")
        ),
        RecordPart(
            "Start-up and memory of three models",
            "loadtest.http.startup",
            [*MODELS, "--together", "--runs", "1"],
            quoted=True,
        ),
        *(
            RecordPart(
                f"The field's own protocol, {Path(model).name}",
                "cli.main",
                ["bench", "efficiency", "--model", model, "--input", str(file), "--precisions", "int8,fp32"],
            )
            for model, file in files.items()
        ),
    ]
    return entries


def run_part(part: RecordPart) -> str:
    """Run a part and return its section of the page. Raises SystemExit if the command fails."""
    began = time.monotonic()
    words = [sys.executable, "-m", part.module, *part.arguments]
    environment = os.environ | dict(part.environment)
    ran = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    print(f"{part.heading}: {time.monotonic() - began:.0f} s\n{ran.stdout}", flush=True)
    if ran.returncode:
        raise SystemExit(f"{part.command()} failed; no page was written")
    output = ran.stdout.strip()
    if part.quoted:
        output = "\n".join(["```", *(_folded(line, "\n  ") for line in output.splitlines()), "```"])
    command = _folded(part.command(), " \\\n  ")
    return f"## {part.heading}\n{output}\n\n```sh\n{command}\n```\n"


def _folded(line: str, joint: str) -> str:
    """Wrap a line of output or a command to the width of the page, with `joint` at each break."""
    return joint.join(textwrap.wrap(line, LINE_CHARACTERS, break_long_words=False, break_on_hyphens=False))


def page_of(sections: Sequence[str], here: Mapping[str, str], circumstances: str) -> str:
    """Return the page of a processor.

    sections: Markdown of each part.
    here: facts about the processor, as returned by `processor`.
    circumstances: date, number of processors, load and duration of the measurements.
    """
    title = f"# Record of {here['cpu']}, family {here['family']}, model {here['model']} ({here['isa']})"
    note = "By `make bench-record`, with the command below each table; `make bench-check` compares with"
    return f"{title}\n\n{note}\n[benchmarks/](../benchmarks). {circumstances}\n\n" + "\n".join(sections)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="of each comparison")
    parser.add_argument("--only", default="", help="measure headings that hold this, and write no page")
    parser.add_argument("--load", default="alone", help="what else the machine did, for the page")
    options = parser.parse_args()
    here, today = processor(), f"{datetime.now(UTC):%Y-%m-%d}"
    slug = "-".join(filter(None, (here["vendor"].lower(), here["family"], here["model"]))) or "unknown"
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        record = str(FOLDER / f"{today}-{slug}")
        selection = [
            p
            for p in parts(record, here["isa"], options.runs, texts(Path(folder)))
            if options.only in p.heading
        ]
        sections = [run_part(part).replace(f"{folder}/", "") for part in selection]
    if options.only:
        return
    minutes = (time.monotonic() - began) / 60
    circumstances = f"{today}, {os.cpu_count()} processors, {options.load}, {minutes:.0f} minutes."
    page = PAGES / f"record-{slug}.md"
    page.write_text(page_of(sections, here, circumstances), encoding="utf-8")


if __name__ == "__main__":
    main()
