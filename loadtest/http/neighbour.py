"""How long a model's sentences take while another client overloads another model, by what the two share.

One server has both models in one process, one the attacked model alone, one both behind a front end with two
engine processes; all run at once and are asked in turns, so that what else the machine does meets all. The
sentence is asked of the first and the last. What the first takes while the second is attacked is what the
processors cost: nothing else is shared then.

    python -m loadtest.http.neighbour --rounds 12
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx

from loadtest.http.serving import serving_convoy

SENTENCE: Final = {"q": "Où est la gare, s'il vous plaît ?", "source": "fr", "target": "en"}
ATTACKS: Final[dict[str, str | list[str]]] = {
    "letters": "a" * 60_000,
    "sentences": [f"Tom und Maria gehen am Tag {i} mit dem Hund in den Wald." for i in range(800)],
}
SENTENCES: Final = 15  # of a turn
SETTLING_SECONDS: Final = 0.5  # of an attack, before and after
PATIENCE_SECONDS: Final = 0.7  # of the attacker, who then asks anew
# who is asked, and who is attacked
CASES: Final = {
    "alone": ("one", None),
    "the other model attacked": ("one", "one"),
    "another process attacked": ("one", "beside"),
    "two engine processes, alone": ("several", None),
    "two engine processes, the other model attacked": ("several", "several"),
}


@contextmanager
def server(models: Sequence[Path], shape: tuple[int, int]) -> Iterator[str]:
    """Start a server with a thread for each engine, and yield its address.

    models: bundles that it serves.
    shape: front ends and engine processes; 0 and 1: one process.
    """
    settings = {"FRONTENDS": shape[0], "ENGINES": shape[1], "THREADS": 1, "LOG_LEVEL": "error"}
    settings |= {"MODELS": os.pathsep.join(map(str, models)), "CHAR_LIMIT": 100_000, "BATCH_LIMIT": 1_000}
    with serving_convoy(settings) as (url, _):
        yield url


@contextmanager
def attack(url: str | None, texts: str | list[str]) -> Iterator[None]:
    """Keep asking a server for the texts, and leave before they are done; None: nobody is attacked."""
    over = threading.Event()

    def go_on() -> None:
        while url and not over.is_set():
            try:
                body = {"q": texts, "source": "de", "target": "en"}
                httpx.post(f"{url}/translate", json=body, timeout=PATIENCE_SECONDS)
            except httpx.TimeoutException:
                continue

    thread = threading.Thread(target=go_on)
    thread.start()
    time.sleep(SETTLING_SECONDS)
    yield
    over.set()
    thread.join()
    time.sleep(SETTLING_SECONDS)


def seconds_of(client: httpx.Client) -> float:
    """Ask for the sentence, and return the seconds until its answer. Raises SystemExit on a refusal."""
    began = time.monotonic()
    answer = client.post("/translate", json=SENTENCE)
    if answer.status_code != 200:
        raise SystemExit(f"{answer.status_code}: {answer.text}")
    return time.monotonic() - began


def rows_of(urls: dict[str, str], texts: str | list[str], rounds: int) -> Iterator[str]:
    """Ask in turns, and yield a row of the table for each case.

    urls: of the servers, by their names in `CASES`.
    texts: of the attack.
    rounds: turns of each case.
    """
    times: dict[str, list[float]] = {case: [] for case in CASES}
    with ExitStack() as stack:
        clients = {name: stack.enter_context(httpx.Client(base_url=url)) for name, url in urls.items()}
        for number in range(-1, rounds):
            for case, (asked, attacked) in CASES.items():
                with attack(attacked and urls[attacked], texts):
                    found = [seconds_of(clients[asked]) for _ in range(SENTENCES)]
                times[case] += found if number >= 0 else []  # the first warms up
    usual: dict[Any, float] = {}
    for case, (asked, _) in CASES.items():
        found = sorted(times[case])
        middle = median(found)
        ratio = middle / usual.setdefault(asked, middle)
        slow = (found[int(0.9 * len(found))], found[-1])
        yield " | ".join((case, f"{1e3 * middle:.1f}", f"{ratio:.2f}", *(f"{1e3 * t:.0f}" for t in slow)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attacked", type=Path, default=Path("models/tatoeba-de-en"))
    parser.add_argument("--asked", type=Path, default=Path("models/tatoeba-fr-en"))
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    both = (options.attacked, options.asked)
    with ExitStack() as stack:
        urls = {
            "one": stack.enter_context(server(both, (0, 1))),
            "beside": stack.enter_context(server(both[:1], (0, 1))),
            "several": stack.enter_context(server(both, (1, 2))),
        }
        for name, texts in ATTACKS.items():
            print(f"by {name} | median ms | times alone | p90 ms | worst ms")
            for row in rows_of(urls, texts, options.rounds):
                print(row, flush=True)


if __name__ == "__main__":
    main()
