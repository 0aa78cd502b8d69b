"""The benchmark of the host's work counts the calls of the real code."""

from __future__ import annotations

import math

import pytest

from loadtest.engine import host_work
from loadtest.engine.host_work import PRICES_US, Traffic, measure


def test_requests_come_and_go_over_a_device_that_does_nothing(monkeypatch):
    monkeypatch.setattr(host_work, "LENGTHS", (2, 5))
    found = measure(2, 1, 24)
    assert (found.slots, found.beams) == (2, 1)
    assert all(math.isfinite(part) and part > 0 for part in (found.house_ms, found.requests, found.slowness))
    assert found.step_ms == pytest.approx(found.house_ms + found.cuda_ms)
    prices = sum(PRICES_US[kind] * count for kind, count in found.calls.items())
    assert found.cuda_ms == pytest.approx(prices / 1e3)
    assert set(found.calls) == set(PRICES_US) - {"pin"}  # pinned memory was allocated before


@pytest.mark.parametrize(("slots", "replays"), [(2, 4), (3, 2)])
def test_turn_without_arrivals_needs_replays_one_copy_and_one_event(slots, replays):
    traffic = Traffic(slots, 1)
    traffic.engine.submit([traffic.request(30), traffic.request(30)])
    for _ in range(4):
        traffic.turn()
    traffic.device.calls.clear()
    traffic.turn()
    assert traffic.device.calls == {"query": 1, "replay": replays, "copy down": 1, "event": 1}


@pytest.mark.parametrize(("slots", "launched"), [(1, [1, 2, 2, 2, 2]), (2, [1, 2, 3, 4, 4])])
def test_each_request_is_answered_after_as_many_steps_as_its_answer_has_tokens(slots, launched):
    """The answer has seven tokens; further steps are launched before its end is read."""
    traffic = Traffic(slots, 1)
    traffic.engine.submit([traffic.request(7) for _ in range(slots)])
    while traffic.answered < slots:
        traffic.turn()
    assert traffic.engine.stats().steps == sum(launched)
