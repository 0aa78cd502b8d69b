"""Search and filters against the oracle and against plain rules, on numpy and on torch."""

import dataclasses
import math

import array_api_compat.numpy as xnp
import numpy as np
import pytest

from engine.errors import ExecutorFailed, InvalidRequest
from engine.search.beam import BeamSearch
from engine.search.executor import SlotRequest, TopK
from engine.search.finished import finished_hypotheses
from engine.types import DecodeOptions, Limits, Result
from tests.support import cases
from tests.support.cases import random_jobs
from tests.support.fake import EOS, UNK, FakeExecutor, FakeModel
from tests.support.lanes import decode
from tests.support.oracle import oracle
from tests.support.thorough import some


def check(model, executor, jobs, outcomes):
    for (source, options), outcome in zip(jobs, outcomes, strict=True):
        options.check(executor.limits)
        wanted = cases.expect(model, source, options, executor.limits.target)
        if wanted:
            assert isinstance(outcome, Result), (options, outcome)
            cases.same(outcome.hypotheses, wanted, model, source)
            assert all((h.attention is not None) == options.alignment for h in outcome.hypotheses)
        else:
            assert isinstance(outcome, ExecutorFailed)


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("vocab", "slots", "beams", "count"),
    [(19, 4, 8, 1200), (19, 1, 8, 300), (19, 7, 1, 400), (7, 5, 4, 600), (90, 3, 16, 250), (90, 2, 40, 60)],
)
def test_thousands_of_mixed_jobs_in_flight_equal_the_oracle(vocab, slots, beams, count):
    model = FakeModel(vocab, seed=vocab + beams)
    executor = FakeExecutor(model, slots, beams)
    jobs = random_jobs(beams, some(count), vocab, beams)
    check(model, executor, jobs, decode(executor, jobs, np.random.default_rng(slots)))


def test_score_equals_the_formula_of_log_probabilities_and_attention():
    """The formula is equation 14 of Wu et al. 2016."""
    model, g = FakeModel(30, seed=3), np.random.default_rng(8)
    for _ in range(40):
        source = cases.source(g, 30)
        options = DecodeOptions(
            beam_size=4,
            n_best=4,
            length_penalty=float(g.uniform(0, 1.5)),
            length_normalization=str(g.choice(["power", "wu"])),
            word_reward=float(g.uniform(-0.5, 0.5)),
            coverage_penalty=float(g.uniform(0, 1)),
            stepwise_penalty=bool(g.random() < 0.5),
            max_length=10,
            alignment=True,
        )
        (result,) = decode(FakeExecutor(model, 1, 4), [(source, options)])
        for h in result.hypotheses:
            length = len(h.tokens) + 1
            base = (5 + length) / 6 if options.length_normalization == "wu" else length
            total = sum(h.token_scores) + options.word_reward * len(h.tokens)
            received = np.minimum(h.attention[:, : len(source) - 1].sum(0), 1.0)
            coverage = options.coverage_penalty * np.log(received).sum()
            assert h.score == pytest.approx(total / base**options.length_penalty + coverage, abs=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {"word_reward": 0.5},
        {"word_reward": -0.5},
        {"coverage_penalty": 0.6},
        {"coverage_penalty": 0.6, "stepwise_penalty": True},
        {"length_normalization": "wu", "length_penalty": 1.4},
    ],
)
def test_each_score_option_changes_answers_in_its_direction(changes):
    model, g = FakeModel(19, seed=1), np.random.default_rng(2)
    plain = DecodeOptions(beam_size=4, max_length=12)
    jobs = [cases.source(g, 19) for _ in range(60)]
    before = decode(FakeExecutor(model, 4, 4), [(s, plain) for s in jobs])
    ruled = dataclasses.replace(plain, **changes)
    after = decode(FakeExecutor(model, 4, 4), [(s, ruled) for s in jobs])
    answers = [[r.hypotheses[0].tokens for r in found] for found in (before, after)]
    assert answers[0] != answers[1]
    if "word_reward" in changes:
        shorter, longer = (sum(map(len, found)) for found in answers)
        assert (longer - shorter) * changes["word_reward"] > 0


