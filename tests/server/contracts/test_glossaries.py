"""DeepL's glossaries, with its own client and the shipped models: those have symbols to keep phrases."""

import asyncio
import csv
import io
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import permutations
from pathlib import Path

import deepl
import httpx
import pytest
from deepl.api_data import MultilingualGlossaryDictionaryEntries
from hypothesis import given
from hypothesis import strategies as st

from engine.api import InvalidRequest, TooLarge, at_once
from server.contracts.deepl import glossaries
from server.contracts.deepl.glossaries import Glossaries, Glossary, merge_entries, present, read_entries
from server.contracts.deepl.multilingual import MultilingualGlossaries, MultilingualGlossary
from server.errors import Refusal
from server.files.shared_records import Records
from tests.server.contracts.test_clients import node
from tests.support.deepl_clients import make_impatient
from tests.support.served import bundles, lending, server, until

MODELS = Path(__file__).parents[3] / "models"
KEYS = "a-key-of-somebody,a-key-of-another"
ROOT = Path(__file__).parents[3]
OWN = {"Authorization": f"DeepL-Auth-Key {KEYS.partition(',')[0]}"}
GERMAN = "Wir treffen uns am Bahnhof."
ENTRIES = {"Bahnhof": "Grand Terminal", "Haus": "Villa Convoy", "guten Tag": "howdy"}


@pytest.fixture(scope="module")
def place():
    if not (MODELS / "tatoeba-de-en").is_dir():
        pytest.skip("the shipped models are not there")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.served.bundles", lambda: MODELS)
        lanes = {"lanes": ((1, 4), (5, 8)), "verify": False}
        opened = ExitStack()
        client, _, _ = opened.enter_context(server(service_settings=lanes, api_keys=KEYS))
    with opened:
        yield str(client.base_url).rstrip("/"), client


@pytest.fixture
def translators(place, monkeypatch):
    """DeepL's clients of two users; what they leave is deleted."""
    make_impatient(monkeypatch)
    found = [deepl.Translator(key, server_url=place[0]) for key in KEYS.split(",")]
    yield found
    for translator in found:
        for one in translator.list_glossaries():
            translator.delete_glossary(one)


@pytest.fixture
def translator(translators):
    return translators[0]


@pytest.fixture
def client(translators, place):
    """DeepL's client of version 3; what it leaves is deleted."""
    found = deepl.DeepLClient(KEYS.split(",", maxsplit=1)[0], server_url=place[0])
    yield found
    for one in found.list_multilingual_glossaries():
        found.delete_multilingual_glossary(one)


def dictionary(source, target, entries):
    return MultilingualGlossaryDictionaryEntries(source, target, entries)


def store_in(folder):
    """Glossaries as a process of a server has them."""
    glossaries = Glossaries(Records(folder / "glossaries"))
    return MultilingualGlossaries(Records(folder / "multilingual"), glossaries)


def test_a_multilingual_glossary_is_made_read_changed_and_deleted(client, translators, place):
    made = client.create_multilingual_glossary(
        "both", [dictionary("DE", "EN", ENTRIES), dictionary("EN", "DE", {"station": "Halt"})]
    )
    assert (made.name, len(made.dictionaries)) == ("both", 2)
    assert [one.entry_count for one in made.dictionaries] == [3, 1]
    assert client.list_multilingual_glossaries()[0].glossary_id == made.glossary_id
    assert translators[0].list_glossaries() == []  # version 2 knows nothing of its parts
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


def test_of_changes_of_one_glossary_at_once_none_is_lost(client, place):
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


