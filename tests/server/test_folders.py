"""Bundles that are put into a served folder, and taken out, while a real server answers."""

import json
import logging
import os
import shutil
import threading
from dataclasses import replace

import pytest

from engine.api import BundleError, Service
from tests.server.test_reload import damaged
from tests.support.served import MODELS, bundles, server, settings_of, until

DE, EN, TITLE = MODELS
GERMAN = {"q": "Das ist gut.", "source": "de", "target": "en"}
ENGLISH = {"q": "That is good.", "source": "en", "target": "de"}


@pytest.fixture
def folder(tmp_path):
    """A folder that holds the German model alone."""
    shutil.copytree(bundles() / DE, tmp_path / "models" / DE)
    return tmp_path / "models"


def served_from(folder, **settings):
    return server(
        settings,
        opened=lambda observe, **given: Service.open([folder], settings_of(**given), observe),
        watch=0.02,
    )


def names(client):
    return {model["name"] for model in client.get("/models").json()}


def directions(client):
    return {entry["code"]: set(entry["targets"]) for entry in client.get("/languages").json()}


def test_named_pipe_in_a_bundle_does_not_block_the_scan(folder):
    with served_from(folder) as (client, *_):
        shutil.copytree(bundles() / TITLE, folder / "a-pipe")
        (folder / "a-pipe" / "model.safetensors").unlink()
        os.mkfifo(folder / "a-pipe" / "model.safetensors")
        threading.Event().wait(0.1)
        shutil.copytree(bundles() / EN, folder / EN)
        until(lambda: names(client) == {DE, EN})


@pytest.mark.parametrize("budget", [None, 10**9])
def test_a_bundle_is_served_once_it_is_whole_and_no_more_when_it_is_gone(folder, budget):
    with served_from(folder, budget=budget) as (client, *_):
        assert names(client) == {DE}
        assert client.post("/translate", json=ENGLISH).status_code == 400
        # a copy that takes its time: the manifest first, then the rest, the weights cut short
        (folder / EN).mkdir()
        files = sorted(p for p in (bundles() / EN).rglob("*") if p.is_file())
        for file in sorted(files, key=lambda p: p.name != "manifest.json"):
            there = folder / EN / file.relative_to(bundles() / EN)
            there.parent.mkdir(exist_ok=True)
            content = file.read_bytes()
            there.write_bytes(content[:-1] if file.name == "model.safetensors" else content)
        threading.Event().wait(0.2)  # several looks
        assert names(client) == {DE}
        shutil.copyfile(bundles() / EN / "model.safetensors", folder / EN / "model.safetensors")
        until(lambda: names(client) == {DE, EN})
        assert client.post("/translate", json=ENGLISH).status_code == 200
        assert directions(client) == {"de": {"de", "en"}, "en": {"de", "en"}}
        assert client.get("/health").status_code == client.get("/health/ready").status_code == 200
        assert f'convoy_model_loaded{{model="{EN}"}} 1.0' in client.get("/metrics").text
        shutil.rmtree(folder / DE)
        until(lambda: names(client) == {EN})
        assert "de" not in {code for code, to in directions(client).items() if "en" in to - {code}}
        assert client.post("/translate", json=GERMAN).status_code == 400
        assert client.get("/health/ready").status_code == 200
        assert f'model="{DE}"' not in client.get("/models").text
        # and back again, under the same name
        shutil.copytree(bundles() / DE, folder / DE)
        until(lambda: names(client) == {DE, EN})
        assert client.post("/translate", json=GERMAN).status_code == 200


def test_bundle_missing_during_one_scan_stays_served(folder):
    shutil.copytree(bundles() / EN, folder / EN)
    service = Service.open([folder], settings_of())
    service.start()
    try:
        for _ in range(2):
            (folder / DE).rename(folder / ".being-replaced")
            service.rescan_folders()
            (folder / ".being-replaced").rename(folder / DE)
            service.rescan_folders()
            assert {info.name for info in service.models()} == {DE, EN}
        shutil.rmtree(folder / DE)
        service.rescan_folders()
        service.rescan_folders()
        assert {info.name for info in service.models()} == {EN}
    finally:
        service.stop(drain=False, timeout=30)


def test_running_requests_finish_before_a_removed_model_is_freed(folder):
    shutil.copytree(bundles() / EN, folder / EN)
    with served_from(folder) as (client, house, _):
        engine = house.service.repository.loaded[DE].engine
        long = {"q": "Das ist gut.", "source": "de", "target": "en", "min_length": 1500, "max_length": 1500}
        answers = []
        asking = threading.Thread(target=lambda: answers.append(client.post("/translate", json=long)))
        asking.start()
        until(lambda: engine.stats().active != (0,) * len(engine.stats().active))
        shutil.rmtree(folder / DE)
        until(lambda: names(client) == {EN})
        assert client.post("/translate", json=ENGLISH).status_code == 200
        asking.join(300)
        assert answers[0].status_code == 200
        until(lambda: DE not in house.service.repository.loaded)
        until(lambda: not engine.healthy)


