"""DeepL's glossaries of several pairs of languages, version 3."""

import asyncio
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import deepl
import pytest
from deepl.api_data import MultilingualGlossaryDictionaryEntries

from engine.api import InvalidRequest, TooLarge
from server.contracts.deepl import entries, glossaries
from server.contracts.deepl.glossaries import Glossaries, Glossary
from server.errors import Refusal
from server.files.shared_records import Records
from tests.server.contracts.conftest import KEYS
from tests.server.contracts.test_clients import node
from tests.support.served import bundles, lending, server

ROOT = Path(__file__).parents[3]
PAIR = ("de", "en")
OWN = {"Authorization": f"DeepL-Auth-Key {KEYS.partition(',')[0]}"}
GERMAN = "Wir treffen uns am Bahnhof."
ENTRIES = {"Bahnhof": "Grand Terminal", "Haus": "Villa Convoy", "guten Tag": "howdy"}


@pytest.fixture
def client(translators, place):
    """DeepL's client of version 3, whose glossaries are deleted afterwards."""
    found = deepl.DeepLClient(KEYS.split(",", maxsplit=1)[0], server_url=place[0])
    yield found
    for glossary in found.list_multilingual_glossaries():
        found.delete_multilingual_glossary(glossary)


def dictionary(source, target, entries):
    return MultilingualGlossaryDictionaryEntries(source, target, entries)


def test_client_creates_reads_changes_and_deletes_a_glossary(client, translators, place):
    made = client.create_multilingual_glossary(
        "both", [dictionary("DE", "EN", ENTRIES), dictionary("EN", "DE", {"station": "Halt"})]
    )
    assert (made.name, len(made.dictionaries)) == ("both", 2)
    assert [one.entry_count for one in made.dictionaries] == [3, 1]
    assert client.list_multilingual_glossaries()[0].glossary_id == made.glossary_id
    assert translators[0].list_glossaries() == []  # version 2 does not list it
    read = client.get_multilingual_glossary_entries(made, "DE", "EN-GB")
    entries = dict(line.split("\t") for line in read.dictionaries[0].entries.split("\n"))
    assert entries == ENTRIES
    renamed = client.update_multilingual_glossary_name(made, "renamed")
    assert (renamed.name, len(renamed.dictionaries)) == ("renamed", 2)
    more = client.update_multilingual_glossary_dictionary(made, dictionary("DE", "EN", {"Hund": "hound"}))
    assert {one.source_lang: one.entry_count for one in more.dictionaries} == {"DE": 4, "EN": 1}
    replaced = client.replace_multilingual_glossary_dictionary(made, dictionary("DE", "EN", {"Hund": "cur"}))
    assert replaced.entry_count == 1
    client.delete_multilingual_glossary_dictionary(made, source_lang="EN", target_lang="DE")
    assert len(client.get_multilingual_glossary(made.glossary_id).dictionaries) == 1
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.get_multilingual_glossary_entries(made, "EN", "DE")
    other = deepl.DeepLClient(KEYS.split(",")[1], server_url=place[0])
    with pytest.raises(deepl.GlossaryNotFoundException):
        other.get_multilingual_glossary(made.glossary_id)
    client.delete_multilingual_glossary(made)
    assert client.list_multilingual_glossaries() == []


def test_concurrent_changes_are_all_kept(client, place):
    made = client.create_multilingual_glossary("one", [dictionary("DE", "EN", ENTRIES)])
    words = [f"Wort{number}" for number in range(24)]
    url = f"{place[0]}/v3/glossaries/{made.glossary_id}"

    def change(word):
        entry = {
            "source_lang": "DE",
            "target_lang": "EN",
            "entries": f"{word}\tword",
            "entries_format": "tsv",
        }
        return place[1].patch(url, json={"dictionaries": [entry]}, headers=OWN).status_code

    with ThreadPoolExecutor(8) as pool:
        renamed = pool.submit(place[1].patch, url, json={"name": "renamed"}, headers=OWN)
        assert list(pool.map(change, words)) == [200] * 24
    assert renamed.result().status_code == 200
    kept = client.get_multilingual_glossary(made.glossary_id)
    assert (kept.name, [one.entry_count for one in kept.dictionaries]) == ("renamed", [3 + 24])


