"""Foreign models in --models: a volume of LibreTranslate, and folders of CTranslate2."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI

from cli.foreign import ForeignModel, digest, models_at, newest, served_paths
from engine.api import Service
from engine.errors import CheckpointError, InvalidRequest
from tests.support.argos_packages import pack, write
from tests.support.served import bundles, server, settings_of


def every_file(folder: Path) -> dict[str, tuple[int, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


@pytest.fixture(scope="module")
def volume(tmp_path_factory):
    """Three packages in the layout of LibreTranslate's container, in a read-only folder."""
    folder = tmp_path_factory.mktemp("volume") / "packages"
    for number, (source, target) in enumerate((("de", "en"), ("en", "fr"), ("en", "es"))):
        write(folder, source, target, seed=number)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def url(volume, cache):
    before = every_file(volume)
    paths = served_paths([volume], cache, None, ())
    assert every_file(volume) == before

    def opened(observe):
        return Service.open(paths, settings_of(), observe)

    with server(opened=opened) as (client, *_):
        yield str(client.base_url).rstrip("/")


def test_clients_of_libretranslate_work_on_its_volume(url):
    api = LibreTranslateAPI(url)
    assert {language["code"]: set(language["targets"]) for language in api.languages()}["de"] >= {
        "en",
        "fr",
        "es",
    }
    pivoted = api.translate("Guten Tag.", "de", "fr")
    assert isinstance(pivoted, str)
    one = LibreTranslator(source="de", target="en", use_free_api=False, custom_url=f"{url}/", api_key="any")
    assert one.translate_batch(["Guten Tag.", "Gut."])[0] == api.translate("Guten Tag.", "de", "en")


def test_converted_models_are_reused(url, volume, cache):
    before = every_file(cache)
    paths = served_paths([volume], cache, None, ("de", "en"))
    assert [path.name.rpartition("-")[0] for path in paths] == ["de-en"]
    assert every_file(cache) == before
    assert not [path.name for path in cache.iterdir() if path.name.startswith(".")]


def test_bundles_are_served_from_their_folder(cache):
    assert served_paths([bundles()], cache, None, ()) == (bundles(),)
    assert models_at(bundles()) == []


def test_changed_package_is_converted_again(tmp_path):
    package = write(tmp_path, "de", "en")
    first = digest(package)
    path = package / "metadata.json"
    path.write_text(path.read_text() + " ")
    assert digest(package) != first


@pytest.mark.parametrize("below", ["share/argos-translate/packages", ".local/share/argos-translate/packages"])
def test_whole_volume_can_be_mounted(tmp_path, below):
    package = write(tmp_path / below, "de", "en")
    assert [model.path for model in models_at(tmp_path)] == [package]


def test_newer_version_of_a_package_is_used(capsys):
    models = [
        ForeignModel(Path("a"), "argos", "de", "en", (1, 9)),
        ForeignModel(Path("b"), "argos", "de", "en", (1, 10)),
        ForeignModel(Path("c"), "argos", "en", "de", (1, 0)),
    ]
    assert [str(model.path) for model in newest(models)] == ["b", "c"]
    assert "a is ignored: b is newer" in capsys.readouterr().err


def test_models_are_found_by_files_of_their_folders(tmp_path):
    package = write(tmp_path / "all", "de", "en")
    packed = pack(package, tmp_path / "all" / "translate-en_fr-1_0.argosmodel")
    shutil.copytree(package / "model", tmp_path / "all" / "opus-mt-en-nl-ct2")
    (tmp_path / "all" / "sbd").mkdir()
    (tmp_path / "all" / "notes.txt").write_text("")
    found = {(m.path.name, m.kind, m.name) for m in models_at(tmp_path / "all")}
    assert found == {
        (package.name, "argos", "de-en"),
        (packed.name, "argos", "en-fr"),
        ("opus-mt-en-nl-ct2", "ctranslate2", "en-nl"),
    }
    assert models_at(package)[0].version == (1, 9)
    sentences = json.loads((package / "metadata.json").read_text()) | {"type": "sbd"}
    (package / "metadata.json").write_text(json.dumps(sentences))
    assert models_at(package) == []


def test_folder_without_language_codes_is_refused(tmp_path):
    package = write(tmp_path, "de", "en")
    shutil.copytree(package / "model", tmp_path / "mymodel")
    with pytest.raises(InvalidRequest, match="convoy convert ctranslate2"):
        models_at(tmp_path / "mymodel")


def test_damaged_package_is_one_error_line_and_leaves_no_files(tmp_path):
    package = write(tmp_path, "de", "en")
    content = (package / "model" / "model.bin").read_bytes()
    (package / "model" / "model.bin").write_bytes(content[:5000])
    with pytest.raises(CheckpointError, match="ends too early") as error:
        served_paths([package], tmp_path / "cache", None, ())
    assert "\n" not in str(error.value)
    assert list((tmp_path / "cache").iterdir()) == []


def test_unwritable_cache_is_named(tmp_path):
    package = write(tmp_path, "de", "en")
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match="CONVOY_CACHE"):
        served_paths([package], tmp_path / "file", None, ())
    with pytest.raises(InvalidRequest, match="none of the models"):
        served_paths([package], tmp_path / "file", None, ("fr",))
    assert os.listdir(tmp_path) != []