def test_of_changes_by_several_processes_none_is_lost(tmp_path):
    index = MultilingualGlossary("me", "one", {})
    store_in(tmp_path).add(index, {("de", "en"): ENTRIES})
    script = f"""
    from pathlib import Path
    from server.contracts.deepl.glossaries import Glossaries
    from server.contracts.deepl.multilingual import MultilingualGlossaries
    from server.files.shared_records import Records

    folder = Path({str(tmp_path)!r})
    parts = Glossaries(Records(folder / "glossaries"))
    store = MultilingualGlossaries(Records(folder / "multilingual"), parts)
    input()
    for number in range(20):
        entries = {{("de", "en"): {{f"{{NAME}} {{number}}": "word"}}}}
        store.change("me", {index.id!r}, entries, merge=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    both = [
        subprocess.Popen([*command[:2], command[2].replace("{NAME}", name)], stdin=subprocess.PIPE, cwd=ROOT)
        for name in ("one", "other")
    ]
    for process in both:  # they wait for it, so that they begin together
        process.stdin.write(b"\n")
        process.stdin.close()
    assert [process.wait(60) for process in both] == [0, 0]
    _, (part,) = store_in(tmp_path).whole("me", index.id)
    assert len(part.entries) == 3 + 2 * 20


def test_what_is_read_while_it_is_changed_is_whole(tmp_path):
    store, index = store_in(tmp_path), MultilingualGlossary("me", "one", {})
    store.add(index, {("de", "en"): ENTRIES})
    done, other = threading.Event(), store_in(tmp_path)

    def change():
        for number in range(60):
            other.change("me", index.id, {("de", "en"): {"Haus": f"house {number}"}}, merge=False)
        done.set()

    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(change)
        while not done.is_set():
            assert store.part("me", index.id, ("de", "en")).entries
            assert store.whole("me", index.id)[1]
        changing.result()
    store.drop("me", index.id)
    with pytest.raises(Refusal, match="Glossary not found"):
        store.change("me", index.id, {}, "renamed", merge=True)


def test_glossaries_on_disk_are_read_beside_the_event_loop(tmp_path, monkeypatch):
    lending(bundles() / "toy-de-en", tmp_path / "models")
    monkeypatch.setattr("tests.support.served.bundles", lambda: tmp_path / "models")
    terms = {"source_lang": "DE", "target_lang": "EN", "entries": "Haus\thouse", "entries_format": "tsv"}
    with server(store_folder=tmp_path / "store") as (first, _, _):
        old = first.post("/v2/glossaries", json=terms | {"name": "old"}).json()["glossary_id"]
        new = first.post("/v3/glossaries", json={"name": "new", "dictionaries": [terms]}).json()[
            "glossary_id"
        ]
    read, within, get = [], [], Records.get

    def watched(self, id):
        read.append(id)
        with suppress(RuntimeError):
            within.append((asyncio.get_running_loop(), id))
        return get(self, id)

    monkeypatch.setattr(Records, "get", watched)
    text = {"text": ["Das ist gut."], "source_lang": "DE", "target_lang": "EN"}
    asked = [
        *(("POST", "/v2/translate", text | {"glossary_id": id}) for id in (old, new)),
        *(("GET", f"/v2/glossaries/{old}{path}", None) for path in ("", "/entries")),
        ("GET", f"/v3/glossaries/{new}", None),
        ("GET", f"/v3/glossaries/{new}/entries?source_lang=DE&target_lang=EN", None),
        ("PATCH", f"/v3/glossaries/{new}", {"name": "renamed"}),
    ]
    for method, path, body in asked:  # each as the first after a restart
        with server(store_folder=tmp_path / "store") as (second, _, _):
            assert second.request(method, path, json=body).status_code == 200
    assert {old, new} <= set(read)
    assert within == []


def test_a_multilingual_glossary_translates_by_the_dictionary_of_the_languages(client):
    made = client.create_multilingual_glossary(
        "both", [dictionary("DE", "EN", ENTRIES), dictionary("EN", "DE", {"station": "Haltepunkt"})]
    )
    into = client.translate_text(GERMAN, source_lang="DE", target_lang="EN-GB", glossary=made)
    assert "Grand Terminal" in into.text
    back = client.translate_text("The station is old.", source_lang="EN", target_lang="DE", glossary=made)
    assert "Haltepunkt" in back.text
    with pytest.raises(deepl.DeepLException, match="no dictionary"):
        client.translate_text("Bonjour.", source_lang="FR", target_lang="DE", glossary=made.glossary_id)


def test_deepl_node_sends_multilingual_glossaries_as_forms(place):
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


def test_multilingual_glossaries_are_refused_as_those_of_version_2(place):
    _, web = place
    headers = {"Authorization": f"DeepL-Auth-Key {KEYS.split(',', maxsplit=1)[0]}"}
    entries = {"source_lang": "de", "target_lang": "en", "entries": "a\tb", "entries_format": "tsv"}
    for body, words in (
        ({"name": "x"}, "'dictionaries' not specified"),
        ({"name": "x", "dictionaries": [entries, entries]}, "Two dictionaries"),
        ({"name": "x", "dictionaries": [entries | {"target_lang": "ja"}]}, "Unsupported"),
        ({"name": "x", "dictionaries": [entries | {"entries": "a"}]}, "Invalid glossary entries"),
        ({"dictionaries": [entries]}, "'name' not specified"),
    ):
        answer = web.post("/v3/glossaries", json=body, headers=headers)
        assert answer.status_code == 400
        assert words in answer.json()["message"]


def test_multilingual_glossaries_of_a_shared_folder_are_those_of_all_servers(tmp_path):
    indexes, parts = Records(tmp_path / "indexes"), Records(tmp_path / "parts")
    one, other = (MultilingualGlossaries(indexes, Glossaries(parts)) for _ in range(2))
    pair = ("de", "en")
    index, _ = one.add(MultilingualGlossary("me", "x", {}), {pair: {"a": "b"}})
    assert other.part("me", index.id, pair).entries == {"a": "b"}
    one.change("me", index.id, {pair: {"a": "c"}}, merge=False)
    assert other.part("me", index.id, pair).entries == {"a": "c"}
    assert len(parts.ids()) == 1
    other.drop("me", index.id)
    with pytest.raises(Refusal):
        one.find("me", index.id)
    assert parts.ids() == []


def test_a_glossary_is_made_listed_read_and_deleted(translators):
    one, other = translators
    made = one.create_glossary("mine", "DE", "EN-GB", ENTRIES)
    assert (made.name, made.source_lang, made.target_lang, made.entry_count) == ("mine", "DE", "EN", 3)
    assert made.ready
    assert made.creation_time.tzinfo is not None
    assert vars(one.get_glossary(made.glossary_id)) == vars(made)
    assert [g.glossary_id for g in one.list_glossaries()] == [made.glossary_id]
    assert one.get_glossary_entries(made) == ENTRIES
    assert other.list_glossaries() == []
    for stranger in (other.get_glossary, other.get_glossary_entries, other.delete_glossary):
        with pytest.raises(deepl.GlossaryNotFoundException):
            stranger(made.glossary_id)
    one.delete_glossary(made)
    with pytest.raises(deepl.GlossaryNotFoundException):
        one.get_glossary(made.glossary_id)


def test_translations_have_the_glossarys_words(translator):
    glossary = translator.create_glossary("places", "de", "en", ENTRIES)
    plain = translator.translate_text(GERMAN, source_lang="DE", target_lang="EN-GB").text
    assert "Grand Terminal" not in plain
    found = translator.translate_text(GERMAN, source_lang="DE", target_lang="EN-GB", glossary=glossary)
    assert found.text.count("Grand Terminal") == 1
    html = "<p>Das <b>Haus</b> ist am Bahnhof.</p>"
    tagged = translator.translate_text(
        html, source_lang="DE", target_lang="EN-US", glossary=glossary, tag_handling="html"
    ).text
    assert tagged.count("Villa Convoy") == tagged.count("Grand Terminal") == 1
    assert (tagged.count("<b>"), tagged.count("</b>")) == (1, 1)
    handle = translator.translate_document_upload(
        GERMAN.encode(), source_lang="DE", target_lang="EN-GB", filename="a.txt", glossary=glossary
    )
    until(lambda: translator.translate_document_get_status(handle).done)
    file = io.BytesIO()
    translator.translate_document_download(handle, file)
    assert file.getvalue().decode() == found.text


def test_a_document_takes_several_glossaries_and_no_other_format(translator):
    one = translator.create_glossary("one", "DE", "EN", {"Bahnhof": "depot"})
    two = translator.create_glossary("two", "DE", "EN", {"Haus": "mansion"})
    into = {"source_lang": "DE", "target_lang": "EN-GB", "filename": "a.txt"}
    file = io.BytesIO()
    translator.translate_document(
        b"Das Haus ist am Bahnhof.", file, glossary_ids=[one, two], output_format="txt", **into
    )
    assert {"depot", "mansion"} <= set(file.getvalue().decode().strip(".").split())
    for wish, words in (
        ({"output_format": "docx"}, "comes back as .txt"),
        ({"formality": "less"}, "formality"),
    ):
        with pytest.raises(deepl.DeepLException, match=words):
            translator.translate_document_upload(b"Das Haus.", **into, **wish)


def test_of_several_glossaries_the_first_that_has_a_phrase_counts(translator):
    one = translator.create_glossary("one", "DE", "EN", {"Bahnhof": "depot"})
    two = translator.create_glossary("two", "DE", "EN", {"Bahnhof": "terminal", "Haus": "mansion"})
    text = "Das Haus ist am Bahnhof."
    found = translator.translate_text(text, source_lang="DE", target_lang="EN-GB", glossary_ids=[one, two])
    assert "depot" in found.text
    assert "mansion" in found.text
    assert "terminal" not in found.text


def test_a_table_of_commas_is_a_glossary(translator):
    table = 'Bahnhof,"Terminal, grand",de,en\r\n"Haus ""Rot""",red house,de,en\r\n'
    made = translator.create_glossary_from_csv("table", "DE", "EN", table)
    wanted = {"Bahnhof": "Terminal, grand", 'Haus "Rot"': "red house"}
    assert translator.get_glossary_entries(made) == wanted


