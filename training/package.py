"""Write the bundle of a finished run: weights, graphs, vocabulary and a model card with scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from engine.bundle.bundle import (
    MIN_SENTENCE_TOKENS,
    Bundle,
    Description,
    add_files,
    write_bundle,
)
from engine.bundle.stacks import StackConfig
from engine.bundle.weights import QuantizedWeight, quantize_rows
from engine.errors import InvalidRequest
from engine.models import build, weight_shapes
from engine.text.known_words import KNOWN_WORDS_FILE
from engine.types import MAX_SENTENCE_TOKENS
from export.graphs.onnx import graphs
from training import curve
from training.data import learnt_length
from training.recipe import Augment, Recipe

CARD = """# {name}

{summary}

- architecture: {architecture}, {parameters:,} parameters, {stored}
- data: {corpus}
- licence: {licence}
- attribution: {attribution}
- training: {updates} updates of at most {tokens} padded tokens a side, Adam, {schedule} schedule with {warmup} warm-up updates, label smoothing {smoothing}, {rates}, the last {average} checkpoints averaged
- made by: `convoy train training/recipes/{name}.toml --corpora CORPORA --device {device}`
"""
CARD_FILE: Final = "README.md"
CURVE_FILE: Final = "training.svg"
PAY_LESS = '"Pay Less Attention with Lightweight and Dynamic Convolutions", Wu et al. 2019'
FAMILIES = {
    "aan": 'AAN ("Accelerating Neural Transformer via an Average Attention Network", Zhang et al. 2018)',
    "cnn": f"CNN (Table 3 of {PAY_LESS})",
    "convs2s": 'ConvS2S ("Convolutional Sequence to Sequence Learning", Gehring et al. 2017)',
    "dynamicconv": f"DynamicConv ({PAY_LESS})",
    "lightconv_lm": f"DynamicConv language model ({PAY_LESS})",
    "slicenet": 'SliceNet ("Depthwise Separable Convolutions for Neural Machine Translation", Kaiser et al. 2017)',
    "ssru": 'SSRU ("From Research to Production and Back: Ludicrously Fast Neural Machine Translation", Kim et al. 2019)',
    "transformer": 'Transformer ("Attention Is All You Need", Vaswani et al. 2017)',
}
RATES = {
    "dropout": "dropout",
    "input_dropout": "input dropout",
    "relu_dropout": "ReLU dropout",
    "attention_dropout": "attention dropout",
    "symbol_dropout": "symbol dropout",
    "weight_dropout": "DropConnect",
}
DUE = """
**A full training is still due.** These weights had {updates} updates on two shared CPU cores. On a GPU this command runs the full recipe:
`convoy train training/recipes/{name}.toml --corpora CORPORA --device cuda --out models/{name}`
"""
CUT: Final = """
Sentences of more than {tokens} tokens are cut (`max_sentence_tokens`), because few training sentences are longer.
"""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Scores by metric over a file of lines, and the command that measures them."""

    lines: str
    scores: dict[str, float]
    command: str


@dataclass(frozen=True, slots=True)
class Example:
    """A source, its reference and the model's answer."""

    source: str
    reference: str
    output: str


def package(recipe: Recipe, run: Path, out: Path, device: str, *, overwrite: bool = False) -> Bundle:
    """Write the bundle of a finished run: its folder holds `averaged.pt` and `vocabulary.model`.

    A translating model gets the known words of the folder too.

    recipe: recipe of the run.
    run: folder of the run.
    out: folder of the bundle.
    device: device of the training, for the card.
    overwrite: replace an existing `out`.

    Raises InvalidRequest if the run has not finished, BundleError if `out` exists and `overwrite` is False.
    """
    averaged, vocabulary = run / "averaged.pt", run / "vocabulary.model"
    for path in (averaged, vocabulary):
        if not path.is_file():
            raise InvalidRequest(f"{run} holds no {path.name}: the run has not finished; run: convoy train")
    config = recipe.config()
    state = torch.load(averaged, map_location="cpu", weights_only=True)
    floats = {name: state[name].numpy() for name in weight_shapes(build(config))}
    weights: dict[str, NDArray[np.float32] | QuantizedWeight] = {
        name: quantize_rows(weight) if recipe.stored == "int8" and weight.ndim == 2 else weight
        for name, weight in floats.items()
    }
    description = Description(
        name=recipe.name,
        task=recipe.task,
        source=recipe.source,
        target=recipe.target,
        config=config,
        text={"kind": "sentencepiece", "model": "vocabulary.model"},
        generation=recipe.generation,
        truncates=recipe.train.crop_source > 0,
        max_sentence_tokens=_max_sentence_tokens(recipe, run),
    )
    card = _card(recipe, sum(weight.size for weight in floats.values()), device)
    if description.max_sentence_tokens != MAX_SENTENCE_TOKENS:
        card += CUT.format(tokens=description.max_sentence_tokens)
    files: dict[str, bytes | Path] = {"vocabulary.model": vocabulary}
    if (run / KNOWN_WORDS_FILE).is_file():
        files[KNOWN_WORDS_FILE] = run / KNOWN_WORDS_FILE
    points = curve.read(run)
    if points:
        files[CURVE_FILE] = curve.draw(points).encode()
        card += f"\n## Training curve\n\n![losses over the tokens seen]({CURVE_FILE})\n"
    files[CARD_FILE] = card.encode()
    return write_bundle(
        out, description, weights, {**files, **graphs(config)}, half=True, overwrite=overwrite
    )


