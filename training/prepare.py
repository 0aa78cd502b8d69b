"""From corpora to encoded pairs: cleaned, augmented, with a vocabulary. All of it is done once a run."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

from training import data
from training.augmentation import augment
from training.cleaning import clean
from training.recipe import Recipe

Pair = tuple[str, str]
Teacher = Callable[[list[str]], list[str]]  # sources to targets
Counts = dict[str, int]
PAIRS, VOCABULARY = "pairs.tsv.gz", "vocabulary.model"  # in the folder of a run
REPORT = "pairs.json"  # in the folder of a run: how many pairs there are, and how many were left out


def prepare(recipe: Recipe, corpora: Path, folder: Path) -> list[data.Pairs]:
    """Return the training pairs, the validation pairs of the recipe's corpus and of those beside it.

    corpora: the folder that holds the corpora.
    folder: of the run; gets `pairs.tsv.gz`, what is trained on, `pairs.json`, and `vocabulary.model`.
    """
    write_pairs(recipe, corpora, folder)
    stored, vocabulary = folder / PAIRS, folder / VOCABULARY
    valid = [
        _read_pairs(recipe, corpora, name, "valid") for name in (recipe.corpus.folder, *recipe.corpus.beside)
    ]
    return [data.encode(vocabulary, pairs, recipe) for pairs in (data.read_pairs(stored, 0, 1), *valid)]


def write_pairs(recipe: Recipe, corpora: Path, folder: Path, teacher: Teacher | None = None) -> None:
    """Write the training pairs and the vocabulary of a run, those that its folder lacks; see `prepare`.

    teacher: makes the targets that are learnt, in the place of the corpora's (Kim and Rush 2016,
        "Sequence-Level Knowledge Distillation"); None: the corpora's are.
    """
    stored, vocabulary = folder / PAIRS, folder / VOCABULARY
    if stored.exists() and vocabulary.exists():
        return
    pairs = _gather_pairs(recipe, corpora, folder, teacher)
    if not vocabulary.exists():
        data.train_vocabulary(recipe, pairs, vocabulary.with_suffix(""))
    _store(augment(pairs, recipe.augment, (recipe.source, recipe.target), recipe.train.seed), stored)


def _gather_pairs(recipe: Recipe, corpora: Path, folder: Path, teacher: Teacher | None) -> list[Pair]:
    """The training pairs of all corpora of a recipe, cleaned if it says so, with placeholders."""
    corpus = recipe.corpus
    weights = {corpus.folder: 1, **corpus.beside}
    parts = [(name, part) for name in weights for part in ("valid", "test")]
    held_out = [
        pair for name, part in parts if corpus.clean for pair in _read_pairs(recipe, corpora, name, part)
    ]
    pairs: list[Pair] = []
    report: dict[str, Counts] = {}
    for name, times in weights.items():
        lines = _read_pairs(recipe, corpora, name, "train")
        report[name] = {"read": len(lines)}
        if teacher is not None:
            sources = list(dict.fromkeys(source for source, _ in lines))
            lines = list(zip(sources, teacher(sources), strict=True))
        if corpus.clean:
            cleaned = clean(lines, held_out, (recipe.source, recipe.target))
            lines = cleaned.pairs
            report[name] |= cleaned.dropped
        report[name] |= {"left": len(lines), "times": times}
        pairs += lines * times
    (folder / REPORT).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if recipe.config().reads_source:
        return data.with_placeholders(pairs, corpus.placeholder_share, recipe.train.seed)
    return pairs


def _read_pairs(recipe: Recipe, corpora: Path, name: str, part: str) -> list[Pair]:
    reads = recipe.config().reads_source  # a language model learns targets only
    target = recipe.corpus.target_column
    columns = recipe.corpus.source_column if reads else target, target
    return data.read_pairs(corpora / name / f"{part}.tsv.gz", *columns)


def _store(pairs: list[Pair], path: Path) -> None:
    partial = path.with_suffix(".partial")
    with gzip.open(partial, "wt", encoding="utf-8", compresslevel=1) as out:
        out.writelines(f"{source}\t{target}\n" for source, target in pairs)
    os.replace(partial, path)
