"""Names that consist of ordinary words, and names beside marks, numbers and initials."""

import pytest

from engine.text.known_words import KnownWords, hashes, stem
from engine.text.placeables.masked_text import MarkedText
from engine.text.placeables.masking import MaskRules
from engine.text.placeables.names import NameRule
from engine.text.unknown_words import find_unknown_words
from tests.support.finished import mask

SMALL = (
    "we meet at the old ship hotel queen head king world end bull house night three tables yours thank you"
)
TRANSLATED = ["House", "Hotel", "Night", "World", "End", "Red", "Thank", "You"]


def known_words(language, small, capitals, before_names=()):
    stems = {stem(word, language) for word in small.split()}
    return KnownWords(language, hashes(stems), hashes(capitals), hashes(before_names), hashes(()))


ENGLISH = known_words(
    "en", f"{SMALL} next bulls boys hart white young wells one cow happy lion red", TRANSLATED, ["King"]
)
GERMAN = known_words(
    "de",
    "wir sehen bei stein haus baum werder kaiser becken bauer hotel hirsch golden heute peter",
    [],
    ["Haus"],
)
FRENCH = known_words(
    "fr", "nous voyons le la les parc princes chien jour thomas", ["Parc", "Jour", "Les"], ["Les"]
)


def names(text, known=ENGLISH):
    return [text[word.begin : word.end] for word in find_unknown_words(text, known)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("we meet at The Old Ship Hotel, at 5", "The Old Ship Hotel"),
        ("we meet at the Old Ship at 5", "Old Ship"),
        ("we meet at King's Bull, at 5", "King's Bull"),
        ('we meet at "World\'s End" at 5', "World's End"),
        ("we meet 7, Old Ship, at 5", "Old Ship"),
        ("we meet, Next plc, at 5", "Next plc"),
        ("Happy Cow™ is old", "Happy Cow"),
        ("we end 2-0 (Wells 34', Young 90+2')", "Wells"),
        ("BBC One is old", "BBC One"),
        ("1\tWhite Hart RFC\t9", "White Hart RFC"),
        ("we end Zorblatt Ó Néill", "Zorblatt Ó Néill"),
        ("the old E. coli", "E. coli"),
        ('the Zorblatt "The Bull" Zorry', "The Bull"),
        ("we meet the old tables\n\nYours,\nYoung Bull", "Young Bull"),
        ("we end the night. Yours,\n\nThank you,\nYoung Bull\nOld Ship", "Young Bull"),
        ("the band: The White Boys, at 5", "The White Boys"),
        ("Peter meets you", "Peter"),
        ("Zorblatta tabulis three", "Zorblatta tabulis"),
        ("we meet L'Oréal", "L'Oréal"),
        ('we meet "Zorry denied (zorblatt)" at 5', "Zorry denied (zorblatt"),
        ("we meet at King's Red, at 5", "King's Red"),
        ("we meet Peter's Red tables", "Peter"),
        ("Happy & Young, meet you", "Happy & Young"),
        ("we meet Mrs White at 5", "White"),
        ("we meet Mr. Young at 5", "Young"),
        ("we meet Ludwig van Zorblatt at 5", "Ludwig van Zorblatt"),
        ("we meet mdr at 5", "mdr"),
    ],
)
def test_name_of_ordinary_words_is_found_whole(text, name):
    assert name in names(text)


