"""Texts through real small models: the service against the engine, asked sentence by sentence."""

import asyncio
import math
import random
import shutil
import threading
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.answers.plan import plan
from engine.answers.text_model import TextModel
from engine.api import (
    BundleError,
    ConfigError,
    DeadlineExceeded,
    ExecutorFailed,
    InvalidRequest,
    Overloaded,
    Placement,
    Service,
    ServiceSettings,
    Stopping,
    TextOptions,
    TooLarge,
    UnknownModel,
)
from engine.bundle.bundle import open_bundle
from engine.schedule.aio import generate
from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.types import DecodeOptions
from tests.support.served import (
    LANES,
    LINES,
    LONG,
    MODELS,
    SOURCE,
    TARGET,
    bundles,
    busy,
    open_service,
    running,
    until,
)


@pytest.fixture(scope="module")
def service():
    with running() as made:
        yield made


def ask(service, text, options=None, model="toy-de-en"):
    return asyncio.run(service.run(model, [text], options))[0]


def alone(service, sentence, model="toy-de-en", **changes):
    """The engine's own answer to one sentence."""
    bundle = open_bundle(bundles() / model)
    source = [*open_tokenizer(bundle).encode(sentence), bundle.config.eos]
    engine = service.repository.loaded[model].engine
    return asyncio.run(generate(engine, source, replace(bundle.options, **changes)))


def text_of(hypothesis):
    return open_tokenizer(open_bundle(bundles() / "toy-de-en")).decode(hypothesis.tokens)


def test_a_text_is_its_sentences_translated_each_alone_and_laid_out_as_before(service):
    sentences = ["Das ist gut.", "Wer bist du?", "Guten Abend!"]
    text = f"  {sentences[0]}  {sentences[1]}\r\n\n\t{sentences[2]}\n"
    found = [text_of(alone(service, s).hypotheses[0]) for s in sentences]
    result = ask(service, text)
    assert result.text == f"  {found[0]}  {found[1]}\r\n\n\t{found[2]}\n"
    assert len(set(found)) == 3
    assert not result.truncated


def test_the_score_of_several_sentences_is_weighted_by_their_lengths(service):
    best = [alone(service, s).hypotheses[0] for s in ("Das ist gut.", "Wer bist du?")]
    result = ask(service, "Das ist gut. Wer bist du?")
    lengths = [len(h.token_scores) for h in best]
    assert result.score == pytest.approx(np.average([h.score for h in best], weights=lengths))
    assert result.token_scores == [s for h in best for s in h.token_scores]
    assert len(result.tokens) == len(result.token_scores)
    assert result.tokens.count("</s>") == 2
    assert result.target_tokens == sum(len(h.tokens) for h in best)


def test_a_single_sentence_keeps_its_own_score(service):
    assert ask(service, "Wer bist du?").score == alone(service, "Wer bist du?").hypotheses[0].score


def test_alternatives_combine_rank_by_rank(service):
    one, two = (alone(service, s, n_best=3).hypotheses for s in ("Das ist gut.", "Wer bist du?"))
    result = ask(service, "Das ist gut. Wer bist du?", TextOptions(alternatives=2))
    wanted = list(dict.fromkeys(f"{text_of(a)} {text_of(b)}" for a, b in zip(one, two, strict=True)))
    assert [result.text, *result.alternatives] == wanted
    assert len(result.alternative_scores) == len(result.alternatives) >= 1


def test_the_beam_widens_for_alternatives_unless_it_was_named():
    with running(lanes=((1, 2), (2, 2), (4, 2)), beam_size=2) as service:
        names = {s.options.beam_size for s in service.models()}
        assert names == {2}
        wide = ask(service, "Wer bist du?", TextOptions(alternatives=3))
        assert wide.text == text_of(alone(service, "Wer bist du?", beam_size=4).hypotheses[0])
        with pytest.raises(InvalidRequest, match="3 alternatives need a beam_size of at least 4"):
            ask(service, "Wer bist du?", TextOptions({"beam_size": 2}, alternatives=3))


@pytest.mark.parametrize("text", ["", " ", "\n\n", "😀 😀", "…!", "\u3000\t"])
def test_text_without_words_comes_back_without_the_model(service, text):
    before = service.stats()["toy-de-en"]
    result = ask(service, text)
    after = service.stats()["toy-de-en"]
    assert (result.text, result.score, result.tokens) == (text, 0.0, [])
    assert (before.steps, before.encoded_requests) == (after.steps, after.encoded_requests)


