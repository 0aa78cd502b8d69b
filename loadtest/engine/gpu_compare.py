"""Compare Convoy with CTranslate2 on one GPU: equal widths and lengths, random weights, in alternating runs.

A DynamicConv and a Transformer of 200M weights in Convoy's engine, and a Transformer of the same widths in
CTranslate2. Every sentence is translated to the length of its translation in newstest2013. CTranslate2 gets
all sentences at once, sorted by length, in its best batches; Convoy gets them in their order, in flight.

    python -m loadtest.engine.gpu_compare --json out.json
    python -m loadtest.engine.gpu_compare --device cpu --tiny        # tries the script itself, anywhere

Needs ctranslate2 from PyPI, and libcublas.so.12 for it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from engine.backends import LaneSize, Placement
from engine.executors import open_executors
from engine.schedule.lane import Lane
from loadtest.engine.gpu_bench import models
from loadtest.engine.gpu_bench.clock import wait
from loadtest.engine.gpu_bench.contenders import Flow, make_requests, straight, through
from loadtest.engine.gpu_bench.sentences import lengths, sentences
from loadtest.random_transformer import Size, write_transformer

MODEL_SIZE: Final = Size(1024, 4096, 16, 32_768)
SLOTS: Final = 256  # sentences in flight, and largest static batch
BATCHES: Final = (64, 128, 256)  # sizes of static batches; the best one counts
BEAM: Final = 4
TURNS: Final = 3
SINGLES: Final = 12  # sentences that are translated one at a time
PEER_PRECISIONS: Final = ("float16", "bfloat16", "int8_float16")
PRECISIONS: Final = ("fp16", "bf16")
TINY_SIZE: Final = Size(32, 64, 4, models.SMALL_VOCABULARY)
TINY_COUNT: Final = 8  # sentences
PEER: Final = "ctranslate2"  # folder of its model


@dataclass(frozen=True, slots=True)
class Setup:
    """The work of all contenders.

    device: "cuda", "cuda:1" or "cpu".
    folder: directory of the models.
    pairs: source and target tokens of each sentence.
    tiny: all models are small.
    """

    device: str
    folder: Path
    pairs: Sequence[tuple[int, int]]
    tiny: bool

    @property
    def size(self) -> Size:
        """Widths of CTranslate2's Transformer."""
        return TINY_SIZE if self.tiny else MODEL_SIZE


class CTranslate2Model:
    """A Transformer in CTranslate2."""

    def __init__(self, setup: Setup, precision: str) -> None:
        """setup: work and device.
        precision: CTranslate2's name of the type of weights and activations.
        """
        import ctranslate2

        name, _, number = setup.device.partition(":")
        folder = str(setup.folder / PEER)
        self._translator = ctranslate2.Translator(
            folder, device=name, device_index=int(number or 0), compute_type=precision
        )
        draw = np.random.default_rng(0)
        self._sources = [[f"t{i}" for i in draw.integers(4, setup.size.vocab, n)] for n, _ in setup.pairs]
        self.targets = [target for _, target in setup.pairs]
        self._order = sorted(range(len(setup.pairs)), key=self.targets.__getitem__)

    def sentences_per_second(self) -> float:
        """Return the sentences a second of the best size of batches."""
        return max(self._in_batches(size) for size in BATCHES)

    def _in_batches(self, size: int) -> float:
        began, answers = time.perf_counter(), []
        for first in range(0, len(self._order), size):
            chosen = self._order[first : first + size]
            length = round(statistics.mean(self.targets[i] for i in chosen))
            answers += self._translator.translate_batch(
                [self._sources[i] for i in chosen],
                beam_size=BEAM,
                max_batch_size=0,
                min_decoding_length=length,
                max_decoding_length=length,
                asynchronous=True,
            )
        for answer in answers:
            answer.result()
        return len(self._order) / (time.perf_counter() - began)

    def translate(self, number: int, beam: int) -> None:
        """Translate one sentence by its number."""
        length = self.targets[number]
        self._translator.translate_batch(
            [self._sources[number]], beam_size=beam, min_decoding_length=length, max_decoding_length=length
        )


