"""What `protect` costs of the processor's time: lines one by one, with and without, in alternating runs.

    python -m loadtest.engine.protect_cost models/tatoeba-de-en --texts CORPORA/tatoeba-de-en/test.tsv.gz

Every few lines are answered with and without `protect`, first the one and then the other, in one process:
what else runs slows down both.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from engine.answers.compose import TextResult
from engine.api import Placement, Service, ServiceSettings, TextOptions
from loadtest.engine.int8_bleu import read_lines

LINES_PER_RUN = 20


async def answers(service: Service, model: str, lines: Sequence[str], options: TextOptions) -> int:
    """Answer lines one after the other, and count the steps.

    service: has the model.
    model: its name.
    lines: texts.
    options: how they are answered.
    """
    results: list[TextResult] = []
    for line in lines:
        results += await service.run(model, [line], options)
    return sum(result.timings.steps for result in results)


def measure(service: Service, lines: Sequence[str], beam: int, rounds: int) -> None:
    """Print processor time a line and steps, with and without, and the ratio of each round.

    service: has one model.
    lines: texts.
    beam: width of the search.
    rounds: how often all lines are answered.
    """
    (model,) = service.repository.loaded
    ways = [TextOptions({"beam_size": beam}, protect=protect, follow_form=True) for protect in (True, False)]
    ratios = list[float]()
    for number in range(rounds + 1):
        seconds, steps = [0.0, 0.0], [0, 0]
        for begin in range(0, len(lines), LINES_PER_RUN):
            for way in sorted((0, 1), reverse=(number + begin // LINES_PER_RUN) % 2 == 0):
                start = time.process_time()
                part = lines[begin : begin + LINES_PER_RUN]
                steps[way] += asyncio.run(answers(service, model, part, ways[way]))
                seconds[way] += time.process_time() - start
        if not number:  # what is made once is made now
            continue
        ratios.append(seconds[0] / seconds[1])
        each = " and ".join(f"{1000 * spent / len(lines):.2f} ms" for spent in seconds)
        print(f"{each} a line, {ratios[-1]:.3f}; {steps[0]} and {steps[1]} steps", flush=True)
    print(f"median {statistics.median(ratios):.3f} of {rounds}, {min(ratios):.3f} to {max(ratios):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--texts", type=Path, required=True, help="lines, their first column; maybe .gz")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--precision", default="int8")
    given = parser.parse_args()
    placement = Placement(threads=1, precision=given.precision)
    service = Service.open([given.bundle], ServiceSettings(placement))
    service.start()
    measure(service, read_lines(given.texts, given.count), given.beam, given.rounds)
    service.stop(drain=False, timeout=10)


if __name__ == "__main__":
    main()