def test_an_emoji_between_sentences_stays(service):
    result = ask(service, "Wer bist du?\n😀\nDas ist gut.", TextOptions(alternatives=1))
    lines = result.text.split("\n")
    assert lines[1] == "😀"
    assert lines[0] == text_of(alone(service, "Wer bist du?").hypotheses[0])


def test_a_sentence_too_long_for_the_model_is_split_and_nothing_is_lost(service):
    bundle = open_bundle(bundles() / "toy-de-en")
    text = " ".join(f"Haus{i} und Hof" for i in range(60))
    result = ask(service, text)
    pieces = len(open_tokenizer(bundle).encode(text))
    parts = result.tokens.count("</s>")
    assert parts >= pieces // SOURCE > 1
    assert result.source_tokens >= pieces + parts - 1
    assert not result.truncated


@pytest.mark.parametrize("order", [1, -1])
def test_an_answer_of_which_one_sentence_was_ended_by_its_limit_says_so(order):
    folder = Path(__file__).parents[3] / "models" / "tatoeba-de-en"
    decode = {"max_length_a": 0.0, "max_length_b": 6}
    sentences = ["Es ist gut.", "Tom und Maria gehen morgen mit dem Hund durch den großen Wald."][::order]
    service = Service.open([folder], ServiceSettings(Placement(threads=1)))
    service.start()
    results = service.run_many(folder.name, [*sentences, " ".join(sentences)], TextOptions(decode))
    finishes = [result.finish for result in results]
    service.stop(drain=False, timeout=30)
    assert finishes == [*["stop", "length"][::order], "length"]


@pytest.mark.parametrize("name", ["tatoeba-de-en", "tatoeba-en-fr"])
def test_a_text_without_sentence_ends_is_cut_where_its_bundle_says(name):
    folder = Path(__file__).parents[3] / "models" / name
    bundle = open_bundle(folder, verify=False)
    text = "Tom und Maria gehen in das Haus " * 100
    service = Service.open([folder], ServiceSettings(Placement(threads=1)))
    service.start()
    (loaded,) = service.repository.loaded.values()
    sources = [sentence.source for sentence in plan(loaded.text, text, TextOptions()).sentences]
    service.stop(drain=False, timeout=30)
    count = len(open_tokenizer(bundle).encode(text.strip()))
    assert bundle.max_sentence_tokens - 3 <= max(map(len, sources)) <= bundle.max_sentence_tokens == 48
    assert sum(map(len, sources)) - len(sources) == count
    assert len(sources) <= math.ceil(count / 44)


def test_a_text_that_must_stay_whole_is_refused_when_it_is_too_long(service):
    with pytest.raises(TooLarge, match=f"at most {SOURCE}: let it be split"):
        ask(service, "Haus und Hof " * 60, TextOptions(split=False))


def test_unsplit_text_is_one_source(service):
    whole = ask(service, " Das ist gut.\nWer bist du? ", TextOptions(split=False))
    assert whole.tokens.count("</s>") == 1
    assert whole.text == f" {text_of(alone(service, 'Das ist gut. Wer bist du?').hypotheses[0])} "


def test_a_summary_is_of_the_whole_text_or_says_that_it_was_shortened(service):
    text = "We prove a theorem. It is new. " * 20
    with pytest.raises(TooLarge, match=f"reads at most {SOURCE}: choose a strategy"):
        ask(service, text, model="toy-title")
    short = ask(service, text, TextOptions(truncate=True), model="toy-title")
    assert short.truncated
    assert short.source_tokens == SOURCE
    whole = ask(service, "We prove a theorem. It is new.", TextOptions(truncate=True), model="toy-title")
    assert not whole.truncated
    assert whole.tokens.count("</s>") == 1
    assert ask(service, "  ", model="toy-title").text == "  "


def test_a_prefix_begins_the_first_sentence_only(service):
    result = ask(service, "Wer bist du? Das ist gut.", TextOptions(prefix="The house"))
    assert result.text.startswith("The house")
    assert result.text.count("The house") == 1
    assert result.text.endswith(text_of(alone(service, "Das ist gut.").hypotheses[0]))


def test_alignment_is_one_matrix_of_distributions_for_each_sentence(service):
    result = ask(service, "Wer bist du?\n😀 Das ist gut.", TextOptions(alignment=True))
    assert len(result.alignment) == 2
    for sentence in result.alignment:
        assert sentence.matrix.shape == (len(sentence.target), len(sentence.source))
        assert sentence.matrix.sum(-1) == pytest.approx(1.0, abs=1e-5)
        assert sentence.source[-1] == sentence.target[-1] == "</s>"
    assert "".join(result.alignment[0].source).startswith("▁")


