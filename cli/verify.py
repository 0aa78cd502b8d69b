"""`convoy export --verify`: compares exported graphs with torch in fp32 on real sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine.errors import InvalidRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.bundle.bundle import Bundle
    from engine.search.executor import Executor
    from engine.types import Hypothesis

CHECK_SLOTS: Final = 16
RANDOM_SWAPS: Final = 2000  # rounds in which the outputs of two systems are swapped at random
HALF: Final = 0.5
TIED_BLEU: Final = 1e-9  # BLEU; a smaller difference is rounding
# by precision: least share of identical texts without references, and largest difference in BLEU with them
TOLERANCES: Final = {"fp32": (1.0, 0.0), "fp16": (0.9, 0.1), "bf16": (0.75, 0.1), "int8": (0.4, 0.3)}


@dataclass(frozen=True, slots=True)
class Check:
    """A backend ("onnx" or "tensorrt") in a precision, to be compared with torch.

    On the CPU, fp16 and bf16 compute the values of a GPU except for the order of sums
    (`export.graphs.rounded`).
    """

    backend: str
    precision: str
    beams: int
    slots: int = CHECK_SLOTS
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check.

    name: backend and precision.
    identical: share of sentences with the same tokens, from 0 to 1.
    difference: largest difference of a token's log-probability among these sentences.
    bleu: BLEU of the backend and of torch; None without references.
    chance: probability of a difference in BLEU this large if neither is better (approximate randomisation,
        Riezler and Maxwell 2005); None without references.
    passed: all figures are within TOLERANCES.
    """

    name: str
    identical: float
    difference: float
    bleu: tuple[float, float] | None
    chance: float | None
    passed: bool


def verify(
    bundle: Bundle, checks: Sequence[Check], lines: Sequence[str], references: Sequence[str] | None
) -> list[Verdict]:
    """Decode lines with torch and with each check, and compare the answers.

    bundle: the model.
    checks: backends and precisions.
    lines: sentences of the source language.
    references: translation of each line, or None.

    Raises ConfigError for a check that can't run on this machine, and InvalidRequest for lines that are too
    long.
    """
    from engine.backends import LaneSize, Placement
    from engine.executors import open_executors
    from engine.text.tokenizers.tokenizer import open_tokenizer

    if not bundle.config.reads_source:
        raise InvalidRequest("a language model can't be verified by translations; run: convoy score")
    if references is not None and len(references) != len(lines):
        raise InvalidRequest(
            f"{len(lines)} sentences, but {len(references)} references: give one for each sentence"
        )
    tokenizer, verdicts = open_tokenizer(bundle), []
    sources = [tokenizer.encode(line) for line in lines]
    baselines: dict[int, list[Hypothesis]] = {}
    for check in checks:
        if check.beams not in baselines:
            (torch,) = open_executors(
                bundle, Placement("torch", lanes=(LaneSize(check.beams, CHECK_SLOTS),), shortlist=False)
            )
            baselines[check.beams] = _decode(bundle, torch, sources)
        mine, theirs = _decode(bundle, _executor(bundle, check), sources), baselines[check.beams]
        texts = [[tokenizer.decode(h.tokens) for h in hypotheses] for hypotheses in (mine, theirs)]
        verdicts.append(_verdict(check, (mine, theirs), texts, references))
    return verdicts


