"""Line fits, the duration of turns, and the margin."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.schedule.tempo import LineFit, Margin, Tempo


@given(st.integers(0, 10**6), st.floats(0.9, 1.0))
def test_a_line_fit_is_weighted_least_squares_with_a_pull_to_the_origin(seed, keep):
    g = np.random.default_rng(seed)
    x, y = (
        g.uniform(1, 50, 40),
        g.uniform(0, 3) + g.uniform(0, 2, 40) + g.uniform(0, 1) * g.uniform(1, 50, 40),
    )
    line = LineFit()
    for one, other in zip(x, y, strict=True):
        line.add(one, other, keep)
    weights = keep ** np.arange(39, -1, -1)
    mean_x, mean_y = np.average(x, weights=weights), np.average(y, weights=weights)
    total, far = weights.sum(), 0.01 * mean_x**2  # weight of the origin
    cross = (weights * (x - mean_x) * (y - mean_y)).sum() / total
    square = (weights * (x - mean_x) ** 2).sum() / total
    slope = np.clip((cross + far * mean_y / mean_x) / (square + far), 0, mean_y / mean_x)
    fitted = mean_y + slope * (x - mean_x)
    assert line.at(20.0) == pytest.approx(mean_y + slope * (20.0 - mean_x))
    assert line.deviation == pytest.approx(
        math.sqrt(np.average((y - fitted) ** 2, weights=weights)), abs=1e-6
    )


def test_one_sample_gives_a_line_through_the_origin_and_no_sample_gives_0():
    line = LineFit()
    assert (line.at(5.0), line.deviation) == (0.0, 0.0)
    line.add(4.0, 2.0, 1.0)
    assert line.at(8.0) == pytest.approx(4.0)


def test_tempo_follows_the_recent_speed_and_the_reserve_the_worst_speed():
    tempo, now = Tempo(), 0.0
    for factor, seconds in ((1.0, 300.0), (2.0, 20.0), (1.0, 10.0)):
        end = now + seconds
        while now < end:
            now += 0.1 * factor
            tempo.add(8, 0.1 * factor, now)
        if factor == 2.0:
            assert tempo.seconds(8) == pytest.approx(0.2, rel=0.02)
            assert tempo.reserve(now) == pytest.approx(1.3)  # the least reserve
    assert tempo.seconds(8) == pytest.approx(0.1, rel=0.02)
    assert tempo.reserve(now) > 1.4


def test_one_long_halt_is_forgotten_within_seconds():
    tempo, now = Tempo(), 0.0
    for seconds in (*[0.02] * 2000, 5.0, *[0.02] * 500):
        now += seconds
        tempo.add(8, seconds, now)
    assert tempo.seconds(8) < 0.03
    assert tempo.reserve(now) <= 4


def test_late_answers_widen_the_margin_once_for_all_earlier_requests_and_it_fades():
    margin = Margin()
    margin.widen(10.0, 5.0)
    for arrived in (1.0, 6.0, 9.9):
        margin.widen(10.5, arrived)
    assert margin.at(10.0) == 1.5
    margin.widen(11.0, 10.5)
    assert margin.at(11.0) == pytest.approx(1.5 * margin_at(1.5, 1.0))
    assert margin.at(11.0 + 300.0) == pytest.approx(1.0, abs=0.01)
    for step in range(20):
        margin.widen(20.0 + step, 20.0 + step)
    assert margin.at(39.0) == 4.0


def margin_at(value, seconds):
    return 1 + (value - 1) * 0.5 ** (seconds / 30)