def test_what_ends_by_its_limit_says_so(service):
    assert ask(service, "Wer bist du?", TextOptions({"min_length": 3, "max_length": 3})).finish == "length"


def test_the_lines_of_a_batch_are_one_group_all_or_nothing():
    with running(queue_tokens=40) as service, pytest.raises(TooLarge, match="send fewer texts"):
        asyncio.run(service.run("toy-de-en", ["Das ist gut."] * 20))


def test_long_batches_are_prepared_beside_the_event_loop(service):
    texts = [f"Das ist Haus {i}." for i in range(150)]
    together = asyncio.run(service.run("toy-de-en", texts))
    assert [r.text for r in together] == [r.text for r in service.run_many("toy-de-en", texts)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (TextOptions({"beams": 2}), r"unknown decoding options \['beams'\]"),
        (TextOptions({"prefix": (1,)}), "prefix as text"),
        (TextOptions(alternatives=-1), "must not be negative"),
        (TextOptions(prefix="\ud800"), "surrogate"),
        (TextOptions({"length_penalty": math.nan}), "finite"),
        (TextOptions({"beam_size": 5}), "between 1 and 4"),
    ],
)
@pytest.mark.parametrize("text", ["Wer bist du?", "😀"])
def test_wrong_options_are_refused_even_when_the_model_is_not_needed(service, options, message, text):
    with pytest.raises(InvalidRequest, match=message):
        ask(service, text, options)


def test_text_that_is_no_unicode_is_refused(service):
    with pytest.raises(InvalidRequest, match="surrogate"):
        ask(service, "a\udfffb")


@given(text=st.text(max_size=60))
def test_any_text_is_answered_with_its_white_space(service, text):
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    result = ask(service, text, TextOptions({"beam_size": 1, "max_length": 2}))
    assert result.text[: len(text) - len(text.lstrip())].isspace() == bool(text[:1].isspace())


def test_a_translation_from_chinese_has_spaces_between_its_sentences():
    limits = DecodeOptions()
    for pair, wanted in {
        ("zh", "en"): " ",
        ("de", "en"): "",
        ("ja", "zh"): "",
        ("zh-Hans", "de"): " ",
    }.items():
        assert TextModel("translate", *pair, None, limits, None, 2).between == wanted


# many lines


def test_many_lines_come_back_in_order_and_equal_to_one_at_a_time(service):
    lines = [f"{'Das ist ' * (i % 7)}Haus {i}." for i in range(60)] + ["", "  ", "😀"]
    done = []
    results = list(service.run_many("toy-de-en", lines, on_done=done.append))
    assert [r.text for r in results] == [ask(service, line).text for line in lines]
    assert sum(done) == len(lines)


def test_equal_sentences_of_lines_in_flight_are_decoded_once(service):
    rng = random.Random(3)
    lines = [" ".join(rng.choices(LINES[:20], k=rng.randrange(1, 4))) for _ in range(60)]
    sentences = {sentence + "." for line in lines for sentence in line.rstrip(".").split(". ")}
    with running() as own:
        results = list(own.run_many("toy-de-en", lines))
        assert own.stats()["toy-de-en"].encoded_requests == len(sentences)
    assert [r.text for r in results] == [ask(service, line).text for line in lines]


def test_equal_lines_that_draw_samples_are_decoded_each():
    drawn = TextOptions({"sampling": True, "seed": 7, "max_length": 3})
    with running() as own:
        list(own.run_many("toy-de-en", LINES[:1] * 5, drawn))
        assert own.stats()["toy-de-en"].encoded_requests == 5


def test_a_line_is_decoded_again_where_an_equal_one_has_failed():
    """What failed once may have been another line's fault."""
    with running() as own:
        engine = own.repository.loaded["toy-de-en"].engine
        submit, failed = engine.submit, []

        def fail_first(requests, **options):
            if not failed:
                failed.extend(requests)
                requests[0].reply(ExecutorFailed("a batch failed"))
            else:
                submit(requests, **options)

        engine.submit = fail_first
        texts = [(text, TextOptions()) for text in LINES[:1] * 3]
        first, *others = own.run_each("toy-de-en", texts)
        assert isinstance(first, ExecutorFailed)
        assert len({other.text for other in others}) == 1


