"""Placeholder words for models without placeholder symbols."""

import asyncio
import copy
import hashlib
import json
import re
import shutil
from dataclasses import replace

import pytest
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from cli.choices import ModelChoice
from cli.convert.flags import Conversion
from cli.placeholders import copy_rate
from engine.answers.placeholders import best_copied
from engine.answers.stream import answers_of, stream
from engine.answers.text_model import TextModel
from engine.api import InvalidRequest, Service, ServiceSettings, TextOptions
from engine.bundle.bundle import add_files, open_bundle
from engine.errors import BundleError
from engine.schedule.aio import generate_group
from engine.text.tokenizers.placeholder_words import (
    PlaceholderTokenizer,
    PlaceholderWord,
    dump,
    read_placeholder_words,
)
from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.types import DecodeJob
from export.importers.proving import add_graphs, add_placeholders, prove_answer
from tests.support.finished import plan
from tests.support.golden_fixtures import ROOT
from tests.support.thorough import some

MODELS = ROOT.parent / "models"
EACH = some(48)
WORDS = ("Tom", "Boston", "Mary", "Paris")
TEXTS = [
    "Ich habe {name} gestern gesehen.",
    "Das kostet 12,50 €, sagte Maria.",
    "Schreib an info@beispiel.de und ruf 0800 330 1000 an.",
    "Der Hund von @anna ist in %s.",
    "({name})",
    "Tom und {name} sind da.",
]
THINGS = [
    ["{name}"],
    ["12,50 €"],
    ["info@beispiel.de", "0800 330 1000"],
    ["@anna", "%s"],
    ["{name}"],
    ["Tom"],
]


@pytest.fixture(scope="module")
def service():
    made = Service.open([MODELS / "tatoeba-de-en"], ServiceSettings(verify=False))
    made.start()
    yield made
    made.stop(drain=False, timeout=10)


def bare(tokenizer):
    """Return a copy of a tokenizer without placeholder symbols."""
    bare = copy.copy(tokenizer)
    bare.placeholders = ()
    return bare


def words_of(tokenizer):
    return tuple(PlaceholderWord(w, tokenizer.encode(w)[-1], tokenizer.encode_target(w)[-1]) for w in WORDS)


@pytest.fixture(scope="module")
def model(service):
    text = service.repository.loaded["tatoeba-de-en"].text
    return replace(text, tokenizer=bare(text.tokenizer), placeholder_words=words_of(text.tokenizer))


def answered(engine, model, texts, options):
    return answers_of(stream(engine, model, ((text, options) for text in texts)))


def test_sentence_is_encoded_with_words_and_decoded_with_symbols(model):
    tokenizer = model.placeholder_tokenizer
    assert isinstance(tokenizer, PlaceholderTokenizer)
    first, second, *_ = tokenizer.placeholders
    plain = model.tokenizer.encode("Tom mag Boston.")
    assert tokenizer.encode(f"{first} mag {second}.") == plain
    assert tokenizer.encode("Ohne.") == model.tokenizer.encode("Ohne.")
    tokens = model.tokenizer.encode_target("Tom likes Boston.")
    assert tokenizer.decode(tokens) == f"{first} likes {second}."
    assert [p for p in tokenizer.pieces(tokens, target=True) if p in (first, second)] == [first, second]
    assert tokenizer.encode_target(first) == [model.placeholder_words[0].target]
    # next to a bracket the word would be split into other pieces, so it gets spaces
    ids = tokenizer.encode(f"({first})")
    assert ids.count(model.placeholder_words[0].source) == 1


def test_every_phrase_is_kept_once(service, model):
    engine = service.repository.loaded["tatoeba-de-en"].engine
    results = list(answered(engine, model, TEXTS, TextOptions(protect=True)))
    for result, things in zip(results, THINGS, strict=True):
        for thing in things:
            assert result.text.count(thing) == 1, result.text
    (glossary,) = answered(engine, model, ["Der Park ist groß."], TextOptions(glossary={"Park": "Common"}))
    assert glossary.text.count("Common") == 1
    without = replace(model, placeholder_words=())
    with pytest.raises(InvalidRequest, match="no placeholder"):
        list(answered(engine, without, ["Der Park."], TextOptions(ignore=("Park",))))


