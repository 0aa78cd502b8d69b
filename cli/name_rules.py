"""Chooses the rule for names of a model, by pairs of sentences that are not in its training data."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cli import local
from cli.choices import ModelChoice
from engine.answers.options import USUAL_OPTIONS

CANDIDATES: Final = (None, 0, 3, 4, 5, 6)  # values of `convoy words --names`
MAX_BLEU_LOSS: Final = 0.1  # BLEU that a rule may lose
# a capitalized word inside a sentence
CAPITAL_WORD: Final = re.compile(r"(?<=[^\W_] )[^\W\d_a-zà-öø-ÿ][^\W\d_]{2,}(?![\w-])")


class TriedRule(NamedTuple):
    """A rule for names, and measurements of its answers.

    names: value of `convoy words --names`; None: no rule.
    bleu: BLEU score of the answers, from 0 to 100.
    kept: share of the capitalized words in both source and reference that the answers contain, from 0 to 1.
    """

    names: int | None
    bleu: float
    kept: float


def try_rules(bundle: Path, pairs: Sequence[tuple[str, str]]) -> list[TriedRule]:
    """Translate the sources with each rule, in a copy of the bundle.

    bundle: folder of a translating model of one direction.
    pairs: sources and references.
    """
    from sacrebleu.metrics.bleu import BLEU

    from engine.bundle.bundle import add_files, open_bundle
    from engine.text.words import WORDS_FILE, dump_words

    sources, references = [source for source, _ in pairs], [reference for _, reference in pairs]
    shared = [set(CAPITAL_WORD.findall(source)) & set(re.findall(r"\w+", target)) for source, target in pairs]
    tried = list[TriedRule]()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / bundle.resolve().name
        shutil.copytree(bundle, copy)
        name = open_bundle(copy).name
        for names in CANDIDATES:
            add_files(copy, {WORDS_FILE: dump_words(names, {})})
            options = USUAL_OPTIONS["translate"]
            with local.open_service(ModelChoice(copy), options) as service:
                results = service.run_many(name, sources, options)
                answers = [result.text for result in results]
            hits = [word in answer for words, answer in zip(shared, answers, strict=True) for word in words]
            bleu = BLEU().corpus_score(answers, [references]).score
            tried.append(TriedRule(names, bleu, sum(hits) / max(1, len(hits))))
    return tried


def choose_rule(tried: Sequence[TriedRule]) -> TriedRule:
    """Return the rule that keeps most words, among the rules that lose at most MAX_BLEU_LOSS."""
    (none,) = (rule for rule in tried if rule.names is None)
    return max((rule for rule in tried if rule.bleu >= none.bleu - MAX_BLEU_LOSS), key=lambda rule: rule.kept)