def test_reading_ahead_is_bounded_by_the_queue():
    read = []

    def lines():
        for i in range(500):
            read.append(i)
            yield f"Das ist Haus {i}."

    with running(queue_tokens=200) as service:
        stream = service.run_many("toy-de-en", lines())
        next(stream)
        assert 1 < len(read) < 100
        ahead = [len(read) - number for number, _ in enumerate(stream, 2)]
    assert len(ahead) == 499
    assert min(ahead[:400]) > 1


def test_an_error_names_its_line(service):
    lines = ["Das ist gut.", "Haus und Hof " * 60]
    with pytest.raises(TooLarge, match=r"^line 2: the text has"):
        list(service.run_many("toy-de-en", lines, TextOptions(split=False)))


def test_an_engine_that_stops_ends_the_stream_with_the_line(service):
    with running() as own:
        stream = own.run_many("toy-de-en", ["Das ist gut."] * 2, TextOptions(LONG))
        own.repository.loaded["toy-de-en"].engine.stop(drain=False, timeout=0)
        with pytest.raises(Stopping):
            next(stream)


def test_answers_that_never_come_name_their_line():
    with running() as own:

        def lines():
            yield "Das ist gut."
            own.repository.loaded["toy-de-en"].engine.stop(drain=False, timeout=30)

        with pytest.raises(Stopping, match="^line 1: "):
            list(own.run_many("toy-de-en", lines(), TextOptions(LONG)))


def test_leaving_the_stream_early_frees_every_slot(service):
    stream = service.run_many("toy-de-en", ["😀", *LINES[:40]], TextOptions(LONG))
    assert next(stream).text == "😀"
    assert sum(busy(service)) > 0
    answered = service.stats()["toy-de-en"].answered
    stream.close()
    until(lambda: busy(service) == (0, 0))
    assert service.stats()["toy-de-en"].answered == answered


class Gate:
    """An observer that holds the engine's thread when it has placed sources, until it is opened."""

    def __init__(self):
        self.opened = threading.Event()

    def on_encode(self, seconds, requests, tokens):
        self.opened.wait(30)

    def on_step(self, seconds, slots):
        pass


@pytest.fixture
def crowded():
    """A service of one slot, which is taken, and whose queue has room for as many more lines as asked."""
    encode = open_tokenizer(open_bundle(bundles() / "toy-de-en")).encode
    size = len(encode(LINES[0])) + 1
    alike = (line for line in LINES if len(encode(line)) + 1 == size)
    texts, others = list(islice(alike, 12)), list(islice(alike, 6))
    gate = Gate()
    with running(observe=lambda _: gate, queue_tokens=5 * size, lanes=((4, 1),)) as service:

        def lines(room):
            yield from texts[:room]
            gate.opened.set()  # the rest is asked for when the queue is full
            yield from texts[room:]

        async def stream(room):
            groups = [asyncio.create_task(service.run("toy-de-en", others[5:]))]
            while busy(service)[0] == 0:
                await asyncio.sleep(0.002)
            groups.append(asyncio.create_task(service.run("toy-de-en", others[: 5 - room])))
            await asyncio.sleep(0)
            asked = lines(room) if room else texts  # the first of which is refused
            try:
                results = await asyncio.to_thread(lambda: list(service.run_many("toy-de-en", asked)))
                return texts, [result.text for result in results]
            finally:
                gate.opened.set()
                for group in groups:
                    group.cancel()

        yield stream


def test_a_stream_fails_when_others_fill_the_queue_and_it_has_nothing_in_flight(crowded):
    with pytest.raises(Overloaded, match="^line 1: the queue is full"):
        asyncio.run(crowded(0))


def test_a_stream_waits_for_its_own_answers_when_others_fill_the_queue(service, crowded):
    texts, answers = asyncio.run(crowded(2))
    assert answers == [ask(service, text).text for text in texts]


def test_a_stream_needs_a_running_service():
    with pytest.raises(Stopping, match="start the service first"):
        list(open_service().run_many("toy-de-en", ["Das ist gut."]))


# the service itself


def test_the_first_model_for_the_languages_is_picked(service):
    assert service.pick("translate", "en", "de").name == "toy-en-de"
    assert service.pick("translate").name == "toy-de-en"
    assert service.pick("summarize").name == "toy-title"
    assert service.pick("translate", "de", "en", "toy-de-en").name == "toy-de-en"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (("translate", "de", "fr"), "no model can translate from de to fr; there are: toy-de-en"),
        (("translate", None, None, "toy-title"), "model 'toy-title' can't translate"),
        (("translate", None, None, "nobody"), "no model 'nobody'; there are: toy-de-en, toy-en-de"),
    ],
)
def test_what_no_model_can_do_is_refused_with_what_there_is(service, wanted, message):
    with pytest.raises(UnknownModel, match=message):
        service.pick(*wanted)