def test_search_repeats_no_placeholder_and_invents_none(service, model):
    """Without quotas some hypotheses with words as placeholders do."""
    engine = service.repository.loaded["tatoeba-de-en"].engine
    lines = (ROOT / "everyday" / "de-en.tsv").read_text("utf-8").splitlines()
    sources = [line.partition("\t")[0] for line in lines[:EACH]]
    texts = [begin + source for begin in ("Tom, Maria und {name}: ", "Tom und {name} ") for source in sources]
    for own in (model, service.repository.loaded["tatoeba-de-en"].text):
        planned = [plan(own, text, TextOptions(protect=True)) for text in texts]
        jobs = [job for one in planned for job in one.jobs if job.options.quotas]
        tokens = {own.placeholder_tokenizer.encode_target(symbol)[-1] for symbol in own.placeholders}
        assert len(jobs) >= len(texts)
        for source, options in jobs:
            pieces = own.placeholder_tokenizer.pieces(source, target=False)
            assert {t for t, _ in options.quotas} == tokens
            assert {m for _, m in options.quotas} <= {0, 1}
            assert 0 < sum(m for _, m in options.quotas) == len(set(pieces).intersection(own.placeholders))
        free = [DecodeJob(source, replace(options, quotas=())) for source, options in jobs]
        excess = [excesses(engine, asked, jobs) for asked in (jobs, free)]
        assert excess[0] == 0
        assert excess[1] > 0 or own is not model
    assert not any(
        job.options.quotas for job in plan(model, "Wir haben 3 da.", TextOptions(protect=True)).jobs
    )


def excesses(engine, asked, jobs):
    """Count the hypotheses with more copies of a placeholder than its quota."""
    results = asyncio.run(generate_group(engine, asked))
    return sum(
        any(h.tokens.count(token) > most for token, most in options.quotas)
        for result, (_, options) in zip(results, jobs, strict=True)
        for h in result.hypotheses
    )


def test_words_that_a_model_copies_most_are_chosen(model, monkeypatch):
    """The model copies three words, the third in every second sentence only, and repeats a fourth."""
    plain = TextModel("translate", "de", "en", bare(model.tokenizer), model.defaults, model.limits, model.eos)
    copied = {
        word.source: (word.target, 1 if i != 2 else 2) for i, word in enumerate(model.placeholder_words)
    }
    twice = model.placeholder_words[3].source
    seen: dict[int, int] = {}

    def decode(jobs):
        for source, _ in jobs:
            target = []
            for token in source:
                if token in copied:
                    seen[token] = seen.get(token, 0) + 1
                    if seen[token] % copied[token][1] == 0:
                        target += [copied[token][0]] * (2 if token == twice else 1)
            yield target

    texts = [f"Heute gehen wir {place} spazieren." for place in ("im Park", "am Meer", "dort")]

    def run(jobs):
        return list(decode(jobs))

    size = max(copied) + 1
    monkeypatch.setattr("engine.answers.placeholders.CANDIDATES", size)  # the whole vocabulary
    choice = best_copied(plain, size, run, texts * 4, count=3)
    assert {word.word for word in choice.words} == {word.word for word in model.placeholder_words[:3]}
    assert choice.shares == tuple(sorted(choice.shares, reverse=True))


