"""Names of many tokens are found, but not nouns and headings."""

import asyncio
from pathlib import Path

import pytest

from engine.api import Placement, Service, ServiceSettings, TextOptions
from engine.text.placeables.masked_text import MarkedText
from engine.text.placeables.masking import MaskRules
from engine.text.placeables.names import (
    NameRule,
    find_abbreviations,
    find_acronyms,
    find_names,
    find_people,
)
from tests.support.finished import mask, plan

MODELS = Path(__file__).parents[3] / "models"
KNOWN = {
    "herr",
    "frau",
    "kommt",
    "morgen",
    "haus",
    "das",
    "ist",
    "is",
    "the",
    "upload",
    "files",
    "bank",
    "an",
    "tom",
    "europa",
    "german",
}


def tokens(word):
    """Count tokens as a vocabulary of a few words and of pairs of letters."""
    return 1 if word.lower() in KNOWN else (len(word) + 1) // 2


def names(text, language, alone=4):
    return [text[begin:end] for begin, end in find_names(text, NameRule(language, tokens, alone))]


@pytest.mark.parametrize(
    ("language", "text", "found"),
    [
        ("de", "Herr Müller-Lüdenscheidt kommt morgen.", ["Müller-Lüdenscheidt"]),
        ("de", "Guten Tag, Frau Dr. Bank!", ["Bank"]),
        ("de", "Kennst du Sibilla Möchlichen?", ["Sibilla Möchlichen"]),
        (
            "de",
            "Er wohnt in Garmisch-Partenkirchen und aus Bad Oeynhausen.",
            ["Garmisch-Partenkirchen", "Bad Oeynhausen"],
        ),
        ("de", "Hr. Weiß und die Fa. Schnell. Ein Hr. kommt schnell.", ["Weiß", "Schnell"]),
        ("de", "Herr von und zu Guttenberg ist da.", ["von und zu Guttenberg"]),
        ("de", "Kennst du Sibilla van Möchlichen?", ["Sibilla van Möchlichen"]),
        ("de", "Er sah die Königin von Möchlichen.", []),
        ("de", "Er bat ihn um Vergebung und große Fortschritte.", []),
        ("de", "Es besteht aus 47 Vergebungen.", []),
        ("de", "Erweiterte Einstellungen", []),
        ("de", "Haben Sie Ihre Adressen?", []),
        # adjectives, genitives, and nouns after an article or a number are no names next to a noun
        ("de", "Er spricht für die Europäische Union.", []),
        ("de", "Gestern war Toms Geständnis schockierend.", []),
        ("de", "Deutschland ist die Wirtschaftsmacht Europas.", []),
        ("de", "Kauf zwei Flaschen Olivenöl.", []),
        ("de", "Er reist durch die Provinz Szechuan Möchlichen.", ["Szechuan Möchlichen"]),
        ("de", "Ich komme nach Griechenland.", []),
        ("de", "Er fährt von Essex nach Adorf.", ["Adorf"]),
        ("de", "Er fährt nach Essex.", []),
        ("en", "I'm Tom and she's German, it's Tom's.", []),
        ("en", "He met Willfried Schomber's aunt and a Norwegian.", ["Willfried Schomber"]),
        ("fr", "J'ai vu la Silésie et l'Algérie avec Siobhan.", ["Siobhan"]),
        ("en", "We met Siobhan at the Llanfairpwll station.", ["Siobhan", "Llanfairpwll"]),
        ("en", "Siobhan met us.", []),
        ("en", "Restore Session in New Window", []),
        ("en", "Upload Files", []),
        ("fr", "M. Dupont habite ici.", ["Dupont"]),
        ("fr", "Il voit M. Dupont. Lavallière rit.", ["Dupont"]),
    ],
)
def test_names_are_found_and_other_words_are_not(language, text, found):
    assert names(text, language) == found


def test_single_word_is_a_name_only_if_the_rule_allows_it():
    assert names("We met Siobhan here.", "en", alone=0) == []
    assert names("We met Siobhan Bank here.", "en", alone=0) == ["Siobhan Bank"]


def test_phrase_of_the_caller_wins_over_a_name():
    rules = MaskRules(protect=True, glossary={"Bank": "bank"}, names=NameRule("en", tokens, 4))
    found = mask(MarkedText("We met Siobhan Bank here."), rules).phrases
    assert [(phrase.source, phrase.target, phrase.name) for phrase in found] == [("Bank", "bank", False)]


