"""Capitals and final marks of translations, and of their beginnings while they grow."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.text.form import beginning, follow, is_all_capitals, is_label, to_sentence_case


@pytest.mark.parametrize(
    ("source", "target", "languages", "answer"),
    [
        ("Was?!", "What.", ("de", "en"), "What?!"),
        ("Nein!!!", "No!", ("de", "en"), "No!!!"),
        ("Ich komme", "I'm coming.", ("de", "en"), "I'm coming"),
        ("Ich komme.", "I'm coming", ("de", "en"), "I'm coming."),
        ("Na ja …", "Well", ("de", "en"), "Well…"),
        ("Na ja...", "Well…", ("de", "en"), "Well…"),
        ("Ich weiß nicht …", "I don't know...", ("de", "en"), "I don't know…"),
        ("Bring Obst usw", "Bring fruit, e.g.", ("de", "en"), "Bring fruit, e.g."),
        ("„Ja.“", '"Yes."', ("de", "en"), '"Yes."'),
        ("«\u202fViens !\u202f»", '"Come."', ("fr", "en"), '"Come!"'),
        ("„Komm“", '"Come."', ("de", "en"), '"Come."'),
        ("Salz & Pfeffer", "Salt and pepper", ("de", "en"), "Salt & pepper"),
        ("Tom & Li und du", "Tom and Li and you", ("de", "en"), "Tom and Li and you"),
        ("wo ist er", "Where is he?", ("de", "en"), "where is he"),
        ("ich bin da", "I am there.", ("de", "en"), "I am there"),
        ("usa-reise", "USA trip", ("de", "en"), "USA trip"),
        ("the house", "Das Haus", ("en", "de"), "Das Haus"),
        ("Where is he?", "wo ist er?", ("en", "de"), "Wo ist er?"),
        ("WIR HABEN GESCHLOSSEN", "We are closed.", ("de", "en"), "WE ARE CLOSED"),
        ("USA", "United States", ("de", "en"), "United States"),
        ("Terms Of Service", "Conditions de service", ("en", "fr"), "Conditions De Service"),
        ("Guten Morgen", "Good morning", ("de", "en"), "Good morning"),
        ("How are you?", "你好吗", ("en", "zh"), "你好吗？"),
        ("你好。", "Hello", ("zh", "en"), "Hello."),
        ("Where is it?", "أين هو", ("en", "ar"), "أين هو؟"),
        ("Bonjour.", "Bonjour !", ("en", "fr"), "Bonjour."),
        ("Thanks!", "Merci", ("en", "fr"), "Merci !"),
        ("What?!", "Quoi.", ("en", "fr"), "Quoi ?!"),
        ("Wi-Fi.", "Wi-Fi\u00a0.", ("en", "fr"), "Wi-Fi."),
        ("", "x.", ("de", "en"), "x."),
        ("...", "x", ("de", "en"), "x..."),
    ],
)
def test_translation_gets_the_form_of_its_source(source, target, languages, answer):
    assert follow(source, target, languages) == answer


def test_sentence_in_capitals_is_lowered():
    assert is_all_capitals("ACHTUNG, STUFE!") and is_all_capitals("DIE STRAßE")
    assert not any(map(is_all_capitals, ("USA", "Achtung!", "EU-US", "123")))
    assert to_sentence_case("ACHTUNG, STUFE!", "de", len) == "Achtung, stufe!"


def test_german_word_in_capitals_gets_a_sharp_s_that_takes_fewer_tokens():
    pieces = {"schliessen": 3, "strasse": 2, "wasser": 1, "waßer": 3}
    assert to_sentence_case("WASSER SCHLIESSEN", "de", lambda word: pieces.get(word, 1)) == "Wasser schließen"
    assert to_sentence_case("STRASSE", "en", lambda word: pieces.get(word, 1)) == "Strasse"


def test_word_in_capitals_gets_the_case_with_fewest_tokens():
    pieces = {"Hund": 1, "Tom": 1, "hund": 2, "tom": 3}
    written = to_sentence_case("DER HUND VON TOM SCHLÄFT.", "de", lambda word: pieces.get(word, 1))
    assert written == "Der Hund von Tom schläft."
    english = {"ll": 2, "m": 2, "a": 2}  # not words of the vocabulary
    written = to_sentence_case("SEE! I'M LATE, WE'LL EAT A BIT.", "en-GB", lambda word: english.get(word, 1))
    assert written == "See! I'm late, we'll eat a bit."
    assert to_sentence_case("IL Y A \ue000!", "fr", len) == "Il y a \ue000!"


MARKED = st.lists(
    st.sampled_from(["Ja", "ja", "ICH", "Haus", "o", ".", "!", "?", "…", " ", "。", "\ue000", '"'])
    | st.sampled_from([" & ", " and ", " und ", " et "])
)
LANGUAGES = st.sampled_from(
    [("de", "en"), ("en", "de"), ("en", "ja"), ("ja", "en"), ("en", "fr"), ("en", "ar")]
)


@settings(max_examples=500)
@given(MARKED.map("".join), MARKED.map("".join), LANGUAGES, st.integers(0, 30))
@example("Ich komme", "I come. ", ("de", "en"), 8)
@example("Ja & Haus", "Ja and Haus", ("de", "en"), 7)
def test_beginning_of_an_answer_stays_while_it_grows(source, target, languages, size):
    """A beginning ends at a space, as tokenizers return whole words."""
    cut = target.rfind(" ", 0, size) + 1
    settled = target[:cut].rstrip()
    assert follow(source, target, languages).startswith(beginning(source, settled, languages))


@given(MARKED.map("".join), MARKED.map("".join), LANGUAGES)
def test_following_the_form_twice_changes_no_more_and_keeps_phrases(source, target, languages):
    once = follow(source, target, languages)
    assert once.count("\ue000") == target.count("\ue000")
    if source.strip() and target.strip():
        assert follow(source, once, languages) == once


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "hold RESET for 5 s"),
        ("en", "Reply STOP to end"),
        ("en", 'press the "START" button'),
        ("en", "contains butane (CAS 106-97-8)"),
        ("fr", "Envoyez STOP au 36111"),
        ("fr", "appuyez sur MARCHE"),
        ("de", "Halten Sie ENTER gedrückt"),
    ],
)
def test_key_or_command_in_capitals_is_a_label(language, text):
    word = next(word for word in text.replace('"', "").replace("(", "").split() if word.isupper())
    begin = text.index(word)
    assert is_label(text, begin, begin + len(word), language)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "Reply YES to confirm or NO to cancel"),
        ("fr", "Répondez OUI ou NON au 36111"),
        ("de", "Antworten Sie mit JA oder NEIN"),
    ],
)
def test_second_reply_in_capitals_is_a_label_too(language, text):
    word = [word for word in text.split() if word.isupper()][1]
    begin = text.index(word)
    assert is_label(text, begin, begin + len(word), language)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "Please do NOT open it"),
        ("en", "press ALL buttons"),
        ("en", "WARNING: do it"),
        ("en", "ten people (ABOUT 3-4 a day)"),
        ("fr", "n'appuyez PAS sur le bouton"),
        ("fr", "envoyez TOUT au bureau"),
        ("de", "drücken Sie NICHT auf den Knopf"),
    ],
)
def test_stressed_word_in_capitals_is_no_label(language, text):
    word = next(word for word in text.replace("(", "").replace(":", "").split() if word.isupper())
    begin = text.index(word)
    assert not is_label(text, begin, begin + len(word), language)
