"""Answers of the shipped models keep protected phrases."""

from __future__ import annotations

import asyncio
import gzip
import random
import re
import time

import httpx
import numpy as np
import pytest

from engine.answers.choices import choices
from engine.api import InvalidRequest, MarkedText, Placement, Service, ServiceSettings, TextOptions, TooLarge
from engine.types import DecodeOptions, Hypothesis, Request
from server.app import create_app
from server.observing.metrics import Metrics
from server.settings import ServerSettings
from tests.engine.text.test_masking import THINGS
from tests.support.finished import plan
from tests.support.golden_fixtures import ROOT
from tests.support.served import running
from tests.support.thorough import some

MODELS = ROOT.parent / "models"
CORPUS = ROOT.parent.parent / "shared" / "corpora" / "tatoeba-de-en" / "test.tsv.gz"


@pytest.fixture(scope="module")
def service():
    made = Service.open([MODELS], ServiceSettings(Placement(lanes=((1, 8), (5, 32)))))
    made.start()
    yield made
    made.stop(drain=False, timeout=30)


def ask(service, text, model="tatoeba-de-en", **options):
    return asyncio.run(service.run(model, [text], TextOptions(**options)))[0]


def sentences(column: int, count: int) -> list[tuple[str, list[str]]]:
    """Return sentences of the test set with one or two THINGS inserted, and these things."""
    if not CORPUS.exists():
        pytest.skip("no ../shared/corpora")
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        texts = [line.rstrip("\n").split("\t")[column] for line in lines]
    rng = random.Random(1)
    found = []
    for text in rng.sample(texts, len(texts)):
        words = text.split(" ")
        if len(words) < 4 or re.search(r"\d", text):
            continue
        things = rng.sample(THINGS, rng.choice([1, 1, 2]))
        for thing in things:
            at = rng.randrange(len(words))
            word = re.fullmatch(r"(\W*)([\w'-]+)(\W*)", words[at])
            if word and words[at] not in things and rng.random() < 0.7:
                words[at] = word[1] + thing + word[3]
            else:
                words.insert(at, thing)
        present = [thing for thing in things if any(thing in word for word in words)]
        found.append((" ".join(words), present))
        if len(found) == count:
            return found
    raise AssertionError("the test set is too small")


@pytest.mark.parametrize(("model", "column"), [("tatoeba-de-en", 0), ("tatoeba-en-de", 1)])
def test_nearly_every_placeholder_comes_out_once(service, model, column):
    """98 % are required; mending gives all of them."""
    jobs = sentences(column, some(200))
    results = asyncio.run(service.run(model, [text for text, _ in jobs], TextOptions(protect=True)))
    wanted = [(thing, result) for (_, things), result in zip(jobs, results, strict=True) for thing in things]
    assert len(wanted) > some(240)
    lost = [(thing, result.text) for thing, result in wanted if result.text.count(thing) != 1]
    assert len(lost) <= 0.02 * len(wanted), lost
    for (text, things), result in zip(jobs, results, strict=True):
        for kept in result.kept:  # other phrases are names
            phrase = result.text[kept.begin : kept.end]
            assert phrase in things or (phrase in text and not phrase[0].islower())
    # without protection the models lose many of them
    few = jobs[: some(50, 2)]
    plain = asyncio.run(service.run(model, [text for text, _ in few]))
    without = [
        thing
        for (_, things), result in zip(few, plain, strict=True)
        for thing in things
        if result.text.count(thing) != 1
    ]
    assert len(without) > some(20, 2)


def test_stream_of_texts_is_mended_like_single_texts(service):
    jobs = [text for text, _ in sentences(0, 40)]
    options = TextOptions(protect=True)
    together = asyncio.run(service.run("tatoeba-de-en", jobs, options))
    assert [r.text for r in service.run_many("tatoeba-de-en", jobs, options)] == [r.text for r in together]