@pytest.mark.parametrize(
    ("pair", "texts"),
    [
        (
            "de-en",
            {
                "Herr Müller-Lüdenscheidt wohnt dort.": "Müller-Lüdenscheidt",
                "Er wohnt in Garmisch-Partenkirchen.": "Garmisch-Partenkirchen",
                "Nguyễn Văn An kommt morgen.": "Nguyễn Văn An",
                "Müller & Söhne GmbH ist eine Firma.": "Müller & Söhne GmbH",
                "Anna Schmidt-Wagner und Jürgen Großmann sind hier.": "Schmidt-Wagner Jürgen Großmann",
            },
        ),
        (
            "en-de",
            {
                "Mr. Fitzwilliam-Darcy lives in Stratford-upon-Avon.": "Fitzwilliam Stratford-upon",
                "I talked to Willfried Schomber yesterday.": "Willfried Schomber",
                "Ask Xochitl Quetzalcoatl about the house.": "Xochitl Quetzalcoatl",
            },
        ),
    ],
)
def test_shipped_models_keep_names(pair, texts):
    if not (MODELS / f"tatoeba-{pair}").is_dir():
        pytest.skip(f"models/tatoeba-{pair} is not there")
    service = Service.open(
        [MODELS / f"tatoeba-{pair}"], ServiceSettings(Placement(lanes=((5, 16),)), verify=False)
    )
    service.start()
    try:
        results = asyncio.run(service.run(f"tatoeba-{pair}", list(texts), TextOptions(protect=True)))
        bare = asyncio.run(service.run(f"tatoeba-{pair}", list(texts), TextOptions()))
    finally:
        service.stop(drain=False, timeout=10)
    for result, wanted in zip(results, texts.values(), strict=True):
        assert all(name in result.text for name in wanted.split()), result.text
    # without protection the models lose some names
    whole = [all(n in r.text for n in w.split()) for r, w in zip(bare, texts.values(), strict=True)]
    assert not all(whole)


def test_sentence_with_several_names_and_numbers_gets_placeholders_at_once():
    """Nearly every answer to such a sentence loses a phrase and would be decoded twice."""
    if not (MODELS / "tatoeba-de-en").is_dir():
        pytest.skip("models/tatoeba-de-en is not there")
    service = Service.open([MODELS / "tatoeba-de-en"], ServiceSettings(Placement(), verify=False))
    model = service.repository.loaded["tatoeba-de-en"].text
    texts = (
        "Frau Möchlichen traf Willfried Schomber.",
        "Frau Möchlichen hat 47 Bücher.",
        "Hier sind 47 Bücher und 12 Hefte.",
    )
    options = TextOptions(protect=True)
    symbols = [len(plan(model, text, options).sentences[0].symbols) for text in texts]
    assert symbols == [2, 2, 0]
    service.stop(drain=False, timeout=10)


def test_sentence_that_lost_a_name_is_decoded_again_without_attention_first():
    """Fast steps return no attention; only the last attempt needs it, to mend placeholders."""
    if not (MODELS / "tatoeba-de-en").is_dir():
        pytest.skip("models/tatoeba-de-en is not there")
    settings = ServiceSettings(Placement(lanes=((5, 16),)), verify=False)
    service = Service.open([MODELS / "tatoeba-de-en"], settings)
    text = "Zidane kommt morgen."
    model = service.repository.loaded["tatoeba-de-en"].text
    first = plan(model, text, TextOptions(protect=True))
    second = first.fallen_back(model, first.sentences[0])
    (again,) = first.with_sentences({0: second}).jobs
    (last,) = first.with_sentences({0: first.fallen_back(model, second)}).jobs
    assert [job.options.alignment for job in (*first.jobs, again, last)] == [False, False, True]
    assert [bool(job.options.quotas) for job in (*first.jobs, again, last)] == [False, False, True]
    assert again.source == last.source != first.jobs[0].source


@pytest.mark.parametrize(
    ("language", "text", "found"),
    [
        ("de", "Ich habe mit Peter Koch gesprochen.", ["Peter Koch"]),
        ("de", "Anna Maria Weber und Max Fischer sind da.", ["Anna Maria Weber", "Max Fischer"]),
        ("de", "Ich spiele mit Peter Fußball, und Anna Geld.", []),
        ("en", "Ask Peter Baker about it.", ["Peter Baker"]),
        ("en", "Peter Goes Home", []),
        ("fr", "Pierre Boulanger est là.", ["Pierre Boulanger"]),
        ("cs", "Peter Koch", []),
    ],
)
def test_common_given_name_with_a_surname_is_one_name(language, text, found):
    assert [text[begin:end] for begin, end in find_people(text, language)] == found


def test_words_of_consonants_and_short_acronyms_that_the_model_lacks_are_found():
    known = frozenset({"hmm", "tv", "km"})  # not "Mr", a title
    rule = NameRule("de", lambda word: 1 if word.lower() in known else len(word), 0)
    text = "Der BP von Mr Lee war pls gut, hmm, im TV bzw. auf Rx."
    found = {text[a:b] for finder in (find_abbreviations, find_acronyms) for a, b in finder(text, rule)}
    assert found == {"BP", "pls", "Rx"}
