"""Search and filters against the oracle and against plain rules, on numpy and on torch."""

import dataclasses
import math
from collections import Counter

import array_api_compat.numpy as xnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ExecutorFailed, InvalidRequest
from engine.search import filters
from engine.search.beam import BeamSearch
from engine.search.executor import SlotRequest, TopK
from engine.search.finished import finished_hypotheses
from engine.types import DecodeOptions, Limits, Result
from tests.support import cases
from tests.support.fake import EOS, PAD, UNK, FakeExecutor, FakeModel
from tests.support.lanes import lane_of, outcomes_of
from tests.support.oracle import noise, oracle, repeating
from tests.support.thorough import some

NOBODY = print


def decode(executor, jobs, g=None):
    """Outcomes of jobs run through one lane, joining at random steps when `g` is given."""
    return outcomes_of(lane_of(executor), jobs, None if g is None else lambda: int(g.integers(0, 3)))


def random_jobs(seed, count, vocab, beams):
    g = np.random.default_rng(seed)
    return [(cases.source(g, vocab), cases.options(g, vocab, beams)) for _ in range(count)]


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


def test_the_score_is_what_the_formula_makes_of_log_probabilities_and_attention():
    """Wu et al. 2016, equation 14, from the hypotheses' own token scores and attention."""
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
def test_each_rule_of_scores_changes_answers_and_goes_the_way_its_name_says(changes):
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


def test_a_step_on_torch_never_reads_a_value_back():
    """The meta device has shapes but no values: reading one raises."""
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
    for _ in range(20):  # longer than any target: shapes stay the same
        inputs = search.inputs(4)
        shapes.add(tuple(tuple(part.shape) for part in inputs[:-1]))
        scores = torch.zeros((4, 4, inputs.k), device="meta")
        weights = torch.zeros((4, 4, 32), device="meta")
        topk = TopK(scores, torch.zeros((4, 4, inputs.k), device="meta", dtype=torch.int64), weights)
        assert search.advance(topk, 4).shape == (4,)
    search.move(2, 0)
    assert len(shapes) == 1


def topk(rows):
    """rows: for each beam, {token: score} of equal sizes -> TopK of one slot."""
    ranked = [sorted(row.items(), key=lambda c: -c[1]) for row in rows]
    scores = np.array([[[s for _, s in row] for row in ranked]], np.float32)
    return TopK(scores, np.array([[[t for t, _ in row] for row in ranked]]), None)


def best(search):
    """The finished hypotheses of the first slot."""
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


def test_the_score_divides_by_the_length_with_end_of_sentence():
    search = searching(DecodeOptions(beam_size=1, length_penalty=2.0, max_length=8))
    search.advance(topk([{5: -1.5, 6: -9.0}] * 2), 1)
    assert search.advance(topk([{EOS: -0.5, 6: -9.0}] * 2), 1).tolist() == [True]
    (found,) = best(search)
    assert found.tokens == [5]
    assert found.token_scores == [-1.5, -0.5]
    assert found.score == -2.0 / 2**2
    assert found.finish == "stop"


def test_a_done_slot_may_be_advanced_again():
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


def test_a_slot_cut_by_its_length_and_advanced_again_finishes_nothing_more():
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
def test_scores_that_are_not_finite_end_at_the_longest_length_with_a_clear_error(value, kind):
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
def test_options_that_search_can_not_keep_exact_are_refused(fault):
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


def test_targets_are_never_shorter_or_longer_than_asked():
    for bias, length in ((9.0, 6), (-9.0, 8)):
        model = FakeModel(eos_bias=bias)
        options = DecodeOptions(beam_size=3, n_best=3, min_length=6, max_length=8)
        (outcome,) = decode(FakeExecutor(model), [([5, 6, EOS], options)])
        assert {len(h.tokens) for h in outcome.hypotheses} == {length}
        assert {h.finish for h in outcome.hypotheses} == {"stop" if length == 6 else "length"}


