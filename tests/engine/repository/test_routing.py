"""Rules of the routing by confidence, and budgets that hold under load, on a clock of the test."""

import random

import pytest

from engine.answers.routing.doubts import Doubts
from engine.api import ConfigError
from engine.repository.routing import FAILURES, MOST_CREDIT, PAUSE_SECONDS, RouteBudget, Rule, read_rules
from engine.repository.upstreams.settings import read_upstreams

RULE = '[routing."de:en"]\nsecond = "gemma"\nscore = -0.5\n'


class Clock:
    now = 1_000.0

    def __call__(self):
        return self.now


def budget(clock=None, **values):
    return RouteBudget(Rule("de", "en", "second", Doubts(0.0), **values), clock or Clock())


def read(tmp_path, content, processes=1):
    (tmp_path / "upstream.toml").write_text(content, "utf-8")
    return read_rules(tmp_path / "upstream.toml", processes)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.2, 0.5, 1.0])
def test_the_share_of_sentences_holds_under_any_load(share):
    generator, left = random.Random(1), budget(share=share)
    seen = sent = 0
    for _ in range(2_000):
        count = generator.randint(1, 40)
        seen += count
        sent += left.admit(count, generator.randint(0, count))
        assert sent <= 1 + share * seen
    if share == 0.2:  # half of the sentences are in doubt, so that the share is used up
        assert sent > 0.19 * seen


def test_quiet_hours_leave_a_bounded_number_of_sentences():
    left = budget(share=0.5)
    for _ in range(1_000):
        left.admit(10, 0)
    assert left.admit(10, 1_000) <= MOST_CREDIT + 5


def test_the_rate_of_sentences_holds_in_every_second():
    generator, clock = random.Random(2), Clock()
    left, sent, began = budget(clock, share=1.0, requests=3.0), 0, clock.now
    for _ in range(2_000):
        clock.now += generator.random() / 5
        sent += left.admit(10, 10)
        assert sent <= 3 + 3 * (clock.now - began) + 1e-6
    assert sent >= 2.9 * (clock.now - began)


def test_a_rate_below_one_a_second_admits_single_sentences():
    clock = Clock()
    left = budget(clock, share=1.0, requests=0.1)
    assert left.admit(5, 5) == 1
    clock.now += 9
    assert left.admit(5, 5) == 0
    clock.now += 2
    assert left.admit(5, 5) == 1


def test_a_second_model_that_fails_in_a_row_is_left_alone_for_a_while():
    clock = Clock()
    left = budget(clock, share=1.0)
    for _ in range(FAILURES):
        assert left.admit(5, 1) == 1
        left.finish(answered=False)
    assert left.admit(5, 1) == 0
    clock.now += PAUSE_SECONDS + 1
    assert left.admit(5, 1) == 1
    left.finish(answered=True)
    assert left.admit(5, 1) == 1


def test_single_failures_do_not_pause_the_second_model():
    left = budget(share=1.0)
    for number in range(20):
        assert left.admit(5, 1) == 1
        left.finish(answered=number % 2 == 0)


def test_a_rule_has_the_entries_of_its_table(tmp_path):
    others = 'first = "small"\nshare = 0.1\nrequests = 6\nmissed = 0.25\nrepeated = 1\ntimeout = 4\n'
    (rule,) = read(tmp_path, RULE + others, processes=3)
    assert rule == Rule("de", "en", "gemma", Doubts(-0.5, 1, 0.25), 0.1, 2.0, 4, "small")
    assert rule.fits("small") and not rule.fits("other")


def test_a_file_without_rules_and_no_file_have_no_rules(tmp_path):
    assert read(tmp_path, '[gemma]\nurl = "http://localhost"\n') == read_rules(None) == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("routing = 1", "must have tables such as"),
        ('[routing."de"]\nsecond = "a"\nscore = 0', "must be a table for a direction"),
        ('[routing."de:en"]\nscore = 0', "second is missing"),
        ('[routing."de:en"]\nsecond = "a"', "score is missing; `convoy calibrate` proposes"),
        (RULE + "shares = 1", "unknown entry 'shares'; known are first, second, score"),
        (RULE + "share = 1.5", "share must be a number between 0 and 1"),
        (RULE + "share = true", "share must be a number"),
        (RULE + "requests = nan", "requests must be a number"),
        (RULE + "timeout = '3'", "timeout must be a number"),
        (RULE + 'first = "gemma"', "first and second are both 'gemma'"),
        (RULE + "first = 3", "first must be the name of a model"),
        ("[routing", "not a TOML file"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_entry(tmp_path, content, message):
    with pytest.raises(ConfigError, match="upstream.toml: .*") as error:
        read(tmp_path, content)
    assert message in str(error.value)


def test_rules_and_upstreams_share_a_file(tmp_path):
    upstream = '[gemma]\nurl = "http://localhost:1"\nmodel = "a"\nlanguages = ["de", "en"]\n'
    (rule,) = read(tmp_path, upstream + RULE)
    assert [found.name for found in read_upstreams(tmp_path / "upstream.toml")] == [rule.second]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="can't read .*none.toml"):
        read_rules(tmp_path / "none.toml")