def test_the_pairs_are_those_of_models_that_keep_phrases(translator):
    pairs = {(pair.source_lang, pair.target_lang) for pair in translator.get_glossary_languages()}
    assert pairs == set(permutations(("de", "en", "fr"), 2))


def post(place, path, values, timeout=60):
    key = KEYS.partition(",")[0]
    headers = {"Authorization": f"DeepL-Auth-Key {key}"}
    return place[1].post(path, json=values, headers=headers, timeout=timeout)


NEW = {"name": "x", "source_lang": "de", "target_lang": "en", "entries": "a\tb", "entries_format": "tsv"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": ""}, "Parameter 'name' not specified."),
        ({"entries": None}, "Parameter 'entries' not specified."),
        ({"entries": ["a"]}, "Parameter 'entries' not specified."),
        ({"entries_format": "xls"}, "Value for 'entries_format' not supported"),
        ({"target_lang": "es"}, "Unsupported glossary source and target language pair"),
        ({"source_lang": "en"}, "Unsupported glossary source and target language pair"),
        ({"entries": "a\tb\n\nc"}, "entry 3 is not two phrases"),
        ({"entries": "a\tb\nd\te\tf"}, "entry 2 is not two phrases"),
        ({"entries": "a\tb\na\tc"}, "entry 2 has the source of one before: 'a'"),
        ({"entries": " \n"}, "Parameter 'entries' not specified."),
        ({"entries": ",\n", "entries_format": "csv"}, "there is none"),
        ({"entries": "a,b\nc,\n", "entries_format": "csv"}, "entry 2 lacks a phrase"),
        ({"entries": "a,b,c\n", "entries_format": "csv"}, "entry 1 has 3 columns"),
        ({"entries": 'a,"b\n', "entries_format": "csv"}, "unexpected end of data"),
        ({"entries": 'a,"b\nc"\n', "entries_format": "csv"}, "entry 1 holds a control character"),
        ({"entries": f"a\t{'b' * 1025}"}, "entry 1 is longer than 1024 characters"),
    ],
)
def test_a_wrong_glossary_is_refused_with_its_fault(place, change, told):
    answer = post(place, "/v2/glossaries", NEW | change)
    assert answer.status_code == 400
    assert told in answer.json()["message"]