def test_search_on_torch_equals_search_on_numpy():
    xtorch = pytest.importorskip("array_api_compat.torch")
    model = FakeModel(40, seed=5)
    jobs = random_jobs(11, 120, 40, 8)
    found = [
        decode(FakeExecutor(model, 4, 8, namespace=xp), jobs, np.random.default_rng(1))
        for xp in (xnp, xtorch)
    ]
    for (source, options), a, b in zip(jobs, *found, strict=True):
        if isinstance(a, Result):
            wanted = cases.expect(model, source, options, 14)
            cases.same(a.hypotheses, wanted, model, source)
            cases.same(b.hypotheses, wanted, model, source)
            assert [h.token_scores for h in a.hypotheses] == [h.token_scores for h in b.hypotheses]
        else:
            assert isinstance(b, ExecutorFailed)


def test_step_on_torch_never_reads_a_value_back():
    """Reading a value of a tensor on the meta device raises."""
    torch = pytest.importorskip("torch")
    xtorch = pytest.importorskip("array_api_compat.torch")
    executor = FakeExecutor(FakeModel(), slots=4, beams=4, namespace=xtorch)
    executor.device = "meta"
    search = BeamSearch(executor)
    everything = [
        DecodeOptions(beam_size=4, no_repeat_ngram_size=3, prefix=(5, 6)),
        DecodeOptions(beam_size=2, sampling=True, top_p=0.5),
        DecodeOptions(beam_size=4, diverse_groups=2, quotas=((5, 1), (6, 0))),
        DecodeOptions(beam_size=4, coverage_penalty=0.5, stepwise_penalty=True, word_reward=0.1),
    ]
    for slot, options in enumerate(everything):
        search.start(slot, options, 5)
    shapes = set()
    for _ in range(20):  # more steps than any target has; shapes do not change
        inputs = search.inputs(4)
        shapes.add(tuple(tuple(part.shape) for part in inputs[:-1]))
        scores = torch.zeros((4, 4, inputs.k), device="meta")
        weights = torch.zeros((4, 4, 32), device="meta")
        topk = TopK(scores, torch.zeros((4, 4, inputs.k), device="meta", dtype=torch.int64), weights)
        assert search.advance(topk, 4).shape == (4,)
    search.move(2, 0)
    assert len(shapes) == 1


def topk(rows):
    """Return the TopK of one slot.

    rows: score of each token, for each beam; equally many per beam.
    """
    ranked = [sorted(row.items(), key=lambda c: -c[1]) for row in rows]
    scores = np.array([[[s for _, s in row] for row in ranked]], np.float32)
    return TopK(scores, np.array([[[t for t, _ in row] for row in ranked]]), None)


def best(search):
    """Return the finished hypotheses of the first slot."""
    return finished_hypotheses(search.state, [0], [SlotRequest(search._options[0], None)])[0]


def searching(options, **kwargs):
    search = BeamSearch(FakeExecutor(FakeModel(), slots=2, beams=2, **kwargs))
    search.start(0, options, 4)
    return search


def test_end_of_sentence_counts_only_among_the_first_b_candidates():
    search = searching(DecodeOptions(beam_size=2, max_length=8))
    rows = [{5: -1.0, 6: -2.0, EOS: -3.0, 7: -4.0}] * 2
    assert not search.advance(topk(rows), 1).any()
    assert search.state.current[0].tolist() == [5, 6]  # neither finished nor continued
    assert search.state.kept_count[0] == 0
    rows = [{5: -1.0, EOS: -2.5, 6: -3.0, 7: -4.0}] * 2
    search.advance(topk(rows), 1)  # totals: 5 -2, 5 -3, then end-of-sentence -3.5
    assert search.state.kept_count[0] == 0
    search.advance(topk([{EOS: -1.0, 5: -2.5, 6: -3.0, 7: -4.0}] * 2), 1)
    assert search.state.kept_count[0] == 2


