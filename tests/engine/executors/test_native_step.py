"""Steps of the native library equal the reference's bit for bit, also when a lane mixes them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from engine.backends import LaneSize
from engine.executors.onnx.executor import OnnxExecutor
from engine.executors.onnx.native_step import NativeStepper
from engine.native import library
from engine.schedule.lane import Lane
from engine.search.stepper import PlainStepper
from engine.types import DecodeOptions, Request
from tests.support.models import sessions
from tests.support.thorough import THOROUGH

pytestmark = pytest.mark.skipif(library() is None, reason="no native operators: make native")
ROUNDS = 12 if THOROUGH else 2


class Turns(NativeStepper):
    """Runs each step natively or by the reference, at random."""

    def __init__(self, executor, sessions):
        super().__init__(executor, sessions)
        self.coin, self.native = np.random.default_rng(5), 0

    def launch(self, n, *, attention):
        if self.coin.random() < 0.5:
            return PlainStepper.launch(self, n, attention=attention)
        return super().launch(n, attention=attention)

    def _store_columns(self, step, n, clock):
        self.native += 1
        super()._store_columns(step, n, clock)


def random_options(rng, beams, name):
    """Return random options; most are supported by the library, some only by the reference."""
    width = int(rng.integers(1, beams + 1))
    plain = rng.random() < 0.8
    sampling, reads = bool(rng.random() < 0.2), not name.startswith("lm")
    return DecodeOptions(
        beam_size=width,
        n_best=width,
        min_length=int(rng.integers(0, 6)),
        max_length_a=0.0,
        max_length_b=int(rng.integers(6, 39)),
        length_penalty=float(rng.choice([0.0, 1.0])),
        word_reward=float(rng.choice([0.0, 0.3])),
        unk_penalty=float(rng.choice([0.0, 2.0, np.inf])),
        temperature=float(rng.choice([0.7, 1.0])),
        prefix=tuple(rng.integers(4, 47, rng.integers(0, 3)).tolist()),
        beam_rule="marian" if plain and not sampling and rng.random() < 0.3 else "fairseq",
        alignment=reads and bool(rng.random() < 0.4),
        sampling=sampling,
        seed=int(rng.integers(99)),
        no_repeat_ngram_size=0 if plain else int(rng.choice([0, 2])),
        quotas=() if plain else ((int(rng.integers(4, 47)), 1), (5, 0)),
        coverage_penalty=0.0 if plain or sampling or not reads else 0.2,
        lm_weight=float(rng.choice([0.0, 0.4, 1.0])) if name == "fused" else 0.0,
    )


def decode(name, beams, stepper, seed):
    executor = OnnxExecutor(sessions(name, kernels="native"), beams, 4)
    made = stepper(executor)
    executor.stepper = lambda: made
    rng, answers = np.random.default_rng(seed), {}
    lane = Lane(executor, lambda request, outcome: request.reply(outcome))
    waiting = [
        Request(
            [*rng.integers(4, 47, rng.choice([3, 9, 40])).tolist(), 2],
            random_options(rng, beams, name),
            lambda outcome, i=i: answers.__setitem__(i, outcome),
        )
        for i in range(14)
    ]
    while waiting or lane.active:
        if waiting and lane.free and (not lane.active or rng.random() < 0.3):
            lane.admit([waiting.pop()])
        lane.step(float(rng.choice([0.0, 9.0])))  # one step, or steps until a slot is done
    return [[facts(h) for h in answers[i].hypotheses] for i in range(14)], made


def facts(hypothesis):
    attention = None if hypothesis.attention is None else hypothesis.attention.tolist()
    return hypothesis.tokens, hypothesis.score, hypothesis.token_scores, hypothesis.finish, attention


@pytest.mark.parametrize("name", ["glu", "transformer", "windowed", "aan", "ssru", "lm plain", "fused"])
@pytest.mark.parametrize("beams", [1, 3])
def test_native_steps_equal_the_reference_bit_for_bit_also_when_lanes_switch_between_them(name, beams):
    for seed in range(ROUNDS):
        want, _ = decode(name, beams, PlainStepper, seed)
        got, native = decode(name, beams, lambda e: NativeStepper(e, e.sessions), seed)
        assert got == want
        mixed, turns = decode(name, beams, lambda e: Turns(e, e.sessions), seed)
        assert mixed == want
        assert turns.native > 5


def test_only_lanes_with_native_operators_take_native_steps():
    native = OnnxExecutor(sessions("glu", kernels="native"), *LaneSize(2, 2))
    assert isinstance(native.stepper(), NativeStepper)
    assert type(OnnxExecutor(sessions("glu", kernels="pure"), 2, 2).stepper()) is PlainStepper


@pytest.mark.parametrize("alignment", [False, True])
@pytest.mark.parametrize("listens", [False, True])
def test_launch_continues_until_a_slot_is_done_unless_a_request_streams(listens, alignment):
    executor, answers, told = OnnxExecutor(sessions("glu", kernels="native"), *LaneSize(2, 2)), [], []
    lane = Lane(executor, lambda request, outcome: answers.append(outcome), lambda request, tokens: None)
    for length in (6, 9):
        exact = DecodeOptions(beam_size=2, min_length=length, max_length_a=0.0, max_length_b=length)
        exact = replace(exact, alignment=alignment)
        request = Request([5, 6, 2], exact, answers.append)
        request.progress = told.append if listens else None
        lane.admit([request])
    taken = []
    while lane.active:
        taken.append(lane.step(math.inf))
    assert [answer.timings.steps for answer in answers] == [7, 10]
    shapes = [np.shape(answer.hypotheses[0].attention) for answer in answers]
    assert shapes == ([(7, 3), (10, 3)] if alignment else [(), ()])
    assert taken == ([1] * 10 if listens else [7, 3])
