"""The forecast of the queue, by a clock that is set by hand, and the engine that refuses by it."""

from __future__ import annotations

import time

import pytest

from engine.errors import DeadlineExceeded, Overloaded, WouldBeLate
from engine.pace import Forecast, Pace
from engine.queue import FairQueue
from server.errors import refusal
from tests.rig import LONG, Inbox, engine_of, exhaust, turn


def test_nothing_is_known_before_anything_was_measured():
    assert Pace().seconds(0.0, 1000) == 0.0


def test_the_pace_is_that_of_admissions_while_others_waited():
    pace = Pace()
    pace.took(0.0, 50, waiting=True)
    pace.took(2.0, 10, waiting=True)
    pace.took(3.0, 20, waiting=True)
    assert pace.seconds(3.0, 60) == pytest.approx(60 * 3 / 30)


def test_idle_time_does_not_count():
    pace = Pace()
    pace.took(0.0, 10, waiting=True)
    pace.took(1.0, 10, waiting=False)
    for now in (2.0, 50.0, 51.0):
        pace.took(now, 0, waiting=False)
    pace.took(1000.0, 10, waiting=False)  # nobody had waited
    pace.took(2000.0, 10, waiting=True)
    pace.took(2001.0, 10, waiting=True)
    assert pace.seconds(2001.0, 30) == pytest.approx(3.0)


def test_a_lane_that_stands_still_gets_slower():
    pace = Pace()
    pace.took(0.0, 10, waiting=True)
    pace.took(1.0, 10, waiting=True)
    pace.took(5.0, 0, waiting=True)
    assert pace.seconds(1.5, 10) == pytest.approx(1.0)
    assert pace.seconds(21.0, 10) == pytest.approx(20.0)


def test_a_newcomer_waits_for_one_request_of_each_group():
    queue, inbox = FairQueue(1), Inbox()
    queue.add((inbox.request(), 0) for _ in range(100))
    queue.add((inbox.request(), 0) for _ in range(3))
    forecast = Forecast(queue, 1)
    forecast.took(0, 0.0, 3)
    forecast.took(0, 1.0, 3)  # three tokens, one request, a second
    assert forecast.wait(1.0, [0], 0.0) == pytest.approx(2.0)
    assert forecast.wait(1.0, [0] * 5, 0.0) == pytest.approx(8.0)
    assert forecast.wait(1.0, [0], 1000.0) == 0.0  # even the whole queue takes less
    assert forecast.retry_after(1.0, 3 * 30) == pytest.approx(30.0)
    assert (forecast.retry_after(1.0, 1), forecast.retry_after(1.0, 10**6)) == (1.0, 60.0)


def test_a_request_that_would_be_late_is_refused_at_once_and_others_are_not():
    engine, _ = engine_of((1, 4))
    inbox = Inbox()
    for _ in range(12):
        engine.submit([inbox.request(options=LONG)])
    while engine.stats().waiting_requests > 6:
        time.sleep(0.002)
        turn(engine)
    hurried = inbox.request(deadline=time.monotonic() + 0.02)
    with pytest.raises(WouldBeLate, match="the queue takes about") as caught:
        engine.submit([hurried])
    assert isinstance(caught.value, Overloaded)
    assert caught.value.code == "would_be_late"
    assert 1 <= caught.value.retry_after <= 60
    assert engine.stats().waiting_requests == 6
    patient = inbox.request(deadline=time.monotonic() + 600)
    late = inbox.request(deadline=time.monotonic() - 1)
    engine.submit([patient, late])
    exhaust(engine)
    assert hurried not in inbox.outcomes
    assert isinstance(inbox.outcomes[late], DeadlineExceeded)
    engine.submit([inbox.request(deadline=time.monotonic() + 5)])  # an empty queue takes no time


def test_over_http_it_is_a_503_that_says_when_to_come_back():
    answer = refusal(WouldBeLate("later", 2.3))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "3")