def test_score_divides_by_the_length_with_end_of_sentence():
    search = searching(DecodeOptions(beam_size=1, length_penalty=2.0, max_length=8))
    search.advance(topk([{5: -1.5, 6: -9.0}] * 2), 1)
    assert search.advance(topk([{EOS: -0.5, 6: -9.0}] * 2), 1).tolist() == [True]
    (found,) = best(search)
    assert found.tokens == [5]
    assert found.token_scores == [-1.5, -0.5]
    assert found.score == -2.0 / 2**2
    assert found.finish == "stop"


def test_advancing_a_done_slot_changes_nothing():
    for sampling in (False, True):
        search = searching(DecodeOptions(beam_size=2, n_best=2, sampling=sampling, max_length=3))
        rows = [{EOS: -0.1, 5: -9.0, 6: -10.0, 7: -11.0}] * 2
        done = [bool(search.advance(topk(rows), 1)[0]) for _ in range(30)]
        first = done.index(True)
        assert all(done[first:])
        assert first <= 3
        again = searching(DecodeOptions(beam_size=2, n_best=2, sampling=sampling, max_length=3))
        for _ in range(first + 1):
            again.advance(topk(rows), 1)
        assert best(search) == best(again)


def test_slot_cut_at_its_longest_length_finishes_nothing_more():
    search = searching(DecodeOptions(beam_size=2, n_best=2, max_length=1, min_length=0))
    plain = {5: -1.0, 6: -2.0, 7: -3.0, 8: -4.0}
    search.advance(topk([plain] * 2), 1)
    ending = {EOS: -1.0, 6: -2.0, 7: -3.0, 8: -4.0}
    assert search.advance(topk([ending, plain]), 1).tolist() == [True]
    (before,) = best(search)
    for _ in range(3):
        assert search.advance(topk([ending] * 2), 1).tolist() == [True]
    assert best(search) == [before]


@pytest.mark.parametrize("value", [math.nan, -math.inf])
@pytest.mark.parametrize("kind", [{}, {"sampling": True}, {"diverse_groups": 2}])
def test_scores_that_are_not_finite_end_with_a_clear_error(value, kind):
    model = FakeModel()
    model.bias = np.full(model.vocab, value)
    with np.errstate(invalid="ignore"):
        options = DecodeOptions(beam_size=2, max_length=5, **kind)
        (outcome,) = decode(FakeExecutor(model), [([5, EOS], options)])
    assert isinstance(outcome, ExecutorFailed)
    assert "no hypothesis has a finite score" in str(outcome)


@pytest.mark.parametrize(
    "extreme",
    [
        {"temperature": 1e-300},
        {"temperature": 1e300},
        {"unk_penalty": -1e300},
        {"unk_penalty": 1e300},
        {"length_penalty": 1e300},
        {"length_penalty": -1e300},
        {"diverse_groups": 2, "diverse_strength": 1e300},
        {"max_length_a": 1e308, "max_length_b": 10**400},
        {"min_length_a": 1e308},
    ],
)
def test_extreme_options_give_finite_answers(extreme):
    options = DecodeOptions(**{"beam_size": 4, "n_best": 2, **extreme})
    executor = FakeExecutor(FakeModel())
    options.check(executor.limits)
    (outcome,) = decode(executor, [([5, 6, EOS], options)])
    assert isinstance(outcome, Result)
    assert all(math.isfinite(h.score) for h in outcome.hypotheses)


