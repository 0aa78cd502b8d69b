"""From corpora to encoded pairs: cleaned, augmented, with a vocabulary. All of it is done once a run."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.bundle.bundle import Bundle
from engine.bundle.folder import replacing_file
from training import data
from training.augmentation import augment
from training.cleaning import clean
from training.recipe import Recipe

Pair = tuple[str, str]
Counts = dict[str, int]
REPORT = "pairs.json"  # in the folder of a run: how many pairs there are, and how many were left out


@dataclass(frozen=True, slots=True)
class Synthesis:
    """What other models add to the corpora of a recipe.

    translate: answers texts by a bundle, from one language to another; raises UnknownModel when it can not.
    teacher: makes the targets, in the place of the corpora's (Kim and Rush 2016, "Sequence-Level Knowledge
        Distillation"); its vocabulary is the student's.
    back: makes sources of the texts of `monolingual`, which are further targets (Sennrich et al. 2016,
        "Improving Neural Machine Translation Models with Monolingual Data"). Those that are targets of the
        corpora get a second source (Nguyen et al. 2020, "Data Diversification").
    """

    translate: Callable[[Bundle, str, str, list[str]], list[str]]
    teacher: Bundle | None = None
    back: Bundle | None = None
    monolingual: Sequence[str] = ()

    def answers(self, model: Bundle, source: str, target: str, texts: Iterable[str]) -> list[Pair]:
        """Return each text, once, and what the model makes of it.

        model: bundle that answers.
        source: language code of the texts.
        target: language code of the answers.
        texts: each is answered once.
        """
        distinct = list(dict.fromkeys(texts))
        return list(zip(distinct, self.translate(model, source, target, distinct), strict=True))


def prepare(
    recipe: Recipe, corpora: Path, folder: Path, synthesis: Synthesis | None = None
) -> list[data.Pairs]:
    """Return the training pairs, the validation pairs of the recipe's corpus and of those beside it.

    recipe: of the run.
    corpora: the folder that holds the corpora.
    folder: of the run; gets `pairs.tsv.gz`, what is trained on, `pairs.json`, and `vocabulary.model`.
    synthesis: what makes sources of further targets; None: nothing does.
    """
    stored, vocabulary = folder / "pairs.tsv.gz", folder / "vocabulary.model"
    if not (stored.exists() and vocabulary.exists()):
        pairs = _gather_pairs(recipe, corpora, folder, synthesis)
        if not vocabulary.exists():
            data.train_vocabulary(recipe, pairs, vocabulary.with_suffix(""))
        languages = recipe.source, recipe.target
        _store(augment(pairs, recipe.augment, languages, recipe.train.seed), stored)
    valid = [
        _read_pairs(recipe, corpora, name, "valid") for name in (recipe.corpus.folder, *recipe.corpus.beside)
    ]
    return [data.encode(vocabulary, pairs, recipe) for pairs in (data.read_pairs(stored, 0, 1), *valid)]


def _gather_pairs(recipe: Recipe, corpora: Path, folder: Path, synthesis: Synthesis | None) -> list[Pair]:
    """The training pairs of all corpora of a recipe, cleaned if it says so, with placeholders."""
    corpus, languages = recipe.corpus, (recipe.source, recipe.target)
    weights = {corpus.folder: 1, **corpus.beside}
    parts = [(name, part) for name in weights for part in ("valid", "test")]
    held_out = [
        pair for name, part in parts if corpus.clean for pair in _read_pairs(recipe, corpora, name, part)
    ]
    pairs: list[Pair] = []
    report: dict[str, Counts] = {}

    def add(name: str, lines: list[Pair], times: int) -> None:
        report[name] = {"read": len(lines)}
        if corpus.clean:
            cleaned = clean(lines, held_out, languages)
            lines = cleaned.pairs
            report[name] |= cleaned.dropped
        report[name] |= {"left": len(lines), "times": times}
        pairs.extend(lines * times)

    for name, times in weights.items():
        lines = _read_pairs(recipe, corpora, name, "train")
        if synthesis and synthesis.teacher:
            lines = synthesis.answers(synthesis.teacher, *languages, [source for source, _ in lines])
        add(name, lines, times)
    if synthesis and synthesis.back:
        made = synthesis.answers(synthesis.back, recipe.target, recipe.source, synthesis.monolingual)
        add("back-translated", [(source, target) for target, source in made], 1)
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
    with (
        replacing_file(path) as partial,
        gzip.open(partial, "wt", encoding="utf-8", compresslevel=1) as out,
    ):
        out.writelines(f"{source}\t{target}\n" for source, target in pairs)
