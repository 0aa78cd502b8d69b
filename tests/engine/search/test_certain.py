"""Certain tokens of an unfinished answer: always a prefix of the answer, and as long as possible."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.schedule.lane import Lane
from engine.search.beam import BeamSearch
from engine.search.certain import BOUNDED, certain_tokens
from engine.types import DecodeOptions, Request, Result
from tests.support import cases, models
from tests.support.fake import FakeExecutor, FakeModel
from tests.support.rig import Inbox, engine_of, exhaust


def watched(source, options, told):
    return Request(source, options, print, progress=lambda tokens: told.append(tokens))


def run(executor, requests):
    outcomes = {}
    lane = Lane(executor, outcomes.__setitem__, lambda request, tokens: request.progress(tokens))
    waiting = list(requests)
    while waiting or lane.active:
        lane.admit([waiting.pop(0)] if waiting and lane.free else [])
        lane.step()
    return [outcomes[r] for r in requests]


def assert_never_retracted(told, tokens):
    for earlier, later in itertools.pairwise([[], *told]):
        assert later[: len(earlier)] == earlier
        assert len(later) > len(earlier)
    for prefix in told:
        assert tokens[: len(prefix)] == prefix


@given(seed=st.integers(0, 2**32 - 1), eos_bias=st.sampled_from([-2.0, 0.5, 3.0]), penalty=st.floats(-3, 3))
def test_each_report_is_a_beginning_of_the_answer(seed, eos_bias, penalty):
    """Models and options are random, with several requests in flight."""
    g = np.random.default_rng(seed)
    model = FakeModel(seed=seed % 97, eos_bias=eos_bias)
    requests, told = [], []
    for _ in range(6):
        options = dataclasses.replace(cases.options(g, 19, 6), length_penalty=penalty)
        told.append([])
        requests.append(watched(cases.source(g, 19), options, told[-1]))
    outcomes = run(FakeExecutor(model, slots=3, beams=6), requests)
    for outcome, reports in zip(outcomes, told, strict=True):
        if isinstance(outcome, Result):
            assert_never_retracted(reports, outcome.hypotheses[0].tokens)


@pytest.mark.parametrize("name", ["glu", "light"])
@pytest.mark.parametrize("backend", ["onnx", "torch"])
def test_reports_of_real_models_are_never_retracted(backend, name):
    g = np.random.default_rng(4)
    told, requests = [], []
    for penalty in (-1.0, 0.0, 1.0, 2.0):
        for beams in (1, 3, 5):
            options = DecodeOptions(beam_size=beams, n_best=beams, length_penalty=penalty, max_length=16)
            told.append([])
            source = [*g.integers(4, 47, size=int(g.integers(1, 20))).tolist(), 2]
            requests.append(watched(source, options, told[-1]))
    outcomes = run(models.executor(backend, name, beams=5, slots=4), requests)
    for outcome, reports in zip(outcomes, told, strict=True):
        assert_never_retracted(reports, outcome.hypotheses[0].tokens)
    assert sum(map(len, told)) > 20


def test_tokens_of_greedy_search_and_single_samples_are_certain_immediately():
    g = np.random.default_rng(1)
    for options in (
        DecodeOptions(beam_size=1, min_length=8, max_length=12),
        DecodeOptions(beam_size=1, sampling=True, seed=5, min_length=8, max_length=12),
    ):
        told = []
        source = cases.source(g, 19)
        (outcome,) = run(FakeExecutor(FakeModel(seed=2)), [watched(source, options, told)])
        tokens = outcome.hypotheses[0].tokens
        assert told == [tokens[: i + 1] for i in range(len(told))]
        assert len(told) >= len(tokens) - 1


@pytest.mark.parametrize("penalty", [-1.5, 0.0, 0.6, 1.0, 2.5])
def test_unfinished_hypothesis_is_excluded_only_if_no_ending_can_win(penalty):
    """The best possible continuation has probability 1 at each step, up to any allowed length."""
    g = np.random.default_rng(7)
    dropped = kept = 0
    for seed in range(60):
        model = FakeModel(seed=seed, eos_bias=2.0)
        executor = FakeExecutor(model, slots=1, beams=4)
        search = BeamSearch(executor)
        source = cases.source(g, 19)
        options = DecodeOptions(beam_size=4, length_penalty=penalty, max_length=10)
        search.start(0, options, len(source))
        executor.place(executor.encode([source]), 0, 0)
        for step in range(1, 11):
            done = search.advance(executor.step(1, search.inputs(1)), 1)
            if done[0]:
                break
            state = search.state
            rows = {
                _followed(state, b, step): float(state.total[0, b])
                for b in range(4)
                if state.total[0, b] > -math.inf
            }
            ended = {
                _followed(state, int(state.kept_trail[0, i]), at): float(state.kept_scores[0, i])
                / (at + 1) ** penalty
                for i, at in enumerate(state.kept_steps[0, : int(state.kept_count[0])].tolist())
            }
            best = max(ended.values(), default=-math.inf)
            able = [
                row
                for row, total in rows.items()
                if max(total / n**penalty for n in range(step + 1, 12)) > best
            ]
            able += [row for row, score in ended.items() if score == best]
            found = tuple(certain_tokens(state, 0, options))
            assert all(row[: len(found)] == found for row in able)
            every_row = list(rows) + list(ended)
            tight = _common(able)
            assert len(_common(every_row)) <= len(found) <= len(tight)
            dropped += len(found) > len(_common(every_row))
            kept += len(able) > 1
    assert kept
    assert dropped or penalty > 1  # a bound that excludes nothing would pass all assertions above


def _common(rows):
    columns = itertools.takewhile(lambda c: len(set(c)) == 1, zip(*rows, strict=False))
    return tuple(c[0] for c in columns)


def test_bounded_options_exist():
    assert {f.name for f in dataclasses.fields(DecodeOptions)} >= BOUNDED


def test_no_hypothesis_is_excluded_if_scores_can_grow():
    """A negative unk_penalty rewards unk, so that the sum of scores can grow."""
    g = np.random.default_rng(3)
    for seed in range(40):
        told = []
        options = DecodeOptions(beam_size=4, unk_penalty=-6.0, length_penalty=0.0, max_length=12)
        request = watched(cases.source(g, 19), options, told)
        (outcome,) = run(FakeExecutor(FakeModel(seed=seed, eos_bias=2.0)), [request])
        assert_never_retracted(told, outcome.hypotheses[0].tokens)


def test_progress_callback_that_raises_changes_no_answer(caplog):
    engine, _ = engine_of()
    inbox = Inbox()
    requests = [inbox.request(options=DecodeOptions(beam_size=1, min_length=5, max_length=6)) for _ in "ab"]

    def broken(tokens):
        raise ValueError("broken callback")

    requests[0].progress = broken
    engine.submit(requests)
    exhaust(engine)
    assert all(isinstance(inbox.outcomes[r], Result) for r in requests)
    assert "broken callback" in caplog.text


def test_cancelled_request_gets_no_further_reports():
    engine, _ = engine_of()
    inbox, told = Inbox(), []
    request = inbox.request(options=DecodeOptions(beam_size=1, min_length=9, max_length=9))

    def stop(tokens):
        told.append(tokens)
        request.cancelled = True

    request.progress = stop
    engine.submit([request])
    exhaust(engine)
    assert len(told) == 1
    assert not inbox.outcomes


def test_reports_change_no_answer():
    g = np.random.default_rng(11)
    model = FakeModel(seed=5)
    jobs = [(cases.source(g, 19), cases.options(g, 19, 6)) for _ in range(20)]
    plain = run(FakeExecutor(model, beams=6), [Request(s, o, print) for s, o in jobs])
    told = run(FakeExecutor(model, beams=6), [watched(s, o, []) for s, o in jobs])
    for one, other in zip(plain, told, strict=True):
        assert type(one) is type(other)
        if isinstance(one, Result):
            assert [h.tokens for h in one.hypotheses] == [h.tokens for h in other.hypotheses]
            assert [h.score for h in one.hypotheses] == [h.score for h in other.hypotheses]


def _followed(state, row, column):
    """Return the tokens of the hypothesis in a row of slot 0 at a column."""
    tokens = []
    while column:
        tokens.append(int(state.tokens[0, column, row]))
        row, column = int(state.trail[0, column, row]), column - 1
    return tuple(reversed(tokens))