def test_an_unknown_model_is_named(service):
    with pytest.raises(UnknownModel, match="no model 'x'"):
        ask(service, "a", model="x")


def test_models_and_languages_say_what_is_loaded(service):
    info = {i.name: i for i in service.models()}
    assert set(info) == set(MODELS)
    weights = open_bundle(bundles() / "toy-de-en").weights()
    assert info["toy-de-en"].parameters == sum(w.size for w in weights.values())
    assert (info["toy-de-en"].limits.source, info["toy-de-en"].limits.target) == (SOURCE, TARGET)
    assert {lang.code: lang.targets for lang in service.languages()} == {"de": ("en",), "en": ("de",)}


def test_languages_are_detected_among_those_loaded(service):
    assert service.detect("Wo ist denn hier der Bahnhof, bitte?").ranked[0][0] == "de"
    assert service.detect("Where can I find the railway station?").ranked[0][0] == "en"


def test_a_vocabulary_of_crumbs_is_no_judge_of_a_language(service):
    """It has hardly a word of German whole, so it would take every German word for a foreign one."""
    text = service.repository.loaded["toy-de-en"].text
    assert text.word_tokens("Bahnhof") > 1
    assert text.known_share(["Bahnhof"], "de") == 1.0
    assert text.known_share(["Bahnhof"], "xx") == 1.0


def test_the_canary_is_really_translated(service):
    before = service.stats()["toy-title"].answered
    asyncio.run(service.canary("toy-title"))
    assert service.stats()["toy-title"].answered == before + 1


def test_a_deadline_that_has_passed_is_an_error(service):
    with pytest.raises(DeadlineExceeded):
        asyncio.run(service.run("toy-de-en", ["Das ist gut."], None, time.monotonic() - 1))


def test_a_cancelled_text_frees_its_slots(service):
    async def give_up():
        task = asyncio.create_task(service.run("toy-de-en", LINES[:9], TextOptions(LONG)))
        while busy(service)[0] == 0:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(give_up())
    until(lambda: busy(service) == (0, 0))


def test_a_drain_finishes_what_was_accepted_and_then_refuses():
    service = open_service()
    service.start()

    async def drain():
        task = asyncio.create_task(service.run("toy-de-en", LINES[:9]))
        await asyncio.sleep(0)
        complete = await asyncio.to_thread(service.stop, drain=True, timeout=60)
        return complete, await task

    complete, results = asyncio.run(drain())
    assert complete
    assert len(results) == 9
    assert not service.healthy()
    with pytest.raises(Stopping):
        ask(service, "Das ist gut.")


def test_a_drain_that_takes_too_long_answers_the_rest_with_stopping():
    service = open_service()
    service.start()

    async def drain():
        task = asyncio.create_task(service.run("toy-de-en", LINES[:40], TextOptions(LONG)))
        while busy(service) == (0, 0):
            await asyncio.sleep(0)
        complete = await asyncio.to_thread(service.stop, drain=True, timeout=0.05)
        with pytest.raises(Stopping):
            await task
        return complete

    assert not asyncio.run(drain())


def test_a_single_bundle_or_a_folder_may_be_opened(tmp_path):
    one = Service.open([bundles() / "toy-de-en"], ServiceSettings(Placement(lanes=LANES)))
    assert [i.name for i in one.models()] == ["toy-de-en"]
    with pytest.raises(BundleError, match="neither a bundle nor a folder of bundles"):
        Service.open([tmp_path])
    with pytest.raises(BundleError, match="no such bundle folder"):
        Service.open([tmp_path / "missing"])
    with pytest.raises(BundleError, match="no models to load"):
        Service.open([])


def test_two_bundles_of_one_name_are_refused(tmp_path):
    shutil.copytree(bundles() / "toy-de-en", tmp_path / "copy")
    with pytest.raises(BundleError, match="two bundles have the name 'toy-de-en'"):
        Service.open([bundles(), tmp_path], ServiceSettings(Placement(lanes=LANES)))


def test_lanes_too_narrow_for_the_models_defaults_are_refused():
    with pytest.raises(ConfigError, match=r"beam_size must be between 1 and 1; change the lanes"):
        open_service(lanes=((1, 4),))
    assert open_service(lanes=((1, 4),), beam_size=1).models()[0].options.beam_size == 1
