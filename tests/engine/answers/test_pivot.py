"""Translation through a third language, compared with two separate translations."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import replace

import pytest

from engine.answers.pivot import join_results, options_of
from engine.api import (
    DeadlineExceeded,
    InvalidRequest,
    KeptSpan,
    Language,
    Partial,
    Placement,
    Service,
    ServiceSettings,
    TextOptions,
    TextResult,
    UnknownModel,
)
from engine.bundle.bundle import Description, open_bundle, write_bundle
from tests.support.served import LANES, LONG, bundles, busy, lending, until

CHAIN = "toy-de-en+toy-en-fr"
TEXT = " Das ist gut. Wer bist du?\n😀 Guten Abend!"
MANY = {"min_length": 190, "max_length": 190}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with toy-de-en, and with toy-en-de described as a model into French."""
    path = tmp_path_factory.mktemp("pivot")
    old = open_bundle(bundles() / "toy-en-de")
    described = Description(
        name="toy-en-fr",
        task="translate",
        source="en",
        target="fr",
        config=old.config,
        text=dict(old.text),
        generation={"beam_size": 4, "max_length": 10},
    )
    names = [name for name in old.manifest if name.startswith("onnx/") or name.endswith(".model")]
    files = {
        name: old.file(name).read_bytes() if name.startswith("onnx/") else old.file(name) for name in names
    }
    write_bundle(path / "toy-en-fr", described, old.weights(), files, half=False)
    return path


@pytest.fixture(scope="module")
def service(folder):
    made = Service.open([bundles(), folder], ServiceSettings(Placement(lanes=LANES)))
    made.start()
    yield made
    made.stop(drain=False, timeout=30)


def ask(service, text, options=None, model=CHAIN, deadline=float("inf")):
    return asyncio.run(service.run(model, [text], options, deadline))[0]


def test_languages_include_targets_through_two_models(service):
    assert service.languages() == [
        Language("de", ("en", "fr"), (("fr", "en"),)),
        Language("en", ("de", "fr")),
        Language("fr", ()),
    ]


def test_a_chain_is_picked_where_no_model_translates(service):
    assert service.pick("translate", "de", "fr").name == CHAIN
    assert service.pick("translate", "de", "en").name == "toy-de-en"
    assert service.pick("translate", "de", "fr", CHAIN).name == CHAIN
    for wanted in (("translate", "fr", "de"), ("translate", "de", "es"), ("summarize", "de", "fr")):
        with pytest.raises(UnknownModel, match="no model can"):
            service.pick(*wanted)
    with pytest.raises(UnknownModel, match="can't translate from en"):
        service.pick("translate", "en", "fr", CHAIN)


@pytest.mark.parametrize("name", ["toy-en-fr+toy-de-en", "toy-de-en+toy-title", "toy-de-en+x", "a+b+c", "+"])
def test_names_that_are_no_chain_are_refused(service, name):
    with pytest.raises(UnknownModel):
        ask(service, "a", model=name)
    with pytest.raises(UnknownModel):
        service.pick("translate", None, None, name)


@pytest.mark.parametrize(
    "options", [TextOptions(), TextOptions(alternatives=2, alignment=True, coverage=True)]
)
def test_the_second_model_reads_the_first_ones_answer(service, options):
    first = ask(service, TEXT, replace(options, alternatives=0), "toy-de-en")
    second = ask(service, first.text, options, "toy-en-fr")
    result = ask(service, TEXT, options)
    assert (result.text, result.score, result.tokens) == (second.text, second.score, second.tokens)
    assert result.alternatives == second.alternatives
    assert result.model == CHAIN
    via = result.via
    assert (via.text, via.score, via.tokens, via.model) == (
        first.text,
        first.score,
        first.tokens,
        "toy-de-en",
    )
    assert len(via.alignment) == len(first.alignment)
    assert len(via.coverage) == len(first.coverage)
    assert result.source_tokens == first.source_tokens
    assert result.timings.steps == first.timings.steps + second.timings.steps
    assert first.via is None


def test_the_alignment_of_a_pivot_is_of_the_source_and_the_answer(service):
    result = ask(service, TEXT, TextOptions(alignment=True))
    own, read = ask(service, TEXT, TextOptions(alignment=True), "toy-de-en"), result.via.text
    last = ask(service, read, TextOptions(alignment=True), "toy-en-fr")
    assert [sentence.target for sentence in result.alignment] == [s.target for s in last.alignment]
    pieces = [sentence.source for sentence in own.alignment]
    for sentence in result.alignment:
        assert sentence.source in [sum(pieces[i:j], []) for i in range(9) for j in range(i + 1, 9)]
        assert sentence.matrix.shape == (len(sentence.target), len(sentence.source))
        assert sentence.matrix.sum(-1) == pytest.approx(1.0, abs=1e-5)
        for piece, place in zip(sentence.source, sentence.source_places, strict=True):
            assert place is None or TEXT[slice(*place)] in piece


