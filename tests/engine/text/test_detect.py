"""The language of a text: right where it can be known, and no surer than that."""

import pytest

from engine.text.detect import MAX_CHARACTERS, detect
from server.answering.translation import NOTHING, candidates

TEXTS = {
    "de": "Ich habe gestern das rote Auto meines Bruders gewaschen.",
    "en": "I washed my brother's red car yesterday.",
    "es": "Ayer lavé el coche rojo de mi hermano.",
    "fr": "Hier, j'ai lavé la voiture rouge de mon frère.",
    "it": "Ieri ho lavato la macchina rossa di mio fratello.",
    "nl": "Gisteren heb ik de rode auto van mijn broer gewassen.",
    "pl": "Wczoraj umyłem czerwony samochód mojego brata.",
    "ru": "Вчера я помыл красную машину моего брата.",
    "uk": "Вчора я помив червону машину мого брата.",
    "ja": "昨日、兄の赤い車を洗いました。",
    "zh": "昨天我洗了我哥哥的红色汽车。",
    "ar": "غسلت أمس سيارة أخي الحمراء.",
}


@pytest.mark.parametrize("language", TEXTS)
def test_a_sentence_is_known_among_all_languages(language):
    best, share = detect(TEXTS[language], sorted(TEXTS)).ranked[0]
    assert best == language
    assert share > 50


@pytest.mark.parametrize("language", sorted(set(TEXTS) - {"de", "en"}))
def test_what_none_of_the_languages_fits_is_said_to_be_another(language):
    found = detect(TEXTS[language], ["de", "en"])
    assert found.other == language
    assert [share for _, share in found.ranked] == [0.0, 0.0]


def test_a_single_word_is_not_certain():
    for word in ("Hallo", "Test", "Hotel"):
        found = detect(word, ["de", "en"])
        assert found.other is None
        assert 0 < found.ranked[0][1] < 95


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Hallo", "de"),
        ("Hello!", "en"),
        ("Salut", "fr"),
        ("merci", "fr"),
        ("DANKE", "de"),
        ("der", "de"),
        ("Hi", "en"),
    ],
)
def test_a_first_word_is_known_by_heart(text, language):
    best, share = detect(text, ["de", "en", "fr"]).ranked[0]
    assert best == language
    assert share > 80


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Hola", "es"),
        ("Ciao, come stai?", "it"),
        ("Привет", "ru"),
        ("Olá", "pt"),
        ("你好", "zh"),
        ("Merhaba", "tr"),
        ("Ti amo", "it"),
        ("Te iubesc", "ro"),
        ("Goede nacht", "nl"),
        ("Desculpe", "pt"),
        ("Dobar dan", "hr"),
        ("Labas", "lt"),
        ("Tere", "et"),
    ]
    + [("Salut", "fr"), ("Ω", "el")],
)
def test_a_first_word_of_a_language_that_is_not_served_is_named(text, language):
    found = detect(text, ["de", "en"])
    assert found.other == language
    assert [share for _, share in found.ranked] == [0.0, 0.0]


@pytest.mark.parametrize("text", ["Da", "Je", "yo", "Il "])
def test_two_letters_may_be_half_a_word_of_a_language_that_is_served(text):
    """A page asks while somebody types: "Da" of "Das" is no Romanian."""
    assert detect(text, ["de", "en"]).other is None


@pytest.mark.parametrize(
    ("text", "language"), [("Да", "ru"), ("你好", "zh"), ("好", "zh"), ("ты", "ru"), ("λα", "el")]
)
def test_two_letters_of_another_script_are_of_another_language(text, language):
    assert detect(text, ["de", "en"]).other == language


def test_of_a_word_of_many_languages_those_that_are_served_decide():
    assert detect("Hallo", ["nl", "en"]).ranked[0][0] == "nl"
    assert detect("no", ["es", "it"]).ranked[0][0] == "es"
    assert len({round(share) for _, share in detect("OK", ["de", "en", "fr"]).ranked}) == 1


def test_codes_of_any_shape_are_understood():
    assert detect(TEXTS["de"], ["en", "deu"]).ranked[0][0] == "deu"
    assert detect(TEXTS["de"], ["en", "de-AT"]).ranked[0][0] == "de-AT"
    assert detect("Jeg vasket bilen til broren min i går, og den er fin.", ["nb", "en"]).ranked[0][0] == "nb"
    assert detect("123", ["de"]).ranked == [("de", 0.0)]


class Served:
    """A service of German and English, as `candidates` asks it."""

    def detect(self, text):
        return detect(text, ["de", "en"])


def test_libretranslate_is_told_nothing_rather_than_the_wrong_language():
    assert candidates(Served(), TEXTS["es"]) == [NOTHING]
    assert candidates(Served(), TEXTS["de"])[0]["language"] == "de"


def test_of_a_long_text_only_the_beginning_is_read():
    german, english = "Das ist ein Haus und ein Garten. ", "This is a house and that is a garden. "
    text = german * (MAX_CHARACTERS // len(german) + 1) + english * 1_000
    assert detect(text, ["de", "en"]) == detect(text[:MAX_CHARACTERS], ["de", "en"])
    assert detect(text, ["de", "en"]).ranked[0][0] == "de"
