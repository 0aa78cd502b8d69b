"""Score outputs against references with sacrebleu and rouge-score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Final

import sacrebleu
from rouge_score import rouge_scorer


def bleu(outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return corpus BLEU and chrF, detokenised, 0 to 100."""
    return {
        "BLEU": sacrebleu.corpus_bleu(outputs, [references]).score,
        "chrF": sacrebleu.corpus_chrf(outputs, [references]).score,
    }


def rouge(outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return the mean ROUGE-1, ROUGE-2 and ROUGE-L F1 of the pairs, with stemming, 0 to 100."""
    names = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
    scorer = rouge_scorer.RougeScorer(list(names), use_stemmer=True)
    scores = [scorer.score(r, o) for o, r in zip(outputs, references, strict=True)]
    return {name: 100 * fmean(score[kind].fmeasure for score in scores) for kind, name in names.items()}


METRICS: Final[dict[str, Callable[[Sequence[str], Sequence[str]], dict[str, float]]]] = {
    "translate": bleu,
    "summarize": rouge,
}
