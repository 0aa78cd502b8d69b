"""Compare Convoy with CTranslate2 on the CPU: equal widths and equal work, in alternating runs, as ratios.

DynamicConv (7 + 6 layers, GLU) on ONNX Runtime against a Transformer (6 + 6 layers) of CTranslate2, both with
random weights. Every sentence is translated to as many tokens as it has. A run is the whole translation:
encoder, decoding steps and search. The result is the ratio, since both share the machine and its noise.

    python -m loadtest.engine.cpu_compare --size iwslt --threads 1,2 --json out.json

Needs ctranslate2 from PyPI and the extra `torch`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loadtest.engine.processor import nearest, processor
from loadtest.random_transformer import Size, write_transformer

if TYPE_CHECKING:
    from engine.bundle.config import ModelConfig
    from engine.search.executor import Executor
    from engine.types import DecodeOptions

Array = NDArray[np.float32]
# share of a recorded ratio that must remain on the same family of processors and on another one
SAME_FAMILY_SHARE, OTHER_FAMILY_SHARE, NEAR = 0.75, 0.6, 1
NOISE_FACTOR = 1.05  # native operators may be this much slower than standard ones
PEER_PRECISIONS = {"int8": "int8", "fp32": "float32"}  # our names and CTranslate2's
SLOTS = 32
LEAST_RUNS = 2


MODEL_SIZES = {
    "iwslt": Size(512, 1024, 4, 10_000),
    "wmt-base": Size(512, 2048, 8, 32_000),
}


@dataclass(frozen=True, slots=True)
class Workload:
    precision: str
    threads: int
    sentences: int
    beam: int
    length: int  # tokens of each source and target without end-of-sentence


Translate = Callable[[Workload], float]  # seconds of one run


def convoy(size: Size, kernels: str) -> Translate:
    """Return a function that times Convoy on a model of this size."""
    from engine.bundle.config import ModelConfig
    from engine.bundle.stacks import StackConfig
    from engine.models import build
    from engine.types import DecodeOptions

    widths = (3, 7, 15, 31, 31, 31, 31)
    encoder, decoder = (
        StackConfig(size.dim, size.dim, size.ffn, size.heads, widths[:layers]) for layers in (7, 6)
    )
    vocabularies = size.vocab, size.vocab
    config = ModelConfig(
        "dynamicconv", *vocabularies, encoder, decoder, share_embeddings=True, share_output=True
    )
    model = build(config)
    model.initialise(1)
    weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
    return lanes_of(config, weights, DecodeOptions(), kernels, size.vocab)


def lanes_of(
    config: ModelConfig, weights: Mapping[str, NDArray[Any]], options: DecodeOptions, kernels: str, vocab: int
) -> Translate:
    """Make a lane of Convoy for each kind of work, over the graphs that a bundle of this model would hold.

    config: configuration of the model.
    weights: arrays by their names in a bundle.
    options: decoding options; the work sets beam and lengths.
    kernels: "pure" or "native".
    vocab: number of tokens from which sources are drawn.
    """
    from engine.bundle.bundle import graph_name
    from engine.executors.onnx.executor import OnnxExecutor
    from engine.executors.onnx.sessions import open_sessions
    from engine.native import library
    from engine.schedule.lane import Lane
    from engine.types import Request, Result
    from export.graphs.onnx import graphs

    onnx_graphs = {name: graph for name, graph in graphs(config).items() if isinstance(graph, bytes)}

    def open_executor(work: Workload) -> Executor:
        """Return an executor of the workload's precision, threads and beam."""
        parts = {p: onnx_graphs[graph_name(p, work.precision, kernels)] for p in ("encoder", "step")}
        operators = library() if kernels == "native" else None
        return OnnxExecutor(open_sessions(config, parts, weights, work.threads, operators), work.beam, SLOTS)

    lanes: dict[tuple[str, int, int], Lane] = {}

    def translate(work: Workload) -> float:
        """Return the seconds that Convoy takes for the workload."""
        key = (work.precision, work.threads, work.beam)
        if key not in lanes:
            lanes.clear()  # one model in memory at a time
            lanes[key] = Lane(open_executor(work), lambda request, out: request.reply(out))
        length = work.length
        exact = replace(options, min_length=length, max_length=length, max_length_b=length)
        exact = replace(exact, beam_size=work.beam)
        answers: list[Any] = []
        requests = [Request([*source, config.eos], exact, answers.append) for source in sources(work, vocab)]
        began = time.perf_counter()
        lanes[key].drain(requests)
        seconds = time.perf_counter() - began
        assert all(isinstance(a, Result) and len(a.hypotheses[0].tokens) == length for a in answers)
        return seconds

    return translate