def test_repeated_sentence_never_waits_for_room_in_the_queue(service, monkeypatch):
    text, options = "Die Nummer ist 4711 und 0815.", TextOptions(protect=True)
    with service.repository.using(["tatoeba-de-en"]) as models:
        engine = models["tatoeba-de-en"].engine
    long = DecodeOptions(beam_size=1, min_length=100)
    others = [Request([5] * 40 + [engine.eos], long, lambda outcome: None) for _ in range(2000)]

    def lines():
        yield text
        for half in (others[::2], others[1::2]):  # the queue is full for hundreds of turns
            engine.submit(half, follow_up=True)

    def sleep(seconds):
        raise AssertionError("it waits for others")

    monkeypatch.setattr(time, "sleep", sleep)
    try:
        (result,) = service.run_many("tatoeba-de-en", lines(), options)
        assert engine.stats().waiting_tokens > engine.settings.queue_tokens
    finally:
        engine.cancel(others)
    assert ("4711" in result.text, "0815" in result.text) == (True, True)


def test_answer_with_placeholders_is_independent_of_its_batch(service):
    jobs = [text for text, _ in sentences(0, 24)]
    options = TextOptions(protect=True, alignment=True)
    together = asyncio.run(service.run("tatoeba-de-en", jobs, options))
    for text, result in zip(jobs[::6], together[::6], strict=True):
        alone = asyncio.run(service.run("tatoeba-de-en", [text], options))[0]
        assert (alone.text, alone.score, alone.kept) == (result.text, result.score, result.kept)
        for one, other in zip(alone.alignment, result.alignment, strict=True):
            assert one.source == other.source
            np.testing.assert_array_equal(one.matrix, other.matrix)


def test_ignored_phrases_and_glossary_are_followed_exactly(service):
    text = "Maria wohnt in der Nähe des Parks. Der Park ist groß."
    result = ask(service, text, ignore=("Maria",), glossary={"Park": "Common", "Parks": "green space"})
    assert result.text.count("Maria") == result.text.count("green space") == result.text.count("Common") == 1
    assert "park" not in result.text.lower()
    assert ask(service, text, ignore=("maria", "Par")).text == ask(service, text).text


def test_marked_span_in_a_tag_stays_in_the_tag_and_is_reported(service):
    """Weblate's DeepL service marks the field in `<a href="%s">` and sends the tag as text."""
    text = 'Click <a href="X0" title="X1">here</a> and wait for X2.'
    spans = tuple((text.index(word), text.index(word) + 2) for word in ("X0", "X1", "X2"))
    options = TextOptions(protect=True)
    result = asyncio.run(service.run("tatoeba-en-de", [MarkedText(text, spans)], options))[0]
    assert result.text.count('<a href="X0" title="X1">') == result.text.count("</a>") == 1
    own = {kept.span: result.text[kept.begin : kept.end] for kept in result.kept if kept.span >= 0}
    assert own == {0: "X0", 1: "X1", 2: "X2"}


def test_marked_spans_stay_unchanged_and_are_reported(service):
    text = "Ich habe den Hund von Tom gesehen."
    begin = text.index("Hund von Tom")
    result = ask(service, MarkedText(text, ((begin, begin + 12),)))
    assert result.text.count("Hund von Tom") == 1
    (kept,) = result.kept
    assert (result.text[kept.begin : kept.end], kept.span) == ("Hund von Tom", 0)


def test_sentence_of_protected_phrases_only_is_echoed(service):
    result = ask(service, " %s!\n{name} ", protect=True, glossary={"{name}": "[n]"})
    assert (result.text, result.score) == (" %s!\n[n] ", 0.0)


def test_number_is_kept_without_placeholders_if_the_model_copies_it(service):
    plain = ask(service, "Ich habe 37 Bücher.", alignment=True)
    kept = ask(service, "Ich habe 37 Bücher.", protect=True)
    assert kept.text.count("37") == 1
    if plain.text.count("37") == 1:
        assert kept.text == plain.text


def test_masked_numbers_of_dates_do_not_end_a_sentence(service):
    options = TextOptions(protect=True)
    (result,) = asyncio.run(service.run("tatoeba-de-en", ["Am 2. Mai kam Tom."], options))
    assert result.tokens.count("</s>") == 1


def test_sentence_with_more_phrases_than_symbols_is_cut(service):
    things = [f"%{i}$s" for i in range(1, 41)]
    result = ask(service, " und ".join(things) + ".", protect=True)
    assert [result.text.count(thing) for thing in things] == [1] * 40
    with pytest.raises(TooLarge, match="at most 16 phrases of a text: let it be split"):
        ask(service, " und ".join("abc" for _ in range(17)), ignore=("abc",), split=False)
    unsplit = ask(service, " und ".join(things[:20]), protect=True, split=False)
    assert unsplit.tokens.count("</s>") == 1


