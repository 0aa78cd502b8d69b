"""Requests of Weblate, Mastodon, Discourse, OmegaT, Dialect and others to LibreTranslate and DeepL, and the
fields that each reads in the answer."""

import pytest

from cli.foreign import served_paths
from cli.serve import unknown_variables
from engine.api import Service
from server.languages import resolve_code
from tests.support.argos_packages import write
from tests.support.served import server, settings_of

GERMAN = "Das ist gut."


@pytest.fixture(scope="module", params=["a bundle", "a volume of LibreTranslate"])
def client(request, tmp_path_factory):
    """The clients work with a model of Convoy and with packages of Argos."""
    if request.param == "a bundle":
        with server() as (found, _, _):
            yield found
        return
    root = tmp_path_factory.mktemp("volume")
    for number, (source, target) in enumerate((("de", "en"), ("en", "de"))):
        write(root / "share" / "argos-translate" / "packages", source, target, seed=number)
    paths = served_paths([root], root / "cache", None, ())
    with server(opened=lambda observe: Service.open(paths, settings_of(), observe)) as (found, _, _):
        yield found


@pytest.fixture(scope="module")
def english(client):
    values = {"q": GERMAN, "source": "de", "target": "en"}
    return client.post("/translate", json=values).json()["translatedText"]


def test_weblate_works_by_the_contract_of_libretranslate(client, english):
    codes = {language["code"] for language in client.get("/languages").json()}
    assert {"de", "en"} <= codes
    form = {"api_key": "", "q": GERMAN, "source": "de", "target": "en"}
    assert client.post("/translate", json=form).json()["translatedText"] == english
    assert client.post("/translate", data=form).json()["translatedText"] == english
    batch = form | {"q": [GERMAN, GERMAN]}
    assert client.post("/translate", json=batch).json()["translatedText"] == [english, english]


def test_weblate_keeps_placeholders_by_the_contract_of_deepl(client):
    headers = {"Authorization": "DeepL-Auth-Key x:fx"}
    for kind in ("source", "target"):
        found = client.get("/v2/languages", params={"type": kind}, headers=headers).json()
        assert all({"language", "name"} <= set(language) for language in found)
    body = {
        "text": ['Wir haben <x id="4"></x> Dateien gelöscht.'],
        "source_lang": "DE",
        "target_lang": "EN-GB",
        "formality": "prefer_less",
        "tag_handling": "xml",
        "ignore_tags": ["x"],
    }
    (answer,) = client.post("/v2/translate", json=body, headers=headers).json()["translations"]
    assert answer["text"].count('<x id="4"></x>') == 1
    assert answer["detected_source_language"] == "DE"


def test_mastodon_works_by_the_contract_of_libretranslate(client, english):
    body = {
        "q": [GERMAN, f"<p>{GERMAN}</p>"],
        "source": "auto",
        "target": "en",
        "format": "html",
        "api_key": None,
    }
    answer = client.post("/translate", json=body)
    assert answer.status_code == 200
    texts, languages = answer.json()["translatedText"], answer.json()["detectedLanguage"]
    assert texts[1].startswith("<p>")
    assert len(texts) == len(languages) == 2
    assert all(set(language) >= {"language", "confidence"} for language in languages)
    assert all({"code", "targets"} <= set(language) for language in client.get("/languages").json())


def test_mastodon_works_by_the_contract_of_deepl(client):
    headers = {"Authorization": "DeepL-Auth-Key x:fx", "Content-Type": "application/x-www-form-urlencoded"}
    form = "text=Das+ist+gut.&text=Gut.&source_lang=DE&target_lang=EN-US&tag_handling=html"
    answers = client.post("/v2/translate", content=form, headers=headers).json()["translations"]
    assert len(answers) == 2
    assert {answer["detected_source_language"] for answer in answers} == {"DE"}


def test_discourse_works_by_the_contract_of_libretranslate(client, english):
    found = client.post("/detect", data={"q": GERMAN, "api_key": ""}).json()
    assert {"confidence", "language"} <= set(found[0])
    form = {"q": GERMAN, "source": "de", "target": "en", "format": "html", "api_key": ""}
    assert client.post("/translate", data=form).json()["translatedText"] == english


def test_omegat_plugin_for_libretranslate_reads_umlauts(client):
    """It reads Latin-1 if an answer names no encoding."""
    form = {"q": "This is beautiful. ü", "source": "en", "target": "de"}
    answer = client.post("/translate", data=form)
    named = answer.headers["content-type"].partition("charset=")[2] or "iso-8859-1"
    assert answer.content.decode(named) == answer.content.decode("utf-8")


