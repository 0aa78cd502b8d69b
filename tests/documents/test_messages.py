"""Messages of programs in JSON and YAML, and WebVTT captions."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from html import unescape

import pytest
import webvtt
import yaml

from documents import read_document
from documents.formats.strings.messages import Message
from tests.documents.samples import shouted, texts, untouched

CAPTIONS = """WEBVTT - Ein Film

STYLE
::cue(b) { color: red }

NOTE nicht übersetzen
auch das nicht

Titel
00:01.000 --> 00:02.500 align:start
<v Roger Bingham>Salz &amp; <b.loud>Pfeffer
sind</b> hier.

00:00:03.000 --> 00:00:04.000
- Ja?
- <00:00:03.500>Nein!
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_webvtt_keeps_names_notes_styles_settings_and_tags(newline):
    data = CAPTIONS.replace("\n", newline).encode()
    assert texts("a.vtt", data) == ["Salz & Pfeffer sind hier.", "- Ja?", "- Nein!"]
    assert untouched("a.vtt", data) == data
    found = shouted("a.vtt", data)
    assert "::cue(b) { color: red }" in found.decode()
    assert "NOTE nicht übersetzen" in found.decode()
    assert "<v Roger Bingham>SALZ &amp;" in found.decode()
    before, after = (webvtt.from_buffer(io.BytesIO(raw)) for raw in (data, found))
    assert [(c.start, c.end, c.identifier, unescape(c.text).upper().split()) for c in before] == [
        (c.start, c.end, c.identifier, unescape(c.text).split()) for c in after
    ]
    assert [c.raw_text.count("<") for c in before] == [c.raw_text.count("<") for c in after]


MESSAGES = """{
  "title": "Willkommen, <b>{name}</b>!",
  "unit": "%1$s von %(total)d Dateien (100 %)",
  "files": "Du hast {count, plural, =0 {keine Datei} one {# Datei} other {# Dateien von {who}}} hier.",
  "nested": {"link": "Siehe $t(common.here), {{ user }} &nbsp; ${x}", "n": 3, "none": null},
  "list": ["eins", "{only}", "", "\\u00fcber \\"alles\\""],
  "title.tooltip": "zwei\\nZeilen"
}
"""


def test_messages_keep_their_keys_placeholders_and_plurals():
    data = MESSAGES.encode()
    assert texts("a.json", data)[:6] == [
        "Willkommen, {name}!",
        "%1$s von %(total)d Dateien (100 %)",
        "Du hast",
        "keine Datei",
        "# Datei",
        "# Dateien von {who}",
    ]
    assert untouched("a.json", data) == data
    found = json.loads(shouted("a.json", data))
    assert found == {
        "title": "WILLKOMMEN, <b>{name}</b>!",
        "unit": "%1$s VON %(total)d DATEIEN (100 %)",
        "files": "DU HAST {count, plural, =0 {KEINE DATEI} one {# DATEI} other {# DATEIEN VON {who}}} HIER.",
        "nested": {"link": "SIEHE $t(common.here), {{ user }} &NBSP; ${x}", "n": 3, "none": None},
        "list": ["EINS", "{only}", "", 'ÜBER "ALLES"'],
        "title.tooltip": "ZWEI\nZEILEN",
    }
    assert b"\\u00dcBER" in shouted("a.json", data), "what was escaped is escaped again"


def test_placeholders_are_kept_spans():
    for source in (
        "{a}",
        "{{ b }}",
        "%s",
        "%-5.2f",
        "%(c)s",
        "%@",
        "%1$d",
        "$t(d.e)",
        "%{f}",
        "@:g.h",
    ):
        (segment,) = Message(f"vor {source} nach").segments
        assert [segment.text[s.begin : s.end] for s in segment.spans if s.kept] == [source]
    for prose in ("50% der Leute", "a @ b", "{nie geschlossen", "Müller & Sohn", "don&#39;t"):
        (segment,) = Message(prose).segments
        assert segment.spans == ()


@pytest.mark.parametrize(
    "broken", ["{n, plural, one {a} other {b}", "{n, plural, one a}", "x} {n, select, a {b}}"]
)
def test_incomplete_choice_is_not_changed(broken):
    assert Message(broken).segments == []


SETTINGS = """# Kommentar
de: &de
  hello: Hallo Welt  # dahinter
  quoted: 'It''s gut: {n}'
  escaped: "zwei\\nZeilen \\u00fc"
  yes: yes
  number: 12
  date: 2020-01-01
  flow: [eins, "zwei", {a: drei vier}]
  literal: |
    Zeile eins
      eingerückt

    Zeile drei
  folded: >-
    gefaltet über
    zwei Zeilen

    Absatz zwei
  several: eins zwei
    drei vier
  colon: "a: b"
  again: *de
  tagged: !!str Wort
  binary: !!binary R0lGODlh
"""


def capitals(value, key=""):
    if isinstance(value, dict):
        return {name: capitals(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [capitals(inner) for inner in value]
    return value.upper().replace("{N}", "{n}") if isinstance(value, str) else value


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_yaml_keeps_keys_comments_anchors_quotes_and_other_values(newline):
    data = SETTINGS.replace("\n", newline).encode()
    assert untouched("a.yaml", data) == data
    found = shouted("a.yml", data)
    before, after = yaml.safe_load(data)["de"], yaml.safe_load(found)["de"]
    before.pop("again"), after.pop("again")
    assert after == capitals(before)
    assert [line.split(b":")[0] for line in found.splitlines()[:10]] == [
        line.split(b":")[0] for line in data.splitlines()[:10]
    ]
    anchored = b"a: &x Wort\nb: !!str &y 'Wort'\nc: *x\n"
    assert shouted("a.yaml", anchored) == anchored.replace(b"Wort", b"WORT")
    for kept in (b"# Kommentar", b"# dahinter", b"&de", b"*de", b"hello: HALLO WELT ", b"[EINS, "):
        assert kept in found


@pytest.mark.parametrize(
    "text", ["yes", "a: b", "- a", "#x", "a #b", "12", "null", " a", "a\nb", "{x", "\u2028", "'", "a,b]"]
)
def test_yaml_quotes_a_translation_that_would_mean_something_else(text):
    for before in ("x: Wort\n", "x: [Wort]\n", "x: 'Wort'\n", 'x: "Wort"\n', "x: {y: Wort}\n"):
        document = read_document("a.yaml", before.encode())
        found = yaml.safe_load(document.write([replace(document.segments[0], text=text)]))["x"]
        assert found in (text, [text], {"y": text})
