"""Measure the processor time that `protect` costs: lines one by one, with and without it, in alternation.

    python -m loadtest.engine.protect_cost models/tatoeba-de-en --texts CORPORA/tatoeba-de-en/test.tsv.gz

A few lines are answered with `protect` and then without it, or in the other order, in one process and one
thread of the numeric library. Processor time does not depend on the load of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from engine.api import Placement, Service, ServiceSettings, TextOptions

LINES_PER_RUN = 20


def read_lines(path: Path, count: int) -> list[str]:
    """Return the first column of the first lines of a file, which may be compressed."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as rows:
        return [row.rstrip("\n").split("\t")[0] for row, _ in zip(rows, range(count), strict=False)]


async def answer(service: Service, lines: Sequence[str], options: TextOptions) -> None:
    """Answer lines one after the other by the only model of a service.

    service: service with one model.
    lines: texts.
    options: options of all texts.
    """
    (model,) = service.repository.loaded
    for line in lines:
        await service.run(model, [line], options)


def ratio(service: Service, lines: Sequence[str], *, first: int) -> float:
    """Return the processor time with `protect`, divided by the time without it.

    service: service with one model.
    lines: texts.
    first: 0 if the first lines are answered with `protect` first, otherwise 1.
    """
    options = [TextOptions(protect=protect, follow_form=True) for protect in (True, False)]
    seconds = [0.0, 0.0]
    for number, begin in enumerate(range(0, len(lines), LINES_PER_RUN)):
        for way in (0, 1) if (first + number) % 2 == 0 else (1, 0):
            start = time.process_time()
            asyncio.run(answer(service, lines[begin : begin + LINES_PER_RUN], options[way]))
            seconds[way] += time.process_time() - start
    return seconds[0] / seconds[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--texts", type=Path, required=True, help="lines; the first column is read")
    parser.add_argument("--count", type=int, default=400, help="number of lines")
    parser.add_argument("--rounds", type=int, default=6, help="measurements of all lines")
    given = parser.parse_args()
    service = Service.open([given.bundle], ServiceSettings(Placement(threads=1, precision="int8")))
    service.start()
    lines = read_lines(given.texts, given.count)
    asyncio.run(answer(service, lines[:LINES_PER_RUN], TextOptions(protect=True)))  # compile patterns
    ratios = [ratio(service, lines, first=number % 2) for number in range(given.rounds)]
    print(f"median {statistics.median(ratios):.3f} of {given.rounds}: {min(ratios):.3f} to {max(ratios):.3f}")
    service.stop(drain=False)


if __name__ == "__main__":
    main()
