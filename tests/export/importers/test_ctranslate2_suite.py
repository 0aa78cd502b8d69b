"""CTranslate2's own test suite: its model and its expected values, through our API.

Source of the values: test_translator.py and translator_test.cc of CTranslate2. Without a counterpart
here: alternatives at a position (`return_alternatives`), suppressed sequences of several symbols
(`quotas` ban one symbol), `repetition_penalty`, `prefix_bias_beta`, `max_input_length` (longer sources are
cut into sentences), `end_token`, `return_end_token`, `patience`, and the random numbers of its sampling.
A vocabulary map is compared in test_ctranslate2.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from engine.api import TextOptions, offline_service
from engine.bundle.bundle import Bundle
from engine.repository.service import Service
from engine.schedule.lane import Lane
from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.types import DecodeOptions, Result
from export.graphs.onnx import add_graphs
from export.importers import convert
from tests.engine.executors.test_batch_independence import decode
from tests.export.importers.test_ctranslate2 import lane
from tests.export.importers.test_ctranslate2_real import REAL, WISH, needs_models

pytestmark = needs_models
ATZMON, ACHISON, AZZA, REPEATED = "آتزمون", "آتشيسون", "آزا", "ن"
BEAMS = [1, 2]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    out = tmp_path_factory.mktemp("suite") / "bundle"
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
    wish = DecodeOptions(
        **({"beam_size": 2, "max_length_b": 250, "prefix": tuple(tokenizer.encode_target(prefix))} | options)
    )
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
    assert translate(service, bundle, "") == ""


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
    longest = search(executor, bundle, ATZMON, beam_size=beams, max_length_b=2)
    assert best(bundle, longest) == "at"
    shortest = search(executor, bundle, ATZMON, beam_size=beams, min_length=8).hypotheses[0]
    assert len(shortest.tokens) == 8


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
    for text, rows in ((ATZMON, 6), (ACHISON, 7)):
        attention = search(executor, bundle, text, alignment=True).hypotheses[0].attention
        # the end of the target has a row, the end of the source, which the model does not read, a column of 0
        assert attention[:rows, : len(text)].shape == (rows, len(text))
        np.testing.assert_allclose(attention[:rows, : len(text)].sum(-1), 1, atol=1e-4)


def test_sampling_of_the_best_token_is_the_greedy_answer(executor: Lane, bundle: Bundle) -> None:
    for seed in range(3):
        found = search(executor, bundle, ATZMON, beam_size=1, sampling=True, top_k=1, seed=seed)
        assert best(bundle, found) == "atzmon"


SCORES: Mapping[tuple[str, str], list[float]] = {
    (ATZMON, "atzmon"): [-0.106023, -0.065410, -0.056002, -0.447953, -0.230714, -0.092184, -0.063463],
    (ACHISON, "achison"): [
        *(-0.072660, -0.300309, -0.181187, -0.395671),
        *(-0.025631, -0.123466, -0.002034, -0.012639),
    ],
}


def test_given_targets_have_the_expected_scores(service: Service, bundle: Bundle) -> None:
    for (text, target), expected in SCORES.items():
        (found,) = service.score_many(bundle.name, [(target, text)])
        assert found.tokens == [*target, "</s>"]
        np.testing.assert_allclose(found.token_scores, expected, rtol=2e-4, atol=2e-6)
        assert found.total == pytest.approx(math.fsum(expected), abs=1e-4)