def test_vocabulary_of_short_words_makes_sentences_of_them(model, monkeypatch):
    """Generated sentences such as "Er du es." have no word of three letters."""
    monkeypatch.setattr("engine.answers.placeholders.CANDIDATE_WORD", re.compile(r"[^\W\d_]{2}"))
    plain = TextModel("translate", "de", "en", bare(model.tokenizer), model.defaults, model.limits, model.eos)
    tokenizer, size = plain.tokenizer, 2_000

    def copy_all(jobs):
        return [tokenizer.encode_target(tokenizer.decode(source[:-1])) for source, _ in jobs]

    assert len(best_copied(plain, size, copy_all, count=3).words) == 3
    assert not best_copied(plain, size, lambda jobs: [[] for _ in jobs]).words


@pytest.fixture
def without_symbols(tmp_path):
    """A shipped bundle without placeholder symbols, like imported bundles."""
    path = tmp_path / "imported"
    shutil.copytree(MODELS / "tatoeba-de-en", path, ignore=shutil.ignore_patterns("*.md", "*.svg"))
    vocabulary = ModelProto.FromString((path / "vocabulary.model").read_bytes())
    for number, piece in enumerate(p for p in vocabulary.pieces if p.piece.startswith("<ph")):
        piece.piece, piece.type = f"<unused{number}>", ModelProto.SentencePiece.UNUSED
    content = vocabulary.SerializeToString()
    (path / "vocabulary.model").write_bytes(content)
    manifest = json.loads((path / "manifest.json").read_text("utf-8"))
    for name in [name for name in manifest["files"] if not (path / name).exists()]:
        del manifest["files"][name]
    entry = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest["files"]["vocabulary.model"] = entry
    (path / "manifest.json").write_text(json.dumps(manifest))
    return open_bundle(path)


def test_imported_model_gets_placeholder_words_and_keeps_phrases(without_symbols, monkeypatch):
    monkeypatch.setattr("engine.answers.placeholders.CANDIDATES", 120)
    monkeypatch.setattr("engine.answers.placeholders.FINE_SENTENCES", 4)
    reported = []
    add_files(without_symbols.path, add_placeholders(reported.append, without_symbols))
    assert re.search("placeholders, and how often .* [0-9]+%", reported[0])
    assert "placeholders.json" in open_bundle(without_symbols.path).files()
    lines = (ROOT / "everyday" / "de-en.tsv").read_text("utf-8").splitlines()
    sentences = [line.split("\t")[0] for line in lines if len(line.split("\t")[0].split()) > 3][:EACH]
    assert copy_rate(ModelChoice(without_symbols.path), without_symbols.name, sentences) >= 0.99


def test_no_placeholder_words_on_request_or_if_the_model_copies_none(without_symbols, monkeypatch):
    assert Conversion(placeholders=False).stages() == (add_graphs, prove_answer)
    monkeypatch.setattr("engine.answers.placeholders.CANDIDATE_WORD", re.compile("none at all"))
    reported = []
    assert add_placeholders(reported.append, without_symbols) == {}
    assert "no placeholders: the model copies no word" in reported[0]


def test_words_of_another_vocabulary_are_refused(tmp_path):
    bundle = open_bundle(MODELS / "tatoeba-de-en", verify=False)
    tokenizer = bare(open_tokenizer(bundle))
    path = tmp_path / "placeholders.json"

    class Bundled:
        """A bundle with this file."""

        config = bundle.config
        path = bundle.path
        files = staticmethod(lambda: ["placeholders.json"])
        file = staticmethod(lambda name: path)

    words = words_of(tokenizer)
    path.write_bytes(dump(words, 0.9))
    assert read_placeholder_words(Bundled, tokenizer) == words
    assert read_placeholder_words(Bundled, open_tokenizer(bundle)) == ()
    size, endless = bundle.config.source_vocab, float("inf")
    several = [[["a", size, 5]], [["a", -1, 5]], [["a", 5, 5], ["b", 5, 6]], [["", 5, 5]], [["a", 5]], 3]
    for value in (*({"words": rows} for rows in [*several, [["a", endless, 5]]]), {}, []):
        path.write_text(json.dumps(value))
        with pytest.raises(BundleError, match="convoy placeholders"):
            read_placeholder_words(Bundled, tokenizer)
