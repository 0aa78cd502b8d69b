"""Options of POST /translate_file: descriptions in attributes, local numbers, phrases."""

import asyncio

import pytest

from engine.api import Service, TextOptions
from tests.support.served import bundles, lending, server, settings_of

PAGE = """<!DOCTYPE html><html lang="de"><head><meta name="description" content="Das ist gut."></head>
<body><p title="Guten Abend!">Das kostet 1.234,56 €.</p>
<img alt="Wo ist der Bahnhof?" src="a.png"></body></html>"""
DESCRIPTIONS = ("Das ist gut.", "Guten Abend!", "Wo ist der Bahnhof?")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A server of a model that keeps phrases."""
    folder = tmp_path_factory.mktemp("lending")
    lending(bundles() / "toy-de-en", folder)

    def opened(observe=None, **settings):
        return Service.open([folder], settings_of(**settings), observe)

    with server(opened=opened) as found:
        yield found


def send(place, name, content, **fields):
    files, values = {"file": (name, content.encode())}, {"source": "de", "target": "en"} | fields
    return place[0].post("/translate_file", files=files, data=values)


def translated(place, name, content, **fields):
    answer = send(place, name, content, **fields)
    assert answer.status_code == 200, answer.text
    return place[0].get(answer.json()["translatedFileUrl"]).text


def test_file_with_its_source_and_pairs_are_written_on_request(place):
    text = "Das ist gut.\n"
    plain = translated(place, "a.txt", text)
    assert translated(place, "a.txt", text, bilingual="above") == text + plain
    assert translated(place, "a.txt", text, bilingual="below") == plain + text
    answer = send(place, "a.md", text, bilingual="tmx").json()["translatedFileUrl"]
    assert answer.endswith("a_en.tmx")
    assert '<tuv xml:lang="en"><seg>' + plain.strip() in place[0].get(answer).text
    refused = send(place, "a.yaml", f"a: {text}", bilingual="above")
    assert (refused.status_code, "side or tmx" in refused.json()["error"]) == (400, True)


def test_chosen_columns_of_a_table_are_translated(place):
    table = "id;Text;Rest\n1;Das ist gut.;Guten Abend!\n"
    (line,) = [translated(place, "a.txt", "Das ist gut.")]
    for columns in ("Text", "2", " Text ,"):
        wanted = table.replace("Das ist gut.", line)
        assert translated(place, "a.csv", table, columns=columns) == wanted
    for name, columns in (("a.csv", "Preis"), ("a.txt", "2"), ("a.csv", "9" * 4_096), ("a.csv", "a" * 4_097)):
        refused = send(place, name, table, columns=columns)
        assert (refused.status_code, "column" in refused.json()["error"]) == (400, True)


def test_guessed_encoding_is_named_in_the_warnings(place):
    files = {"file": ("a.txt", "Grüße".encode("cp1252"))}
    answer = place[0].post("/translate_file", files=files, data={"source": "de", "target": "en"}).json()
    assert "cp1252" in answer["warnings"]["file"]


UNIT = "<tu><tuv xml:lang='de'><seg>{}</seg></tuv><tuv xml:lang='en-GB'><seg>{}</seg></tuv></tu>"
TMX = "<tmx version='1.4'><body>{}</body></tmx>"
# an entity of 2 ** 40 characters
ENTITIES = "".join(f'<!ENTITY a{n} "&a{n - 1};&a{n - 1};">' for n in range(1, 41))
BOMB = f'<!DOCTYPE tmx [<!ENTITY a0 "a">{ENTITIES}]>' + TMX.format(UNIT.format("Das ist gut.", "&a40;"))


def send_memory(
    place, memory, name="a.tmx", content="Das ist gut.\n\nGuten Abend!\n", path="/translate_file"
):
    files = {"file": ("a.txt", content.encode()), "memory": (name, memory)}
    return place[0].post(path, files=files, data={"source": "de", "target": "en", "target_lang": "EN"})


def test_translation_memory_answers_whole_segments(place):
    answer = send_memory(place, TMX.format(UNIT.format("Das ist  gut.", "Fine, that!"))).json()
    assert answer["warnings"]["file"] == "1 of 2 texts come from the translation memory"
    rest = translated(place, "a.txt", "Guten Abend!")
    assert place[0].get(answer["translatedFileUrl"]).text == f"Fine, that!\n\n{rest}\n"


def test_hostile_translation_memory_is_refused(place):
    limit = place[1].settings.file_limit
    secret = TMX.format(UNIT.format("Das ist gut.", "&b;"))
    for name, memory, status, message in (
        ("a.tmx", BOMB, 400, "translation memory"),
        ("a.tmx", "no XML", 400, "translation memory"),
        ("a.docx", TMX.format(""), 400, "ends with .tmx"),
        ("a.tmx", b" " * limit, 413, str(limit)),
    ):
        refused = send_memory(place, memory, name)
        assert (refused.status_code, message in refused.json()["error"]) == (status, True), refused.text
    answer = send_memory(place, f'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]>{secret}')
    assert answer.json()["warnings"]["file"].startswith("0 of 2")
    refused = send(place, "a.txt", "Das ist gut.", memory=TMX.format(""))
    assert (refused.status_code, "ends with .tmx" in refused.json()["error"]) == (400, True)


def test_second_file_of_other_forms_is_refused(place):
    refused = send_memory(place, TMX.format(""), path="/v2/document")
    assert (refused.status_code, "more than 1 file" in refused.json()["message"]) == (400, True)


def direct(place, text):
    options = TextOptions(protect=True, follow_form=True)
    return asyncio.run(place[1].service.run("toy-de-en", [text], options))[0].text


def test_descriptions_in_attributes_of_a_file_are_translated_on_request(place):
    plain = translated(place, "seite.html", PAGE)
    assert all(f'="{text}"' in plain for text in DESCRIPTIONS)
    assert translated(place, "seite.html", PAGE, attributes="false") == plain
    found = translated(place, "seite.html", PAGE, attributes="true")
    for text in DESCRIPTIONS:
        assert f'="{direct(place, text)}"' in found
        assert text not in found
    assert found.count('src="a.png"') == 1
    for text in DESCRIPTIONS:  # all else is the same
        found = found.replace(f'="{direct(place, text)}"', f'="{text}"')
    assert found == plain


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("seite.html", PAGE),
        ("a.txt", "Das kostet 1.234,56 €.\n"),
        ("a.md", "# Preise\n\n- Das kostet 1.234,56 €.\n"),
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,500\nDas kostet 1.234,56 €.\n"),
    ],
)
def test_local_numbers_apply_to_files_on_request(place, name, content):
    plain = translated(place, name, content)
    assert plain.count("1.234,56 €") == 1
    found = translated(place, name, content, local_numbers="true")
    assert (found.count("€1,234.56"), found.count("1.234,56")) == (1, 0)
    assert "--> 00:00:02,500" in found or "-->" not in content


def test_phrases_are_kept_and_translated_in_files_as_in_texts(place):
    text = "Tom wohnt in Boston."
    found = translated(place, "a.txt", text, glossary='{"Tom": "Thomas"}', ignore="Boston\r\nMaria\n")
    assert found.count("Thomas") == found.count("Boston") == 1
    assert found == translated(place, "a.txt", text, glossary='{"Tom": "Thomas"}', ignore="Boston")
    options = TextOptions(protect=True, follow_form=True, glossary={"Tom": "Thomas"}, ignore=("Boston",))
    assert found == asyncio.run(place[1].service.run("toy-de-en", [text], options))[0].text
    for fields in ({"glossary": "Tom"}, {"glossary": '{"Tom": 1}'}, {"ignore": "a\n" * 1001}):
        answer = send(place, "a.txt", text, **fields)
        assert answer.status_code == 400
        assert next(iter(fields)) in answer.json()["error"]


@pytest.mark.parametrize("name", ["attributes", "local_numbers"])
def test_invalid_booleans_are_refused_by_name(place, name):
    answer = send(place, "a.txt", "Gut.", **{name: "perhaps"})
    assert answer.status_code == 400
    assert name in answer.json()["error"]