def test_a_prefix_begins_every_hypothesis_and_its_scores_count():
    model = FakeModel(seed=3)
    prefix = (9, 4, 9, 4, 9)  # repeats: a prefix wins over the n-gram rule
    options = DecodeOptions(beam_size=4, n_best=4, prefix=prefix, no_repeat_ngram_size=2, max_length=8)
    (outcome,) = decode(FakeExecutor(model), [([5, 6, EOS], options)])
    assert len(outcome.hypotheses) == 4
    for h in outcome.hypotheses:
        assert tuple(h.tokens[:5]) == prefix
        own = [model.whole([5, 6, EOS], h.tokens[:i])[1][t] for i, t in enumerate([*h.tokens, EOS])]
        np.testing.assert_allclose(h.token_scores, own, rtol=1e-4)


def test_an_infinite_unk_penalty_forbids_unk():
    model = FakeModel()
    model.bias[UNK] = 5.0
    plain, without = (DecodeOptions(beam_size=3, max_length=6, unk_penalty=p) for p in (0.0, math.inf))
    found = decode(FakeExecutor(model), [([5, EOS], plain), ([5, EOS], without)])
    assert UNK in found[0].hypotheses[0].tokens
    assert UNK not in found[1].hypotheses[0].tokens


# --- sampling


def test_a_sample_depends_on_its_seed_only():
    model = FakeModel(40, seed=9)
    source = [7, 8, 9, EOS]
    options = DecodeOptions(beam_size=3, n_best=3, sampling=True, seed=12345, max_length=10)
    (alone,) = decode(FakeExecutor(model, slots=1, beams=3), [(source, options)])
    for slots, place in ((4, 0), (4, 2), (6, 5)):
        jobs = random_jobs(slots, slots - 1, 40, 8)
        jobs.insert(place, (source, options))
        among = decode(FakeExecutor(model, slots=slots, beams=8), jobs)[place]
        assert among.hypotheses == alone.hypotheses
    other = dataclasses.replace(options, seed=12346)
    (different,) = decode(FakeExecutor(model, slots=1, beams=3), [(source, other)])
    assert [h.tokens for h in different.hypotheses] != [h.tokens for h in alone.hypotheses]


def test_samples_are_as_frequent_as_the_model_says():
    model = FakeModel(12, seed=1)
    source = [5, 6, EOS]
    jobs = [
        (source, DecodeOptions(beam_size=4, n_best=4, sampling=True, seed=s, min_length=0, max_length=1))
        for s in range(1000)
    ]
    found = decode(FakeExecutor(model, slots=8), jobs)
    drawn = [(h.tokens or [EOS])[0] for outcome in found for h in outcome.hypotheses]
    assert len(drawn) == 4000
    wanted = np.exp(model.whole(source, [])[1])
    wanted[PAD] = 0.0  # never drawn; what is left is renormalised
    wanted /= wanted.sum()
    counts = np.bincount(drawn, minlength=12) / len(drawn)
    assert np.abs(counts - wanted).max() < 4 * 0.5 / math.sqrt(len(drawn))


def test_a_nucleus_holds_the_token_that_crosses_its_mass():
    scores = np.log(np.array([[[0.5, 0.3, 0.2]]], np.float32))
    top_k = np.array([64])
    for top_p, highest in ((0.2, 0), (0.49, 0), (0.51, 1), (0.79, 1), (0.81, 2), (math.inf, 2)):
        picks = {
            int(filters.draw(xnp, scores, top_k, np.array([top_p]), np.array([[u]]))[0, 0])
            for u in np.linspace(0, 1 - 1e-9, 101)
        }
        assert picks == set(range(highest + 1))


@given(st.integers(0, 2**63 - 1), st.integers(0, 63), st.integers(0, 2000))
def test_noise_is_the_same_in_signed_arrays_and_unsigned_whole_numbers(seed, beam, position):
    found = filters.uniform(xnp, np.array([seed]), np.array([beam]), np.array([position]))
    assert found.tolist() == [noise(seed, beam, position)]
    assert 0 <= found[0] < 1


def test_noise_is_the_same_on_torch():
    torch = pytest.importorskip("torch")
    xtorch = pytest.importorskip("array_api_compat.torch")
    counters = np.random.default_rng(0).integers(0, 2**63 - 1, size=(3, 500))
    wanted = filters.uniform(xnp, *counters)
    found = filters.uniform(xtorch, *(torch.from_numpy(c) for c in counters))
    assert found.tolist() == wanted.tolist()