def test_a_glossary_must_be_known_and_fit(place, translator):
    made = translator.create_glossary("x", "DE", "EN", {"a": "b"})
    german = {"text": [GERMAN], "source_lang": "DE", "target_lang": "EN"}
    cases = [
        ({"glossary_id": "nobody"}, 404, "Glossary not found."),
        ({"glossary_id": made.glossary_id, "source_lang": None}, 400, "'source_lang' must be specified"),
        ({"glossary_id": made.glossary_id, "target_lang": "DE", "source_lang": "EN"}, 400, "is for DE to EN"),
        ({"glossary_ids": ["x"] * 6}, 400, "at most 5"),
        ({"glossary_ids": [made.glossary_id], "glossary_id": made.glossary_id}, 400, "together"),
    ]
    for change, status, told in cases:
        answer = post(place, "/v2/translate", german | change)
        assert answer.status_code == status, answer.text
        assert told in answer.json()["message"]


def test_models_without_symbols_have_no_glossaries():
    with server() as (client, _, _):
        assert client.get("/v2/glossary-language-pairs").json() == {"supported_languages": []}
        answer = client.post("/v2/glossaries", json=NEW)
        assert answer.json() == {"message": "Unsupported glossary source and target language pair."}
        assert client.get("/v2/glossaries").json() == {"glossaries": []}