def test_placeholder_symbols_of_the_user_stay_unchanged(service):
    result = ask(service, "Das ist <ph1> und {name}.", protect=True)
    assert result.text.count("<ph1>") == result.text.count("{name}") == 1
    assert ask(service, "Das ist <ph3>.", ignore=("Tom",)).text.count("<ph3>") == 1


def test_alternatives_keep_the_phrases(service):
    result = ask(service, "Tom hat {name} gesehen.", protect=True, alternatives=3)
    assert result.alternatives
    assert all(text.count("{name}") == 1 for text in [result.text, *result.alternatives])


def test_alignment_shows_phrases_in_place_of_symbols(service):
    (sentence,) = ask(service, "Tom hat {name} gesehen.", protect=True, alignment=True).alignment
    assert sentence.source.count("{name}") == sentence.target.count("{name}") == 1
    assert sentence.matrix.shape == (len(sentence.target), len(sentence.source))
    assert sentence.matrix.sum(1) == pytest.approx(1, abs=1e-5)
    assert ask(service, "Tom hat {name} gesehen.", protect=True).alignment == []


def test_hypothesis_with_every_phrase_comes_before_a_better_one_that_needs_mending(service):
    model = service.repository.loaded["tatoeba-de-en"].text
    made = plan(model, "Tom hat {name} gesehen.", TextOptions({"n_best": 3}, protect=True))
    (sentence,) = made.sentences
    attention = np.full((20, len(sentence.source)), 0.1, np.float32)
    lacking, right, twice = (
        Hypothesis(
            tokens := model.tokenizer.encode_target(text), score, [], "stop", attention[: len(tokens) + 1]
        )
        for text, score in (("Tom saw it.", -0.1), ("Tom saw <ph0>.", -0.5), ("<ph0> saw <ph0>.", -0.2))
    )
    found = choices(model, made, sentence, [lacking, twice, right])
    assert [choice.hypothesis for choice in found] == [right, lacking, twice]
    assert all(choice.text.count(made.masked.mark) == 1 for choice in found)
    assert all(choice.attention.shape[0] == len(choice.pieces) for choice in found)


def test_answer_without_the_quotation_marks_of_its_source_ranks_lower(service):
    model = service.repository.loaded["tatoeba-de-en"].text
    made = plan(model, "Er sagte „nein danke“.", TextOptions(protect=True))
    lacking, right = (
        Hypothesis(model.tokenizer.encode_target(text), -0.1, [], "stop", None)
        for text in ("He said no thanks.", "He said “no thanks”.")
    )
    (first,) = choices(model, made, made.sentences[0], [lacking, right])
    (only,) = choices(model, made, made.sentences[0], [lacking])
    assert (first.hypothesis, first.garbled, only.garbled) == (right, False, True)
    strict = made.fallen_back(model, made.sentences[0])
    assert strict.marks and not strict.pairs


def test_word_that_touches_a_phrase_gets_a_space_as_in_the_source(service):
    model = service.repository.loaded["tatoeba-de-en"].text
    answers = []
    for text in ("Die {x} Option.", "Die {x}Option."):
        made = plan(model, text, TextOptions(protect=True))
        (sentence,) = made.sentences
        tokens = model.tokenizer.encode_target("The <ph0>option.")
        (choice,) = choices(model, made, sentence, [Hypothesis(tokens, -0.1, [], "stop", None)])
        answers.append(made.masked.restore(choice.text, choice.order)[0])
    assert answers == ["The {x} option.", "The {x}option."]


