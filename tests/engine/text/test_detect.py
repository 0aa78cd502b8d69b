"""Language detection and its confidence."""

import gzip
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.detect import MAX_CHARACTERS, detect
from engine.text.first_words import FIRST_WORDS, known_weights, words_of
from server.answering.translation import NOTHING, candidates
from tests.support.golden_fixtures import ROOT

CORPORA = ROOT.parent.parent / "shared" / "corpora"

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
def test_sentence_is_detected_among_all_languages(language):
    best, share = detect(TEXTS[language], sorted(TEXTS)).ranked[0]
    assert best == language
    assert share > 50


@pytest.mark.parametrize("language", sorted(set(TEXTS) - {"de", "en"}))
def test_text_in_no_requested_language_is_another(language):
    found = detect(TEXTS[language], ["de", "en"])
    assert found.other == language
    assert [share for _, share in found.ranked] == [0.0, 0.0]


def test_single_word_has_a_low_confidence():
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
def test_listed_word_has_a_high_confidence(text, language):
    best, share = detect(text, ["de", "en", "fr"]).ranked[0]
    assert best == language
    assert share > 80


def test_every_listed_word_is_found_in_a_text():
    """Greek's final sigma and hyphens need care."""
    for language, words in FIRST_WORDS.items():
        for word in words:
            assert words_of(word) == [word]
            assert known_weights(words_of(word))[language] == 1.0


def test_two_listed_words_weigh_more_than_one_and_one_of_two_weighs_little():
    assert known_weights(["come", "stai"])["it"] > known_weights(["ciao"])["it"] == 1.0
    assert known_weights(["ciao", "xyz"])["it"] < 0.5
    assert known_weights(["xyz"]) == known_weights([]) == {}


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
    + [("Salut", "fr"), ("Ω", "el"), ("Até logo", "pt"), ("Saluton", "eo"), ("Come va?", "it")]
    + [("Tot ziens", "nl"), ("God natt", "no"), ("Faleminderit", "sq"), ("Góðan daginn", "is")],
)
def test_listed_word_of_another_language_is_reported(text, language):
    found = detect(text, ["de", "en"])
    assert found.other == language
    assert [share for _, share in found.ranked] == [0.0, 0.0]


@pytest.mark.parametrize("text", ["Da", "Je", "yo", "Il "])
def test_two_letters_are_not_reported_as_another_language(text):
    """A page sends texts while a user types: "Da" may become "Das"."""
    assert detect(text, ["de", "en"]).other is None


@pytest.mark.parametrize(
    ("text", "language"), [("Да", "ru"), ("你好", "zh"), ("好", "zh"), ("ты", "ru"), ("λα", "el")]
)
def test_two_letters_of_another_script_are_another_language(text, language):
    assert detect(text, ["de", "en"]).other == language


def test_word_of_many_languages_counts_for_the_requested_languages():
    assert detect("Hallo", ["nl", "en"]).ranked[0][0] == "nl"
    assert detect("no", ["es", "it"]).ranked[0][0] == "es"
    assert len({round(share) for _, share in detect("OK", ["de", "en", "fr"]).ranked}) == 1


@pytest.mark.parametrize(("text", "language"), [("Carrinho", "pt"), ("Vän", "sv"), ("Bugün", "tr")])
def test_vocabularies_decide_on_a_doubtful_word(text, language):
    """No list has these words, and no served vocabulary has them."""
    served = ["de", "en"]
    assert detect(text, served).other is None
    assert detect(text, served, lambda words: dict.fromkeys(served, 0.0)).other == language
    for told in ({}, dict.fromkeys(served, 1.0)):
        assert dict(detect(text, served, lambda words, told=told: told).ranked) == pytest.approx(
            dict(detect(text, served).ranked)
        )


def test_language_whose_vocabulary_has_the_word_ranks_first():
    assert detect("Blue", ["de", "en"], lambda words: {"de": 0.0, "en": 1.0}).ranked[0][0] == "en"
    assert detect("Blue", ["de", "en"], lambda words: {"de": 1.0, "en": 0.0}).ranked[0][0] == "de"


