"""An upstream answers like a model; its failures and faults end in a local answer or a stated error."""

import asyncio
import time
from dataclasses import replace

import pytest

from engine.api import USUAL_OPTIONS, MarkedText, Partial, Unavailable, UnknownModel
from engine.errors import DeadlineExceeded, ExecutorFailed, InvalidRequest
from engine.repository.upstreams.asking import _Draft
from engine.repository.upstreams.checks import longest_answer
from engine.text.tokenizers.characters import SourceText
from tests.support.served import running
from tests.support.upstreams import Model, serving, settings_file

USUAL = USUAL_OPTIONS["translate"]
TEXT = "Siehe https://x.org und das Haus kostet 12 Euro heute."
LOCAL = "toy-de-en"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("engine.repository.upstreams.asking.RETRY_SECONDS", 0.0)


@pytest.fixture(scope="module")
def model():
    with serving(Model()) as found:
        yield found


@pytest.fixture
def unspoiled(model):
    model.faults.clear()
    model.always = ""
    model.asked.clear()
    return model


def started(folder, model, **entries):
    """Start a service of the local toy models and the upstream `big`."""
    return running(upstreams=settings_file(folder, model.address, **entries))


@pytest.fixture(scope="module")
def place(model, tmp_path_factory):
    with started(tmp_path_factory.mktemp("upstream"), model) as service:
        yield service


@pytest.fixture
def service(place, unspoiled):
    """The service, with an upstream that has not failed yet."""
    place.reload("big")
    return place


def answer(service, text, route="big@de:en", seconds=600, **options):
    deadline = time.monotonic() + seconds
    return asyncio.run(service.run(route, [text], replace(USUAL, **options), deadline))[0]


def events(service, text, route="big@de:en"):
    async def collect():
        return [event async for event in service.stream(route, [text], USUAL)]

    return asyncio.run(collect())


def test_an_upstream_answers_by_name_and_is_marked_as_remote(service, unspoiled):
    result = answer(service, "Das ist ein Haus.")
    assert (result.text, result.model, result.doubtful) == ("This is a house.", "big", 0)
    infos = {info.name: info for info in service.models()}
    assert infos["big"].remote == unspoiled.address.removeprefix("http://")
    assert infos[LOCAL].remote == ""


def test_a_direction_goes_to_the_local_model_unless_the_upstream_is_preferred(service, unspoiled, tmp_path):
    assert service.pick("translate", "de", "en").models == LOCAL
    with started(tmp_path, unspoiled, prefers=["deu-en"], languages=["de", "en", "fr"]) as other:
        assert other.pick("translate", "de", "en").models == "big"
        assert other.pick("translate", "en", "de").models == "toy-en-de"
        assert other.pick("translate", "fr", "de").models == "big", "no local model reads French"


def test_every_language_is_served_with_a_star(unspoiled, tmp_path):
    with started(tmp_path, unspoiled, languages="*") as other:
        assert other.pick("translate", "ja", "sw").models == "big"
        assert {"ja", "sw", "de"} <= {language.code for language in other.languages()}
        with pytest.raises(UnknownModel):
            other.pick("translate", "xx", "en")


def test_a_paragraph_is_one_request_and_lines_are_requests_of_their_own(service, unspoiled):
    text = "Das ist ein Haus. Es ist alt.\n\n- Der Hund schläft.\n- Die Katze schläft."
    result = answer(service, text)
    assert result.text == "This is a house. It is old.\n\n- The dog sleeps.\n- The cat sleeps."
    sent = sorted(request["messages"][-1]["content"] for request in unspoiled.asked)
    assert sent == ["Das ist ein Haus. Es ist alt.", "Der Hund schläft.", "Die Katze schläft."]


def test_sentences_are_requests_of_their_own_by_a_setting(unspoiled, tmp_path):
    with started(tmp_path, unspoiled, unit="sentence") as other:
        assert answer(other, "Das ist ein Haus. Es ist alt.").text == "This is a house. It is old."
    assert len(unspoiled.asked) == 2


def test_addresses_and_marked_phrases_are_sent_as_tags_and_come_back(service, unspoiled):
    result = answer(service, MarkedText("Siehe https://x.org und den Hund.", ((28, 32),)))
    assert result.text == "See https://x.org and the Hund."
    (kept,) = (span for span in result.kept if span.span == 0)
    assert result.text[kept.begin : kept.end] == "Hund"
    sent = unspoiled.asked[0]["messages"]
    assert "x.org" not in str(sent) and "<x1/>" in sent[-1]["content"] and "<x1/>" in sent[0]["content"]


