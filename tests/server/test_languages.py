"""Every code and name that clients send for a language finds the served one, by every interface."""

import shutil

import pytest

from engine.api import Service
from engine.text.language_names import KNOWN_NAMES, OTHER_NAMES
from server.contracts.reading.shape import CODES_TO_HCFY
from server.languages import MAX_NAME, resolve_code, tag_of
from tests.project.language_table import PAGE, page
from tests.support.served import bundles, server, settings_of

SERVED = frozenset(["pb", "nb", "he", "id", "tl", "zh", "zt", "sr", "en", "de"])
PORTUGUESE = "Bom dia! Onde fica a estação de trem mais próxima, por favor?"
# what clients send, by the code that is served: LibreTranslate's and Google's own codes, NLLB's, BCP 47, ISO
# 639-2 and 639-3, locales, names
ASKED = {
    "pb": "pt|pt-PT|PT|por|pt_BR|por_Latn|Portuguese|Brazilian Portuguese|Portuguese (Brazil)|português",
    "nb": "no|no-NO|nor|nob|nob_Latn|nb-NO|nb_NO|Norwegian|Norwegian Bokmål|norsk",
    "he": "iw|iw-IL|heb|heb_Hebr|he-IL|Hebrew|עברית",
    "id": "in|ind|ind_Latn|id-ID|Bahasa Indonesia",
    "tl": "fil|fil-PH|tgl|tgl_Latn|Filipino|Tagalog",
    "zh": "cmn|zho|chi|zho_Hans|zh-CN|zh_CN|zh-Hans-CN|Chinese|Simplified Chinese|中文|简体中文|中文（简体）",
    "zt": "zho_Hant|zh-TW|zh-HK|zh-Hant-TW|ZH-HANT|Traditional Chinese|Chinese (Traditional)|繁體中文",
    "sr": "srp|srp_Cyrl|sr-Latn|sr-RS|sr-Cyrl-RS|Serbian (Latin)|српски",
    "en": "eng|eng_Latn|en-US|en_419|EN-GB|English|US English|English (United States)|英语",
    "de": "ger|deu|deu_Latn|de-AT|de_DE.UTF-8|German|Deutsch|deutsch|Swiss German|德语",
}


@pytest.mark.parametrize("code", ASKED)
def test_the_nearest_served_language_is_found(code):
    assert {asked: resolve_code(asked, SERVED) for asked in ASKED[code].split("|")} == dict.fromkeys(
        ASKED[code].split("|"), code
    )


@pytest.mark.parametrize(
    ("asked", "served", "found"),
    [
        ("pt-PT", {"pb", "pt"}, "pt"),
        ("pt-BR", {"pt"}, "pt"),
        ("nb", {"no"}, "no"),
        ("zh-TW", {"zh"}, "zh"),
        ("zh", {"zt"}, "zt"),
        ("iw", {"iw"}, "iw"),
        ("he", {"iw"}, "iw"),
        # codes of models of many languages are served as the model has them
        ("zt", {"zh", "zh-Hant"}, "zh-Hant"),
        ("zh-TW", {"zh", "zh-Hant"}, "zh-Hant"),
        ("sr-Latn", {"srp_Cyrl", "srp_Latn"}, "srp_Latn"),
        ("sr", {"srp_Cyrl", "srp_Latn"}, "srp_Cyrl"),
        ("arb_Arab", {"ar"}, "ar"),
    ],
)
def test_a_variant_gives_way_to_the_language_only_where_it_must(asked, served, found):
    assert resolve_code(asked, served) == found


@pytest.mark.parametrize(
    "asked", ["nl", "nld_Latn", "Dutch", "nn", "yue", "xx", "en-anything", "The English", ""]
)
def test_other_languages_and_words_find_nothing(asked):
    assert resolve_code(asked, SERVED) not in SERVED