def glossary_of(owner, name="x"):
    return Glossary(owner, name, "de", "en", {"a": "b"}, owner)


def test_glossaries_are_bounded(monkeypatch):
    kept = Glossaries(Records(None))
    monkeypatch.setattr(glossaries, "MAX_GLOSSARIES", 2)
    first = glossary_of("ann")
    kept.add(first)
    kept.add(glossary_of("ann"))
    with pytest.raises(InvalidRequest, match="delete one"):
        kept.add(glossary_of("ann"))
    monkeypatch.setattr(glossaries, "MAX_STORE_BYTES", 4 * first.size)
    kept.add(glossary_of("bob"))
    kept.add(glossary_of("cid"))
    with pytest.raises(TooLarge, match="delete some"):
        kept.add(glossary_of("dan"))
    with pytest.raises(Refusal, match="not found"):
        kept.drop("bob", first.id)
    kept.drop("ann", first.id)
    kept.add(glossary_of("dan"))


def test_one_owner_has_a_share_of_the_room_for_glossaries(monkeypatch):
    kept = Glossaries(Records(None))
    monkeypatch.setattr(glossaries, "MAX_STORE_BYTES", 4 * glossary_of("ann").size)
    kept.add(glossary_of("ann"))
    with pytest.raises(TooLarge, match="delete some"):
        kept.add(glossary_of("ann"))
    kept.add(glossary_of("bob"))


def test_glossaries_of_both_versions_take_one_share_of_who_made_them(monkeypatch):
    parts, pair = Glossaries(Records(None)), ("de", "en")
    kept = MultilingualGlossaries(Records(None), parts)

    def add(sharer):
        return kept.add(MultilingualGlossary("all", "x", {}, sharer), {pair: {"a": "b"}})

    monkeypatch.setattr(glossaries, "MAX_STORE_BYTES", 8 * glossaries.MIN_BYTES)
    parts.add(Glossary("all", "x", *pair, {"a": "b"}, "ann"))
    add("ann")
    with pytest.raises(TooLarge, match="delete some"):
        add("ann")
    add("bob")
    monkeypatch.setattr("server.contracts.deepl.multilingual.MAX_GLOSSARIES", 1)
    with pytest.raises(InvalidRequest, match="delete one"):
        add("bob")
    add("cid")
    monkeypatch.setattr("server.contracts.deepl.multilingual.MAX_INDEXES", 3)
    with pytest.raises(TooLarge, match="of all"):
        add("dan")


def test_a_glossary_that_grows_by_changes_has_no_more_entries_than_another(monkeypatch):
    kept, pair = MultilingualGlossaries(Records(None), Glossaries(Records(None))), ("de", "en")
    monkeypatch.setattr(glossaries, "MAX_ENTRIES", 2)
    index, _ = kept.add(MultilingualGlossary("me", "x", {}), {pair: {"a": "1", "b": "2"}})
    with pytest.raises(InvalidRequest, match="there are 3; this server takes 2"):
        kept.change("me", index.id, {pair: {"c": "3"}}, merge=True)
    assert kept.part("me", index.id, pair).entries == {"a": "1", "b": "2"}


