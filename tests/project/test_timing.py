"""Time that the host took away from a process is subtracted from measured times."""

import os

import pytest

from tests.support.timing import Starved, stolen_seconds

STAT = """cpu  30 0 0 0 0 0 0 9 0 0
cpu0 10 0 0 0 0 0 0 {} 0 0
cpu1 20 0 0 0 0 0 0 {} 0 0
intr 5 8 0 0 0 0 0 0 0 0
"""


def test_stolen_time_is_read_for_each_processor():
    ticks = os.sysconf("SC_CLK_TCK")
    assert stolen_seconds(STAT.format(3 * ticks, 5 * ticks)) == {"cpu0": 3.0, "cpu1": 5.0}
    assert stolen_seconds("cpu0 1 2 3 4 5 6 7\n") == {}, "an old kernel has no such column"


def test_a_stolen_second_of_a_processor_is_subtracted_once():
    starved = Starved(7)
    before = {"thread-self": 1.0, "7": 2.0, "8": 3.0, "cpu0": 4.0, "cpu1": 5.0}
    after = {"thread-self": 1.25, "7": 2.5, "8": 3.125, "9": 90.0, "cpu0": 5.0, "cpu1": 5.5}
    assert starved.between(before, after) == pytest.approx(0.25 + 0.5 + 0.125 + 1.0)
    assert starved.between(before, before) == 0.0