def table(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts as a table in Markdown."""
    rows = [
        "| against torch fp32 | same tokens | greatest difference | BLEU | torch's BLEU | p | |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for v in verdicts:
        bleu = " | ".join(f"{b:.2f}" for b in v.bleu) if v.bleu else "- | -"
        chance = "-" if v.chance is None else f"{v.chance:.2f}"
        result = "ok" if v.passed else "out of tolerance"
        rows.append(f"| {v.name} | {v.identical:.1%} | {v.difference:.2g} | {bleu} | {chance} | {result} |")
    return "\n".join(rows)


def sentences(bundle: Bundle, path: Path | None) -> list[str]:
    """Return the lines of a file that are not empty.

    bundle: the model.
    path: the file; None: built-in sentences of the source language.
    """
    if path is not None:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    from cli.measure import TEXTS

    return list(TEXTS.get(bundle.source, TEXTS["en"]))


def _executor(bundle: Bundle, check: Check) -> Executor:
    """Return the executor of a check, on one thread."""
    from engine.backends import LaneSize, Placement
    from engine.executors import open_executors

    if check.device == "cpu" and check.precision in ("fp16", "bf16"):
        return _narrow(bundle, check)
    place = Placement(
        check.backend, check.device, check.precision, 1, (LaneSize(check.beams, check.slots),), False
    )
    (executor,) = open_executors(bundle, place)
    return executor


def _narrow(bundle: Bundle, check: Check) -> Executor:
    """Return an executor of ONNX Runtime for a precision that is useful on GPUs only."""
    from engine.bundle.bundle import graph_parts
    from engine.executors.onnx.executor import OnnxExecutor
    from engine.executors.onnx.sessions import open_sessions
    from export.graphs.rounded import round_graph
    from export.graphs.standalone import graph_of

    graphs = {part: graph_of(bundle.config, part, check.precision) for part in graph_parts(bundle.config)}
    if check.precision == "bf16":  # ONNX Runtime has no bf16 on the CPU
        graphs = {part: round_graph(graph) for part, graph in graphs.items()}
    sessions = open_sessions(bundle.config, graphs, bundle.weights(), 1, device="cpu")
    return OnnxExecutor(sessions, check.beams, check.slots)


def _decode(bundle: Bundle, executor: Executor, sources: Sequence[list[int]]) -> list[Hypothesis]:
    """Return the best hypothesis of each source."""
    from engine.schedule.lane import Lane
    from engine.types import Outcome, Request, Result

    options = replace(bundle.options, beam_size=executor.beams, n_best=1)
    hypotheses: dict[int, Hypothesis] = {}

    def reply(request: Request, outcome: Outcome) -> None:
        if not isinstance(outcome, Result):
            raise outcome
        hypotheses[id(request)] = outcome.hypotheses[0]

    lane, requests = Lane(executor, reply), [Request(s, options, lambda outcome: None) for s in sources]
    too_long = [i for i, s in enumerate(sources) if len(s) > executor.limits.source]
    if too_long:
        raise InvalidRequest(f"sentence {too_long[0] + 1} has more than {executor.limits.source} tokens")
    lane.drain(requests)
    return [hypotheses[id(request)] for request in requests]


def _verdict(
    check: Check,
    hypotheses: tuple[list[Hypothesis], list[Hypothesis]],
    texts: list[list[str]],
    references: Sequence[str] | None,
) -> Verdict:
    """Compare the answers of a backend with those of torch.

    check: backend and precision.
    hypotheses: hypotheses of the backend, then of torch.
    texts: texts of the backend, then of torch.
    references: translation of each line, or None.
    """
    pairs = [(a, b) for a, b in zip(*hypotheses, strict=True) if a.tokens == b.tokens]
    scores = [zip(a.token_scores, b.token_scores, strict=True) for a, b in pairs]
    difference = max((abs(x - y) for pair in scores for x, y in pair), default=0.0)
    identical, bleu, chance = len(pairs) / len(hypotheses[0]), None, None
    least, most = TOLERANCES[check.precision]
    passed = identical >= least
    if references is not None:
        from sacrebleu.metrics.bleu import BLEU

        mine, theirs = (BLEU().corpus_score(lines, [list(references)]).score for lines in texts)
        bleu, passed = (mine, theirs), abs(mine - theirs) <= most
        chance = _p_value(texts[0], texts[1], references)
    name = f"{check.backend} {check.precision}"
    return Verdict(name, identical, difference, bleu, chance, passed)


def _p_value(mine: Sequence[str], theirs: Sequence[str], references: Sequence[str]) -> float:
    """Return how often BLEU differs as much if the two outputs of each sentence are swapped at random.

    mine, theirs: outputs of the two systems.
    references: translation of each sentence.

    Ties count as extreme, unlike in sacrebleu's PairedTest, which returns 0.0005 instead of 1 if 2 of 400
    sentences differ.
    """
    import numpy as np
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(effective_order=True)  # only the counts of each sentence are used

    def counts(texts: Sequence[str]) -> NDArray[np.int64]:
        scores = [metric.sentence_score(t, [r]) for t, r in zip(texts, references, strict=True)]
        return np.array([[*f.counts, *f.totals, f.sys_len, f.ref_len] for f in scores])

    def bleu(total: NDArray[np.int64]) -> float:
        right, all_, (ours, reference_length) = np.split(total, [metric.max_ngram_order, -2])
        return metric.compute_bleu(right.tolist(), all_.tolist(), int(ours), int(reference_length)).score

    a, b = counts(mine), counts(theirs)
    differ = (a != b).any(1)  # swapping equal counts changes nothing
    # a swap moves the difference of the counts from one system to the other
    moved, both = (a - b)[differ], (a.sum(0), b.sum(0))
    observed, generator = abs(bleu(both[0]) - bleu(both[1])), np.random.default_rng(0)
    extreme = 0
    for _ in range(RANDOM_SWAPS):  # swap each sentence with a probability of a half
        swapped = moved[generator.random(len(moved)) < HALF].sum(0)
        extreme += abs(bleu(both[0] - swapped) - bleu(both[1] + swapped)) >= observed - TIED_BLEU
    return (extreme + 1) / (RANDOM_SWAPS + 1)
