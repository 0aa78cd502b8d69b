"""Convoy beside CTranslate2 on the CPU: the same widths, the same work, alternating runs, ratios.

DynamicConv (7 + 6 layers, GLU) on ONNX Runtime against a Transformer (6 + 6 layers) of CTranslate2, both with
random weights, every sentence translated to exactly as many tokens as it has. A run is the whole translation:
encoder, decoding steps and search. What counts is the ratio; both share the machine and its noise.

    python loadtest/cpu_compare.py --size iwslt --threads 1,2 --json out.json

Needs ctranslate2 from PyPI and the extra `torch`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from engine.config import ModelConfig
    from engine.types import DecodeOptions

Array = NDArray[np.float32]
ENDINGS = {"int8": "int8", "fp32": "float32"}  # our names of precisions, and CTranslate2's


@dataclass(frozen=True, slots=True)
class Size:
    """What both networks have in common."""

    dim: int
    ffn: int
    heads: int
    vocab: int


SIZES = {
    "iwslt": Size(512, 1024, 4, 10_000),
    "wmt-base": Size(512, 2048, 8, 32_000),
}


@dataclass(frozen=True, slots=True)
class Work:
    precision: str
    threads: int
    sentences: int
    beam: int
    length: int  # tokens of each source and target, end-of-sentence apart


Translate = Callable[[Work], float]  # seconds of one run


def convoy(size: Size, kernels: str) -> Translate:
    """Our engine's lane over the graphs that a bundle of this size would hold."""
    from engine.config import ModelConfig
    from engine.models import build
    from engine.stacks import StackConfig
    from engine.types import DecodeOptions

    widths = (3, 7, 15, 31, 31, 31, 31)
    stacks = (StackConfig(size.dim, size.dim, size.ffn, size.heads, widths[:layers]) for layers in (7, 6))
    config = ModelConfig(
        "dynamicconv", size.vocab, size.vocab, *stacks, share_embeddings=True, share_output=True
    )
    model = build(config)
    model.initialise(1)
    weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
    return lanes_of(config, weights, DecodeOptions(), kernels, size.vocab)


def lanes_of(
    config: ModelConfig, weights: dict[str, Array], options: DecodeOptions, kernels: str, vocab: int
) -> Translate:
    """A lane of ours for each kind of work. options: of which beam and lengths are the work's. vocab: tokens
    that sources are drawn from."""
    from engine.bundle import graph_name
    from engine.executors.onnx import OnnxExecutor, open_sessions
    from engine.lane import Lane
    from engine.native import library
    from engine.types import Request, Result
    from export.onnx import graphs

    made = {name: graph for name, graph in graphs(config).items() if isinstance(graph, bytes)}
    lanes: dict[tuple[str, int, int], Lane] = {}

    def translate(work: Work) -> float:
        key = (work.precision, work.threads, work.beam)
        if key not in lanes:
            parts = {p: made[graph_name(p, work.precision, kernels)] for p in ("encoder", "step")}
            operators = library() if kernels == "native" else None
            sessions = open_sessions(config, parts, weights, work.threads, operators)
            lanes[key] = Lane(OnnxExecutor(sessions, work.beam, 32), lambda request, out: request.reply(out))
        exact = {"min_length": work.length, "max_length": work.length, "max_length_b": work.length}
        wanted = replace(options, beam_size=work.beam, **exact)
        answers: list[Any] = []
        batch = sources(work, vocab)
        requests = [Request([*source, config.eos], wanted, answers.append) for source in batch]
        began = time.perf_counter()
        lanes[key].admit(requests)
        while lanes[key].active:
            lanes[key].step()
        taken = time.perf_counter() - began
        assert all(isinstance(a, Result) and len(a.hypotheses[0].tokens) == work.length for a in answers)
        return taken

    return translate


def ctranslate2(size: Size, folder: Path) -> Translate:
    """The peer, as its own converter would write a Transformer of these widths."""
    from ctranslate2.specs import transformer_spec

    g = np.random.default_rng(0)
    spec = transformer_spec.TransformerSpec.from_config((6, 6), size.heads, pre_norm=False)

    def linear(part: Any, outputs: int, inputs: int) -> None:
        part.weight = (g.standard_normal((outputs, inputs)) / np.sqrt(inputs)).astype(np.float32)
        part.bias = np.zeros(outputs, np.float32)

    def norm(part: Any) -> None:
        part.gamma, part.beta = np.ones(size.dim, np.float32), np.zeros(size.dim, np.float32)

    def attention(part: Any, outputs: tuple[int, ...]) -> None:
        for layer, count in zip(part.linear, outputs, strict=True):
            linear(layer, count * size.dim, size.dim)
        norm(part.layer_norm)

    table = (g.standard_normal((size.vocab, size.dim)) * size.dim**-0.5).astype(np.float32)
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = True
        embeddings = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embeddings.weight = table
        side.position_encodings.encodings = np.zeros((1024, size.dim), np.float32)
        for layer in side.layer:
            attention(layer.self_attention, (3, 1))
            if side is spec.decoder:
                attention(layer.attention, (1, 2, 1))
            linear(layer.ffn.linear_0, size.ffn, size.dim)
            linear(layer.ffn.linear_1, size.dim, size.ffn)
            norm(layer.ffn.layer_norm)
    linear(spec.decoder.projection, size.vocab, size.dim)
    words = ["<unk>", "<s>", "</s>", *(f"t{i}" for i in range(3, size.vocab))]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.validate()
    spec.optimize(quantization=None)
    spec.save(str(folder))
    return translators_of(folder, size.vocab)


