"""Words in capitals within a text in small letters."""

from pathlib import Path

import pytest

from engine.bundle.bundle import open_bundle
from engine.text.known_words import read_known_words
from engine.text.placeables.markup import PlainText
from engine.text.unknown_words import find_unknown_words
from tests.support.finished import read_capitals, read_markup

MODELS = Path(__file__).parents[3] / "models"
KNOWN = {"sehr", "Haus", "ACHTUNG", "don", "can"}


def tokens(word):
    return 1 if word in KNOWN else 4


def test_words_in_capitals_are_lowered_if_the_vocabulary_has_them():
    plain = read_capitals(read_markup("Das **HAUS** ist SEHR gut, XYZZY."), "de", tokens)
    assert plain.text == "Das Haus ist sehr gut, XYZZY."
    assert sorted((f.begin, f.end, f.parent) for f in plain.formats if f.capitals) == [
        (4, 8, 0),
        (13, 17, -1),
    ]
    title = read_markup("SEHR GUT")
    assert read_capitals(title, "de", tokens) == title


@pytest.mark.parametrize("apostrophe", ["'", "’"])
def test_contraction_in_capitals_is_lowered_as_a_whole(apostrophe):
    """The model reads `don'T` as `do`."""
    plain = read_capitals(read_markup(f"Please DON{apostrophe}T go, you CAN{apostrophe}T."), "en", tokens)
    assert plain.text == f"Please don{apostrophe}t go, you can{apostrophe}t."
    assert [(f.begin, f.end) for f in plain.formats if f.capitals] == [(7, 12), (21, 26)]


def test_adjacent_words_in_capitals_are_one_format():
    count = {"auf": 1, "keinen": 1, "KEINEN": 4, "AUF": 3}.get
    plain = read_capitals(PlainText("Tu das AUF KEINEN Fall."), "de", lambda word: count(word, 4))
    assert plain.text == "Tu das auf keinen Fall."
    assert [(f.begin, f.end) for f in plain.formats] == [(7, 17)]


def known_words(pair):
    return read_known_words(open_bundle(MODELS / f"tatoeba-{pair}", verify=False))


@pytest.mark.parametrize(
    ("pair", "text", "kept"),
    [
        ("en-de", "He works for the WHO in Geneva.", ["WHO"]),
        ("en-de", "Please do NOT open the door, I am VERY tired.", []),
        ("en-de", "I watch TV in the US.", []),
        ("en-de", "Reply STOP to end, or do NOT reply.", ["STOP"]),
        ("en-de", "Detective KATE MORSE (38) opens a box.", ["KATE MORSE"]),
        ("en-de", "MEETING WITH JOHN SMITH ON MONDAY", ["JOHN SMITH"]),
        ("de-en", "Der neue VW Golf GTI kostet viel.", ["VW Golf GTI"]),
        ("de-en", "Die CDU/CSU mag die ARD und KI.", ["CDU", "CSU", "ARD"]),
        ("de-en", "Thomas MÜLLER kommt NICHT.", ["MÜLLER"]),
        ("de-en", "SCHOLZ TRIFFT MACRON IN BRÜSSEL", ["SCHOLZ", "MACRON"]),
        ("de-en", "AUFZUG VOM 3. BIS 7. JUNI AUSSER BETRIEB, BITTE SCHLIESSEN", []),
        ("fr-en", "C'est TRÈS important, ne dors PAS !", []),
        ("fr-en", "Le PSG a battu l'OM au stade.", ["PSG", "OM"]),
        ("fr-en", "LE ROI : Il dort.", []),
    ],
)
def test_acronyms_and_names_in_capitals_stay_and_other_words_do_not(pair, text, kept):
    known = known_words(pair)
    found = [text[word.begin : word.end] for word in find_unknown_words(text, known)]
    assert [word for word in found if any(part.isupper() for part in word.split())] == kept


def test_known_words_in_capitals_are_lowered_and_acronyms_are_not():
    text = "The WHO says that it is FORBIDDEN."
    plain = read_capitals(PlainText(text), "en", lambda _: 2, known_words("en-de"))
    assert plain.text == "The WHO says that it is forbidden."


@pytest.mark.parametrize(
    "code", ["%(COUNT)d", "%ANZAHL%", "@@NAME@@", "$HOME", "MAIN()", "GETDATE()", "{NAME}", "{% IF %}"]
)
def test_words_in_capitals_within_code_keep_their_letters(code):
    text = f"Das Feld {code} ist SEHR gut."
    plain = read_capitals(PlainText(text), "de", lambda word: 1 if word.islower() else 4)
    assert plain.text == text.replace("SEHR", "sehr")