def test_entries_of_a_glossary_are_in_the_prompt(service, unspoiled):
    result = answer(service, "Wir sehe den Bahnhof.", glossary={"Bahnhof": "central station"})
    assert result.text == "We see the central station."
    assert "Bahnhof = central station" in unspoiled.asked[0]["messages"][0]["content"]


def test_an_ignored_entry_of_a_glossary_is_forced_by_a_tag(service, unspoiled, monkeypatch):
    monkeypatch.setattr(unspoiled, "text_of", lambda request: _without_terms(request))
    result = answer(service, "Wir sehe den Bahnhof.", glossary={"Bahnhof": "central station"})
    assert (result.text, result.doubtful) == ("We see the central station.", 0)
    assert "<x1/>" in unspoiled.asked[-1]["messages"][-1]["content"]


def _without_terms(request):
    from tests.support.upstreams import translate

    return translate(request["messages"][-1]["content"])


@pytest.mark.parametrize("fault", ["chat", "lost", "double", "number", "long", "empty", "german"])
def test_a_faulty_answer_is_asked_for_again_with_a_stricter_prompt(service, unspoiled, fault):
    unspoiled.faults.append(fault)
    result = answer(service, TEXT)
    assert result.model == "big" and result.doubtful == 0
    assert result.text == "See https://x.org and das house costs 12 Euro today."
    first, second = (request["messages"][0]["content"] for request in unspoiled.asked[:2])
    assert len(second) > len(first)


@pytest.mark.parametrize("fault", ["chat", "lost", "double", "empty", "number"])
def test_an_answer_with_lasting_faults_is_replaced_by_the_local_model(service, unspoiled, fault):
    unspoiled.always = fault
    result = answer(service, TEXT)
    assert (result.model, result.instead_of) == (LOCAL, "big")
    assert dict(service.stats()["big"].upstream.outcomes).keys() != {"ok"}


@pytest.mark.parametrize("fault", ["chat", "lost", "double", "empty", "number"])
def test_an_answer_with_lasting_faults_is_marked_without_a_local_model(unspoiled, tmp_path, fault):
    with started(tmp_path, unspoiled, languages=["fr", "es"]) as other:
        unspoiled.always = fault
        result = answer(other, TEXT, "big@fr:es")
    assert result.doubtful == 1 and result.text
    assert result.text.count("https://x.org") == 1, "placeholders are complete also then"


@pytest.mark.parametrize("fault", ["500", "429 0", "503 0", "garbage"])
def test_a_passing_failure_is_tried_again(service, unspoiled, fault):
    unspoiled.faults.extend([fault, fault])
    assert answer(service, "Das ist ein Haus.").text == "This is a house."
    assert len(unspoiled.asked) == 3


@pytest.mark.parametrize(
    ("fault", "count"), [("500", 3), ("429 0", 3), ("garbage", 3), ("400", 1), ("401", 1), ("429 700", 1)]
)
def test_a_lasting_failure_ends_with_the_local_model_or_the_cause(service, unspoiled, fault, count):
    unspoiled.always = fault
    result = answer(service, "Das ist ein Haus.", seconds=300)
    assert (result.model, result.instead_of) == (LOCAL, "big")
    assert len(unspoiled.asked) == count
    cause = "no chat completion" if fault == "garbage" else f"status {fault[:3]}"
    service.reload("big")  # ends a pause
    with pytest.raises(ExecutorFailed if fault == "400" else Unavailable, match=cause):
        answer(service, "This is a house.", "big@en:de+big@de:en")  # no local model leads back to English


def test_silence_ends_with_the_local_model_before_the_deadline(unspoiled, tmp_path):
    unspoiled.always = "silence"
    with started(tmp_path, unspoiled, timeout=0.2) as other:
        assert answer(other, "Das ist ein Haus.").model == LOCAL


def test_silence_without_a_local_model_is_a_stated_error_at_the_deadline(unspoiled, tmp_path):
    unspoiled.always = "silence"
    with (
        started(tmp_path, unspoiled, languages=["fr", "es"]) as other,
        pytest.raises((Unavailable, DeadlineExceeded), match="upstream"),
    ):
        answer(other, "Le chat.", "big@fr:es", seconds=0.5)


def test_requests_pause_after_failures_in_a_row(service, unspoiled):
    unspoiled.always = "400"
    for _ in range(8):
        assert answer(service, "Das ist ein Haus.").model == LOCAL
    assert len(unspoiled.asked) < 8
    assert service.stats()["big"].upstream.paused
    service.reload("big")
    unspoiled.always = ""
    assert answer(service, "Das ist ein Haus.").model == "big", "a reload ends the pause"


def test_a_stream_passes_words_through_and_ends_with_the_answer(service, unspoiled):
    text = "Der Hund schläft und die Katze ist alt und groß und eine Tür ist alt und groß und alt."
    *partials, results = events(service, text)
    assert all(isinstance(event, Partial) for event in partials)
    assert all(results[0].text.startswith(event.text) for event in partials)
    assert unspoiled.asked[0]["stream"] is True


