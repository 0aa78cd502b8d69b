"""The service: choice of models, languages, canary, deadlines, draining, and opening of bundles."""

import asyncio
import shutil
import time

import pytest

from engine.api import (
    BundleError,
    ConfigError,
    DeadlineExceeded,
    Placement,
    Service,
    ServiceSettings,
    Stopping,
    TextOptions,
    UnknownModel,
)
from engine.bundle.bundle import open_bundle
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
    until,
)


def ask(service, text, options=None, model="toy-de-en"):
    return asyncio.run(service.run(model, [text], options))[0]


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
def test_an_impossible_task_is_refused_with_a_list_of_models(service, wanted, message):
    with pytest.raises(UnknownModel, match=message):
        service.pick(*wanted)


def test_an_unknown_model_is_named(service):
    with pytest.raises(UnknownModel, match="no model 'x'"):
        ask(service, "a", model="x")


def test_models_and_languages_list_the_loaded_models(service):
    info = {i.name: i for i in service.models()}
    assert set(info) == set(MODELS)
    weights = open_bundle(bundles() / "toy-de-en").weights()
    assert info["toy-de-en"].parameters == sum(w.size for w in weights.values())
    assert (info["toy-de-en"].limits.source, info["toy-de-en"].limits.target) == (SOURCE, TARGET)
    assert {lang.code: lang.targets for lang in service.languages()} == {"de": ("en",), "en": ("de",)}


def test_languages_are_detected_among_those_loaded(service):
    assert service.detect("Wo ist denn hier der Bahnhof, bitte?").ranked[0][0] == "de"
    assert service.detect("Where can I find the railway station?").ranked[0][0] == "en"


def test_a_vocabulary_of_small_pieces_is_no_judge_of_a_language(service):
    """It splits nearly every German word, so that German would seem to be a foreign language."""
    text = service.repository.loaded["toy-de-en"].text
    assert text.word_tokens("Bahnhof") > 1
    assert text.known_share(["Bahnhof"], "de") == 1.0
    assert text.known_share(["Bahnhof"], "xx") == 1.0


def test_the_canary_is_decoded_by_the_model(service):
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


def test_a_drain_finishes_accepted_texts_and_refuses_new_ones():
    service = open_service()
    service.start()

    async def drain():
        task = asyncio.create_task(service.run("toy-de-en", LINES[:9]))
        await asyncio.sleep(0)
        complete = await asyncio.to_thread(service.stop, drain=True, timeout=600)
        return complete, await task

    complete, results = asyncio.run(drain())
    assert complete
    assert len(results) == 9
    assert not service.healthy()
    with pytest.raises(Stopping):
        ask(service, "Das ist gut.")


def test_a_drain_that_takes_too_long_answers_other_texts_with_stopping():
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
