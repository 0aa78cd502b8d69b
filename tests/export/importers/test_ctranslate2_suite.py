"""CTranslate2's own test suite: its model and its expected values, through our API.

Source of the values: test_translator.py, translator_test.cc and decoding_test.cc of CTranslate2. Alternatives
at a position (`return_alternatives`) are requests here: the prefix of each ends with one more symbol. Without
a counterpart: suppressed sequences of several symbols (`quotas` ban one symbol), `repetition_penalty`,
`prefix_bias_beta`, `max_input_length` (longer sources are cut into sentences), `end_token`,
`return_end_token`, `patience`, more beams than a lane has, the random numbers of its sampling, and the score
without an end of a target that is cut (ours ends it). Batches, devices, types, files, unloading and logs
are properties of its Python class. Its tests of converters download models, or need fairseq, OpenNMT and
Marian; test_ctranslate2_families.py has the same families with random weights.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.api import TextOptions, offline_service
from engine.bundle.bundle import Bundle
from engine.bundle.shortlist import SHORTLIST, load_shortlist
from engine.errors import InvalidRequest
from engine.executors.onnx.executor import OnnxExecutor
from engine.executors.onnx.sessions import open_sessions
from engine.repository.service import Service
from engine.schedule.lane import Lane
from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.types import DecodeOptions, Limits, Result
from export.graphs.onnx import add_graphs, encoder_graph, step_graph
from export.importers import convert
from tests.engine.executors.test_batch_independence import decode
from tests.export.importers.test_ctranslate2 import BEAM, lane
from tests.export.importers.test_ctranslate2_real import REAL, WISH, needs_models

pytestmark = needs_models
ATZMON, ACHISON, AZZA, REPEATED = "آتزمون", "آتشيسون", "آزا", "ن"
BEAMS = [1, 2]
SYMBOLS = 42  # of its target vocabulary


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    out = tmp_path_factory.mktemp("suite") / "测试" / "bundle"
    return add_graphs(convert("ctranslate2", REAL / "v2/aren-transliteration", out, WISH))


@pytest.fixture(scope="module")
def executor(bundle: Bundle) -> Lane:
    return lane(bundle)


@pytest.fixture(scope="module")
def service(bundle: Bundle) -> Iterator[Service]:
    with offline_service(bundle.path, decode={"beam_size": 4}) as running:
        yield running


def search(executor: Lane, bundle: Bundle, text: str, prefix: str = "", **options: Any) -> Result:
    tokenizer = open_tokenizer(bundle)
    start = tuple(tokenizer.encode_target(prefix))
    usual = {"beam_size": 2, "max_length_b": 250, "prefix": start, "free_prefix": len(start)}
    wish = DecodeOptions(**(usual | options))
    source = [*tokenizer.encode(text), bundle.config.eos]
    (result,) = decode(executor, [(source, wish)], np.random.default_rng(0))
    return result


def best(bundle: Bundle, result: Result) -> str:
    return open_tokenizer(bundle).decode(result.hypotheses[0].tokens)


def translate(service: Service, bundle: Bundle, text: str, **decode: Any) -> str:
    (answer,) = service.run_many(bundle.name, [text], TextOptions(decode, raw=True))
    return str(answer.text)


@pytest.mark.parametrize("beams", BEAMS)
def test_texts_have_the_expected_answers(beams: int, service: Service, bundle: Bundle) -> None:
    expected = {ATZMON: "atzmon", ACHISON: "achison", AZZA: "azza"}
    found = {text: translate(service, bundle, text, beam_size=beams) for text in expected}
    assert found == expected


def test_empty_texts_have_empty_answers(service: Service, bundle: Bundle) -> None:
    texts = ["", AZZA, "", ATZMON, ""]
    found = service.run_many(bundle.name, texts, TextOptions(raw=True))
    assert [str(answer.text) for answer in found] == ["", "azza", "", "atzmon", ""]
    assert list(service.run_many(bundle.name, [])) == []


@pytest.mark.parametrize(
    ("text", "prefix", "answer"),
    [
        (ATZMON, "ats", "atsumon"),
        (ATZMON, "atz", "atzmon"),
        (ATZMON, "atzo", "atzomon"),
        ("أوليسس", "ulise", "ulises"),
    ],
)
def test_prefix_is_continued(text: str, prefix: str, answer: str, executor: Lane, bundle: Bundle) -> None:
    for beams in (1, 2, 4):
        assert best(bundle, search(executor, bundle, text, prefix, beam_size=beams)) == answer


@pytest.mark.parametrize("beams", BEAMS)
def test_lengths_are_limited(beams: int, executor: Lane, bundle: Bundle) -> None:
    for limit, answer in ((2, "at"), (3, "atz")):
        assert best(bundle, search(executor, bundle, ATZMON, beam_size=beams, max_length_b=limit)) == answer
    shortest = search(executor, bundle, ATZMON, beam_size=beams, min_length=8).hypotheses[0]
    assert len(shortest.tokens) == 8


def test_wrong_options_are_refused() -> None:
    limits = Limits(beams=BEAM, vocab=SYMBOLS, source=256, target=256)
    with pytest.raises(InvalidRequest, match="min_length must not exceed max_length"):
        DecodeOptions(beam_size=2, min_length=10, max_length=5).check(limits)
    with pytest.raises(InvalidRequest, match="n_best must be between 1 and beam_size"):
        DecodeOptions(beam_size=2, n_best=0).check(limits)


def test_greedy_and_beam_search_agree_in_the_score(executor: Lane, bundle: Bundle) -> None:
    scores = [search(executor, bundle, ATZMON, beam_size=b).hypotheses[0].score for b in BEAMS]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_score_is_the_mean_of_the_scores_of_tokens(executor: Lane, bundle: Bundle) -> None:
    found = search(executor, bundle, ATZMON, beam_size=1).hypotheses[0]
    assert found.score == pytest.approx(math.fsum(found.token_scores) / 7, abs=1e-5)


@pytest.mark.parametrize("beams", [1, 4])
def test_unknown_symbol_of_a_prefix_stays_or_becomes_the_source_symbol(
    beams: int, executor: Lane, bundle: Bundle
) -> None:
    found = search(executor, bundle, ATZMON, "?t", beam_size=beams, alignment=True).hypotheses[0]
    tokenizer = open_tokenizer(bundle)
    assert tokenizer.pieces(found.tokens, target=True) == ["<unk>", *"tzmon"]
    assert tokenizer.replace_unknown(found.tokens, found.attention, ATZMON) == "تtzmon"


ALTERNATIVES = [
    (ATZMON, "at", ["atzmon", "atsumon"]),
    (AZZA, "a", ["azza", "asza"]),
    (ATZMON, "", ["atzmon", "etzmon"]),
    (AZZA, "", ["azza", "ezza"]),
    (ATZMON, "atzmon", ["atzmone"]),
]


@pytest.mark.parametrize(("text", "prefix", "expected"), ALTERNATIVES)
def test_best_symbols_after_a_prefix_are_continued_as_alternatives(
    text: str, prefix: str, expected: list[str], executor: Lane, bundle: Bundle
) -> None:
    tokenizer = open_tokenizer(bundle)
    start, source = tuple(tokenizer.encode_target(prefix)), [*tokenizer.encode(text), bundle.config.eos]
    special = {bundle.config.eos, bundle.config.pad, bundle.config.unk}
    following = [token for token in range(SYMBOLS) if token not in special]
    jobs = [
        (source, DecodeOptions(beam_size=2, max_length_b=250, prefix=(*start, token))) for token in following
    ]
    found = [result.hypotheses[0] for result in decode(executor, jobs, np.random.default_rng(0))]
    found.sort(key=lambda each: each.token_scores[len(start)], reverse=True)
    assert [tokenizer.decode(each.tokens) for each in found[: len(expected)]] == expected
    if (text, prefix) == (ATZMON, "at"):
        likely = [each for each in found if each.token_scores[len(start)] > math.log(0.001)]
        assert len(likely) == 6


def listed(bundle: Bundle, symbols: str, tmp_path: Path) -> Lane:
    """Return a lane with a vocabulary map: targets have the listed symbols alone."""
    folder = shutil.copytree(REAL / "v2/aren-transliteration", tmp_path / "model")
    (folder / "vmap.txt").write_text(f"\t{' '.join(symbols)}\n")
    mapped, config = convert("ctranslate2", folder, tmp_path / "bundle", WISH), bundle.config
    shortlist = load_shortlist(
        mapped.file(SHORTLIST).read_bytes(), (config.source_vocab, config.target_vocab), config.eos
    )
    parts = {"encoder": encoder_graph(config, "fp32"), "step": step_graph(config, "fp32", shortlisted=True)}
    sessions = replace(open_sessions(config, parts, mapped.weights(), 1, None), shortlist=shortlist)
    return Lane(OnnxExecutor(sessions, BEAM, BEAM), lambda request, outcome: request.reply(outcome))


def test_options_hold_within_a_vocabulary_map(bundle: Bundle, tmp_path: Path) -> None:
    executor = listed(bundle, "atzmon", tmp_path)
    for beams in BEAMS:
        assert best(bundle, search(executor, bundle, ATZMON, "atz", beam_size=beams)) == "atzmon"
        assert best(bundle, search(executor, bundle, ATZMON, beam_size=beams, min_length=1)) == "atzmon"
        found = search(executor, bundle, REPEATED * 50, beam_size=beams, no_repeat_ngram_size=3)
        text = best(bundle, found)
        assert set(text) <= set("atzmon")
        ngrams = [text[i : i + 3] for i in range(len(text) - 2)]
        assert len(ngrams) == len(set(ngrams)) > 1
        once = tuple((token, 1) for token in open_tokenizer(bundle).encode_target("atzmon"))
        single = best(bundle, search(executor, bundle, REPEATED * 3, beam_size=beams, quotas=once))
        assert len(single) == len(set(single)) > 0


def test_n_best_returns_as_many_hypotheses_as_requested(executor: Lane, bundle: Bundle) -> None:
    found = search(executor, bundle, ATZMON, beam_size=4, n_best=2)
    assert len(found.hypotheses) == 2
    scores = [hypothesis.score for hypothesis in found.hypotheses]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("beams", BEAMS)
def test_no_ngram_is_repeated(beams: int, executor: Lane, bundle: Bundle) -> None:
    found = search(executor, bundle, REPEATED * 50, beam_size=beams, no_repeat_ngram_size=3)
    tokens = found.hypotheses[0].tokens
    ngrams = [tuple(tokens[i : i + 3]) for i in range(len(tokens) - 2)]
    assert len(ngrams) > 3
    assert len(ngrams) == len(set(ngrams))


def test_banned_symbol_is_absent(executor: Lane, bundle: Bundle) -> None:
    (letter,) = open_tokenizer(bundle).encode_target("o")
    found = search(executor, bundle, ATZMON, quotas=((letter, 0),))
    assert "o" not in best(bundle, found)


@pytest.mark.parametrize("beams", BEAMS)
def test_length_penalty_divides_the_score_by_the_length_with_the_end(
    beams: int, executor: Lane, bundle: Bundle
) -> None:
    plain, divided = (
        search(executor, bundle, ATZMON, beam_size=beams, length_penalty=penalty).hypotheses[0]
        for penalty in (0.0, 1.0)
    )
    assert plain.tokens == divided.tokens
    assert divided.score == pytest.approx(plain.score / (len(plain.tokens) + 1), abs=1e-6)


def test_attention_has_a_row_for_each_token_and_a_column_for_each_letter(
    executor: Lane, bundle: Bundle
) -> None:
    for text, prefix, rows in ((ATZMON, "", 6), (ACHISON, "", 7), (AZZA, "", 4), (ATZMON, "ats", 7)):
        found = search(executor, bundle, text, prefix, alignment=True, n_best=2)
        assert len(found.hypotheses[0].tokens) == rows
        for each in found.hypotheses:
            # the end of the target has a row, the end of the source, which the model does not read, a column
            assert each.attention.shape == (len(each.tokens) + 1, len(text) + 1)
            np.testing.assert_allclose(each.attention[:-1, : len(text)].sum(-1), 1, atol=1e-4)


def test_sampling_of_the_best_token_is_the_greedy_answer(executor: Lane, bundle: Bundle) -> None:
    for seed in range(3):
        found = search(executor, bundle, ATZMON, beam_size=1, sampling=True, top_k=1, seed=seed)
        assert best(bundle, found) == "atzmon"


def test_samples_come_best_first_and_differ(executor: Lane, bundle: Bundle) -> None:
    found = search(executor, bundle, ATZMON, beam_size=4, n_best=4, sampling=True, seed=46).hypotheses
    scores = [each.score for each in found]
    assert scores == sorted(scores, reverse=True)
    assert len({tuple(each.tokens) for each in found}) > 1


SCORES: Mapping[tuple[str, str], list[float]] = {
    (ATZMON, "atzmon"): [-0.106023, -0.065410, -0.056002, -0.447953, -0.230714, -0.092184, -0.063463],
    (ACHISON, "achison"): [
        *(-0.072660, -0.300309, -0.181187, -0.395671),
        *(-0.025631, -0.123466, -0.002034, -0.012639),
    ],
    ("آرباكه", "arbake"): [-0.103136, -0.089504, -0.063889, -0.007327, -0.452072, -0.060154, -0.016636],
    ("آرثر", "arther"): [-0.076704, -0.036037, -0.029253, -0.030273, -0.149276, -0.002440, -0.003742],
}


def test_given_targets_have_the_expected_scores(service: Service, bundle: Bundle) -> None:
    for (text, target), expected in SCORES.items():
        (found,) = service.score_many(bundle.name, [(target, text)])
        assert found.tokens == [*target, "</s>"]
        np.testing.assert_allclose(found.token_scores, expected, rtol=0, atol=1e-5)
        assert found.total == pytest.approx(math.fsum(expected), abs=1e-4)