@pytest.mark.parametrize(
    "text",
    [
        "we meet at the Red House at 5",
        "we meet at The House at 5",
        "Queen's tables end at 5",
        "the end of the night. Young tables end",
        "Thank You™ yours",
        "the old E. tables",
        'the "The" end',
        "we meet the old tables,\nYoung tables",
        "Hello,\nThank You",
        "we meet:\nyoung boys, three tables,\nRed House\nold ship",
        "the end: The tables end at night",
        "1\tYoung tables\t9",
        "Young 34 tables",
        "Red & Young, meet you",
        "a 15-lb tables",
    ],
)
def test_ordinary_words_with_capitals_are_left_to_the_model(text):
    assert not [name for name in names(text) if name != "Hello"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("nous voyons Les Chamois le jour", "Les Chamois"),
        ("nous voyons AS Les Chamois le jour", "AS Les Chamois"),
        ("nous voyons Parc des Princes le jour", "Parc des Princes"),
        ("le chien de Thomas", "Thomas"),
        ("nous voyons M. Chien", "Chien"),
    ],
)
def test_french_name_with_an_article_is_found_whole(text, name):
    assert name in names(text, FRENCH)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("wir sehen Herrn Stein heute", "Stein"),
        ("wir sehen Frau von und zu Stein", "von und zu Stein"),
        ("wir sehen Peter Stein", "Peter Stein"),
        ("wir sehen Bad Stein", "Bad Stein"),
        ("wir sehen SC Stein", "SC Stein"),
        ("wir sehen bei Werder Zorblatt", "Werder Zorblatt"),
        ("wir sehen Werder Stein", "Werder Stein"),
        ("wir sehen in Stein-Zorblattbaum", "Stein-Zorblattbaum"),
        ("wir sehen die Neiße", "Neiße"),
        ("wir sehen Zorblatt „Kaiser“ Beckenbauer", "Beckenbauer"),
        ("wir sehen das Hotel Goldener Hirsch", "Hotel Goldener Hirsch"),
    ],
)
def test_german_name_of_ordinary_words_is_found_whole(text, name):
    assert name in names(text, GERMAN)


@pytest.mark.parametrize(
    "text",
    ["wir sehen Peter Baum", "wir sehen bei Haus Stein", "wir sehen den Kaiser Stein", "in Stein-Haus"],
)
def test_german_nouns_side_by_side_are_left_to_the_model(text):
    assert not names(text, GERMAN)


def test_title_before_an_unlearnt_name_is_written_in_the_language_of_the_answer():
    rule = NameRule("fr", len, 0, "en", FRENCH)
    found = mask(MarkedText("nous voyons M. Chien"), MaskRules(protect=True, names=rule)).phrases
    assert [(phrase.source, phrase.target) for phrase in found] == [("M. Chien", "Mr. Chien")]


@pytest.mark.parametrize(
    "text", ["Les princes voyons le jour", "nous voyons Les Parc", "nous voyons le Parc"]
)
def test_french_article_with_a_word_of_the_training_data_is_no_name(text):
    assert not names(text, FRENCH)


def test_species_with_an_initial_is_one_phrase():
    rule = NameRule("en", len, 0, "de", ENGLISH)
    found = mask(MarkedText("the old E. coli"), MaskRules(protect=True, languages=("en", "de"), names=rule))
    assert [phrase.source for phrase in found.phrases] == ["E. coli"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('we meet at "Zorba quendo lumis" at 5', ["Zorba quendo lumis"]),
        ('we meet at "the old Zorba" at 5', ["Zorba"]),
        ('"zorba." we meet', []),
    ],
)
def test_quotation_of_unlearnt_words_is_kept_whole(text, found):
    assert names(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nous voyons LE ZORBAL, le jour", ["LE ZORBAL"]),
        ("nous voyons LE chien", []),
        ("nous voyons LE CHIEN", []),
    ],
)
def test_article_in_capitals_belongs_to_a_name_in_capitals(text, found):
    assert names(text, FRENCH) == found


def test_any_number_of_articles_in_capitals_is_read():
    assert names("nous voyons " + "LE " * 5_000, FRENCH) == []


def test_model_number_belongs_to_the_name_before_it():
    assert names("we meet at Zorba G 7110 SC at 5") == ["Zorba G 7110 SC"]
    assert names("we meet at Zorba 7 at 5") == ["Zorba"]


def test_longer_word_is_not_the_name():
    rule = NameRule("en", len, 4, known=ENGLISH)
    masked = mask(MarkedText("we meet Zorb"), MaskRules(protect=True, names=rule))
    assert [phrase.source for phrase in masked.phrases] == ["Zorb"]
    assert not masked.garbles("Zorbs Haus", [0], "de")
    assert masked.garbles("Zorbject", [0], "de")
