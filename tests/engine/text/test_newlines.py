"""Line breaks within sentences: which lines are read as one, and how answers are wrapped."""

import pytest

from engine.text.newlines import unwrap

MAIL = """Sehr geehrte Damen und Herren,

vielen Dank für Ihre Nachricht. Leider konnten wir Ihr Paket
nicht zustellen, weil an der angegebenen Adresse niemand zu
Hause war. Bitte holen Sie es morgen in der nächsten Filiale
ab.

- Brot und Butter
- Milch
Mit freundlichen Grüßen
Anna"""
READ = """Sehr geehrte Damen und Herren,

vielen Dank für Ihre Nachricht. Leider konnten wir Ihr Paket nicht zustellen, weil an der angegebenen \
Adresse niemand zu Hause war. Bitte holen Sie es morgen in der nächsten Filiale ab.

- Brot und Butter
- Milch
Mit freundlichen Grüßen
Anna"""
KEPT = {
    "verse": "Tyger Tyger, burning bright,\nIn the forests of the night;\nWhat immortal hand or eye",
    "verse in small letters": "so much depends\nupon\na red wheel\nbarrow\nglazed with rain\nwater",
    "list": "buy some milk and bread\ncall the dentist tomorrow\nwater the plants",
    "ragged lines": "a rather long line of a list that has no end mark\nand this one\n"
    "a second long line of the list that is wider than the first",
    "buttons": "Nachricht an alle Mitglieder der Gruppe senden\nAlle Nachrichten löschen\nHilfe",
    "address": "Anna Müller\nLange Straße 5\n10115 Berlin",
    "sentences": "This is the first sentence of three on this page.\nand this is the second one.",
    "data": "description: this is a long value without an end mark\nname: a short one",
    "path": "the files of this program are in the following folders\nusr/share/doc",
    "columns": "the first column of the table\tand the second one is here\nthe next row",
    "marks of a list": "the program has the following three long parts in it\n- one\n- two",
}


def test_wrapped_mail_is_read_as_paragraphs_and_keeps_its_list():
    found = unwrap(MAIL, "auto")
    assert found.text == READ.replace("\\\n", "")
    assert len(found.text) == len(MAIL)
    assert found.lines.wrap(found.text) == MAIL


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_line_break_that_may_have_a_meaning_stays(text):
    assert unwrap(text, "auto").text == text


def test_all_lines_of_a_paragraph_are_joined_on_request():
    text = "Ich komme am Montag mit\ndem Zug.\n\nBis dann\n- eins\n- zwei\nund mehr"
    joined = "Ich komme am Montag mit dem Zug.\n\nBis dann\n- eins\n- zwei und mehr"
    assert unwrap(text, "join").text == joined
    assert unwrap(text, "join").lines.wrap("a " * 100) == "a " * 100  # not wrapped again
    assert unwrap(text, "keep").text == text


def test_answer_has_no_longer_lines_than_its_source():
    found = unwrap(MAIL, "auto")
    lines = found.text.split("\n")
    lines[2] = "thank you for your message, which we have received today, and which we will answer soon " * 3
    answer = found.lines.wrap("\n".join(lines))
    assert max(map(len, answer.split("\n"))) <= 60
    assert " ".join(answer.split()) == " ".join("\n".join(lines).split())
    assert answer.split("\n")[-4:] == MAIL.split("\n")[-4:]


def test_wrapped_beginning_of_an_answer_is_the_beginning_of_the_wrapped_answer():
    found = unwrap(MAIL, "auto")
    whole = found.lines.wrap(READ.replace("\\\n", ""))
    for end, character in enumerate(found.text):
        if character == " ":
            assert whole.startswith(found.lines.wrap(found.text[:end]))


def test_line_break_in_a_protected_span_stays():
    text = "This is a rather long line with a name in it: Anna\nmaria is here, and this is longer."
    at = text.index("\n")
    assert unwrap(text, "auto").text[at] == " "
    assert unwrap(text, "auto", [(at - 4, at + 6)]).text == text
    assert unwrap(text, "auto", [(0, 4), (at - 4, at)]).text[at] == " "


def test_carriage_return_is_read_as_a_space_and_written_again():
    text = "This is a rather long line that goes on in\r\nthe next line of the text, which is longer."
    found = unwrap(text, "auto")
    assert found.text == text.replace("\r\n", "  ")
    assert found.lines.wrap("Cette ligne plutôt longue continue dans la ligne suivante.\r\nOui.") == (
        "Cette ligne plutôt longue continue dans la\r\nligne suivante.\r\nOui."
    )


def test_long_text_takes_linear_time():
    text = MAIL * 2_000
    assert len(unwrap(text, "auto", [(i, i + 1) for i in range(0, len(text), 7)]).text) == len(text)
