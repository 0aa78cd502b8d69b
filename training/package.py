"""From a finished run to a bundle: weights in fp16, graphs, vocabulary and a model card with measured scores."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.bundle import Bundle, Description, add_files, write_bundle
from engine.errors import InvalidRequest
from engine.models import build, weight_shapes
from engine.stacks import StackConfig
from export.onnx import graphs
from training.recipe import Recipe

CARD = """# {name}

{summary}

- architecture: {architecture}, {parameters:,} parameters, fp16
- data: `{corpus}`, train split
- licence: {licence}
- attribution: {attribution}
- training: {updates} updates of at most {tokens} padded tokens a side, Adam, {schedule} schedule with {warmup} warm-up updates, label smoothing {smoothing}, {rates}, the last {average} checkpoints averaged
- made by: `convoy train training/recipes/{name}.toml --corpora CORPORA --device {device}`
"""
PAY_LESS = '"Pay Less Attention with Lightweight and Dynamic Convolutions", Wu et al. 2019'
FAMILIES = {
    "aan": 'AAN ("Accelerating Neural Transformer via an Average Attention Network", Zhang et al. 2018)',
    "cnn": f"CNN (Table 3 of {PAY_LESS})",
    "convs2s": 'ConvS2S ("Convolutional Sequence to Sequence Learning", Gehring et al. 2017)',
    "dynamicconv": f"DynamicConv ({PAY_LESS})",
    "lightconv_lm": f"DynamicConv language model ({PAY_LESS})",
    "slicenet": 'SliceNet ("Depthwise Separable Convolutions for Neural Machine Translation", Kaiser et al. 2017)',
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
**A full training is still due.** These weights had {updates} updates on two shared CPU cores. On a GPU one command does the full recipe:
`convoy train training/recipes/{name}.toml --corpora CORPORA --device cuda --out models/{name}`
"""


def package(recipe: Recipe, run: Path, out: Path, device: str, *, overwrite: bool = False) -> Bundle:
    """Write the bundle of a run whose folder holds `averaged.pt` and `vocabulary.model`.

    device: where it was trained, for the card. Raises InvalidRequest when the run has not finished, and
    BundleError when `out` exists and `overwrite` is off.
    """
    averaged, vocabulary = run / "averaged.pt", run / "vocabulary.model"
    for path in (averaged, vocabulary):
        if not path.is_file():
            raise InvalidRequest(f"{run} holds no {path.name}: the run has not finished; run: convoy train")
    config = recipe.config()
    state = torch.load(averaged, map_location="cpu", weights_only=True)
    weights = {name: state[name].numpy() for name in weight_shapes(build(config))}
    description = Description(
        name=recipe.name,
        task=recipe.task,
        source=recipe.source,
        target=recipe.target,
        config=config,
        text={"kind": "sentencepiece", "model": "vocabulary.model"},
        generation=recipe.generation,
    )
    card = _card(recipe, sum(w.size for w in weights.values()), device)
    files: dict[str, bytes | Path] = {"vocabulary.model": vocabulary, "README.md": card.encode()}
    return write_bundle(out, description, weights, files | graphs(config), half=True, overwrite=overwrite)


def add_scores(bundle: Bundle, scores: dict[str, float], command: str) -> Bundle:
    """State measured scores in the model card, with the command that measures them again."""
    card = bundle.file("README.md").read_text(encoding="utf-8").split("\n## Scores\n")[0].rstrip()
    rows = "\n".join(f"| {name} | {value:.2f} |" for name, value in scores.items())
    card += f"\n\n## Scores\n\n| metric | test |\n|---|---|\n{rows}\n\nMeasured by `{command}`.\n"
    return add_files(bundle.path, {"README.md": card.encode()})


def _architecture(recipe: Recipe) -> str:
    config = recipe.config()
    stacks = [s for s in (config.encoder, config.decoder) if isinstance(s, StackConfig)]
    name = FAMILIES[config.architecture]
    if stacks and all(stack.mixer == "lightweight" for stack in stacks):
        name = name.replace("DynamicConv", "LightConv", 1)
    return f"{name}, preset `{recipe.model['preset']}`" if "preset" in recipe.model else name


def _card(recipe: Recipe, parameters: int, device: str) -> str:
    train = recipe.train
    summary = {
        "translate": f"Translates {recipe.source} to {recipe.target}: short, everyday sentences.",
        "summarize": "Writes a title for the abstract of a scientific paper.",
        "language-model": f"Scores texts in {recipe.target}.",
    }[recipe.task]
    if train.crop_source:
        summary += f" Trained on the first {train.crop_source} tokens of each source."
    if train.copy_updates:
        summary += f" A copying task faded out over the first {train.copy_updates} updates."
    rates = [f"{said} {getattr(train, key)}" for key, said in RATES.items() if getattr(train, key)]
    text = CARD.format(
        name=recipe.name,
        summary=summary,
        architecture=_architecture(recipe),
        parameters=parameters,
        corpus=recipe.corpus.folder,
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
