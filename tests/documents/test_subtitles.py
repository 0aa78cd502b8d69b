"""Speakers, sounds, sentences over two cues, and the formats of SubStation Alpha and YouTube."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from documents import Unreadable, read_document
from documents.formats.subtitles import wrap
from documents.spans import Segment
from tests.documents.samples import shouted, texts, untouched

CUE = "1\n00:00:01,000 --> 00:00:02,500\n"
EVENTS = (
    "[Script Info]\nTitle: Titel\n\n[Events]\n"
    "Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n"
)
LINE = "Dialogue: 0,0:00:01.00,0:00:02.00,Default,Anna,0,0,0,,"
ALPHA = f"{EVENTS}Comment: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,nein\n" + "".join(
    f"{LINE}{text}\n"
    for text in (
        r"{\i1}Hallo{\i0}, Welt\Nund\hmehr",
        r"{\p1}m 0 0 l 100 0{\p0}",
        r"{\an8}- Ja?\N- Nein!",
        "",
    )
)


@pytest.mark.parametrize(
    ("body", "prose"),
    [
        ("{\\an8}- Kommst du?\n- Nein.", ["- Kommst du?", "- Nein."]),
        ("MANN: Kommst du?\nFRAU MÜLLER: Nein", ["MANN: Kommst du?", "FRAU MÜLLER: Nein"]),
        ("[Tür fällt zu]\nIch bin müde.", ["[Tür fällt zu]", "Ich bin müde."]),
        ("Kommst du?\nIch bin\nmüde.", ["Kommst du?", "Ich bin müde."]),
        ("<i>Kommst du?\nIch bin müde.</i>", ["Kommst du? Ich bin müde."]),
        ("Ich bin\\Nsehr\\hmüde", ["Ich bin sehr\u00a0müde"]),
    ],
)
def test_lines_of_speakers_sounds_and_sentences_stay_apart(body, prose):
    data = f"{CUE}{body}\n".encode()
    assert texts("a.srt", data) == prose
    assert untouched("a.srt", data) == data
    breaks = body.count("\n") + body.count("\\N")
    written = shouted("a.srt", data).decode()
    assert written.count("\n") + written.count("\\N") == breaks + CUE.count("\n") + 1


def test_lines_of_french_do_not_begin_with_a_mark():
    assert wrap("Viens-tu au mariage ?", 2) == "Viens-tu au\nmariage ?"
    assert wrap("ab cdef ! gh", 2) == "ab cdef !\ngh"


def test_sentence_over_two_cues_is_one_text_and_each_cue_gets_its_share():
    second = "\n2\n00:00:03,000 --> 00:00:04,500\n"
    data = f"{CUE}Wenn du morgen\n{second}kommst, bring bitte\ndas Buch mit.\n".encode()
    (segment,) = read_document("a.srt", data).segments
    assert segment.text == "Wenn du morgen kommst, bring bitte das Buch mit."
    assert untouched("a.srt", data) == data
    (span,) = segment.spans
    assert (span.begin, span.line) == (len("Wenn du morgen "), True)
    assert shouted("a.srt", data).decode() == (
        f"{CUE}WENN DU MORGEN\n{second}KOMMST, BRING BITTE\nDAS BUCH MIT.\n"
    )
    for other in ("Kommst du?", "<i>kommst, bring</i>", "- kommst du"):
        data = f"{CUE}Wenn du morgen\n{second}{other}\n".encode()
        assert len(read_document("a.srt", data).segments) == 2


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("ending", [".ass", ".ssa"])
def test_substation_keeps_times_override_tags_comments_and_drawings(ending, newline):
    data = ALPHA.replace("\n", newline).encode()
    assert texts(f"a{ending}", data) == ["Hallo, Welt und\u00a0mehr", "- Ja?", "- Nein!"]
    assert untouched(f"a{ending}", data) == data
    wanted = ALPHA.replace(r"Hallo{\i0}, Welt\Nund\hmehr", r"HALLO{\i0}, WELT\NUND\hMEHR")
    wanted = wanted.replace("Ja?", "JA?").replace("Nein!", "NEIN!").replace("\n", newline)
    assert shouted(f"a{ending}", data).decode() == wanted
    (italic,) = read_document(f"a{ending}", data).segments[0].spans
    assert (italic.begin, italic.end) == (0, 5)


def test_substation_is_read_by_pysubs2():
    pysubs2 = pytest.importorskip("pysubs2")
    written = shouted("a.ass", ALPHA.encode()).decode()
    events = pysubs2.SSAFile.from_string(written, format_="ass").events
    assert [event.plaintext for event in events if event.type == "Dialogue"][:1] == ["HALLO, WELT\nUND MEHR"]
    assert {(event.start, event.end, event.style) for event in events} == {(1000, 2000, "Default")}


def test_subtitles_of_youtube_keep_their_times():
    data = b"0:00:00.599,0:00:04.160\nJa, das\nist gut\n\n0:00:04.160,0:00:06.770\nNein!\n"
    assert texts("a.sbv", data) == ["Ja, das ist gut", "Nein!"]
    assert shouted("a.sbv", data) == data.replace(b"Ja, das\nist gut", b"JA, DAS\nIST GUT").replace(
        b"Nein", b"NEIN"
    )
    with pytest.raises(Unreadable):
        read_document("a.sbv", b"Nein\n\n" + data)


@given(st.permutations(range(4)))
def test_time_stamps_within_a_cue_keep_their_order(order):
    stamps = [f"<00:0{n}.000>" for n in range(1, 5)]
    cue = "a {}b {}c <i>d {}e</i> {}f".format(*stamps)
    document = read_document("a.vtt", f"WEBVTT\n\n00:01.000 --> 00:09.000\n{cue}\n".encode())
    (segment,) = document.segments
    points = [number for number, span in enumerate(segment.spans) if span.begin == span.end]
    spans = list(segment.spans)
    for number, place in zip(points, order, strict=True):
        if spans[number].parent < 0:  # the stamp in the tag stays in it
            spans[number] = replace(spans[number], begin=2 * place, end=2 * place)
    done = document.write([replace(segment, spans=tuple(spans))]).decode()
    found = [stamp for stamp in re.findall("<00:[0-9.]*>", done) if stamp != stamps[2]]
    assert found == stamps[:2] + stamps[3:]


def test_subtitles_in_windows_1252_stay_in_it():
    data = f"{CUE}Grüße aus Köln\n".encode("cp1252")
    document = read_document("a.srt", data)
    assert document.write([Segment("Où est-il ?")]) == f"{CUE}Où est-il ?\n".encode("cp1252")
