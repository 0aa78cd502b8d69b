"""Which rule for names suits a model, by pairs of sentences that it has not been trained on."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cli import texts
from cli.choices import ModelChoice
from engine.answers.options import USUAL_OPTIONS

CANDIDATES: Final = (None, 0, 3, 4, 5, 6)  # tokens of a name that stands alone; see `convoy words --names`
MAX_BLEU_LOSS: Final = 0.1  # of a rule against none
# a word with a capital that begins no sentence
CAPITAL_WORD: Final = re.compile(r"(?<=[^\W_] )[^\W\d_a-zà-öø-ÿ][^\W\d_]{2,}(?![\w-])")


class TriedRule(NamedTuple):
    """A rule for names and what it does to the answers.

    names: see `convoy words --names`; None: names are left to the model.
    bleu: of the answers.
    kept: share, from 0 to 1, of the words with capitals of both sides of the pairs that the answers have.
    """

    names: int | None
    bleu: float
    kept: float


def try_rules(bundle: Path, pairs: Sequence[tuple[str, str]]) -> list[TriedRule]:
    """Answer the sources of pairs by each rule; the bundle stays as it is.

    bundle: of a translating model of one direction.
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
            with texts.open_service(ModelChoice(copy), options) as service:
                results = service.run_many(name, sources, options)
                answers = [result.text for result in results]
            hits = [word in answer for words, answer in zip(shared, answers, strict=True) for word in words]
            bleu = BLEU().corpus_score(answers, [references]).score
            tried.append(TriedRule(names, bleu, sum(hits) / max(1, len(hits))))
    return tried


def choose_rule(tried: Sequence[TriedRule]) -> TriedRule:
    """Choose the rule that keeps most words, of those that lose nothing of BLEU; of equal ones the first."""
    (none,) = (rule for rule in tried if rule.names is None)
    return max((rule for rule in tried if rule.bleu >= none.bleu - MAX_BLEU_LOSS), key=lambda rule: rule.kept)