def test_no_opening_of_a_chat_is_streamed(service, unspoiled):
    unspoiled.faults.append("chat")
    *partials, results = events(service, "Der Hund schläft und die Katze ist alt und groß.")
    assert not [event for event in partials if "Sure" in event.text]
    assert results[0].text == "The dog sleeps and die cat is old and big."


def test_a_cut_stream_is_asked_for_again_or_fails_with_the_cause(service, unspoiled):
    unspoiled.faults.append("cut")
    assert events(service, "Der Hund schläft und ist alt.")[-1][0].text == "The dog sleeps and is old."


@pytest.mark.parametrize(("fault", "cause"), [("bytes", "too many parts"), ("swollen", "compressed")])
def test_a_hostile_answer_is_refused_and_not_asked_for_again(unspoiled, tmp_path, fault, cause):
    unspoiled.always = fault
    with started(tmp_path, unspoiled, languages=["fr", "es"]) as other:
        with pytest.raises(Unavailable, match=cause):
            answer(other, "Le chat.", "big@fr:es")
        with pytest.raises(Unavailable, match=cause):
            events(other, "Le chat.", "big@fr:es")
    assert len(unspoiled.asked) == 2


@pytest.mark.parametrize("read", [answer, lambda *given: events(*given)[-1][0]])
def test_half_a_code_point_of_an_answer_is_replaced(service, unspoiled, read):
    unspoiled.always = "halves" if read is answer else "half events"
    assert read(service, "Das ist ein Haus.").text == "Ho?use This is a house."


@pytest.mark.parametrize("fault", ["negative", "endless"])
def test_impossible_counts_of_tokens_lower_no_price(unspoiled, tmp_path, fault):
    unspoiled.always = fault
    with started(tmp_path, unspoiled, price=[0.0, 1e6], price_per_day=300.0) as other:
        remote = [answer(other, "Das ist ein Haus.").model == "big" for _ in range(3)]
        assert other.stats()["big"].upstream.price == 0
    assert remote == [True, False, False], "an answer without a count keeps its highest price"


def test_a_growing_answer_is_passed_on_in_linear_time_and_up_to_its_longest_length():
    passed, text = list[int](), "This house is old. " * 1_000
    draft = _Draft(SourceText("de", "en", "Das Haus ist alt. " * 100, {}), lambda t: passed.append(len(t)))
    for end in range(1, len(text)):
        draft(text[:end])
    assert passed == sorted(passed)
    assert passed[-1] <= longest_answer("Das Haus ist alt. " * 100) < len(text)
    assert sum(passed) < 300 * passed[-1], "of ten thousand growing answers"


def test_a_prefix_is_refused(service):
    with pytest.raises(InvalidRequest, match="prefix"):
        answer(service, "Das ist ein Haus.", prefix="This")


def test_a_cancelled_request_frees_its_place(unspoiled, tmp_path):
    unspoiled.always = "silence"

    async def cancel(service):
        task = asyncio.create_task(service.run("big@de:en", ["Das ist ein Haus."], USUAL))
        while not unspoiled.asked:
            await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with started(tmp_path, unspoiled, parallel=1) as other:
        asyncio.run(cancel(other))
        unspoiled.always = ""
        assert answer(other, "Es ist alt.").text == "It is old."


def test_many_texts_are_answered_in_order(service):
    texts = [f"Das Haus kostet {number}." for number in range(40)]
    results = service.run_many("big@de:en", texts, USUAL)
    assert [result.text for result in results] == [f"This house costs {number}." for number in range(40)]


def test_many_texts_end_with_answers_of_either_model_in_order(service, unspoiled):
    texts = [f"Das Haus kostet {number}." for number in range(6)]
    unspoiled.always = "number"  # each answer has a fault, except the one without a number
    results = list(service.run_many("big@de:en", [*texts, "Das ist ein Haus."], USUAL))
    assert [result.model for result in results] == [LOCAL] * 6 + ["big"]
    assert [result.instead_of for result in results] == ["big"] * 6 + [""]
    local = list(service.run_many(LOCAL, texts, USUAL))
    assert [result.text for result in results[:6]] == [result.text for result in local]


def test_formats_of_many_texts_are_sent_as_marks(service, unspoiled):
    marked = MarkedText("Das Haus ist alt.", (), (4, 8))
    (result,) = service.run_many("big@de:en", [marked], USUAL)
    assert result.text == "This house is old."
    assert unspoiled.asked[0]["messages"][-1]["content"] == "Das <x1/>Haus<x2/> ist alt."