def test_phrases_kept_by_both_models_have_the_callers_numbers():
    first = TextResult(
        "a b c", kept=[KeptSpan(0, 1, 1), KeptSpan(2, 2, 2), KeptSpan(2, 3, -1), KeptSpan(4, 5, 0)]
    )
    second = TextResult(
        "c b a", kept=[KeptSpan(0, 1, 2), KeptSpan(2, 3, 1), KeptSpan(4, 5, 0), KeptSpan(4, 5, -1)]
    )
    assert [kept.span for kept in join_results(first, second).kept] == [0, -1, 1, -1]


@pytest.fixture(scope="module")
def keeping(folder, tmp_path_factory):
    """A service of the same two models with placeholders."""
    path = tmp_path_factory.mktemp("keeping")
    for source in (bundles() / "toy-de-en", folder / "toy-en-fr"):
        lending(source, path)
    made = Service.open([path], ServiceSettings(Placement(lanes=LANES)))
    made.start()
    yield made
    made.stop(drain=False, timeout=30)


@pytest.mark.parametrize("many", [False, True])
def test_amounts_in_a_pivot_have_the_format_of_the_last_language(keeping, many):
    """Amounts are not read again in the pivot language: "1,500" stays a decimal number."""
    amounts = {
        "1.234,56 €": "1\u202f234,56\u00a0€",
        "3.500 kg": "3\u202f500 kg",
        "1,500 l": "1,500 l",
        "12:30": "12:30",
        "5 %": "5\u202f%",
    }
    texts = [f"Das kostet {amount} am Montag." for amount in amounts]
    for local in (False, True):
        options = TextOptions(protect=True, local_numbers=local)
        if many:
            results = list(keeping.run_many(CHAIN, texts, options))
        else:
            results = asyncio.run(keeping.run(CHAIN, texts, options))
        for result, (there, here) in zip(results, amounts.items(), strict=True):
            number = (here if local else there).removesuffix(" l")
            assert result.text.count(number) == 1, result.text
            assert result.via.text.count(number) == 1
    alone = ask(keeping, texts[0], TextOptions(protect=True, local_numbers=True), "toy-de-en")
    assert alone.text.count("€1,234.56") == 1


def test_amounts_are_read_in_the_pivot_language_if_the_first_model_has_no_placeholders(keeping, service):
    first, last = (
        place.repository.loaded[name].text for place, name in ((service, "toy-de-en"), (keeping, "toy-en-fr"))
    )
    early, late = options_of(TextOptions(protect=True, local_numbers=True), first, last)
    assert (early.local_numbers, late.local_numbers) == (False, True)


def test_a_prefix_begins_the_final_answer_only(service):
    result = ask(service, "Wer bist du?", TextOptions(prefix="Das Haus"))
    assert result.text.startswith("Das Haus")
    assert not result.via.text.startswith("Das Haus")


def test_many_lines_go_through_both_models_in_order(service):
    lines = [f"{'Das ist ' * (i % 5)}Haus {i}." for i in range(40)] + ["", "😀"]
    done = []
    results = list(service.run_many(CHAIN, lines, on_done=done.append))
    single = asyncio.run(service.run(CHAIN, lines))
    assert [(r.text, r.via.text) for r in results] == [(r.text, r.via.text) for r in single]
    assert sum(done) == len(lines)


def test_closing_many_lines_early_frees_both_models(service):
    stream = service.run_many(CHAIN, ["😀", *["Das ist gut."] * 8], TextOptions(MANY))
    assert next(stream).text == "😀"
    stream.close()
    until(lambda: busy(service) == busy(service, "toy-en-fr") == (0, 0))


def test_the_stream_yields_beginnings_of_the_last_answer(service):
    async def collect():
        async with aclosing(service.stream(CHAIN, [TEXT])) as news:
            return [event async for event in news]

    *partials, (result,) = asyncio.run(collect())
    assert partials
    assert all(isinstance(p, Partial) and result.text.startswith(p.text) for p in partials)
    assert result.text == ask(service, TEXT).text


def test_both_steps_share_one_deadline(service):
    with pytest.raises(DeadlineExceeded):
        ask(service, "Wer bist du?", TextOptions(LONG), deadline=time.monotonic() + 0.3)
    until(lambda: busy(service) == busy(service, "toy-en-fr") == (0, 0))


def test_options_that_the_last_model_refuses_fail_at_once(service):
    before = service.stats()["toy-de-en"].encoded_requests
    with pytest.raises(InvalidRequest):
        ask(service, "Wer bist du?", TextOptions({"beams": 1}))
    assert service.stats()["toy-de-en"].encoded_requests == before