def test_every_name_of_the_table_has_the_code_of_its_row():
    of_others = ((code, name) for code, names in OTHER_NAMES.items() for name in names.split("|"))
    named = [*((code, name) for code, names in KNOWN_NAMES.items() for name in names), *of_others]
    variants = {"nb": {"nb", "no"}, "no": {"nb", "no"}}
    for code, name in named:
        assert resolve_code(name, set(KNOWN_NAMES)) in variants.get(code, {code}), name
    assert {resolve_code(name, set(KNOWN_NAMES)): name for name in CODES_TO_HCFY.values()} == CODES_TO_HCFY


def test_a_long_code_is_not_parsed():
    assert tag_of("a" * (MAX_NAME + 1)) is None
    assert tag_of(" " * MAX_NAME + "de") is None
    assert tag_of("de") is not None


def test_the_page_has_the_table_of_the_code():
    text = PAGE.read_text("utf-8")
    assert text == page(text), "run: python -m tests.project.language_table"


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """A client of a server whose only models translate between Brazilian Portuguese and bokmål."""
    folder = tmp_path_factory.mktemp("relabelled")
    for name, languages in {"toy-de-en": ("pb", "nb"), "toy-en-de": ("nb", "pb")}.items():
        shutil.copytree(bundles() / name, folder / name)
        config = folder / name / "config.json"
        text = config.read_text("utf-8")
        source, target = name.split("-")[1:]
        for field, old, new in (("source", source, languages[0]), ("target", target, languages[1])):
            assert f'"{field}": "{old}"' in text
            text = text.replace(f'"{field}": "{old}"', f'"{field}": "{new}"')
        config.write_text(text, "utf-8")

    def opened(observe):
        return Service.open([folder], settings_of(verify=False), observe)

    with server(opened=opened, plugins="deeplx,immersive,mtran,google,apertium,nllb,xunity") as (found, *_):
        yield found


def chat(source, target):
    system = {"role": "system", "content": f"Translate from {source} to {target}"}
    return {"model": "convoy", "messages": [system, {"role": "user", "content": PORTUGUESE}]}


INTERFACES = {
    "/translate": lambda source, target: {"q": PORTUGUESE, "source": source, "target": target},
    "/v2/translate": lambda source, target: {
        "text": [PORTUGUESE],
        "source_lang": source,
        "target_lang": target,
    },
    "/v1/chat/completions": chat,
    "/deeplx": lambda source, target: {"text": PORTUGUESE, "source_lang": source, "target_lang": target},
    "/imme": lambda source, target: {
        "text_list": [PORTUGUESE],
        "source_lang": source,
        "target_lang": target,
    },
    "/kiss": lambda source, target: {"text": PORTUGUESE, "from": source, "to": target},
    "/hcfy": lambda source, target: {"text": PORTUGUESE, "destination": [target], "source": source},
    "/mtran/translate": lambda source, target: {"text": PORTUGUESE, "from": source, "to": target},
    "/language/translate/v2": lambda source, target: {"q": PORTUGUESE, "source": source, "target": target},
    "/translate_a/single": lambda source, target: {"q": PORTUGUESE, "sl": source, "tl": target},
}


@pytest.mark.parametrize("path", INTERFACES)
@pytest.mark.parametrize(("source", "target"), [("pt", "no"), ("por_Latn", "nob_Latn"), ("pt-PT", "no-NO")])
def test_every_interface_finds_the_variant_that_is_served(client, path, source, target):
    answer = client.post(path, json=INTERFACES[path](source, target))
    assert answer.status_code == 200, answer.text
    assert answer.status_code == client.post(path, json=INTERFACES[path]("pb", "nb")).status_code
    assert answer.text.count("Bom dia") <= 1


def test_the_variant_of_a_detected_language_is_found(client):
    (detected,) = client.post("/detect", json={"q": PORTUGUESE}).json()[:1]
    assert (detected["language"], detected["confidence"] > 90) == ("pt-BR", True)
    answer = client.post("/translate", json={"q": PORTUGUESE, "source": "auto", "target": "nb"}).json()
    assert answer["detectedLanguage"]["language"] == "pt-BR"
