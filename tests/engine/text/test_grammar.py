"""Placeables in texts: numbers with units, emoji, addresses, code; markup; marks of lists and columns."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.placeables.grammar import long_placeables, matches, placeables
from engine.text.placeables.markup import Format, PlainText
from engine.text.placeables.masked_text import MarkedText, Phrase
from engine.text.placeables.masking import MaskRules
from engine.text.placeables.phrases import Phrases
from tests.support.finished import formats_of, mask, read_markup, split, write
from tests.support.timing import assert_linear, assert_slower_at_most

SYMBOLS = tuple(f"<ph{i}>" for i in range(16))


def phrases(text):
    return [
        phrase.source for phrase in mask(MarkedText(text), MaskRules(protect=True, symbols=SYMBOLS)).phrases
    ]


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
    + ["./run.sh", "../a/b/", "C:\\Users\\tom\\x.docx", "/usr/local/lib/libc.so"]
    + [
        "iPhone 15 Pro",
        "iPhone 15 Pro Max",
        "Galaxy S24 Ultra",
        "Windows 11 Home",
        "MacBook Pro",
        "iPad mini",
    ],
)
def test_whole_placeable_is_one_phrase(thing):
    assert phrases(f"Da ist {thing} zu sehen.") == [thing]
    in_brackets = f"({thing})" if thing[0] not in ":<(" else thing
    assert phrases(in_brackets) in ([thing], [in_brackets])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("in 2020 100 Leute", ["2020", "100"]),
        ("am 3. Mai um 7 Uhr", ["3", "7"]),
        ("100%ig", ["100"]),
        ("3D und 90er", []),
        ("G7-Staaten, U-Bahn, x2", ["x2"]),
        ("und/oder, z.B. er/sie, Lehrer/-in", []),
        ("/hilfe, A5.", ["/hilfe", "A5"]),
        ("Autor:innen, Damen/Herren/Kinder, audio/video, mid-20th-century, 5 Tage: 3", ["5", "3"]),
        ("Die Größe: 5 cm; color: blau, (sehr gut) und (€ 5)", ["5 cm", ";", "€ 5"]),
        ("In a.txt. Dann b.pdf!", ["a.txt", "b.pdf"]),
        ("Seite 3-5.", ["3-5"]),
        ("a+5", ["a+5"]),
        ("PEUR 5, EURO 6", ["5", "6"]),
        ("2.5-fach, 1.2-beste", ["2.5", "1.2"]),
        ("a@b.de #1", ["a@b.de #1"]),
        ("Das 15 Pro, Windows 11 Programme, ein iPad Airbag", ["15", "11", "iPad"]),
    ],
)
def test_ordinary_words_are_left_apart(text, found):
    assert phrases(text) == found


def test_words_with_unknown_characters_that_the_model_lacks_stay_whole():
    rules = MaskRules(protect=True, lacks=lambda c: c in "ŁŻółć東京")
    found = mask(MarkedText("Er heißt Łukasz Żółć (東京), Tom ß."), rules)
    assert [phrase.source for phrase in found.phrases] == ["Łukasz Żółć", "東京"]
    assert (
        mask(MarkedText("„Ja“ – 東"), MaskRules(protect=True, lacks=lambda c: True)).phrases[-1].source
        == "東"
    )


def test_number_that_the_answer_repeats_or_changes_is_noticed():
    masked = mask(MarkedText("Ruf 0800 330 1000 an, 3 mal."), MaskRules(protect=True, symbols=SYMBOLS))
    assert not masked.garbles("Call 0800 330 1000, 3 times.", [0, 1], "en")
    assert masked.garbles("Call 0800 1000 330, 3 times.", [0, 1], "en")
    assert masked.garbles("Call 0800 330 1000, 3 or 3 times.", [0, 1], "en")
    assert masked.garbles("Call 0800 330 1000.", [0, 1], "en")
    code = mask(MarkedText("Trink H2O."), MaskRules(protect=True, symbols=SYMBOLS))
    assert code.garbles("Drink H20.", [0], "en") and not code.garbles("Drink H2O.", [0], "en")


@pytest.mark.parametrize(
    ("text", "sentences", "fixed"),
    [
        ("- Milch kaufen\n• Eier", ["-", "Milch kaufen", "•", "Eier"], {0, 2}),
        ("a) ein Hund b) eine Katze", ["a)", "ein Hund", "b)", "eine Katze"], {0, 2}),
        ("Wer? A. Tom B. Maria", ["Wer?", "A.", "Tom", "B.", "Maria"], {1, 3}),
        ("Punkt a) oder b) gilt.", ["Punkt a) oder b) gilt."], set()),
        ("a) ein Hund und d) eine Katze", ["a)", "ein Hund und d) eine Katze"], {0}),
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
        ("a. Datei öffnen", ["a.", "Datei öffnen"], {0}),
        ("Das ist alles.<br/>Gute Nacht!", ["Das ist alles.", "<br/>", "Gute Nacht!"], {1}),
        ("*** ACHTUNG ***", ["***", "ACHTUNG", "***"], {0, 2}),
        ("Nach Art. 5 und Hauptstr. 3 ist es gut.", ["Nach Art. 5 und Hauptstr. 3 ist es gut."], set()),
    ],
)
def test_marks_and_columns_are_not_part_of_a_sentence(text, sentences, fixed):
    layout = split(text, "de")
    assert (layout.sentences, set(layout.fixed)) == (sentences, fixed)
    assert layout.join(layout.sentences) == text


LINES = st.lists(
    st.sampled_from(["- ", "• ", "a) ", "[x] ", "\t", "  ", "   ", "Haus", "😀", "♪", ".", "\n", "1", "– "])
)


@given(LINES.map("".join))
def test_sentences_of_any_text_join_to_the_text(text):
    layout = split(text, "de")
    assert layout.join(layout.sentences) == text
    assert all(sentence.strip() for sentence in layout.sentences)


def test_longest_phrase_is_found_and_only_as_a_whole_word():
    found = Phrases(["Park", "Park am See", "am", "[x]"], spaced=True)
    text = "Park am See, Parks, am Park [x]y"
    assert [text[a:b] for a, b in found.find(text)] == ["Park am See", "am", "Park", "[x]"]
    assert [text[a:b] for a, b in Phrases(["ar"], spaced=False).find(text)] == ["ar"] * 3


@given(st.lists(st.text("ab ", min_size=1, max_size=4), max_size=5), st.text("ab ", max_size=20))
def test_phrases_equal_the_matches_of_a_pattern_of_alternatives(words, text):
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
def test_masking_and_splitting_take_linear_time(attack):
    def work(size):
        text = attack * (size // len(attack)) + "!a"
        masked = mask(MarkedText(text), MaskRules(protect=True, symbols=SYMBOLS, lacks=lambda c: c == "東"))
        split(masked.text, "de", None, masked.stand_in)

    assert_linear(work, 4_000)  # longer than a window of the search


def test_ten_thousand_phrases_take_little_more_time_than_ten():
    text = "Das Haus steht am Park, und niemand weiß warum. " * 200
    few, many = ({f"Wort{i}": "x" for i in range(count)} for count in (10, 10_000))
    assert_slower_at_most(
        5.0,
        lambda: mask(MarkedText(text), MaskRules(glossary=few)),
        lambda: mask(MarkedText(text), MaskRules(glossary=many)),
    )


@pytest.mark.parametrize(
    "text",
    [
        "Der Hund und/oder die Katze",
        "Studentinnen, StudentInnen",
        "Achtung:hier",
        "Er sagte: nein",
        "Vitamin-C-Mangel",
        "er--sie",
        "Das ist ein A/B-Test.",
        "z.B. so, d.h. nicht",
        "GmbH und AG",
        "Die AG wächst, jede:r weiß es",
        "Student:innen und Gewinner*innen",
        "Das kostet viel (sehr viel) Geld: ja!",
        "Sie [er/es] kommt",
    ],
)
def test_prose_has_no_placeables(text):
    assert phrases(text) == []


@pytest.mark.parametrize(
    ("source", "plain", "marks"),
    [
        ("Das ist **wichtig**.", "Das ist wichtig.", [("**", "**")]),
        ("||Ja|| und ==nein==, a || b", "Ja und nein, a || b", [("||", "||"), ("==", "==")]),
        ("Milch** und Ei", "Milch und Ei", [("**", "")]),
        ("_Ja_ und ~~nein~~", "Ja und nein", [("_", "_"), ("~~", "~~")]),
        ("Siehe [hier](https://a.org/b_c_d).", "Siehe hier.", [("[", "](https://a.org/b_c_d)")]),
        ("<b>fett <0>x</0></b>", "fett x", [("<b>", "</b>"), ("<0>", "</0>")]),
        ("a <hr> b<img src='x'/>", "a b", [("<hr>", ""), ("<img src='x'/>", "")]),
        ("[X0X]fett[X1X] und [X2X]", "fett und [X2X]", [("[X0X]", "[X1X]")]),
        (
            "{% if a %}Ja{% endif %}, [b]Nein[/b]",
            "Ja, Nein",
            [("{% if a %}", "{% endif %}"), ("[b]", "[/b]")],
        ),
        ("Drei [X0X]Dateien", "Drei Dateien", [("[X0X]", "")]),
        ("Hallo <name>, <Media omitted>, &Datei", "Hallo <name>, <Media omitted>, Datei", [("&", "")]),
        ("&lt;b&gt;fett&lt;/b&gt;", "fett", [("&lt;b&gt;", "&lt;/b&gt;")]),
        ("{0}s und x{1}", "{0}s und x{1}", []),
        ("<b>**x</b>**", "**x**", [("<b>", "</b>")]),
        ("Don\u00adau", "Donau", []),
        ("3 * 4 * 5, 2*3*4, f***, a_b_c", "3 * 4 * 5, 2*3*4, f***, a_b_c", []),
        ("5&nbsp;km und a &nbsp; b", "5\u00a0km und a &nbsp; b", []),
        ("*Preis mit Steuer", "Preis mit Steuer", [("*", "")]),
        ("%1$shier klicken%2$s", "hier klicken", [("%1$s", "%2$s")]),
        ("{b}Neu{/b} und {{0}}Alt{{1}}", "Neu und Alt", [("{b}", "{/b}"), ("{{0}}", "{{1}}")]),
        ("<color=#ff0000>rot</color>", "rot", [("<color=#ff0000>", "</color>")]),
        (r"\c[3]Guten Tag\c[0]", "Guten Tag", [(r"\c[3]", r"\c[0]")]),
        ("§6Gut§r, &6Gut&r", "Gut, Gut", [("§6", "§r"), ("&6", "&r")]),
        ("^1Rot^7 und |cffff0000Blau|r", "Rot und Blau", [("^1", "^7"), ("|cffff0000", "|r")]),
        ("100%der, R&D, x^2", "100%der, R&D, x^2", []),
        ("5 < 6 und 7 > 3, <3, [x], snake_case_", "5 < 6 und 7 > 3, <3, [x], snake_case_", []),
        ("**a\nb**", "**a\nb**", []),
    ],
)
def test_markup_is_removed_from_the_text_for_the_model(source, plain, marks):
    read = read_markup(source)
    assert read.text == plain
    assert [(form.before, form.after) for form in read.formats] == marks
    for form in read.formats:
        assert 0 <= form.begin <= form.end <= len(read.text)


MARKS = ["**", "*", "_", "~~", "[", "](x)", "<b>", "</b>", "<br>", " ", "ab", "\u00ad"]


@given(st.lists(st.sampled_from(MARKS)).map("".join))
def test_markup_put_back_gives_the_source(source):
    read = read_markup(source)
    ranges = [(f.begin, f.end) for f in read.formats]
    for (begin, end), form in zip(ranges, read.formats, strict=True):
        around = ranges[form.parent] if form.parent >= 0 else (0, len(read.text))
        assert around[0] <= begin <= end <= around[1]
    formats = formats_of(source, read, [])
    written = write(formats, formats.segment).text
    assert written.replace(" ", "") == source.replace("\u00ad", "").replace(" ", "")


LONG = (
    " siehe https://example.org/a?b=1 und user_id\n",
    "\n```\n" + "x = 1\n" * 800 + "```\n",
    " `" + "x + 1 " * 800 + "` ",
    " {n, plural, one {" + "# Datei " * 500 + "} other {viele}} ",
    " https://example.org/" + "a.b/" * 1_000 + "c. ",
)


@pytest.mark.parametrize("long", LONG)
@pytest.mark.parametrize("filling", ["a.b-", "Ein Satz. ", "x = 1\n", "1.234,56 € und ", "<b>{a} `"])
def test_search_in_windows_finds_the_same_places(filling, long):
    text = (filling * 1_000)[:2_041] + long + (filling * 1_000)[:3_000]
    spans = [match.span() for match in matches(placeables(), long_placeables(), text) if match]
    assert spans == [match.span() for match in placeables().finditer(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Ruf foo(x, y) auf, wenn x < 0.", ["foo(x, y)", "x < 0"]),
        ("Wenn a < b oder y >= 3.5 ist.", ["a < b", "y >= 3.5"]),
        ("Call len(items), not file(s) or acteur(rice).", ["len(items)"]),
        ("Sende GET /api/v1/users.", ["GET /api/v1/users"]),
        ("$ git commit -m 'x'\nGut.", ["$ git commit -m 'x'"]),
        ("npm install --save-dev vite", ["npm install --save-dev vite"]),
        ("git ist gut -- sagt er.", []),
        ("Das Passwort ist Xy7!kPq2.", ["Xy7!kPq2"]),
        ("a state-of-the-art kebab-case-name", ["kebab-case-name"]),
        ("il a quatre-vingt-dix-neuf ans, mille-neuf-cents-quarante jours", []),
        ("Größe M, Plan B.", ["M", "B"]),
        ("Der Wert 10^-6 ± 5 %, 2 1/2 Tassen", ["10^-6 ± 5 %", "2 1/2"]),
        ("Der Flug LH 1234 nach NW1 6XE", ["LH 1234", "NW1 6XE"]),
        ("Art. 6(1)(b) DSGVO und § 3 S. 2 lit. a", ["Art. 6(1)(b) DSGVO", "§ 3 S. 2 lit. a"]),
        ("Teil 4711-B/22, Bestellung #A-77812", ["4711-B/22", "#A-77812"]),
        ("3 × 19,99 € = 59,97 €", ["3 × 19,99 € = 59,97 €"]),
        ("Hallo [Name], siehe [hier] und [1, 2].", ["[Name]", "[hier]", "[1, 2]"]),
        ("Die Deutsche Bahn AG und Marks & Spencer plc", ["Deutsche Bahn AG", "Marks & Spencer plc"]),
        ("Die Datei .env und main.c", [".env", "main.c"]),
        ("Send it to 221 S. Green Street or 57-59 High Row", ["221 S. Green Street", "57-59 High Row"]),
        ("In Town, 12 Trees close, 12 Cherry Tree Close", ["12", "12 Cherry Tree Close"]),
        ("Er sah New York, NY 10014.", ["New York, NY 10014"]),
        ("Wir wohnen Am Alten Markt 12 a.", ["Am Alten Markt 12 a"]),
        ("An der Mühle 3, 12345 Ulm\nIm Jahr 3\nAm Morgen 5", ["An der Mühle 3", "12345", "3", "5"]),
        ("In: J. Food Hist. 12(3), 45–67. Gut. Seite 12(3)", ["J. Food Hist. 12(3), 45–67", "12(3)"]),
        ("[7] Nölle-Kurz, A.; Schnell, B.: Rot. Ja, A. und B.", ["[7] Nölle-Kurz, A.", "Schnell, B.", "B"]),
        ("am 7.11. um, bis 1.9. Dann, 3.4. Kapitel", ["7.11.", "1.9", "3.4"]),
        ("Kuchen (ve, gf) mit Obst (und Eis, rot)", ["(ve, gf)"]),
        ("Konto FR14 2004 1010 0505 0001 3M02 606 bei", ["FR14 2004 1010 0505 0001 3M02 606"]),
    ],
)
def test_placeables_of_programs_shops_and_laws_are_found(text, found):
    assert phrases(text) == found


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("2 *gut* 3", "2 gut 3"),
        ("foo*bar* baz", "foo*bar* baz"),
        ("*foo*bar baz", "*foo*bar baz"),
        ("* gut * so", "* gut * so"),
        ("Im Menü _datei öffnen", "Im Menü _datei öffnen"),
        ("Im Menü _Öffnen", "Im Menü Öffnen"),
        ("&Datei und &gt;", "Datei und &gt;"),
    ],
)
def test_emphasis_opens_and_closes_at_the_edges_of_words(source, text):
    assert read_markup(source).text == text


PLACES = st.integers(0, 30)


@st.composite
def formatted_texts(draw):
    """Return nested formats and disjoint phrases of a text of 30 characters."""
    formats, around = [], [(0, 30, -1, -1)]
    for cut, outer in draw(st.lists(st.tuples(st.tuples(PLACES, PLACES), st.integers(0, 9)), max_size=9)):
        low, high, parent, _ = around[outer % len(around)]
        begin, end = (min(high, max(low, place)) for place in sorted(cut))
        siblings = [(b, e) for b, e, _, p in around[1:] if p == parent]
        if not any(begin < e and b < end for b, e in siblings):
            around.append((begin, end, len(formats), parent))
            formats.append(Format(begin, end, parent=parent))
    edges = sorted(draw(st.sets(st.integers(0, 30), max_size=8)))
    phrases = [(b, e, Phrase("x", "x", True)) for b, e in zip(edges[::2], edges[1::2], strict=False)]
    return tuple(formats), phrases


@given(formatted_texts())
def test_each_format_and_phrase_is_in_the_innermost_format_around_it(given_formats):
    """The oracle compares each with all before it."""
    formats, phrases = given_formats
    found = formats_of("", PlainText("x" * 30, formats), phrases)
    spans = found.segment.spans
    for number, span in enumerate(spans):
        point = number < len(formats) and span.begin == span.end
        around = [
            n
            for n, other in enumerate(spans[: min(number, len(formats))])
            if other.begin <= span.begin and span.end <= other.end and other.begin < other.end
        ]
        if not point:
            assert span.parent == (around[-1] if around else -1)
        inside = [(b, e) for b, e, _ in phrases if b < span.begin < e or b < span.end < e]
        assert not inside  # a format has whole phrases


def test_address_of_a_link_with_a_span_of_the_caller_is_no_markup():
    source = "see [this]({{< ref >}}) and [that](x)"
    read = read_markup(source, [(11, 22)])
    assert read.text == "see [this]({{< ref >}}) and that"
    assert read.position(22) == 22
