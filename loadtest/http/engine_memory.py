"""Memory of engine processes: private MiB of each, and the MiB of all together where shared pages count once.

Each engine process has answered some sentences before it is looked at, so that its lanes are what they are.

    python -m loadtest.http.engine_memory --model models/tatoeba-de-en --engines 1,2,5 --precisions int8,fp32
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

from loadtest.http.closedloop import busiest
from loadtest.http.openloop import translate
from loadtest.http.serving import memory_mib, named_processes, serving_convoy
from loadtest.texts import sentences


def measure(model: Path, precision: str, engines: int, seconds: float) -> tuple[float, float]:
    """Measure engine processes of a server: median private MiB of one, MiB of all together.

    model: a bundle.
    precision: of the model.
    engines: how many there are.
    seconds: for which they are asked before.
    """
    settings = {"MODELS": model, "PRECISION": precision, "THREADS": 1, "FRONTENDS": 1, "ENGINES": engines}
    ask = translate({"source": "de", "target": "en"}, stream=False)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with serving_convoy(settings, log=log) as (url, _):
            busiest(url, ask, sentences(1), 8 * engines, seconds)
            named = named_processes(log).items()
            memory = [memory_mib(pid) for name, pid in named if name.startswith("engine")]
    private = median(one["Private_Clean"] + one["Private_Dirty"] for one in memory)
    return private, sum(one["Pss"] for one in memory)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=Path("models/tatoeba-de-en"))
    parser.add_argument("--engines", default="1,2,5", help="with commas between")
    parser.add_argument("--precisions", default="int8,fp32", help="with commas between")
    parser.add_argument("--seconds", type=float, default=3.0, help="for which each is asked before")
    options = parser.parse_args()
    print("precision | engine processes | private MiB of one | MiB of all")
    for precision in options.precisions.split(","):
        for engines in map(int, options.engines.split(",")):
            private, together = measure(options.model, precision, engines, options.seconds)
            print(f"{precision} | {engines} | {private:.0f} | {together:.0f}", flush=True)


if __name__ == "__main__":
    main()