class ConvoyModel:
    """A model in Convoy's engine, and lanes of one slot."""

    def __init__(self, setup: Setup, name: str, precision: str) -> None:
        """setup: work and device.
        name: key of `models.MODELS`.
        precision: type of weights and activations.
        """
        bundle = models.bundle_of(setup.folder, name, tiny=setup.tiny)
        self._device, self._work = setup.device, sentences(bundle.config, setup.pairs)
        self.targets = [sentence.target for sentence in self._work]
        backend = "torch" if setup.device == "cpu" else "cuda"
        lanes = (LaneSize(BEAM, SLOTS), LaneSize(1, 1), LaneSize(BEAM, 1))
        many, *alone = open_executors(bundle, Placement(backend, setup.device, precision, lanes=lanes))
        self.flow = Flow(many, BEAM)
        self._alone = {executor.beams: Lane(executor, straight) for executor in alone}

    def sentences_per_second(self) -> float:
        """Return the sentences a second of all sentences, with filling and emptying of the slots."""
        requests, answers = make_requests(self._work, BEAM)
        began = time.perf_counter()
        self.flow.submit(requests)
        answers.results()
        return len(self._work) / (time.perf_counter() - began)

    def translate(self, number: int, beam: int) -> None:
        """Translate one sentence by its number."""
        requests, _ = make_requests([self._work[number]], beam)
        through(self._alone[beam], requests)
        wait(self._device)


def compare(setup: Setup) -> list[dict[str, Any]]:
    """Return a row for each model and precision, with medians of alternating turns."""
    (setup.folder / PEER).mkdir()
    write_transformer(setup.size, setup.folder / PEER)
    on_cpu = setup.device == "cpu"
    contenders: dict[str, CTranslate2Model | ConvoyModel] = {}
    with ExitStack() as stack:
        for precision in ("float32",) if on_cpu else PEER_PRECISIONS:
            contenders[f"CTranslate2, Transformer, {precision}"] = CTranslate2Model(setup, precision)
        for model, precision in product((models.ATTENTION, models.SIX), ("fp32",) if on_cpu else PRECISIONS):
            convoy = ConvoyModel(setup, model, precision)
            stack.callback(convoy.flow.stop)
            contenders[f"Convoy, {model}, {precision}"] = convoy
        turns = [{name: _figures(each) for name, each in contenders.items()} for _ in range(TURNS + 1)]
    return [
        {"contender": name}
        | {key: statistics.median(turn[name][key] for turn in turns[1:]) for key in turns[0][name]}
        for name in contenders
    ]


def _tokens_per_second(contender: CTranslate2Model | ConvoyModel, beam: int) -> float:
    """Return the median tokens a second of single sentences."""
    rates = []
    for number, length in enumerate(contender.targets[:SINGLES]):
        began = time.perf_counter()
        contender.translate(number, beam)
        rates.append((length + 1) / (time.perf_counter() - began))
    return statistics.median(rates)


def _figures(contender: CTranslate2Model | ConvoyModel) -> dict[str, float]:
    return {
        f"sentences/s, beam {BEAM}": contender.sentences_per_second(),
        "tokens/s, beam 1": _tokens_per_second(contender, 1),
        f"tokens/s, beam {BEAM}": _tokens_per_second(contender, BEAM),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, ...; cpu to try it")
    parser.add_argument("--corpora", type=Path, default=Path("../shared/corpora"), help="holds newstest/")
    parser.add_argument("--count", type=int, default=2_000, help="number of sentences")
    parser.add_argument("--json", type=Path, help="file of the record")
    parser.add_argument("--tiny", action="store_true", help="small models and few sentences")
    options = parser.parse_args(arguments)
    _, pairs = lengths(options.corpora, TINY_COUNT if options.tiny else options.count)
    with tempfile.TemporaryDirectory() as folder:
        rows = compare(Setup(options.device, Path(folder), pairs, options.tiny))
    for row in rows:
        print({key: value if isinstance(value, str) else round(value) for key, value in row.items()})
    if options.json:
        device = "cpu" if options.device == "cpu" else torch.cuda.get_device_name(options.device)
        record = {"device": device, "torch": torch.__version__, "rows": rows}
        options.json.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
