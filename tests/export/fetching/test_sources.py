"""The offers of the sources: versions, files, scores; indexes that are hostile, incomplete or newer."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from engine.bundle.manifest import Provenance
from engine.errors import CheckpointError, InvalidRequest
from export.fetching.hugging_face import chosen_files
from export.fetching.languages import missing_pairs, plan
from export.fetching.offers import BUNDLE, ModelOffer, RemoteFile, choose, languages_in, version_parts
from export.fetching.registry import _file as registry_file
from export.fetching.sources import Addresses, SourceTable
from tests.support.model_servers import Server, publish, record, remote_settings, running, sha, student


@pytest.fixture
def opened():
    """Return a function that opens a source, and the lines that it prints."""
    said, every = [], []

    def open_(name, **addresses):
        every.append(SourceTable(Addresses(**addresses), said.append))
        return every[-1].open(name)

    open_.said = said
    yield open_
    for sources in every:
        sources.close()


def test_offers_have_safe_names_and_each_file_once():
    origin, files = Provenance("mirror", "a"), (RemoteFile("https://a.example/b", "b"),)
    assert ModelOffer(origin, "a", "de", "en", BUNDLE, files).pair == "de-en"
    for name, each in (("../a", files), ("a", files * 2)):
        with pytest.raises(ValueError, match="named|two files"):
            ModelOffer(origin, name, "de", "en", BUNDLE, each)


def test_several_fitting_offers_are_named():
    each = [ModelOffer(Provenance("mirror", n), n, "de", "en", BUNDLE, (), n) for n in ("tiny", "base")]
    with pytest.raises(InvalidRequest, match="several models"):
        choose(each, "mirror", "de-en", None)
    assert choose(each, "mirror", "de-en", "base") is each[1]


def test_packed_file_of_the_registry_has_the_size_of_its_content():
    file = registry_file({"path": "a/m.bin.gz", "uncompressedSize": 5}, "https://a.example")
    assert (file.address, file.path) == ("https://a.example/a/m.bin.gz", "m.bin")
    assert (file.size, file.unpacked_size, file.packing) == (None, 5, "gz")


@pytest.mark.parametrize("path", ["a/../b/m.bin", "../m.bin", "a\\m.bin", "https://b.example/m.bin"])
def test_files_of_the_registry_stay_in_it(path):
    with pytest.raises(ValueError, match="leaves"):
        registry_file({"path": path, "uncompressedSize": 5}, "https://a.example")


def test_directions_that_two_models_serve_are_not_missing():
    there = {("de", "en"), ("en", "fr")}
    assert missing_pairs([("de", "fr"), ("fr", "de"), ("de", "en")], there) == [("fr", "de")]


def test_direct_model_is_planned_before_two_by_way_of_english():
    origin = Provenance("mirror", "a")
    offers = {
        (source, target): ModelOffer(origin, f"{source}-{target}", source, target, BUNDLE, ())
        for source, target in (("de", "fr"), ("de", "en"), ("en", "fr"), ("nl", "en"))
    }
    chosen, lacking = plan([("de", "fr"), ("nl", "fr"), ("nl", "pl")], set(), offers.values())
    assert list(chosen) == [("de", "fr"), ("nl", "en"), ("en", "fr")]
    assert lacking == [("en", "pl")]


def test_numbers_of_versions_are_compared():
    assert version_parts("2.10") > version_parts("2.9") > version_parts("") == ()


def versions(server, *each, **more):
    """Serve records of de-en in some versions, each with a model and a vocabulary."""
    records = []
    for version in each:
        for kind in ("model", "vocab"):
            name, data = student("de", "en")[kind]
            records.append(record(server, kind, name, data, ("de", "en"), version, **more))
    publish(server, records)
    return records


def test_highest_version_is_chosen_number_by_number(server, opened):
    versions(server, "2.9", "2.10", "1.0", "2.2")
    (offer,) = opened("firefox", firefox=server.address).offers()
    assert (offer.origin.version, offer.pair, offer.origin.licence) == ("2.10", "de-en", "MPL-2.0")
    assert [file.path for file in offer.files] == ["model.deen.intgemm.alphas.bin", "vocab.deen.spm"]
    assert offer.files[0].address.startswith(f"{server.address}/attachments/main-workspace/")


def test_incomplete_version_is_skipped_for_the_next_lower_one(server, opened):
    records = versions(server, "1.0", "2.0")
    publish(server, [r for r in records if (r["version"], r["fileType"]) != ("2.0", "vocab")])
    (offer,) = opened("firefox", firefox=server.address).offers()
    assert offer.origin.version == "1.0"
    assert "de-en 2.0 is not used: its records are incomplete (there is no srcvocab)" in opened.said[-1]


def test_unknown_major_version_is_refused_with_a_line(server, opened):
    versions(server, "3.1", "4.0")
    (offer,) = opened("firefox", firefox=server.address).offers()
    assert offer.origin.version == "3.1"
    assert "de-en 4.0 is not used: this Convoy reads versions up to 3; upgrade it" in opened.said[-1]
    versions(server, "4.0")
    with pytest.raises(InvalidRequest, match="firefox has no model de-en"):
        opened("firefox", firefox=server.address).find("de-en")


def test_released_version_is_preferred_to_a_filtered_one(server, opened):
    released = versions(server, "2.0")
    filtered = versions(server, "2.1", filter_expression="env.channel == 'nightly'")
    publish(server, released + filtered)
    assert opened("firefox", firefox=server.address).find("de-en").origin.version == "2.0"
    publish(server, filtered)
    assert opened("firefox", firefox=server.address).find("de-en").origin.version == "2.1"


def test_two_vocabularies_are_one_model(server, opened):
    _, data = student("en", "ja")["vocab"]
    files = (
        ("model", "model.enja.bin"),
        ("srcvocab", "srcvocab.enja.spm"),
        ("trgvocab", "trgvocab.enja.spm"),
    )
    publish(server, [record(server, kind, name, data, ("en", "ja"), "3.0") for kind, name in files])
    offer = opened("firefox", firefox=server.address).find("en-ja")
    assert [file.path for file in offer.files] == [name for _, name in files]


@pytest.mark.parametrize(
    "change",
    [
        {"attachment": None},
        {"attachment": {"location": "../../secret"}},
        {"attachment": {"location": "https://evil.example/x"}},
        {"attachment": {"filename": ".."}},
        {"attachment": {"size": "10"}},
        {"attachment": {"hash": "x"}},
        {"decompressedSize": -1},
        {"version": None},
        {"sourceLanguage": 5},
    ],
)
def test_hostile_record_is_not_offered(server, opened, change):
    records = versions(server, "1.0")
    for name, value in change.items():
        records[0][name] = records[0][name] | value if isinstance(value, dict) else value
    publish(server, [*records, "text", None, {"fileType": "qualityModel"}, {}])
    assert not opened("firefox", firefox=server.address).offers()


@pytest.mark.parametrize("value", [[], {"data": {}}, "x", {"data": None}])
def test_other_content_as_the_records_is_refused(server, opened, value):
    publish(server, [])
    server.put("/v1/buckets/main/collections/translations-models-v2/records", value)
    with pytest.raises(CheckpointError, match="not an index of models"):
        opened("firefox", firefox=server.address).offers()


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
def test_address_of_remote_settings_may_end_in_v1(server, opened, ending):
    versions(server, "1.0")
    assert opened("firefox", firefox=server.address + ending).find("de-en")


def test_mirror_of_the_records_is_read_from_hugging_face_and_from_a_folder(
    server, opened, tmp_path, monkeypatch
):
    records = remote_settings(server, [("de", "en")])
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    root = "/org/models/resolve/main"
    for path in list(server.files):
        if path.startswith("/attachments/"):
            server.files[f"{root}/{path.removeprefix('/attachments/')}"] = server.files[path]
    server.put(f"{root}/records.json", {"data": records})
    source = opened("firefox", firefox="hf:org/models")
    source.download(source.find("de-en"), tmp_path / "there", lambda _: None)
    assert sha((tmp_path / "there" / "vocab.deen.spm").read_bytes()) in {
        entry["decompressedHash"] for entry in records
    }
    (tmp_path / "records.json").write_text(json.dumps(records))
    assert opened("firefox", firefox=str(tmp_path)).find("de-en").files[0].address.startswith(str(tmp_path))


def registry(server, *entries):
    server.put(
        "/db/models.json", {"generated": "2026-11-09", "baseUrl": f"{server.address}/data", **entries[0]}
    )


def entry(status, **more):
    files = {
        name: {"path": f"models/x/{name}.gz", "uncompressedHash": sha(b"x"), "uncompressedSize": 9, "odd": 1}
        for name in ("model", "vocab", "lexicalShortlist")
    }
    return {
        "architecture": "tiny",
        "releaseStatus": status,
        "sourceLanguage": "de",
        "targetLanguage": "en",
        "files": files,
        "modelMetadata": {"flores": {"bleu": 36.1, "comet": 0.8702}},
    } | more


def test_registry_offers_the_furthest_release_with_its_score(server, opened):
    entries = [entry("Nightly"), entry("Release"), entry("Beta"), {"odd": 1}, entry("Release", files={})]
    registry(server, {"models": {"de-en": entries, "de-xx": [{}], "de-yy": None}})
    (offer,) = opened("firefox-registry", firefox_registry=f"{server.address}/db/models.json").offers()
    assert (offer.origin.version, offer.quality) == ("Release", "COMET 0.8702")
    assert offer.files[0].address == f"{server.address}/data/models/x/model.gz"
    assert (offer.files[0].packing, offer.files[0].unpacked_size) == ("gz", 9)


def test_argos_offers_the_newest_package_with_a_link_to_the_web(server, opened):
    def package(source, version, *links):
        return {"from_code": source, "to_code": "en", "package_version": version, "links": links, "code": "x"}

    index = [package("de", "1.9", "http://x/a"), package("de", "1.10", "ipfs://x", "http://x/b")]
    index += [package("../x", "1", "http://x/c"), package("fr", "1", "ipfs://x"), {}, 5]
    server.put("/index.json", [*index, package("es", "1", "http://x/d") | {"type": "sbd"}])
    (offer,) = opened("argos", argos=server.address).offers()
    assert (offer.pair, offer.origin.version, offer.files[0].address) == ("de-en", "1.10", "http://x/b")


@pytest.mark.parametrize(
    "files, kind, wanted",
    [
        (
            [
                "config.json",
                "model.safetensors",
                "pytorch_model.bin",
                "tf_model.h5",
                "model.onnx",
                "source.spm",
            ],
            "hf",
            ["model.safetensors", "config.json", "source.spm"],
        ),
        (["config.json", "pytorch_model.bin", "flax.msgpack"], "hf", ["pytorch_model.bin", "config.json"]),
        (
            [
                "config.json",
                "model-1-of-2.safetensors",
                "model.safetensors.index.json",
                "optimizer.pt",
            ],
            "hf",
            ["model-1-of-2.safetensors", "model.safetensors.index.json", "config.json"],
        ),
        (["pytorch_model.bin", "config.json", "dict.txt", "bpe.codes", "vocab.txt"], "hf", None),
        (["model.bin", "config.json", "shared_vocabulary.json", "x.h5"], "ctranslate2", None),
        (["model.bin", "source_vocabulary.txt", "vmap.txt", "merges.txt", "bpecodes"], "ctranslate2", None),
        (["model.deen.intgemm.alphas.bin", "vocab.deen.spm", "lex.50.50.deen.s2t.bin"], "bergamot", None),
        (["manifest.json", "model.safetensors", "config.json", "onnx/step.fp32.onnx"], BUNDLE, None),
    ],
)
def test_files_of_a_repository_choose_the_importer(files, kind, wanted):
    found, paths = chosen_files("org/name", dict.fromkeys([*files, "../evil", ".gitattributes"], 5))
    assert found == kind
    assert paths == (wanted or [name for name in files if name != "x.h5"])


def test_repository_without_a_model_is_refused():
    with pytest.raises(CheckpointError, match="no importer reads its files"):
        chosen_files("org/name", {"README.md": 5})


@pytest.mark.parametrize(
    "name, pair",
    [("opus-mt-en-de-ct2", ("en", "de")), ("opus-mt-tc-big-en-fr", ("en", "fr")), ("madlad400-3b-mt", None)],
)
def test_languages_in_the_name_of_a_repository(name, pair):
    assert languages_in(name) == pair


@pytest.mark.parametrize(
    "name, hint",
    [
        ("de", "did you mean de-en or en-de"),
        ("nn-em", "did you mean en-de or nn-en"),
        ("german", "convoy fetch --list firefox: shows"),
    ],
)
def test_wrong_name_gets_the_names_that_it_may_mean(server, opened, name, hint):
    remote_settings(server, [("de", "en"), ("en", "de"), ("nn", "en")])
    with pytest.raises(InvalidRequest, match=f"firefox has no model {name}; {hint}"):
        opened("firefox", firefox=server.address).find(name)


@pytest.mark.parametrize(
    "name, hint",
    [("fierfox:de-en", "there is no source fierfox; there are firefox,"), ("org/name", "is hf:org/name")],
)
def test_name_of_an_unknown_source_asks_no_host(server, ran, tmp_path, name, hint):
    ran.job(tmp_path, Addresses(firefox=server.address)).run([name], [], ())
    assert hint in ran.errors[0]
    assert not server.asked


def test_opening_a_source_asks_no_host(server):
    with closing(SourceTable(Addresses(firefox=server.address), print)) as sources:
        for name in ("firefox", "firefox-registry", "argos", "hf"):
            sources.open(name)
        assert sources.split("argos:de-en") == ("argos", "de-en")
        assert sources.split("de-en") == ("firefox", "de-en")
    assert not server.asked
    with running(Server()) as other, closing(SourceTable(Addresses(mirror=other.address), print)) as sources:
        assert sources.split("de-en") == ("mirror", "de-en")