def test_a_bundle_that_is_put_back_while_its_old_model_still_answers_is_served_after_that(folder):
    shutil.copytree(bundles() / EN, folder / EN)
    with served_from(folder) as (client, house, _):
        with house.service.repository.using([DE]):
            shutil.rmtree(folder / DE)
            until(lambda: names(client) == {EN})
            shutil.copytree(bundles() / DE, folder / DE)
            threading.Event().wait(0.2)  # several looks
            assert names(client) == {EN}
        until(lambda: names(client) == {DE, EN})
        assert client.post("/translate", json=GERMAN).status_code == 200


@pytest.mark.parametrize("budget", [None, 10**9])
def test_folder_replaced_by_another_model_is_loaded_again(folder, tmp_path, budget):
    shutil.copytree(bundles() / EN, tmp_path / "new")
    with served_from(folder, budget=budget) as (client, *_):
        assert names(client) == {DE}
        os.rename(folder / DE, tmp_path / "old")
        os.rename(tmp_path / "new", folder / DE)
        until(lambda: names(client) == {EN})
        assert client.post("/translate", json=ENGLISH).status_code == 200
        assert client.post("/translate", json=GERMAN).status_code == 400
        # writing the same model again changes nothing
        shutil.copytree(bundles() / EN, tmp_path / "again")
        shutil.rmtree(folder / DE)
        os.rename(tmp_path / "again", folder / DE)
        threading.Event().wait(0.2)  # several looks
        assert names(client) == {EN}


def test_a_damaged_bundle_in_a_folder_is_left_out_at_the_start_and_served_once_it_is_mended(folder, caplog):
    shutil.copytree(bundles() / EN, folder / EN)
    damaged(folder / EN)
    with served_from(folder) as (client, *_):
        assert names(client) == {DE}
        assert f"{folder / EN} is not served" in caplog.text
        assert client.post("/translate", json=GERMAN).status_code == 200
        damaged(folder / EN)  # the same bit again: mended
        until(lambda: names(client) == {DE, EN})


def test_a_damaged_bundle_is_refused_when_strict_named_by_itself_or_alone(folder):
    shutil.copytree(bundles() / EN, folder / EN)
    damaged(folder / EN)
    for paths, strict in (([folder], True), ([folder / DE, folder / EN], False)):
        with pytest.raises(BundleError, match="SHA-256"):
            Service.open(paths, replace(settings_of(), strict=strict))
    shutil.rmtree(folder / DE)
    with pytest.raises(BundleError, match="SHA-256"):
        Service.open([folder], settings_of())


def test_unservable_bundle_is_logged_once_and_affects_no_other(folder, caplog):
    caplog.set_level(logging.INFO)
    twin = folder / "twin"
    with served_from(folder, languages=("de", "en")) as (client, *_):
        # whole at once: a scan during the copy would log another state of it
        shutil.copytree(bundles() / DE, folder / ".twin.new").rename(twin)
        until(lambda: "there is a model" in caplog.text)
        (folder / "broken").mkdir()
        (folder / "broken" / "manifest.json").write_text("{}")
        until(lambda: "broken" in caplog.text)
        shutil.copytree(bundles() / EN, folder / ".en.new")  # the temporary name that `convoy convert` uses
        threading.Event().wait(0.2)
        assert names(client) == {DE}
        assert sum("there is a model" in record.message for record in caplog.records) == 1
        folder.rename(folder.with_name("taken-off"))  # as a volume goes: all at once
        until(lambda: "has no bundles any more" in caplog.text)
        assert client.post("/translate", json=GERMAN).status_code == 200


def test_a_bundle_that_had_to_wait_for_its_name_is_served_when_the_other_is_gone(folder, caplog):
    caplog.set_level(logging.INFO)
    with served_from(folder) as (client, *_):
        shutil.copytree(bundles() / DE, folder / "twin")
        until(lambda: "there is a model" in caplog.text)
        shutil.rmtree(folder / DE)
        until(lambda: f"{folder / 'twin'} was added" in caplog.text)
        assert names(client) == {DE}
        assert client.post("/translate", json=GERMAN).status_code == 200


def test_other_languages_stay_unchanged(folder):
    with served_from(folder, languages=("de", "en")) as (client, *_):
        path = folder / "french"
        shutil.copytree(bundles() / EN, path)
        config = json.loads((path / "config.json").read_text())
        config["target"], config["name"] = "fr", "french"
        (path / "config.json").write_bytes(json.dumps(config).encode())
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["files"]["config.json"]["size"] = (path / "config.json").stat().st_size
        (path / "manifest.json").write_text(json.dumps(manifest))
        shutil.copytree(bundles() / EN, folder / EN)
        until(lambda: EN in names(client))
        assert names(client) == {DE, EN}
