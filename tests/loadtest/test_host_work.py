"""The benchmark of the host's work follows the code whose work it counts."""

from __future__ import annotations

import math

from loadtest.engine import host_work
from loadtest.engine.host_work import Traffic, measure


def test_requests_come_and_go_over_a_device_that_does_nothing(monkeypatch):
    monkeypatch.setattr(host_work, "WARMING", 20)
    monkeypatch.setattr(host_work, "LENGTHS", (2, 5))
    found = measure(2, 1, 60)
    assert (found.slots, found.beams) == (2, 1)
    assert all(math.isfinite(part) for part in (found.step, found.request, found.slowness))


def test_each_request_is_answered_after_as_many_steps_as_its_answer_has_tokens():
    traffic, steps = Traffic(1, 1), 0
    (request,) = [traffic.request(7)]
    traffic.step([request])
    while not traffic.answered:
        traffic.step([])
        steps += 1
    assert steps == 7  # and one that was launched before the flags of the last were read
