"""DeepL's glossaries of one pair of languages, version 2."""

import io
from itertools import permutations

import deepl
import pytest

from engine.api import InvalidRequest, TooLarge
from server.contracts.deepl import glossaries
from server.contracts.deepl.glossaries import Glossaries, Glossary, merge_entries
from server.errors import Refusal
from server.files.shared_records import Records
from tests.server.contracts.conftest import KEYS
from tests.support.served import server, until

GERMAN = "Wir treffen uns am Bahnhof."
ENTRIES = {"Bahnhof": "Grand Terminal", "Haus": "Villa Convoy", "guten Tag": "howdy"}


def test_client_creates_lists_reads_and_deletes_a_glossary(translators):
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


def test_translations_contain_the_words_of_the_glossary(translator):
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


def test_document_accepts_several_glossaries_but_no_other_format(translator):
    one = translator.create_glossary("one", "DE", "EN", {"Bahnhof": "depot"})
    two = translator.create_glossary("two", "DE", "EN", {"Haus": "mansion"})
    into = {"source_lang": "DE", "target_lang": "EN-GB", "filename": "a.txt"}
    file = io.BytesIO()
    translator.translate_document(
        b"Das Haus ist am Bahnhof.", file, glossary_ids=[one, two], output_format="txt", **into
    )
    assert {"depot", "mansion"} <= set(file.getvalue().decode().strip(".").split())
    for option, message in (
        ({"output_format": "docx"}, "comes back as .txt"),
        ({"formality": "less"}, "formality"),
    ):
        with pytest.raises(deepl.DeepLException, match=message):
            translator.translate_document_upload(b"Das Haus.", **into, **option)


def test_first_glossary_that_has_a_phrase_wins(translator):
    one = translator.create_glossary("one", "DE", "EN", {"Bahnhof": "depot"})
    two = translator.create_glossary("two", "DE", "EN", {"Bahnhof": "terminal", "Haus": "mansion"})
    text = "Das Haus ist am Bahnhof."
    found = translator.translate_text(text, source_lang="DE", target_lang="EN-GB", glossary_ids=[one, two])
    assert "depot" in found.text
    assert "mansion" in found.text
    assert "terminal" not in found.text


def test_glossary_is_created_from_csv(translator):
    table = 'Bahnhof,"Terminal, grand",de,en\r\n"Haus ""Rot""",red house,de,en\r\n'
    made = translator.create_glossary_from_csv("table", "DE", "EN", table)
    wanted = {"Bahnhof": "Terminal, grand", 'Haus "Rot"': "red house"}
    assert translator.get_glossary_entries(made) == wanted


def test_language_pairs_are_those_of_models_with_placeholders(translator):
    pairs = {(pair.source_lang, pair.target_lang) for pair in translator.get_glossary_languages()}
    assert pairs == set(permutations(("de", "en", "fr"), 2))


def post(place, path, values, timeout=600):
    key = KEYS.partition(",")[0]
    headers = {"Authorization": f"DeepL-Auth-Key {key}"}
    return place[1].post(path, json=values, headers=headers, timeout=timeout)


NEW = {"name": "x", "source_lang": "de", "target_lang": "en", "entries": "a\tb", "entries_format": "tsv"}


@pytest.mark.parametrize(
    ("change", "message"),
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
def test_invalid_glossary_is_refused_with_the_reason(place, change, message):
    answer = post(place, "/v2/glossaries", NEW | change)
    assert answer.status_code == 400
    assert message in answer.json()["message"]


def test_translation_refuses_unknown_and_unfit_glossaries(place, translator):
    made = translator.create_glossary("x", "DE", "EN", {"a": "b"})
    german = {"text": [GERMAN], "source_lang": "DE", "target_lang": "EN"}
    cases = [
        ({"glossary_id": "nobody"}, 404, "Glossary not found."),
        ({"glossary_id": made.glossary_id, "source_lang": None}, 400, "'source_lang' must be specified"),
        ({"glossary_id": made.glossary_id, "target_lang": "DE", "source_lang": "EN"}, 400, "is for DE to EN"),
        ({"glossary_ids": ["x"] * 6}, 400, "at most 5"),
        ({"glossary_ids": [made.glossary_id], "glossary_id": made.glossary_id}, 400, "together"),
    ]
    for change, status, message in cases:
        answer = post(place, "/v2/translate", german | change)
        assert answer.status_code == status, answer.text
        assert message in answer.json()["message"]


def test_models_without_placeholders_have_no_glossaries():
    with server() as (client, _, _):
        assert client.get("/v2/glossary-language-pairs").json() == {"supported_languages": []}
        answer = client.post("/v2/glossaries", json=NEW)
        assert answer.json() == {"message": "Unsupported glossary source and target language pair."}
        assert client.get("/v2/glossaries").json() == {"glossaries": []}


def glossary_of(owner, name="x"):
    return Glossary(owner, name, {("de", "en"): {"a": "b"}}, owner)


def test_number_and_bytes_of_glossaries_are_limited(monkeypatch):
    store = Glossaries(Records(None))
    monkeypatch.setattr(glossaries, "MAX_GLOSSARIES", 2)
    first = glossary_of("ann")
    store.add(first)
    store.add(glossary_of("ann"))
    with pytest.raises(InvalidRequest, match="delete one"):
        store.add(glossary_of("ann"))
    monkeypatch.setattr(glossaries, "MAX_STORE_BYTES", 4 * first.size)
    store.add(glossary_of("bob"))
    store.add(glossary_of("cid"))
    with pytest.raises(TooLarge, match="delete some"):
        store.add(glossary_of("dan"))
    with pytest.raises(Refusal, match="not found"):
        store.drop("bob", first.id, 2)
    store.drop("ann", first.id, 2)
    store.add(glossary_of("dan"))


def test_one_owner_can_fill_only_a_share_of_the_store(monkeypatch):
    store = Glossaries(Records(None))
    monkeypatch.setattr(glossaries, "MAX_STORE_BYTES", 4 * glossary_of("ann").size)
    store.add(glossary_of("ann"))
    with pytest.raises(TooLarge, match="delete some"):
        store.add(glossary_of("ann"))
    store.add(glossary_of("bob"))


def test_size_has_a_minimum_and_entries_of_a_request_have_a_limit():
    assert glossary_of("ann").size == glossaries.MIN_BYTES
    tables = [{f"{n} {i}": "b" for i in range(30_000)} for n in range(2)]
    many = [Glossary("ann", "x", {("de", "en"): table}) for table in tables]
    with pytest.raises(InvalidRequest, match="at most 50000 entries"):
        merge_entries(many, "de", "en")


def test_long_name_is_refused(place):
    answer = post(place, "/v2/glossaries", NEW | {"name": "a" * 1_025})
    assert (answer.status_code, answer.json()["message"]) == (
        400,
        "Parameter 'name' is longer than 1024 characters.",
    )
