"""What stays as it is: numbers with all that belongs to them, emoji, tags, names, marks of lists, columns."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text import patterns
from engine.text.phrases import Phrases
from engine.text.protect import MarkedText, mask
from engine.text.split import split
from tests.timing import assert_linear, assert_slower_at_most

SYMBOLS = tuple(f"<ph{i}>" for i in range(16))


def phrases(text):
    return [phrase.source for phrase in mask(MarkedText(text), protect=True, symbols=SYMBOLS).phrases]


@pytest.mark.parametrize(
    "thing",
    ["+49 (0)30 1234-567", "0800 330 1000", "0171/1234567", "(555) 123-4567", "1.234,56 €", "€ 5", "$19.99"]
    + ["12:30", "5 °C", "-5 °C", "3 %", "12.05.2024", "2024-05-12", "1 234 567,89 km", "3–5", "1920x1080"]
    + ["EUR 5", "CHF 1'234.50", "-USD 5", "5 EUR", "1.2.3-beta.4", "2.0-rc1"]
    + ["v1.2.3", "v2.0-rc1", "DE89 3704 0044 0532 0130 00", "GB29 NWBK 6016 1331 9268 19", "5 km/h", "+20"]
    + [
        "4111 1111 1111 1111",
        "1'234.50",
        "12,-",
        "😀",
        "👨‍👩‍👧 🇩🇪",
        "1️⃣",
        "👍🏽",
        "#Wetter",
        "@tom.b",
        ":-)",
        "<3",
    ]
    + ["H2O", "A4", "COVID-19", "GPT-4", "report.pdf", "backup-2.tar.gz", "/etc/hosts", "~/.profile"]
    + ["./run.sh", "../a/b/", "C:\\Users\\tom\\x.docx", "/usr/local/lib/libc.so"],
)
def test_what_belongs_together_is_one_phrase(thing):
    assert phrases(f"Da ist {thing} zu sehen.") == [thing]
    assert phrases(f"({thing})" if thing[0] not in ":<(" else thing) == [thing]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("in 2020 100 Leute", ["2020", "100"]),
        ("am 3. Mai um 7 Uhr", ["3", "7"]),
        ("100%ig", ["100"]),
        ("3D, 90er und C#", []),
        ("G7-Staaten, U-Bahn, x2", []),
        ("und/oder, z.B. er/sie, Lehrer/-in", []),
        ("/hilfe, A5.", ["/hilfe", "A5"]),
        ("In a.txt. Dann b.pdf!", ["a.txt", "b.pdf"]),
        ("Seite 3-5.", ["3-5"]),
        ("a+5", ["5"]),
        ("PEUR 5, EURO 6", ["5", "6"]),
        ("2.5-fach, 1.2-beste", ["2.5", "1.2"]),
        ("a@b.de #1", ["a@b.de", "1"]),
    ],
)
def test_what_does_not_belong_together_is_left_apart(text, found):
    assert phrases(text) == found


def test_words_in_characters_that_the_model_lacks_are_kept_as_a_whole():
    found = mask(
        MarkedText("Er heißt Łukasz Żółć (東京), Tom ß."), protect=True, lacks=lambda c: c in "ŁŻółć東京"
    )
    assert [phrase.source for phrase in found.phrases] == ["Łukasz Żółć", "東京"]
    assert mask(MarkedText("„Ja“ – 東"), protect=True, lacks=lambda c: True).phrases[-1].source == "東"


def test_a_number_that_the_answer_repeats_or_changes_is_noticed():
    masked = mask(MarkedText("Ruf 0800 330 1000 an, 3 mal."), protect=True, symbols=SYMBOLS)
    assert not masked.garbles("Call 0800 330 1000, 3 times.", [0, 1])
    assert masked.garbles("Call 0800 1000 330, 3 times.", [0, 1])
    assert masked.garbles("Call 0800 330 1000, 3 or 3 times.", [0, 1])
    assert masked.garbles("Call 0800 330 1000.", [0, 1])
    code = mask(MarkedText("Trink H2O."), protect=True, symbols=SYMBOLS)
    assert code.garbles("Drink H20.", [0]) and not code.garbles("Drink H2O.", [0])


@pytest.mark.parametrize(
    ("text", "sentences", "fixed"),
    [
        ("- Milch kaufen", ["-", "Milch kaufen"], {0}),
        ("• Brot\n• Eier", ["•", "Brot", "•", "Eier"], {0, 2}),
        ("a) eins\n1) zwei", ["a)", "eins", "1)", "zwei"], {0, 2}),
        ("[ ] offen", ["[ ]", "offen"], {0}),
        ("> – Ja?", ["> –", "Ja?"], {0}),
        ("—Nein.", ["—", "Nein."], {0}),
        ("♪ Lied ♪", ["♪", "Lied", "♪"], {0, 2}),
        ("Name\tPreis\tOrt", ["Name", "Preis", "Ort"], set()),
        ("Milch  2,50", ["Milch", "2,50"], set()),
        ("Ich  habe heute keine Zeit.", ["Ich  habe heute keine Zeit."], set()),
        ("Toll! 😀 Morgen komme ich. 😀", ["Toll!", "😀", "Morgen komme ich.", "😀"], {1, 3}),
        ("-5 Grad", ["-5 Grad"], set()),
        ("A. Müller kommt.", ["A. Müller kommt."], set()),
    ],
)
def test_marks_and_columns_are_no_part_of_a_sentence(text, sentences, fixed):
    layout = split(text, "de")
    assert (layout.sentences, set(layout.fixed)) == (sentences, fixed)
    assert layout.join(layout.sentences) == text


LINES = st.lists(
    st.sampled_from(["- ", "• ", "a) ", "[x] ", "\t", "  ", "   ", "Haus", "😀", "♪", ".", "\n", "1", "– "])
)


@given(LINES.map("".join))
def test_any_text_is_put_together_again(text):
    layout = split(text, "de")
    assert layout.join(layout.sentences) == text
    assert all(sentence.strip() for sentence in layout.sentences)


def test_the_longest_of_many_phrases_is_found_and_only_as_a_whole_word():
    found = Phrases(["Park", "Park am See", "am", "[x]"], spaced=True)
    text = "Park am See, Parks, am Park [x]y"
    assert [text[a:b] for a, b in found.find(text)] == ["Park am See", "am", "Park", "[x]"]
    assert [text[a:b] for a, b in Phrases(["ar"], spaced=False).find(text)] == ["ar"] * 3


@given(st.lists(st.text("ab ", min_size=1, max_size=4), max_size=5), st.text("ab ", max_size=20))
def test_phrases_are_those_that_a_pattern_of_alternatives_finds(words, text):
    words = [word for word in words if word.strip()]
    pattern = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))) or "(?!)")
    assert list(Phrases(words, spaced=False).find(text)) == [m.span() for m in pattern.finditer(text)]


ATTACKS = [
    "a",
    "1",
    "1.",
    "+",
    "+1",
    "1 11",
    "(11)",
    "%0",
    "a.@",
    "{",
    "DE11 ",
    "😀",
    "😀 ",
    "😀\u200d",
    "www.",
    "http://.",
]
ATTACKS += ["/", "/.", "/a", "./", "A1", "A-1", "C:\\", "a.txt."]
ATTACKS += ["@a.", "#a", " ", "\t", "- ", "a. ", "☺a", "v1.", "€ ", "-", "0 11 ", "東", "東 "]


@pytest.mark.parametrize("attack", ATTACKS)
def test_masking_and_splitting_take_time_that_grows_with_the_text(attack):
    def work(size):
        text = attack * (size // len(attack)) + "!a"
        masked = mask(MarkedText(text), protect=True, symbols=SYMBOLS, lacks=lambda c: c == "東")
        split(masked.text, "de", None, masked.stand_in)

    assert_linear(work, 2_000)


def test_ten_thousand_phrases_cost_little_more_than_ten():
    text = "Das Haus steht am Park, und niemand weiß warum. " * 200
    few, many = ({f"Wort{i}": "x" for i in range(count)} for count in (10, 10_000))
    assert_slower_at_most(
        5.0, lambda: mask(MarkedText(text), glossary=few), lambda: mask(MarkedText(text), glossary=many)
    )


def test_every_pattern_is_compiled_once():
    assert all(re.compile(pattern) for pattern in patterns.PATTERNS)