def test_a_text_without_a_deadline_waits_for_an_upstream_that_has_answered(service, unspoiled, monkeypatch):
    monkeypatch.setattr("engine.repository.upstreams.breaker.PAUSE_SECONDS", 0.01)
    assert [one.model for one in service.run_many("big@de:en", ["Das ist ein Haus."], USUAL)] == ["big"]
    unspoiled.faults.extend(["500"] * 20)
    assert [one.model for one in service.run_many("big@de:en", ["Es ist alt."], USUAL)] == ["big"]
    assert len(unspoiled.asked) == 22
    monkeypatch.setattr("engine.repository.upstreams.breaker.RECOVERY_SECONDS", 0.0)
    unspoiled.always = "500"
    assert [one.model for one in service.run_many("big@de:en", ["Es ist groß."], USUAL)] == [LOCAL]
    assert len(unspoiled.asked) == 25


@pytest.mark.parametrize("fault", ["unasked events", "endless events"])
def test_events_are_read_without_a_request_for_them_or_a_reason_of_the_end(service, unspoiled, fault):
    unspoiled.faults.append(fault)
    result = answer(service, "Das ist ein Haus.")
    assert (result.text, result.model, len(unspoiled.asked)) == ("This is a house.", "big", 1)
    assert unspoiled.asked[0]["stream"] is False


@pytest.mark.parametrize("fault", ["thoughts", "late error", "page"])
def test_an_answer_without_a_text_is_asked_for_again(service, unspoiled, fault):
    unspoiled.faults.append(fault)
    result = answer(service, "Das ist ein Haus.")
    assert (result.text, result.model, len(unspoiled.asked)) == ("This is a house.", "big", 2)


@pytest.mark.parametrize(
    ("fault", "hint"), [("307", "redirects are not followed"), ("401", "the key"), ("404", "url and model")]
)
def test_a_wrong_setting_is_an_error_with_a_hint_after_one_request(unspoiled, tmp_path, fault, hint):
    unspoiled.always = fault
    with (
        started(tmp_path, unspoiled, languages=["fr", "es"]) as other,
        pytest.raises(Unavailable, match=hint),
    ):
        answer(other, "Le chat.", "big@fr:es")
    assert len(unspoiled.asked) == 1


def test_control_characters_of_an_answer_are_removed(service, unspoiled, monkeypatch):
    monkeypatch.setattr(unspoiled, "text_of", lambda request: "This \0is a \x1b[mhouse.")
    assert answer(service, "Das ist ein Haus.").text == "This is a [mhouse."


def test_tokens_and_their_price_are_counted(unspoiled, tmp_path):
    with started(tmp_path, unspoiled, price=[1.0, 2.0]) as other:
        answer(other, "Das ist ein Haus.")
        figures = other.stats()["big"].upstream
    assert (figures.prompt_tokens, figures.answer_tokens) == (10, 5)
    assert figures.price == pytest.approx((10 * 1.0 + 5 * 2.0) / 1e6)
    assert figures.outcomes == (("ok", 1),)


def test_the_key_is_sent_and_shown_nowhere(unspoiled, tmp_path, caplog):
    (tmp_path / "key").write_text("sk-secret\n")
    unspoiled.always = "401"
    with started(tmp_path, unspoiled, key_file="key", languages=["fr", "es"]) as other:
        with pytest.raises(Unavailable) as failure:
            answer(other, "Le chat.", "big@fr:es")
        shown = f"{failure.value} {other.models()} {other.repository.loaded['big'].engine.__dict__}"
    assert unspoiled.keys[-1] == "Bearer sk-secret"
    assert "sk-secret" not in shown + caplog.text


def test_price_of_a_day_is_never_exceeded_and_local_models_answer_the_rest(unspoiled, tmp_path):
    entries = {"price": [0.0, 1e6], "price_per_day": 300.0}  # a token of an answer costs 1, each answer 5
    with started(tmp_path, unspoiled, **entries) as other:
        results = [answer(other, f"Das ist ein Haus {number}.") for number in range(20)]
        spent = other.stats()["big"].upstream.price
    remote = [result.model == "big" for result in results]
    assert spent == 5 * sum(remote) == 5 * len(unspoiled.asked)
    # the longest answer to such a text has about 275 tokens
    assert 0 < sum(remote) < 10
    assert remote == sorted(remote, reverse=True)
    assert all(result.text for result in results)


def test_price_of_a_day_without_a_local_model_is_a_stated_error(unspoiled, tmp_path):
    entries = {"price": 1.0, "price_per_day": 0.0, "languages": ["de", "fr"]}
    with started(tmp_path, unspoiled, **entries) as other, pytest.raises(Unavailable, match="price_per_day"):
        answer(other, "Das ist ein Haus.", "big@de:fr")
    assert not unspoiled.asked