@pytest.mark.parametrize("text", ["Guten Tag", TEXTS["de"], "USB", "DVD", "Mir ist kalt, mein Freund."])
def test_vocabularies_are_not_used_for_certain_or_long_texts_and_abbreviations(text):
    def known(words):
        pytest.fail(f"{words} were asked for")

    assert detect(text, ["de", "en"], known) == detect(text, ["de", "en"])


def test_codes_of_any_form_are_accepted():
    assert detect(TEXTS["de"], ["en", "deu"]).ranked[0][0] == "deu"
    assert detect(TEXTS["de"], ["en", "de-AT"]).ranked[0][0] == "de-AT"
    assert detect("Jeg vasket bilen til broren min i går, og den er fin.", ["nb", "en"]).ranked[0][0] == "nb"
    assert detect("123", ["de"]).ranked == [("de", 0.0)]


class Served:
    """A service of German and English with the methods that `candidates` calls."""

    def detect(self, text):
        return detect(text, ["de", "en"])


def test_libretranslate_gets_no_language_for_text_in_another_language():
    assert candidates(Served(), TEXTS["es"]) == [NOTHING]
    assert candidates(Served(), TEXTS["de"])[0]["language"] == "de"


def test_only_the_beginning_is_read_of_a_long_text():
    german, english = "Das ist ein Haus und ein Garten. ", "This is a house and that is a garden. "
    text = german * (MAX_CHARACTERS // len(german) + 1) + english * 1_000
    assert detect(text, ["de", "en"]) == detect(text[:MAX_CHARACTERS], ["de", "en"])
    assert detect(text, ["de", "en"]).ranked[0][0] == "de"


@pytest.mark.skipif(not CORPORA.is_dir(), reason="no ../shared/corpora")
@pytest.mark.parametrize(
    ("corpus", "column", "language"),
    [("tatoeba-de-en", 0, "de"), ("tatoeba-de-en", 1, "en"), ("tatoeba-fr-en", 0, "fr")],
)
def test_language_of_short_sentences_is_detected(corpus, column, language):
    with gzip.open(CORPORA / corpus / "valid.tsv.gz", "rt", encoding="utf-8") as lines:
        texts = [line.rstrip("\n").split("\t")[column] for line, _ in zip(lines, range(500), strict=False)]
    found = [detect(text, ["de", "en", "fr"]).ranked[0][0] for text in texts]
    assert found.count(language) >= 0.99 * len(texts)


def test_confidences_of_requested_languages_are_percentages():
    found = detect("Wo ist der Bahnhof?", ["en", "fr", "de"]).ranked
    assert found[0][0] == "de"
    assert found[0][1] > 90
    assert 90 < sum(c for _, c in found) <= 100.001
    assert detect("Where is the station?", ["de-AT", "en-GB", "xx"]).ranked[0][0] == "en-GB"
    assert dict(detect("Where is the station?", ["xx", "en"]).ranked)["xx"] == 0
    assert detect("Where?", []).ranked == []


@pytest.mark.parametrize("text", ["", " ", "😀", "123", "?!"])
def test_text_without_letters_has_no_language(text):
    assert detect(text, ["de", "en"]).ranked == [("de", 0.0), ("en", 0.0)]


@given(st.text(st.characters()))
def test_any_text_has_a_ranking(text):
    found = detect(text, ["de", "en", "fr"]).ranked
    assert sorted(language for language, _ in found) == ["de", "en", "fr"]
    assert all(0 <= confidence <= 100.001 for _, confidence in found)


def test_several_threads_detect_at_once():
    texts = ["Wo ist der Bahnhof?", "Where is the station?", "Où est la gare ?"] * 20
    with ThreadPoolExecutor(8) as pool:
        found = [f.ranked[0][0] for f in pool.map(lambda t: detect(t, ["en", "fr", "de"]), texts)]
    assert found == ["de", "en", "fr"] * 20