def test_concurrent_changes_of_two_processes_are_all_kept(tmp_path):
    glossary = Glossary("me", "one", {PAIR: ENTRIES}, version=3)
    Glossaries(Records(tmp_path)).add(glossary)
    script = f"""
    from pathlib import Path
    from server.contracts.deepl.glossaries import Glossaries
    from server.files.shared_records import Records

    store = Glossaries(Records(Path({str(tmp_path)!r})))
    input()
    for number in range(20):
        entries = {{("de", "en"): {{f"{{NAME}} {{number}}": "word"}}}}
        store.change("me", {glossary.id!r}, lambda old: old.with_dictionaries(entries, merge=True))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    both = [
        subprocess.Popen([*command[:2], command[2].replace("{NAME}", name)], stdin=subprocess.PIPE, cwd=ROOT)
        for name in ("one", "other")
    ]
    for process in both:  # both wait for this line, so that they begin together
        process.stdin.write(b"\n")
        process.stdin.close()
    assert [process.wait(300) for process in both] == [0, 0]
    found = Glossaries(Records(tmp_path)).find("me", glossary.id)
    assert len(found.entries(PAIR)) == 3 + 2 * 20


def test_reading_during_changes_returns_a_whole_glossary(tmp_path):
    store, other = (Glossaries(Records(tmp_path)) for _ in range(2))
    glossary, done = Glossary("me", "one", {PAIR: ENTRIES}, version=3), threading.Event()
    store.add(glossary)

    def change():
        for number in range(60):
            changed = replace(glossary, dictionaries={PAIR: {"Haus": f"house {number}"}})
            other.change("me", glossary.id, partial(lambda new, old: new, changed))
        done.set()

    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(change)
        while not done.is_set():
            assert store.find("me", glossary.id).entries(PAIR)
        changing.result()
    store.drop("me", glossary.id, 3)
    with pytest.raises(Refusal, match="Glossary not found"):
        store.change("me", glossary.id, lambda old: old)


def test_glossaries_are_read_from_disk_outside_the_event_loop(tmp_path, monkeypatch):
    lending(bundles() / "toy-de-en", tmp_path / "models")
    monkeypatch.setattr("tests.support.served.bundles", lambda: tmp_path / "models")
    terms = {"source_lang": "DE", "target_lang": "EN", "entries": "Haus\thouse", "entries_format": "tsv"}
    with server(store_folder=tmp_path / "store") as (first, _, _):
        old = first.post("/v2/glossaries", json=terms | {"name": "old"}).json()["glossary_id"]
        made = first.post("/v3/glossaries", json={"name": "new", "dictionaries": [terms]})
        new = made.json()["glossary_id"]
    read, within, get = [], [], Records.get

    def watched(self, id):
        read.append(id)
        with suppress(RuntimeError):
            within.append((asyncio.get_running_loop(), id))
        return get(self, id)

    monkeypatch.setattr(Records, "get", watched)
    text = {"text": ["Das ist gut."], "source_lang": "DE", "target_lang": "EN"}
    requests = [
        *(("POST", "/v2/translate", text | {"glossary_id": id}) for id in (old, new)),
        *(("GET", f"/v2/glossaries/{old}{path}", None) for path in ("", "/entries")),
        ("GET", f"/v3/glossaries/{new}", None),
        ("GET", f"/v3/glossaries/{new}/entries?source_lang=DE&target_lang=EN", None),
        ("PATCH", f"/v3/glossaries/{new}", {"name": "renamed"}),
    ]
    for method, path, body in requests:  # each request is the first after a start
        with server(store_folder=tmp_path / "store") as (second, _, _):
            assert second.request(method, path, json=body).status_code == 200
    assert {old, new} <= set(read)
    assert within == []


def test_translation_uses_the_dictionary_of_its_languages(client):
    made = client.create_multilingual_glossary(
        "both", [dictionary("DE", "EN", ENTRIES), dictionary("EN", "DE", {"station": "Haltepunkt"})]
    )
    into = client.translate_text(GERMAN, source_lang="DE", target_lang="EN-GB", glossary=made)
    assert "Grand Terminal" in into.text
    back = client.translate_text("The station is old.", source_lang="EN", target_lang="DE", glossary=made)
    assert "Haltepunkt" in back.text
    with pytest.raises(deepl.DeepLException, match="no dictionary"):
        client.translate_text("Bonjour.", source_lang="FR", target_lang="DE", glossary=made.glossary_id)


def test_deepl_node_sends_glossaries_as_forms(place):
    script = """
    import * as deepl from "deepl-node";
    const [url, key] = process.argv.slice(2);
    const client = new deepl.DeepLClient(key, {serverUrl: url, maxRetries: 0});
    const words = (entries) => ({
      sourceLangCode: "de", targetLangCode: "en", entries: new deepl.GlossaryEntries({entries}),
    });
    const back = {...words({station: "Halt"}), sourceLangCode: "en", targetLangCode: "de"};
    const glossary = await client.createMultilingualGlossary("words", [words({Bahnhof: "stop"}), back]);
    await client.updateMultilingualGlossaryDictionary(glossary, words({Hund: "hound"}));
    const listed = await client.getMultilingualGlossary(glossary.glossaryId);
    await client.deleteMultilingualGlossary(glossary);
    console.log(JSON.stringify(listed.dictionaries.map(d => d.entryCount)));
    """
    assert node(script, place[0], KEYS.split(",", maxsplit=1)[0]) == [2, 1]


def test_invalid_dictionaries_are_refused(place):
    _, web = place
    headers = {"Authorization": f"DeepL-Auth-Key {KEYS.split(',', maxsplit=1)[0]}"}
    entries = {"source_lang": "de", "target_lang": "en", "entries": "a\tb", "entries_format": "tsv"}
    for body, message in (
        ({"name": "x"}, "'dictionaries' not specified"),
        ({"name": "x", "dictionaries": [entries, entries]}, "Two dictionaries"),
        ({"name": "x", "dictionaries": [entries | {"target_lang": "ja"}]}, "Unsupported"),
        ({"name": "x", "dictionaries": [entries | {"entries": "a"}]}, "Invalid glossary entries"),
        ({"dictionaries": [entries]}, "'name' not specified"),
    ):
        answer = web.post("/v3/glossaries", json=body, headers=headers)
        assert answer.status_code == 400
        assert message in answer.json()["message"]


def test_stores_of_one_folder_share_their_glossaries(tmp_path):
    one, other = (Glossaries(Records(tmp_path)) for _ in range(2))
    glossary = Glossary("me", "x", {PAIR: {"a": "b"}}, version=3)
    one.add(glossary)
    assert other.find("me", glossary.id).entries(PAIR) == {"a": "b"}
    one.change("me", glossary.id, lambda old: old.with_dictionaries({PAIR: {"a": "c"}}, merge=False))
    assert other.find("me", glossary.id).entries(PAIR) == {"a": "c"}
    other.drop("me", glossary.id, 3)
    with pytest.raises(Refusal):
        one.find("me", glossary.id)
    assert list(tmp_path.glob("*.json")) == []


def test_glossaries_of_both_versions_count_for_one_share(monkeypatch):
    store = Glossaries(Records(None))

    def add(sharer, version=3):
        return store.add(Glossary("all", "x", {PAIR: {"a": "b"}}, sharer, version))

    monkeypatch.setattr(glossaries, "MAX_STORE_BYTES", 8 * glossaries.MIN_BYTES)
    add("ann", 2)
    add("ann")
    with pytest.raises(TooLarge, match="delete some"):
        add("ann")
    add("bob")
    monkeypatch.setattr(glossaries, "MAX_GLOSSARIES", 1)
    with pytest.raises(InvalidRequest, match="delete one"):
        add("bob")
    add("cid")


def test_changes_cannot_exceed_the_limit_of_entries(monkeypatch):
    store, glossary = Glossaries(Records(None)), Glossary("me", "x", {PAIR: {"a": "1", "b": "2"}}, version=3)
    monkeypatch.setattr(entries, "MAX_ENTRIES", 2)
    store.add(glossary)
    with pytest.raises(InvalidRequest, match="there are 3; this server takes 2"):
        store.change("me", glossary.id, lambda old: old.with_dictionaries({PAIR: {"c": "3"}}, merge=True))
    assert store.find("me", glossary.id) == glossary


def test_store_adopts_the_records_of_older_releases(tmp_path):
    old, indexes, other_pair = Records(tmp_path / "glossaries"), Records(tmp_path / "indexes"), ("en", "de")
    created = "2026-01-02T03:04:05.678901+00:00"
    part = {"name": "x", "entries": {"a": "b"}, "sharer": "", "created": created}
    old.put("two", part | {"id": "two", "owner": "me", "source": "de", "target": "en"})
    old.put("part1", part | {"id": "part1", "owner": "me/v3", "source": "de", "target": "en"})
    old.put("part2", part | {"id": "part2", "owner": "me/v3", "source": "en", "target": "de"})
    parts = {"de:en": "part1", "en:de": "part2"}
    index = {"owner": "me", "name": "both", "parts": parts, "sharer": "", "id": "three", "created": created}
    indexes.put("three", index)
    indexes.put("empty", index | {"id": "empty", "parts": {}})
    for _ in range(2):  # an interrupted adoption is finished by the next start
        store = Glossaries(Records(tmp_path / "glossaries"))
        store.adopt(tmp_path / "indexes")
        assert [glossary.id for glossary in store.of("me", 2)] == ["two"]
        assert {glossary.id for glossary in store.of("me", 3)} == {"three", "empty"}
        assert store.find("me", "two", 2).dictionaries == {PAIR: {"a": "b"}}
        found = store.find("me", "three", 3)
        assert found.dictionaries == {PAIR: {"a": "b"}, other_pair: {"a": "b"}}
        assert (found.name, found.created.isoformat()) == ("both", created)
        assert sorted(old.ids()) == ["empty", "three", "two"]
        assert indexes.ids() == []
        indexes.put("three", index)