def test_a_glossary_is_counted_as_a_page_of_memory_at_least_and_all_of_a_request_as_one():
    assert glossary_of("ann").size == glossaries.MIN_BYTES
    many = [Glossary("ann", "x", "de", "en", {f"{n} {i}": "b" for i in range(30_000)}) for n in range(2)]
    with pytest.raises(InvalidRequest, match="at most 50000 entries"):
        merge_entries(many, "de", "en")


def test_a_glossarys_name_is_bounded(place):
    answer = post(place, "/v2/glossaries", NEW | {"name": "a" * 1_025})
    assert (answer.status_code, answer.json()["message"]) == (
        400,
        "Parameter 'name' is longer than 1024 characters.",
    )


def test_looking_for_entries_takes_memory_by_the_entries_not_by_the_text():
    text = "".join(map(chr, random.Random(1).choices(range(0x4E00, 0x4E00 + 20_000), k=300_000)))
    tracemalloc.start()
    found = at_once(present({"ab": "x", text[5:9]: "y", text[:3] + "!": "z"}, [text]))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == {text[5:9]: "y"}
    assert most < 12 << 20


PHRASE = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1)
PHRASES = st.dictionaries(PHRASE.map(str.strip).filter(bool), PHRASE.map(str.strip).filter(bool), min_size=1)


@given(entries=PHRASES)
def test_entries_are_read_as_they_were_written(entries):
    tsv = Glossary("", "", "de", "en", entries).tsv()
    assert read_entries(tsv, "tsv") == entries
    table = io.StringIO()
    csv.writer(table).writerows(entries.items())
    assert read_entries(table.getvalue(), "csv") == entries


@given(
    entries=PHRASES | st.dictionaries(st.text("ab ", min_size=1).map(str.strip).filter(bool), PHRASE),
    text=PHRASE | st.text("ab "),
    many=st.sampled_from([0, 2, 500]),
)
def test_the_entries_that_stand_in_a_text_are_found_and_no_others(entries, text, many):
    texts = ["x", f"{text} {next(iter(entries), '')}"]
    whole = " ".join(" ".join(texts).split())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(glossaries, "MANY_PHRASES", many)
        found = at_once(present(entries, texts))
    assert found == {
        source: target for source, target in entries.items() if " ".join(source.split()) in whole
    }


def slow_to_look_up(lengths):
    """Entries of many lengths that all begin as a text of one letter does, but don't stand in it."""
    return {"a" * (size - 8) + f"{n:08}": "x" for size in range(20, 20 + lengths) for n in range(400)}


def test_looking_for_entries_takes_so_much_of_a_processor_at_most(monkeypatch):
    monkeypatch.setattr(glossaries, "MAX_LOOKUP_SECONDS", 0.2)
    began = time.thread_time()
    with pytest.raises(TooLarge, match="seconds of a processor"):
        at_once(present(slow_to_look_up(60), ["a" * 29_000]))
    assert time.thread_time() - began < 0.4


def test_nothing_is_looked_for_any_more_when_the_client_has_gone(place, monkeypatch):
    monkeypatch.setattr(glossaries, "MAX_LOOKUP_SECONDS", 1e9)
    entries = "\n".join(f"{source}\tx" for source in slow_to_look_up(20))
    values = {"text": ["a" * 29_000] * 20, "source_lang": "DE", "target_lang": "EN-GB"}
    values["glossary_id"] = post(place, "/v2/glossaries", NEW | {"entries": entries}).json()["glossary_id"]
    before = slices_seconds()
    with pytest.raises(httpx.ReadTimeout):
        post(place, "/v2/translate", values, timeout=1)
    spent = slices_seconds()
    assert spent > before + 0.05
    until(lambda: slices_seconds() == slices_seconds(after=0.3))


def slices_seconds(after=0.0):
    """Processor time, some seconds later, of the thread that does what would hold the event loop."""
    time.sleep(after)
    thread = next((t for t in threading.enumerate() if t.name == "convoy-slices"), None)
    if thread is None:
        return 0.0
    stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