def test_dialect_accepts_the_server_as_libretranslate(client):
    assert client.get("/spec").json()["info"]["title"] == "LibreTranslate"
    settings = client.get("/frontend/settings").json()
    assert int(settings["charLimit"])
    assert {"suggestions", "apiKeys", "keyRequired"} <= settings.keys()
    found = client.post("/detect", data={"q": "hello", "api_key": "x"}).json()
    assert "confidence" in found[0]
    answer = client.post("/translate", json={"q": GERMAN, "source": "auto", "target": "en"}).json()
    assert answer["detectedLanguage"]["language"] == "de"
    refused = client.post("/translate", json={"q": GERMAN, "source": "de", "target": "xx"}).json()
    assert "is not supported" in refused["error"]


def test_libreoffice_and_subtitle_edit_work_by_the_contract_of_deepl(client):
    """LibreOffice sends its key in the form, and tag handling in the query."""
    form = {"auth_key": "x", "target_lang": "EN-GB", "text": f"<p>{GERMAN}</p>"}
    (answer,) = client.post("/v2/translate?tag_handling=html", data=form).json()["translations"]
    assert answer["text"].startswith("<p>")
    form = {"text": GERMAN, "target_lang": "en-gb", "source_lang": "de", "formality": "default"}
    (answer,) = client.post("/v2/translate", data=form).json()["translations"]
    assert answer["detected_source_language"] == "DE"


def test_translators_tools_use_version_1_of_deepl(client):
    """Swordfish uses version 1, for keys that DeepL accepts only there."""
    key = {"Authorization": "DeepL-Auth-Key x"}
    for kind in ("source", "target"):
        found = client.get(f"/v1/languages?type={kind}", headers=key).json()
        assert found == client.get(f"/v2/languages?type={kind}").json()
    body = {"text": [GERMAN], "source_lang": "DE", "target_lang": "EN", "tag_handling": "xml"}
    for sent in ({"json": body}, {"data": body | {"auth_key": "x"}}):
        answer = client.post("/v1/translate", **sent).json()
        assert answer["translations"][0]["detected_source_language"] == "DE"
    assert "character_count" in client.get("/v1/usage", params={"auth_key": "x"}).json()
    assert client.post("/v1/translate", json={"text": GERMAN}).json().keys() == {"message"}
    assert client.get("/v1/languages?type=x").json().keys() == {"message"}


def test_omegat_uses_the_contract_of_deepl_by_get(client, english):
    query = {
        "text": GERMAN,
        "source_lang": "DE",
        "target_lang": "EN",
        "tag_handling": "xml",
        "splitting_tags": "",
        "preserve_formatting": "1",
        "auth_key": "x:fx",
    }
    answer = client.get("/v2/translate", params=query)
    assert answer.status_code == 200
    assert answer.json()["translations"][0]["text"]


@pytest.mark.parametrize("code", ["de-DE", "de_AT", "DE-ch", "de-419", "deu"])
def test_codes_with_regions_work_on_every_route(client, english, code):
    values = {"q": GERMAN, "source": code, "target": "en-US"}
    assert client.post("/translate", json=values).json()["translatedText"] == english
    body = {"text": [GERMAN], "source_lang": code, "target_lang": "en_GB"}
    answer = client.post("/v2/translate", json=body).json()["translations"][0]
    assert answer["text"].rstrip(".").lower() == english.rstrip(".").lower()
    sent = {"data": {"source": code, "target": "en_GB"}, "files": {"file": ("a.txt", b"Gut.")}}
    assert client.post("/translate_file", **sent).status_code == 200


def test_regional_languages_keep_their_codes():
    assert resolve_code("zh-TW", {"zh", "zt"}) == "zt"
    assert resolve_code("zh_CN", {"zh", "zt"}) == "zh"
    assert resolve_code("pt-BR", {"pt", "pb"}) == "pb"
    assert resolve_code("de-AT", {"de", "de-at"}) == "de-at"
    assert resolve_code("de-latn", {"de"}) == "de"


def test_warning_of_an_unknown_variable_names_the_nearest_setting():
    names = ["CONVOY_PROT", "CONVOY_PORT", "CONVOY_TRANSLATE_BEAM_SIZE", "CONVOY_TRACEBACK", "PATH"]
    assert unknown_variables(names, ["port", "host"]) == [
        "unknown variable CONVOY_PROT; did you mean CONVOY_PORT?"
    ]