def add_scores(bundle: Bundle, measurements: Sequence[Measurement], examples: Sequence[Example]) -> Bundle:
    """Write scores, the commands that measure them, and examples into a bundle's model card.

    bundle: the bundle.
    measurements: scores of one or more files.
    examples: random lines of the first file.
    """
    card = bundle.file(CARD_FILE).read_text(encoding="utf-8").split("\n## Scores\n")[0].rstrip()
    rows = [
        [name, measured.lines, f"{value:.2f}"]
        for measured in measurements
        for name, value in measured.scores.items()
    ]
    card += "\n\n## Scores\n\n" + _table(["metric", "lines", "score"], rows) + "\n"
    card += "".join(f"\nMeasured by `{measured.command}`.\n" for measured in measurements)
    if examples:
        columns = ["source", "reference", "output"]
        card += f"\n## Examples\n\n{len(examples)} lines of {measurements[0].lines}, drawn at random.\n\n"
        card += _table(columns, [[one.source, one.reference, one.output] for one in examples]) + "\n"
    return add_files(bundle.path, {CARD_FILE: card.encode()})


def _max_sentence_tokens(recipe: Recipe, run: Path) -> int:
    """Return the length at which sentences are cut; a translating model's depends on its training data."""
    pairs = run / "pairs.tsv.gz"
    if recipe.task != "translate" or not pairs.is_file():
        return MAX_SENTENCE_TOKENS
    return max(MIN_SENTENCE_TOKENS, learnt_length(run / "vocabulary.model", pairs))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _architecture(recipe: Recipe) -> str:
    """Return the name of the architecture for the model card."""
    config = recipe.config()
    stacks = [s for s in (config.encoder, config.decoder) if isinstance(s, StackConfig)]
    name = FAMILIES[config.architecture]
    if stacks and all(stack.mixer == "lightweight" for stack in stacks):
        name = name.replace("DynamicConv", "LightConv", 1)
    return f"{name}, preset `{recipe.model['preset']}`" if "preset" in recipe.model else name


def _data(recipe: Recipe) -> str:
    """Return a description of the training data."""
    beside = [f"`{name}` ({times} times)" for name, times in recipe.corpus.beside.items()]
    return "train split of " + " and ".join([f"`{recipe.corpus.folder}`", *beside])


def _card(recipe: Recipe, parameters: int, device: str) -> str:
    """Return the text of the model card."""
    train = recipe.train
    summary = {
        "translate": f"Translates {recipe.source} to {recipe.target}: short, everyday sentences.",
        "summarize": "Writes a title for the abstract of a scientific paper.",
        "language-model": f"Scores texts in {recipe.target}.",
    }[recipe.task]
    if train.crop_source:
        summary += (
            f" It was trained on the first {train.crop_source} tokens of each source and reads only these."
        )
    if train.copy_updates:
        summary += f" A copying task faded out over the first {train.copy_updates} updates."
    if recipe.augment != Augment():
        summary += " Training added variants of the pairs: single words, sentences without a final mark, several sentences at once, other numbers and names, lower case and CAPITALS."
    if recipe.weaknesses:
        summary += f"\n\n**Weaknesses**: {recipe.weaknesses}"
    rates = [f"{label} {getattr(train, key)}" for key, label in RATES.items() if getattr(train, key)]
    text = CARD.format(
        name=recipe.name,
        summary=summary,
        architecture=_architecture(recipe),
        parameters=parameters,
        stored="int8 by rows" if recipe.stored == "int8" else recipe.stored,
        corpus=_data(recipe),
        licence=recipe.licence,
        attribution=recipe.attribution,
        updates=train.updates,
        tokens=train.batch_tokens,
        schedule=train.schedule,
        warmup=train.warmup,
        smoothing=train.smoothing,
        rates=", ".join(rates) or "no dropout",
        average=train.average,
        device=device,
    )
    return text + (DUE.format(name=recipe.name, updates=train.updates) if device == "cpu" else "")