def test_models_without_placeholders_refuse_phrases_to_keep(service):
    with running() as toys:
        for options in ({"ignore": ("Haus",)}, {"glossary": {"Haus": "home"}}):
            with pytest.raises(InvalidRequest, match="no placeholder symbols"):
                ask(toys, "Das Haus.", "toy-de-en", **options)
        assert "12" not in ask(toys, "Haus 12", "toy-de-en").text
        forced = ask(toys, "Haus 12", "toy-de-en", protect=True)
        assert forced.text.count("12") == forced.forced == 1
    with pytest.raises(InvalidRequest, match="only translations keep phrases"):
        ask(service, "We prove it.", "arxiv-title-en", ignore=("it",))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a", {"ignore": ("  ",)}, "is empty"),
        ("a", {"glossary": {"a": "\ud800"}}, "surrogate"),
        (MarkedText("abc", ((1, 1),)), {}, "span 1 to 1"),
        (MarkedText("abc", ((0, 2), (1, 3))), {}, "overlaps"),
        (MarkedText("abc", ((0, 4),)), {}, "beyond"),
        ("".join(map(chr, range(0xE000, 0xF900))), {"ignore": ("x",)}, "every private-use character"),
    ],
)
def test_invalid_phrases_and_spans_are_refused(service, text, options, message):
    with pytest.raises(InvalidRequest, match=message):
        ask(service, text, **options)


def post(service, **kwargs):
    """Send POST /translate to a server of the shipped models."""

    async def go():
        transport = httpx.ASGITransport(create_app(service, ServerSettings(), Metrics()))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post("/translate", **kwargs)

    return asyncio.run(go())


@pytest.mark.parametrize("way", ["json", "form"])
def test_server_keeps_placeables_and_requested_phrases(service, way):
    body = {"q": "Tom hat %s in {city} gesehen.", "source": "de", "target": "en"}
    plain = post(service, json=body).json()["translatedText"]
    assert plain == ask(service, body["q"], protect=True).text
    assert plain.count("%s") == plain.count("{city}") == 1
    bare = post(service, json=body | {"protect": False}).json()["translatedText"]
    assert bare == ask(service, body["q"]).text
    more = {"q": "Maria mag den Park und den Hund.", "source": "de", "target": "en"}
    if way == "json":
        answer = post(service, json=more | {"ignore": ["Maria", "Hund"], "glossary": {"Park": "Common"}})
    else:
        form = more | {"ignore": "Maria\nHund", "glossary": '{"Park": "Common"}'}
        answer = post(service, data=form)
    text = answer.json()["translatedText"]
    assert [text.count(phrase) for phrase in ("Maria", "Hund", "Common")] == [1, 1, 1]


@pytest.mark.parametrize(
    "fields", [{"ignore": [""]}, {"ignore": [3]}, {"glossary": "{"}, {"glossary": {"a": 1}}]
)
def test_invalid_phrases_are_client_errors(service, fields):
    body = {"q": "Tom ist da.", "source": "de", "target": "en"}
    answer = post(service, json=body | fields)
    assert answer.status_code == 400
    assert "error" in answer.json()


@pytest.mark.parametrize(
    ("model", "text", "name"),
    [
        ("tatoeba-de-en", "Ich habe mit Peter Koch gesprochen.", "Peter Koch"),
        ("tatoeba-de-en", "Frag Lena Bauer und Tom.", "Lena Bauer"),
        ("tatoeba-en-fr", "Mary Baker is here.", "Mary Baker"),
    ],
)
def test_common_name_in_a_sentence_stays(service, model, text, name):
    assert name in ask(service, text, model, protect=True).text


@pytest.mark.parametrize(
    ("model", "text", "words"),
    [
        (
            "tatoeba-de-en",
            "Der Zug fährt von Gl. 7 ab, bzw. von Gl. 8.",
            ["platform 7", " or ", "platform 8."],
        ),
        (
            "tatoeba-de-en",
            "Es kommen mind. 20 Pers. zzgl. Kinder.",
            ["least 20 people", "plus children."],
        ),
        (
            "tatoeba-de-en",
            "Der Preis ist 5 € zzgl. MwSt. pro Pers.",
            ["5 €", "plus", "per person."],
        ),
        (
            "tatoeba-de-en",
            "<b>Siehe</b> S. 12 und ca. 3 Bilder.",
            ["<b>See</b> p. 12", "about 3 images"],
        ),
        ("tatoeba-en-de", "Call me approx. ten minutes before.", ["ungefähr zehn Minuten"]),
        ("tatoeba-fr-en", "Cela dure env. 45 minutes.", ["about 45 minutes."]),
    ],
)
def test_abbreviation_is_read_as_its_words(service, model, text, words):
    answer = ask(service, text, model, protect=True, follow_form=True).text
    assert all(word in answer for word in words), answer