@pytest.mark.parametrize(
    "fault",
    [
        {"unk_penalty": -math.inf},
        {"diverse_strength": -0.5},
        {"quotas": ((20, 1),)},
        {"quotas": ((4, -1),)},
        {"quotas": ((4, 1),) * 65},
    ],
)
def test_options_out_of_bounds_are_refused(fault):
    with pytest.raises(InvalidRequest, match=next(iter(fault))):
        DecodeOptions(**fault).check(Limits(8, 10, 10, 20))


def test_minimum_lengths_may_follow_a_schedule():
    """docs/reference.md 6.3: the minimum is ignored while any row of the batch is inside its prefix."""
    model = FakeModel(seed=4, eos_bias=3.0)
    options = DecodeOptions(beam_size=3, n_best=3, prefix=(5,), min_length=5, max_length=9)
    source, differs = [4, 9, 7, EOS], False
    for span in range(1, 5):

        def schedule(step, span=span):
            return 0 if step < span else 5

        executor = FakeExecutor(model)
        search = BeamSearch(executor)
        executor.place(executor.encode([source]), 0, 0)
        search.start(0, options, len(source))
        done = False
        for step in range(10):
            search.state.shortest[0] = schedule(step)
            done = done or bool(search.advance(executor.step(1, search.inputs(1)), 1)[0])
        assert done
        wanted = oracle(model.logprobs(source), options, len(source), 14, minimum=schedule)
        cases.same(best(search), wanted, model, source)
        plain = oracle(model.logprobs(source), options, len(source), 14)
        differs = differs or wanted != plain
    assert differs


def test_targets_respect_minimum_and_maximum_length():
    for bias, length in ((9.0, 6), (-9.0, 8)):
        model = FakeModel(eos_bias=bias)
        options = DecodeOptions(beam_size=3, n_best=3, min_length=6, max_length=8)
        (outcome,) = decode(FakeExecutor(model), [([5, 6, EOS], options)])
        assert {len(h.tokens) for h in outcome.hypotheses} == {length}
        assert {h.finish for h in outcome.hypotheses} == {"stop" if length == 6 else "length"}


def test_prefix_begins_every_hypothesis_and_its_scores_count():
    model = FakeModel(seed=3)
    prefix = (9, 4, 9, 4, 9)  # repeats: a prefix wins over the n-gram rule
    options = DecodeOptions(beam_size=4, n_best=4, prefix=prefix, no_repeat_ngram_size=2, max_length=8)
    (outcome,) = decode(FakeExecutor(model), [([5, 6, EOS], options)])
    assert len(outcome.hypotheses) == 4
    for h in outcome.hypotheses:
        assert tuple(h.tokens[:5]) == prefix
        own = [model.whole([5, 6, EOS], h.tokens[:i])[1][t] for i, t in enumerate([*h.tokens, EOS])]
        np.testing.assert_allclose(h.token_scores, own, rtol=1e-4)


def test_infinite_unk_penalty_forbids_unk():
    model = FakeModel()
    model.bias[UNK] = 5.0
    plain, without = (DecodeOptions(beam_size=3, max_length=6, unk_penalty=p) for p in (0.0, math.inf))
    found = decode(FakeExecutor(model), [([5, EOS], plain), ([5, EOS], without)])
    assert UNK in found[0].hypotheses[0].tokens
    assert UNK not in found[1].hypotheses[0].tokens


def test_greedy_search_takes_no_score_that_is_no_number_and_ends_at_the_longest_target():
    search = BeamSearch(FakeExecutor(FakeModel(), slots=2, beams=1))
    search.start(0, DecodeOptions(beam_size=1, max_length=3), 4)
    assert not search.advance(topk([{EOS: math.nan}]), 1).any()
    assert search.state.kept_count[0] == 0
    search.start(0, DecodeOptions(beam_size=1, max_length=2), 4)
    ends = [search.advance(topk([{5: -1.0}]), 1).tolist() for _ in range(3)]
    assert ends == [[False], [False], [True]]
    assert search.state.step[0] == 2
