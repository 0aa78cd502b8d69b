"""Make encoded pairs of corpora, once in each run: clean, augment, train the vocabulary."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.bundle.bundle import Bundle
from engine.bundle.folder import replacing_file
from engine.text.known_words import KNOWN_WORDS_FILE
from training import data, encoded
from training.augmentation import augment
from training.cleaning import clean
from training.recipe import Recipe
from training.words.known_words import learn

Pair = tuple[str, str]
Counts = dict[str, int]
REPORT = "pairs.json"  # file of a run's folder with the numbers of kept and dropped pairs


@dataclass(frozen=True, slots=True)
class Synthesis:
    """Training data that other models make.

    translate: function that translates texts with a bundle, from one language to another; raises UnknownModel
        if the bundle can't.
    teacher: model whose translations replace the corpora's targets (Kim and Rush 2016, "Sequence-Level
        Knowledge Distillation"); the student has its vocabulary.
    back: model that translates `monolingual` back (Sennrich et al. 2016, "Improving Neural Machine
        Translation Models with Monolingual Data").
    monolingual: further targets; a target of the corpora gets a second source (Nguyen et al. 2020, "Data
        Diversification").
    """

    translate: Callable[[Bundle, str, str, list[str]], list[str]]
    teacher: Bundle | None = None
    back: Bundle | None = None
    monolingual: Sequence[str] = ()

    def answers(self, model: Bundle, source: str, target: str, texts: Iterable[str]) -> list[Pair]:
        """Return each distinct text with its translation.

        model: bundle that translates.
        source: language code of the texts.
        target: language code of the translations.
        texts: texts, perhaps repeated.
        """
        distinct = list(dict.fromkeys(texts))
        return list(zip(distinct, self.translate(model, source, target, distinct), strict=True))


def prepare(
    recipe: Recipe, corpora: Path, folder: Path, synthesis: Synthesis | None = None
) -> list[data.Pairs]:
    """Return the training pairs, and the validation pairs of each corpus of the recipe.

    recipe: recipe of the run.
    corpora: folder of all corpora.
    folder: folder of the run; gets `pairs.tsv.gz` (the training pairs), `pairs.json`, `vocabulary.model` and,
        for a translating model, the known words of the pairs.
    synthesis: training data that other models make, or None.
    """
    stored, vocabulary = folder / "pairs.tsv.gz", folder / "vocabulary.model"
    finished = encoded.path_of(corpora, recipe.corpus.folder)
    if finished.exists():
        return encoded.pairs_of(finished, recipe.name)
    if not (stored.exists() and vocabulary.exists()):
        pairs = gather_pairs(recipe, corpora, folder, synthesis)
        if recipe.task == "translate":
            (folder / KNOWN_WORDS_FILE).write_bytes(learn(pairs, recipe.source).dump())
        pairs = with_placeholders(recipe, pairs)
        if not vocabulary.exists():
            data.train_vocabulary(recipe, pairs, vocabulary.with_suffix(""))
        languages = recipe.source, recipe.target
        _store(augment(pairs, recipe.augment, languages, recipe.train.seed), stored)
    valid = [
        read_part(recipe, corpora, name, "valid") for name in (recipe.corpus.folder, *recipe.corpus.beside)
    ]
    return [data.encode(vocabulary, pairs, recipe) for pairs in (data.read_pairs(stored, 0, 1), *valid)]


def gather_pairs(
    recipe: Recipe, corpora: Path, folder: Path, synthesis: Synthesis | None = None
) -> list[Pair]:
    """Return the training pairs of all corpora, cleaned if the recipe sets `clean`.

    recipe: recipe of the model.
    corpora: folder of all corpora.
    folder: folder of the run, which gets the report of the cleaning.
    synthesis: synthetic pairs to add, or None.
    """
    corpus, languages = recipe.corpus, (recipe.source, recipe.target)
    weights = {corpus.folder: 1, **corpus.beside}
    parts = [(name, part) for name in weights for part in ("valid", "test")]
    held_out = [
        pair for name, part in parts if corpus.clean for pair in read_part(recipe, corpora, name, part)
    ]
    pairs: list[Pair] = []
    report: dict[str, Counts] = {}

    def add(name: str, lines: list[Pair], times: int) -> None:
        """Add the cleaned pairs of a corpus `times` times, and count them in the report."""
        report[name] = {"read": len(lines)}
        if corpus.clean:
            cleaned = clean(lines, held_out, languages)
            lines = cleaned.pairs
            report[name] |= cleaned.dropped
        report[name] |= {"left": len(lines), "times": times}
        pairs.extend(lines * times)

    for name, times in weights.items():
        lines = read_part(recipe, corpora, name, "train")
        if synthesis and synthesis.teacher:
            lines = synthesis.answers(synthesis.teacher, *languages, [source for source, _ in lines])
        add(name, lines, times)
    if synthesis and synthesis.back:
        made = synthesis.answers(synthesis.back, recipe.target, recipe.source, synthesis.monolingual)
        add("back-translated", [(source, target) for target, source in made], 1)
    (folder / REPORT).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return pairs


def with_placeholders(recipe: Recipe, pairs: list[Pair]) -> list[Pair]:
    """Return pairs with placeholders in the recipe's share of them; a language model learns none."""
    if not recipe.config().reads_source:
        return pairs
    return data.with_placeholders(pairs, recipe.corpus.placeholder_share, recipe.train.seed)


def read_part(recipe: Recipe, corpora: Path, name: str, part: str) -> list[Pair]:
    reads = recipe.config().reads_source  # a language model learns targets only
    target = recipe.corpus.target_column
    columns = recipe.corpus.source_column if reads else target, target
    return data.read_pairs(corpora / name / f"{part}.tsv.gz", *columns)


def _store(pairs: list[Pair], path: Path) -> None:
    """Write pairs to a compressed file, which appears only when complete."""
    with (
        replacing_file(path) as partial,
        gzip.open(partial, "wt", encoding="utf-8", compresslevel=1) as out,
    ):
        out.writelines(f"{source}\t{target}\n" for source, target in pairs)
