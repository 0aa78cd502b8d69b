"""Compare the BLEU of fp32 with that of a GPU's int8 (weights of 8 bits, inputs of 16), on the CPU.

    python -m loadtest.engine.gpu_bleu BUNDLE ... --texts test.tsv.gz --count 500
    python -m loadtest.engine.gpu_bleu BUNDLE ... --texts newstest2013.de.gz --references newstest2013.en.gz

The models run in plain torch, without the kernels. int8 weights are the numbers of the backend `cuda`,
multiplied by their scales in fp16, as `expand.cu` does. Needs sacrebleu from PyPI and the extra `torch`.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from engine.bundle.bundle import Bundle, open_bundle
from engine.executors.cuda.int8 import move_as_int8
from engine.executors.torch.executor import TorchExecutor
from engine.kernels.fused import FusedMode
from engine.kernels.int8 import bytes_of
from engine.kernels.modes import Mode
from engine.models import load
from engine.models.model import Model
from loadtest.engine.int8_bleu import answers_of_lane

KINDS: Final = ("fp32", "int8")
SLOTS: Final = 32


class ReferencedText(NamedTuple):
    source: str
    reference: str


def model_of(bundle: Bundle, kind: str) -> Model:
    """Return the model of a bundle on the CPU in one of `KINDS`."""
    weights = bundle.weights()
    model = load(bundle.config, weights)
    if kind == "fp32":
        return model
    model = move_as_int8(model, weights, "cpu", torch.float16)
    for module in model.modules():
        for name, weight in module._parameters.items():
            numbers = None if weight is None else bytes_of(weight)
            if numbers is not None:
                widened = numbers.values.float() * numbers.scales[:, None]
                module._parameters[name] = Parameter(widened.half(), requires_grad=False)
    return model


class Float32Sums(Mode):
    """Computes linear maps of fp16 by sums in float32, like a GPU, in less time than torch's own for CPUs."""

    def __init__(self) -> None:
        super().__init__()
        self.table = {F.linear: self._linear}
        self._weights: dict[int, Tensor] = {}  # in float32, by the identity of a parameter

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if x.dtype == torch.float32:
            return F.linear(x, weight, bias)
        wide = self._weights.get(id(weight))
        if wide is None:
            wide = weight.float()
            if isinstance(weight, Parameter):
                self._weights[id(weight)] = wide
        return F.linear(x.float(), wide, None if bias is None else bias.float()).to(x.dtype)


class Float32Executor(TorchExecutor):
    """A lane that computes linear maps under `Float32Sums`."""

    def __init__(self, model: Model, beams: int) -> None:
        super().__init__(model, beams, SLOTS)
        self.sums = Float32Sums()

    def _enter_modes(self, stack: ExitStack, clock: Any = 0, **options: Any) -> FusedMode | None:
        stack.enter_context(self.sums)
        return super()._enter_modes(stack, clock, **options)


def compare(folder: Path, pairs: Sequence[ReferencedText]) -> dict[str, float]:
    """Return the BLEU of a bundle in each of `KINDS`, and the share of equal answers."""
    from sacrebleu import corpus_bleu

    bundle = open_bundle(folder)
    sources, references = zip(*pairs, strict=True)
    answers = {}
    for kind in KINDS:
        executor = Float32Executor(model_of(bundle, kind), bundle.options.beam_size)
        answers[kind] = answers_of_lane(executor, bundle, sources, bundle.options)
    figures = {kind: round(corpus_bleu(answers[kind], [references]).score, 2) for kind in KINDS}
    equal = sum(a == b for a, b in zip(*answers.values(), strict=True))
    return figures | {"equal answers": round(equal / len(pairs), 3)}


def read_pairs(texts: Path, references: Path | None, count: int, *, reverse: bool) -> list[ReferencedText]:
    """Return the first `count` pairs of a file with two columns, or of two files.

    texts: file of sources; without `references` its second column has the references.
    references: file of references, one a line, or None.
    count: largest number of pairs.
    reverse: exchange sources and references.
    """
    lines = _lines(texts)
    if references:
        pairs = [*islice(zip(lines, _lines(references), strict=True), count)]
    else:
        columns = (line.split("\t") for line in islice(lines, count))
        pairs = [(source, reference) for source, reference, *_ in columns]
    return [ReferencedText(*(pair[::-1] if reverse else pair)) for pair in pairs]


def _lines(path: Path) -> Iterator[str]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundles", type=Path, nargs="+")
    parser.add_argument("--texts", type=Path, required=True, help="sources and references, separated by tabs")
    parser.add_argument("--references", type=Path, help="references, if --texts has sources only")
    parser.add_argument("--reverse", action="store_true", help="exchange sources and references")
    parser.add_argument("--count", type=int, default=500)
    given = parser.parse_args()
    torch.set_num_threads(1)  # products of fp16 on the CPU gain nothing from more
    pairs = read_pairs(given.texts, given.references, given.count, reverse=given.reverse)
    for folder in given.bundles:
        print(json.dumps({"model": folder.name, "lines": len(pairs)} | compare(folder, pairs)), flush=True)


if __name__ == "__main__":
    main()