def translators_of(folder: Path, vocab: int) -> Translate:
    """A translator of CTranslate2 for each kind of work, over the model of the folder."""
    import ctranslate2 as ct2

    translators: dict[tuple[str, int], Any] = {}

    def translate(work: Work) -> float:
        key = (work.precision, work.threads)
        if key not in translators:
            kind = ENDINGS[work.precision]
            translators[key] = ct2.Translator(
                str(folder), device="cpu", compute_type=kind, inter_threads=1, intra_threads=work.threads
            )
        batch = [[f"t{token}" for token in source] for source in sources(work, vocab)]
        limits = {"min_decoding_length": work.length, "max_decoding_length": work.length}
        began = time.perf_counter()
        found = translators[key].translate_batch(batch, beam_size=work.beam, max_batch_size=0, **limits)
        taken = time.perf_counter() - began
        assert all(len(f.hypotheses[0]) == work.length for f in found)
        return taken

    return translate


def sources(work: Work, vocab: int) -> list[list[int]]:
    g = np.random.default_rng(work.sentences)
    drawn: list[list[int]] = g.integers(4, vocab, (work.sentences, work.length)).tolist()
    return drawn


def compare(contenders: dict[str, Translate], work: Work, runs: int) -> dict[str, list[float]]:
    """Seconds of each contender, in alternating runs after one to warm up."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for run in range(runs + 1):
        for name, translate in contenders.items():
            seconds = translate(work)
            if run:
                taken[name].append(seconds)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", default="iwslt", choices=SIZES)
    parser.add_argument("--threads", default="1,2", help="comma separated")
    parser.add_argument("--precisions", default="int8,fp32")
    parser.add_argument("--sentences", default="1,8,32")
    parser.add_argument("--beams", default="4,1")
    parser.add_argument("--length", type=int, default=25)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write every figure here")
    parser.add_argument(
        "--check", type=Path, help="fail when a ratio is more than a quarter below this file's (see --json)"
    )
    chosen = parser.parse_args()
    size = SIZES[chosen.size]
    rows = []
    print(f"{chosen.size}: {size}, {chosen.length} tokens each way, medians of {chosen.runs} runs in ms")
    print("| precision | threads | beam | sentences | CTranslate2 | pure | native | ratio | least, most |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        contenders = {
            "ctranslate2": ctranslate2(size, Path(folder)),
            "pure": convoy(size, "pure"),
            "native": convoy(size, "native"),
        }
        for precision in chosen.precisions.split(","):
            for threads in map(int, chosen.threads.split(",")):
                for beam in map(int, chosen.beams.split(",")):
                    for count in map(int, chosen.sentences.split(",")):
                        work = Work(precision, threads, count, beam, chosen.length)
                        taken = compare(contenders, work, chosen.runs)
                        rows.append({"work": [precision, threads, beam, count], "seconds": taken})
                        print(row(work, taken), flush=True)
    if chosen.check:
        _check(rows, json.loads(chosen.check.read_text(encoding="utf-8")))
    if chosen.json:
        setup = {"cpu": _cpu(), "cores": os.cpu_count(), "size": chosen.size, "versions": _versions()}
        chosen.json.write_text(json.dumps({"setup": setup, "rows": rows}, indent=1) + "\n", encoding="utf-8")


def _check(rows: list[dict[str, Any]], record: dict[str, Any]) -> None:
    """By the fastest runs, which noise disturbs least. Raises SystemExit that names what got slower. Another
    processor has other ratios: there nothing is compared, and that is said."""
    if record["setup"]["cpu"] != _cpu():
        print(f"not checked: the record is of {record['setup']['cpu']}, this is {_cpu()}")
        return
    before = {tuple(row["work"]): _best(row) for row in record["rows"]}
    slower = [
        f"{row['work']}: {_best(row):.2f}, recorded {before[tuple(row['work'])]:.2f}"
        for row in rows
        if tuple(row["work"]) in before and _best(row) < 0.75 * before[tuple(row["work"])]
    ]
    if slower:
        raise SystemExit(
            "slower beside CTranslate2 than recorded (precision, threads, beam, sentences): "
            + "; ".join(slower)
        )


def _best(row: dict[str, Any]) -> float:
    seconds: dict[str, list[float]] = row["seconds"]
    return min(seconds["ctranslate2"]) / min(seconds["native"])


def row(work: Work, taken: dict[str, list[float]]) -> str:
    peer, pure, native = (statistics.median(taken[name]) for name in ("ctranslate2", "pure", "native"))
    each = [a / b for a, b in zip(taken["ctranslate2"], taken["native"], strict=True)]
    cells = [
        work.precision,
        work.threads,
        work.beam,
        work.sentences,
        *(f"{s * 1e3:.1f}" for s in (peer, pure, native)),
    ]
    return (
        "| "
        + " | ".join(map(str, [*cells, f"{peer / native:.2f}", f"{min(each):.2f}, {max(each):.2f}"]))
        + " |"
    )


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine()
    )


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("ctranslate2", "onnxruntime", "numpy")}


if __name__ == "__main__":
    main()
