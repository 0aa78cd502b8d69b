"""Published models of CTranslate2 (`../shared/real`) answer with their recorded answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest

from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.types import DecodeOptions
from export.importers import convert
from export.importers.settings import CTranslate2Import
from tests.engine.executors.test_batch_independence import decode
from tests.export.importers.test_ctranslate2 import lane

REAL = Path(__file__).parents[3].parent / "shared" / "real"
FLOATS = [f"{version}/aren-transliteration{kind}" for version in ("v1", "v2") for kind in ("", "-i16")]
WISH = CTranslate2Import(source="ar", target="en")
GREEDY = DecodeOptions(beam_size=1, length_penalty=1.0, max_length_b=256, min_length=1)
BEAM = DecodeOptions(beam_size=4, n_best=4, length_penalty=1.0, max_length_b=256, min_length=1)
needs_models = pytest.mark.skipif(not REAL.is_dir(), reason="no ../shared/real")


def answers(
    name: str, out: Path, options: DecodeOptions, precision: str = "fp32"
) -> list[list[tuple[str, float]]]:
    """Return the words and scores of the hypotheses for each recorded word."""
    bundle = convert("ctranslate2", REAL / name, out, WISH, overwrite=True)
    tokenizer = open_tokenizer(bundle)
    jobs = [([*tokenizer.encode(word["source"]), bundle.config.eos], options) for word in golden(name)]
    results = decode(lane(bundle, precision), jobs, np.random.default_rng(0))
    return [[(tokenizer.decode(h.tokens), h.score) for h in result.hypotheses] for result in results]


def golden(name: str) -> list[dict[str, Any]]:
    words: list[dict[str, Any]] = json.loads((REAL / "golden.json").read_text())[name]
    return words


@needs_models
@pytest.mark.parametrize("name", FLOATS)
def test_published_model_gives_the_recorded_words_and_scores(name: str, tmp_path: Path) -> None:
    words = golden(name)
    greedy = [found[0][0] for found in answers(name, tmp_path / "bundle", GREEDY)]
    assert greedy == [word["greedy"] for word in words]
    beams = answers(name, tmp_path / "bundle", BEAM)
    assert [found[0][0] for found in beams] == [word["beam4"][0] for word in words]
    differences = [abs(found[0][1] - word["scores"][0]) for found, word in zip(beams, words, strict=True)]
    # CTranslate2 renormalises the first step, where no end is allowed
    assert sum(difference < 1e-4 for difference in differences) >= 57
    assert max(differences) < 3e-4
    for found, word in zip(beams, words, strict=True):
        recorded = dict(zip(word["beam4"], word["scores"], strict=True))
        assert sum(text in recorded for text, _ in found) >= 3
        assert all(abs(score - recorded[text]) < 5e-3 for text, score in found if text in recorded)


@needs_models
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_truncated_int8_gives_the_words_of_the_float_model(precision: str, tmp_path: Path) -> None:
    name = "v2/aren-transliteration-i8"
    found = [each[0][0] for each in answers(name, tmp_path / "bundle", GREEDY, precision)]
    of_floats = [word["greedy"] for word in golden("v2/aren-transliteration")]
    assert sum(a == b for a, b in zip(found, of_floats, strict=True)) >= 57  # CTranslate2's own int8: 35
    translator = ctranslate2.Translator(str(REAL / name), compute_type="float32", intra_threads=1)
    sources = [list(word["source"]) for word in golden(name)]
    theirs = translator.translate_batch(sources, beam_size=1)
    equal = sum(a == "".join(b.hypotheses[0]) for a, b in zip(found, theirs, strict=True))
    assert equal >= (60 if precision == "fp32" else 57)