def ctranslate2(size: Size, folder: Path) -> Translate:
    """Return a function that times CTranslate2 on a Transformer of this size."""
    write_transformer(size, folder)
    return translators_of(folder, size.vocab)


def translators_of(folder: Path, vocab: int) -> Translate:
    """Return a function that times CTranslate2; the translator of the last precision and threads stays open.

    folder: folder of a model with the words `t3`, `t4`, ...
    vocab: number of tokens that sources are drawn from.
    """
    import ctranslate2 as ct2

    translators: dict[tuple[str, int], Any] = {}

    def translate(work: Workload) -> float:
        """Return the seconds that CTranslate2 takes for the workload."""
        key = (work.precision, work.threads)
        if key not in translators:
            translators.clear()
            translators[key] = ct2.Translator(
                str(folder),
                device="cpu",
                compute_type=PEER_PRECISIONS[work.precision],
                inter_threads=1,
                intra_threads=work.threads,
            )
        batch = [[f"t{token}" for token in source] for source in sources(work, vocab)]
        limits: dict[str, Any] = {"min_decoding_length": work.length, "max_decoding_length": work.length}
        began = time.perf_counter()
        results = translators[key].translate_batch(batch, beam_size=work.beam, max_batch_size=0, **limits)
        seconds = time.perf_counter() - began
        assert all(len(f.hypotheses[0]) == work.length for f in results)
        return seconds

    return translate


def sources(work: Workload, vocab: int) -> list[list[int]]:
    """Return random token ids, the same for each number of sentences."""
    g = np.random.default_rng(work.sentences)
    drawn: list[list[int]] = g.integers(4, vocab, (work.sentences, work.length)).tolist()
    return drawn