# --- n-grams


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    st.integers(1, 12),
)
def test_banned_ngrams_equal_the_plain_rule(seed, sizes, columns):
    """Random histories of few tokens, garbage and pads beyond each slot's own step."""
    g = np.random.default_rng(seed)
    history = g.integers(0, 5, size=(len(sizes), 3, columns))
    history[:, :, 0] = EOS
    history[:, :, 1:][history[:, :, 1:] == EOS] = 0
    step = g.integers(0, columns, size=len(sizes))
    found = filters.repeats(xnp, history, step, np.array(sizes), largest=max(sizes), pad=PAD)
    tight = filters.tighten(xnp, found, PAD)
    assert tight.shape[2] <= found.shape[2]
    for slot, size in enumerate(sizes):
        for beam in range(3):
            past = tuple(history[slot, beam, : step[slot] + 1].tolist())
            wanted = repeating(past, size) - {PAD}
            assert set(found[slot, beam].tolist()) - {PAD} == wanted
            assert set(tight[slot, beam].tolist()) - {PAD} == wanted
            assert EOS not in wanted


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.dictionaries(st.integers(3, 7), st.integers(0, 3), max_size=4), min_size=1, max_size=5),
    st.integers(1, 12),
)
def test_exhausted_tokens_equal_the_plain_rule(seed, limits, columns):
    """Random histories of few tokens, the initial one among those that are limited."""
    g = np.random.default_rng(seed)
    history = g.integers(3, 8, size=(len(limits), 3, columns))
    step = g.integers(0, columns, size=len(limits))
    tokens, most = (np.full((len(limits), 4), fill) for fill in (PAD, 0))
    for slot, own in enumerate(limits):
        tokens[slot, : len(own)], most[slot, : len(own)] = list(own), list(own.values())
    found = filters.exhausted(xnp, history, step, tokens, most, pad=PAD)
    for slot, own in enumerate(limits):
        for beam in range(3):
            past = history[slot, beam, 1 : step[slot] + 1].tolist()
            wanted = {token for token, count in own.items() if past.count(token) >= count}
            assert set(found[slot, beam].tolist()) - {PAD} == wanted


@pytest.mark.parametrize("kind", [{}, {"beam_size": 1}, {"sampling": True}, {"diverse_groups": 2}])
def test_no_answer_holds_a_token_more_often_than_it_may_and_neighbours_stay_as_they_were(kind):
    model, source = FakeModel(9, seed=2, eos_bias=-3.0), [4, 5, EOS]
    free = DecodeOptions(**{"beam_size": 4, "n_best": kind.get("beam_size", 4), "max_length": 12} | kind)
    frequent = Counter(decode(FakeExecutor(model), [(source, free)])[0].hypotheses[0].tokens)
    (token, often), *_ = frequent.most_common()
    assert often > 1
    for most in range(often):
        limited = dataclasses.replace(free, quotas=((token, most), (8, 1)))
        jobs = [(source, limited), (source, free), ([6, EOS], free)]
        outcomes = decode(FakeExecutor(model), jobs)
        assert all(h.tokens.count(token) <= most for h in outcomes[0].hypotheses)
        assert all(h.tokens.count(8) <= 1 for h in outcomes[0].hypotheses)
        assert max(h.tokens.count(token) for h in outcomes[0].hypotheses) == most
        alone = decode(FakeExecutor(model), jobs[1:])
        assert [o.hypotheses for o in outcomes[1:]] == [o.hypotheses for o in alone]


def test_no_answer_repeats_an_ngram_and_answers_without_the_rule_do():
    model = FakeModel(9, seed=2, eos_bias=-3.0)
    repeated = []
    for size in (0, 1, 2, 3):
        options = DecodeOptions(beam_size=2, no_repeat_ngram_size=size, max_length=14)
        (outcome,) = decode(FakeExecutor(model), [([4, 5, EOS], options)])
        if isinstance(outcome, ExecutorFailed):  # six tokens, each once, can not fill fourteen places
            assert size == 1
            continue
        tokens, n = [EOS, *outcome.hypotheses[0].tokens], size or 2
        grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
        repeated.append(len(set(grams)) < len(grams))
    assert repeated[0]
    assert not any(repeated[1:])
