"""Answers do not depend on the other requests of a batch: bit for bit on the ONNX CPU executor."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from engine.backends import Placement
from engine.bundle.bundle import open_bundle
from engine.executors import open_executors
from engine.schedule.lane import Lane
from engine.types import DecodeOptions, Result
from tests.support.lanes import outcomes_of
from tests.support.models import KERNELS
from tests.support.thorough import THOROUGH, some

MODEL = Path(__file__).parents[3] / "models" / "tatoeba-de-en"
WIDTHS = (1, 5, 16)
SIZES = [(width, threads) for width in WIDTHS for threads in (1, 2) if THOROUGH or width == 5 or threads == 1]
EACH = some(50, 6)  # sentences for each width and number of threads


@cache
def lanes(backend: str, precision: str, threads: int) -> dict[int, Lane]:
    """Return a lane of each width; the lanes share their sessions."""
    sizes = tuple((width, 12) for width in WIDTHS)
    placement = Placement(backend=backend, precision=precision, threads=threads, lanes=sizes)
    executors = open_executors(open_bundle(MODEL), placement)
    return {e.beams: Lane(e, lambda request, outcome: request.reply(outcome)) for e in executors}


def random_options(rng: np.random.Generator, width: int) -> DecodeOptions:
    beam = int(rng.integers(1, width + 1))
    sampling = bool(rng.random() < 0.3)
    even = beam % 2 == 0 and not sampling and rng.random() < 0.3
    return DecodeOptions(
        beam_size=beam,
        n_best=beam,
        length_penalty=float(rng.choice([0.0, 0.6, 1.0, 1.4])),
        min_length=int(rng.integers(0, 8)),
        max_length_a=float(rng.choice([0.0, 0.5])),
        max_length_b=int(rng.integers(8, 24)),
        no_repeat_ngram_size=int(rng.choice([0, 0, 2, 3])),
        quotas=tuple((int(t), 1) for t in rng.integers(20, 8000, rng.choice([0, 0, 12]))),
        unk_penalty=float(rng.choice([0.0, 2.0, np.inf])),
        temperature=float(rng.choice([0.7, 1.0, 1.3])),
        prefix=tuple(rng.integers(20, 8000, rng.integers(0, 3)).tolist()),
        sampling=sampling,
        top_k=int(rng.choice([0, 5, 40])),
        top_p=float(rng.choice([0.8, 1.0])),
        seed=int(rng.integers(2**40)),
        diverse_groups=2 if even else 1,
        alignment=bool(rng.random() < 0.3),
    )


def random_job(rng: np.random.Generator, width: int) -> tuple[list[int], DecodeOptions]:
    source = rng.integers(20, 8000, rng.integers(1, 71)).tolist()
    return [*source, 2], random_options(rng, width)


def decode(lane: Lane, jobs: list[tuple[list[int], DecodeOptions]], rng: np.random.Generator) -> list[Result]:
    """Return results of requests that join a few at a time, while others are at any step."""
    return outcomes_of(lane, jobs, lambda: int(rng.integers(0, 5)))


def facts(result: Result) -> list[tuple]:
    return [
        (h.tokens, h.score, h.token_scores, h.finish, None if h.attention is None else h.attention.tobytes())
        for h in result.hypotheses
    ]


@pytest.mark.parametrize(("width", "threads"), SIZES)
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("kernels", KERNELS)
def test_batched_answers_equal_single_answers_bit_for_bit(
    kernels: str, precision: str, width: int, threads: int
) -> None:
    rng = np.random.default_rng([WIDTHS.index(width), threads])
    decoder = lanes(f"onnx-{kernels}", precision, threads)[width]
    jobs = [random_job(rng, width) for _ in range(EACH)]
    together = decode(decoder, jobs, rng)
    for job, among in zip(jobs, together, strict=True):
        (alone,) = decode(decoder, [job], rng)
        assert facts(alone) == facts(among), job


def test_batched_answers_equal_single_answers_on_torch_with_scores_nearly_equal() -> None:
    rng = np.random.default_rng(3)
    decoder = lanes("torch", "fp32", 1)[5]
    jobs = [random_job(rng, 5) for _ in range(some(12, 2))]
    for job, among in zip(jobs, decode(decoder, jobs, rng), strict=True):
        (alone,) = decode(decoder, [job], rng)
        assert [h.tokens for h in alone.hypotheses] == [h.tokens for h in among.hypotheses]
        np.testing.assert_allclose(
            [h.score for h in alone.hypotheses], [h.score for h in among.hypotheses], atol=1e-4
        )
