"""Translation memories that answer the segments of a document."""

from __future__ import annotations

from dataclasses import replace

import pytest

from documents import Unreadable, read_document
from documents.bilingual import write_bilingual
from documents.memory import read_memory, with_memory

UNIT = "<tu><tuv xml:lang='{}'><seg>{}</seg></tuv><tuv xml:lang='{}'><seg>{}</seg></tuv></tu>"


def memory(*units, target="de"):
    data = "<?xml version='1.0'?><tmx version='1.4'><body>" + "".join(units) + "</body></tmx>"
    return read_memory(data.encode(), "en", target)


def translated(name, text, *units, how="", target="de"):
    """Return a file with answers of the memory, the other segments in capitals, and the notices."""
    document = with_memory(read_document(name, text.encode()), memory(*units, target=target))
    new = [replace(segment, text=segment.text.upper()) for segment in document.segments]
    return write_bilingual(document, new, how, ("en", target)).decode(), document.notices


def test_memory_answers_whole_segments_and_the_model_the_others():
    page = "<p>Good\n  morning!</p><p>Good morning! Yes.</p>"
    done, notices = translated("a.html", page, UNIT.format("en-US", "Good morning!", "de-DE", "Moin!"))
    assert done == "<p>Moin!</p><p>GOOD MORNING! YES.</p>"
    assert notices == ("1 of 2 texts come from the translation memory",)


def test_last_unit_and_the_exact_language_win():
    units = [
        UNIT.format("en", "Yes", *pair) for pair in (("pt-BR", "Brasil"), ("pt-BR", "Rio"), ("pt", "Lisboa"))
    ]
    assert translated("a.txt", "Yes", *units, target="pt-BR")[0] == "Rio"
    assert translated("a.txt", "Yes", *units, target="pt")[0] == "Lisboa"
    assert translated("a.txt", "Yes", *units[:2], target="pt-PT")[0] == "Rio"
    assert translated("a.txt", "Yes", *units, target="fr")[0] == "YES"


def test_formats_of_a_segment_are_those_of_the_memory():
    bold, link = "<bpt i='1'/>red<ept i='1'/>", "<bpt i='2'/>house<ept i='2'/>"
    unit = UNIT.format("en", f"The {bold} {link}.", "de", f"Ein {link.replace('house', 'Haus')}, {bold}.")
    page = "<p>The <b>red</b> <a>house</a>.</p>"
    assert translated("a.html", page, unit)[0] == "<p>Ein <a>Haus</a>, <b>red</b>.</p>"
    for other in ("<p>The red house.</p>", "<p>The <b>red house</b>.</p>", "<p>The <b>red</b> house.</p>"):
        assert translated("a.html", other, unit)[1][0].startswith("0 of 1")
    unit = UNIT.format("en", "The red house.", "de", "Das rote Haus.")
    assert translated("a.html", "<p><b>The red house.</b></p>", unit)[0] == "<p><b>Das rote Haus.</b></p>"


def test_units_with_other_tags_in_the_translation_do_not_answer():
    unit = UNIT.format("en", "The <ph x='1'/>house", "de", "Das <ph x='2'/>Haus")
    assert translated("a.html", "<p>The <img>house</p>", unit)[1][0].startswith("0 of 1")


def test_line_breaks_of_a_segment_keep_their_share():
    unit = UNIT.format("en", "one two three four five", "de", "eins zwei drei vier fünf")
    done, _ = translated("a.md", "one two\nthree four five\n", unit)
    assert done == "eins zwei\ndrei vier fünf\n"


def test_bilingual_file_has_the_texts_of_the_memory_too():
    unit = UNIT.format("en", "Yes.", "de", "Ja.")
    assert translated("a.txt", "Yes.\n\nNo.\n", unit, how="above")[0] == "Yes.\nJa.\n\nNo.\nNO.\n"
    assert translated("a.txt", "Yes.\n\nNo.\n", unit, how="tmx")[0].count("<tu>") == 2


def test_empty_translation_does_not_answer():
    for text in ("", "<!-- -->", " \n"):
        assert translated("a.txt", "Yes", UNIT.format("en", "Yes", "de", text))[0] == "YES"


UNKNOWN_PREFIX = "<tmx><body>" + UNIT.format("en", "a", "de", "<x:b/>") + "</body></tmx>"
BROKEN = [b"", b"<tmx>", b"<html/>", b"<!DOCTYPE a [<!ENTITY b 'c'>]><tmx>&b;", UNKNOWN_PREFIX.encode()]


@pytest.mark.parametrize("data", BROKEN)
def test_broken_memory_is_refused(data):
    with pytest.raises(Unreadable):
        read_memory(data, "en", "de")