def add_work(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the work, and the path of its record."""
    parser.add_argument("--threads", default="1,2", help="comma separated")
    parser.add_argument("--precisions", default="int8,fp32")
    parser.add_argument("--sentences", default="1,8,32")
    parser.add_argument("--beams", default="4,1")
    parser.add_argument("--length", type=int, default=25)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=math.inf, help="of a row, after which no run begins")
    parser.add_argument("--kernels", default="pure,native", help="of Convoy, comma separated")
    parser.add_argument("--json", type=Path, help="also write every figure here")


def table(contenders: Mapping[str, Translate], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the chosen work, print a row of each, and return every figure.

    contenders: function of each contender by its name, the peer first; ratios are its time over the last
        one's.
    options: parsed arguments of `add_work`: precisions, threads, beams, sentences, length, runs and seconds.
    """
    rows = []
    print(f"{processor()['cpu']}, {processor()['isa']}; {options.length} tokens each way, medians of")
    print(f"at most {options.runs} runs in ms\n")
    head = ["precision", "threads", "beam", "sentences", *contenders, "ratio", "least, most"]
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for precision in options.precisions.split(","):
        for threads, beam, count in product(
            *(map(int, part.split(",")) for part in (options.threads, options.beams, options.sentences))
        ):
            work = Workload(precision, threads, count, beam, options.length)
            timings = compare(contenders, work, options.runs, options.seconds)
            rows.append({"work": [precision, threads, beam, count], "seconds": timings})
            peer, *_, ours = timings.values()
            medians = [statistics.median(seconds) for seconds in timings.values()]
            ratios = [a / b for a, b in zip(peer, ours, strict=True)]
            cells = [precision, threads, beam, count, *(f"{s * 1e3:.1f}" for s in medians)]
            cells += [f"{medians[0] / medians[-1]:.2f}", f"{min(ratios):.2f}, {max(ratios):.2f}"]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    return rows


def save(path: Path, size: str, rows: list[dict[str, Any]]) -> None:
    """Write a record that `--check` reads.

    path: JSON file to write.
    size: name of the compared model.
    rows: figures returned by `table`.
    """
    setup = {**processor(), "cores": os.cpu_count(), "size": size, "versions": _versions()}
    setup["peer_isa"] = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    path.write_text(json.dumps({"setup": setup, "rows": rows}, indent=1) + "\n", encoding="utf-8")


def compare(
    contenders: Mapping[str, Translate], work: Workload, runs: int, limit: float = math.inf
) -> dict[str, list[float]]:
    """Return the seconds of each contender, in alternating runs after a warm-up.

    contenders: function of each contender, by name.
    work: precision, threads, sentences, beam size and length of each run.
    runs: greatest number of measured runs.
    limit: seconds after which no further run begins, once there are two.
    """
    timings: dict[str, list[float]] = {name: [] for name in contenders}
    began = time.monotonic()
    for run in range(runs + 1):
        if run > LEAST_RUNS and time.monotonic() - began > limit:
            break
        for name, translate in contenders.items():
            seconds = translate(work)
            if run:  # run 0 warms up
                timings[name].append(seconds)
    return timings


def pure_and_native(
    peer: Translate, ours: Callable[[str], Translate], options: argparse.Namespace, size: str
) -> list[dict[str, Any]]:
    """Print the table of the peer and of our operators, and save it if a path is given.

    peer: run of CTranslate2.
    ours: function that makes a run of Convoy for its kernels, "pure" or "native".
    options: parsed arguments of `add_work`; its kernels are our contenders, its `json` the path of a record.
    size: name of the compared model in the record.
    """
    contenders = {"ctranslate2": peer, **{kernels: ours(kernels) for kernels in options.kernels.split(",")}}
    rows = table(contenders, options)
    if options.json:
        save(options.json, size, rows)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", default="iwslt", choices=MODEL_SIZES)
    add_work(parser)
    parser.add_argument(
        "--check",
        type=Path,
        nargs="+",
        help="records (see --json): fail when a ratio is far below that of the nearest processor's",
    )
    options = parser.parse_args()
    size = MODEL_SIZES[options.size]
    print(f"{options.size}: {size}; on", end=" ")
    with tempfile.TemporaryDirectory() as folder:
        peer = ctranslate2(size, Path(folder))
        rows = pure_and_native(peer, partial(convoy, size), options, options.size)
    if options.check:
        _check(rows, options.check)


def _check(rows: list[dict[str, Any]], records: Sequence[Path]) -> None:
    """Compare the fastest runs, which noise disturbs least, with the record of the nearest processor.

    Raises SystemExit that names the slower workloads.
    """
    here = processor()
    path, record, far = nearest(records, here)
    least = SAME_FAMILY_SHARE if far <= NEAR else OTHER_FAMILY_SHARE
    print(f"checked against {path.name} ({record['setup']['cpu']}, {record['setup'].get('isa')}): at least")
    print(f"{least:.0%} of its ratios; this is {here['cpu']}, family {here['family']}, {here['isa']}")
    before = {tuple(row["work"]): _best_ratio(row) for row in record["rows"]}
    slower = [
        f"{row['work']}: {_best_ratio(row):.2f}, recorded {before[tuple(row['work'])]:.2f}"
        for row in rows
        if tuple(row["work"]) in before and _best_ratio(row) < least * before[tuple(row["work"])]
    ]
    slower += [
        f"{row['work']}: slower than the standard operators"
        for row in rows
        if "pure" in row["seconds"] and _gain_over_pure(row) < 1 / NOISE_FACTOR
    ]
    if slower:
        raise SystemExit(
            "slower beside CTranslate2 than recorded (precision, threads, beam, sentences): "
            + "; ".join(slower)
        )


def _gain_over_pure(row: dict[str, Any]) -> float:
    """Return the time of the fastest run with standard operators divided by that with native ones."""
    seconds: dict[str, list[float]] = row["seconds"]
    return min(seconds["pure"]) / min(seconds["native"])


def _best_ratio(row: dict[str, Any]) -> float:
    """Return the time of CTranslate2's fastest run divided by that of our fastest."""
    seconds: dict[str, list[float]] = row["seconds"]
    return min(seconds["ctranslate2"]) / min(seconds["native"])


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("ctranslate2", "onnxruntime", "numpy")}


if __name__ == "__main__":
    main()
