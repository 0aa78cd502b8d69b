"""Kinds of steps: a fast path runs no step with an option that it does not support."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pytest

from engine.search.beam import BeamSearch
from engine.search.kind import GREEDY_OPTIONS, PLAIN_OPTIONS, SIMPLE_OPTIONS, kind_of
from engine.types import DecodeOptions
from tests.support.fake import FakeExecutor, FakeModel

# a value of each option that is not its default
OTHERS = {
    "beam_size": 1,
    "n_best": 2,
    "length_penalty": 0.5,
    "normalize_scores": False,
    "length_normalization": "wu",
    "word_reward": 0.5,
    "coverage_penalty": 0.2,
    "beam_rule": "marian",
    "stepwise_penalty": True,
    "min_length": 0,
    "min_length_a": 0.5,
    "max_length": 9,
    "max_length_a": 1.5,
    "max_length_b": 9,
    "no_repeat_ngram_size": 2,
    "unk_penalty": 1.0,
    "lm_weight": 0.5,
    "temperature": 0.7,
    "prefix": (5,),
    "free_prefix": 1,
    "quotas": ((5, 1),),
    "sampling": True,
    "top_k": 3,
    "top_p": 0.5,
    "seed": 3,
    "diverse_groups": 5,
    "diverse_strength": 0.7,
    "diverse_discount": 0.5,
    "alignment": True,
}
# options that only the reference supports, by fast path
BEYOND_PLAIN = {
    *("coverage_penalty", "stepwise_penalty", "no_repeat_ngram_size", "quotas", "diverse_groups"),
}
BEYOND_GREEDY = {*("coverage_penalty", "stepwise_penalty", "diverse_groups", "sampling")}
BEYOND_SIMPLE = {*("beam_rule", "beam_size", "diverse_groups")}


@dataclass(frozen=True, slots=True)
class Extended(DecodeOptions):
    """Decoding options with one that no fast path supports."""

    avoided: int = -1


def kind(options, *others, beams=5):
    return kind_of([options, *others], beams, 20, readable=True)


@pytest.mark.parametrize("name", [field.name for field in fields(DecodeOptions)])
def test_each_option_allows_only_the_fast_paths_that_support_it(name):
    options = replace(DecodeOptions(), **{name: OTHERS[name]})
    assert options != DecodeOptions()
    assert kind(options).plain == (name not in BEYOND_PLAIN)
    assert kind(DecodeOptions(), options).plain == (name not in BEYOND_PLAIN)
    assert kind(options, beams=1).greedy == (name not in BEYOND_GREEDY)
    assert kind(options).simple == (name not in BEYOND_SIMPLE)


def test_unsupported_option_takes_the_reference_path():
    plain, extended = Extended(beam_size=5), Extended(beam_size=5, avoided=7)
    assert kind(plain).plain
    assert kind(plain).simple
    assert kind(Extended(beam_size=1), beams=1).greedy
    assert not kind(extended).plain
    assert not kind(plain, extended).plain
    assert not kind(extended).simple
    assert not kind(Extended(beam_size=1, avoided=7), beams=1).greedy
    assert not kind(Extended(beam_size=1, avoided=0), beams=1).greedy


def test_options_supported_by_fast_paths_exist():
    known = PLAIN_OPTIONS | GREEDY_OPTIONS | SIMPLE_OPTIONS
    assert known <= {field.name for field in fields(DecodeOptions)}


def test_slot_with_an_unsupported_option_changes_the_kind_of_step_until_it_is_replaced():
    search = BeamSearch(FakeExecutor(FakeModel(), slots=2, beams=3), readable=False)
    plain = DecodeOptions(beam_size=3)
    for slot in (0, 1):
        search.start(slot, plain, 4)
    assert search.kind(2).plain
    search.start(1, Extended(beam_size=3, avoided=7), 4)
    assert not search.kind(2).plain
    assert search.kind(1).plain
    search.move(0, 1)
    assert search.kind(2).plain
