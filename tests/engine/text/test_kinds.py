"""The example of each kind of placeables is found; borders part texts; code is cut out of its lines."""

import pytest

from engine.text.placeables.escapes import Escaped, escapes_of, read_escape
from engine.text.placeables.grammar import KINDS, SIGNS, kind_of, placeables
from engine.text.placeables.masked_text import MarkedText
from engine.text.placeables.masking import MaskRules
from tests.engine.text.test_grammar import SYMBOLS, phrases
from tests.support.finished import mask, split

LINES = ("command", "person")  # these need a line for themselves
IN_CONTEXT = {
    "head of a line": "fix(api): Tür",
    "end of a comment": "/* Tür */",
    "separator": "Haus :: Tür",
    "cell": "Haus;Tür",
    "box": "[x] Tür",
    "item": "Tür (ii) und",
    "day": "am 7.11. um",
    "time zone": "9:30 (MESZ)",
    "end of a field": "Größe: M; Farbe: rot",
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_example_of_each_kind_is_found(kind):
    if kind.name in IN_CONTEXT:
        text = IN_CONTEXT[kind.name]
        match = placeables().match(text, text.index(kind.example))
        assert match and match[0] == kind.example and kind_of(match) == kind
        assert SIGNS.search(text)
        return
    match = placeables().fullmatch(kind.example)
    assert match and kind_of(match) == kind
    assert SIGNS.search(kind.example)
    if "\n" not in kind.example and kind.name not in LINES:
        assert phrases(f"Das hier {kind.example} ist gut.") == [kind.example]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Datei > Neu | Hilfe", ["Datei", ">", "Neu", "|", "Hilfe"]),
        (
            "<td>Summe</td><td align='right'>5</td>",
            ["<td>", "Summe", "</td>", "<td align='right'>", "5", "</td>"],
        ),
        (r"Guten Tag\nWo ist Tom?", ["Guten Tag", r"\n", "Wo ist Tom?"]),
        ("Name: ____ Datum: __/__/____", ["Name:", "____", "Datum:", "__/__/____"]),
        ("Kapitel 1........12", ["Kapitel 1", "........", "12"]),
        ("Suppe .... £5\nRest ... 3\nIch ... du", ["Suppe", "....", "£5", "Rest", "...", "3", "Ich ... du"]),
        ("[ ] ja [x] nein ( ) vielleicht", ["[ ]", "ja", "[x]", "nein", "( )", "vielleicht"]),
        ("Größe: M; Farbe: rot", ["Größe: M", ";", "Farbe: rot"]),
        ("Puls: 64/min, Druck: 120", ["Puls: 64/min", ",", "Druck: 120"]),
        ("Er kam, sie ging: sofort.", ["Er kam, sie ging: sofort."]),
        ("java.lang.Error: Die Datei fehlt.", ["java.lang.Error:", "Die Datei fehlt."]),
        ("[WARN] disk0s1: Tür offen", ["[WARN] disk0s1:", "Tür offen"]),
        ("W1103 22:14:07.331 41 main.cc:88] Tür offen", ["W1103 22:14:07.331 41 main.cc:88]", "Tür offen"]),
        ("Nov 3 22:14:07 web01 nginx[4]: Tür offen", ["Nov 3 22:14:07 web01 nginx[4]:", "Tür offen"]),
        ("F: Wer? A: Tom geht.", ["F:", "Wer?", "A:", "Tom geht."]),
        ("Zu kurz.<br/>Es fehlt ein<br>Wort.", ["Zu kurz.", "<br/>", "Es fehlt ein<br>Wort."]),
        ("Betreff: AW: Termin fehlt", ["Betreff:", "AW:", "Termin fehlt"]),
        ("Re: Fwd: Termin fehlt", ["Re: Fwd:", "Termin fehlt"]),
        ("Hinweis: Die Nummer fehlt.", ["Hinweis: Die Nummer fehlt."]),
        ("« Oui » dit Tom.", ["« Oui » dit Tom."]),
        (
            "{n, plural, one {ein Tag} other {Tage}}",
            ["{n, plural, one {", "ein Tag", "} other {", "Tage", "}}"],
        ),
        ("drwxr-xr-x 2 root root 4096 Tür offen", ["drwxr-xr-x 2 root root 4096", "Tür offen"]),
        ("main.c:42:7: error: Die Tür fehlt", ["main.c:42:7: error:", "Die Tür fehlt"]),
        ("[    0.123456] usb 1-1: Tür offen", ["[    0.123456] usb 1-1:", "Tür offen"]),
        ("~*~*~ Die Tür ~*~*~", ["~*~*~", "Die Tür", "~*~*~"]),
        ("    at com.example.Main.run(Main.java:42)", ["at com.example.Main.run(Main.java:42)"]),
        (
            "foo_bar /etc/hosts a.txt b.txt c_d e_f Die Datei fehlt",
            ["foo_bar /etc/hosts a.txt b.txt c_d e_f", "Die Datei fehlt"],
        ),
    ],
)
def test_borders_and_lines_of_code_part_a_text(text, sentences):
    masked = mask(MarkedText(text), MaskRules(protect=True, symbols=SYMBOLS))
    layout = split(masked.text, "de", None, masked.stand_in)
    first, found = 0, []
    for sentence in layout.sentences:
        count = masked.count(sentence)
        found.append(masked.spell(sentence, range(first, first + count), {}))
        first += count
    assert "".join("".join(found).split()) == "".join(text.split())
    assert [part for part in found if part.strip()] == sentences


@pytest.mark.parametrize(
    ("source", "answer", "written"),
    [
        (("&#39;",), "l'été", "l&#39;été"),
        (("\\'", '\\"'), "l'été “oui”", 'l\\\'été \\"oui\\"'),
        (("&eacute;",), "à Łódź", "&agrave; &#321;&oacute;d&#378;"),
        (("\\u00e9",), "été", "\\u00e9t\\u00e9"),
    ],
)
def test_answer_is_escaped_as_its_source(source, answer, written):
    assert escapes_of([Escaped(form, read_escape(form)) for form in source]).write(answer) == written


@pytest.mark.parametrize("form", ["&#9;", "&gt;", "&lt;", "&copy;", "\\u2192"])
def test_signs_that_are_not_of_words_stay_escaped(form):
    assert read_escape(form) == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('Gib git commit -am "fix" ein.', ['git commit -am "fix"']),
        ("Run sudo apt-get install -y git and wait.", ["sudo apt-get install -y git"]),
        ("Tape ls -la /tmp | grep log et attends.", ["ls -la /tmp | grep log"]),
        ("Ich lache wie make und find.", []),
        ("DELETE FROM t WHERE id>10; löscht alles.", ["DELETE FROM t WHERE id>10;"]),
        ("Mit INSERT INTO t (a, b) VALUES (1, 2) geht es.", ["INSERT INTO t (a, b) VALUES (1, 2)"]),
        ("So eine Sch****!", ["Sch****"]),
        ("Enthält Milch** und Ei*.", []),
        ("So schön (◕‿◕) und (T_T)", ["(◕‿◕)", "(T_T)"]),
        (r"Das Muster (foo|bar)\.txt$ passt.", [r"(foo|bar)\.txt$"]),
        ("Der HP-4200dn und die 7781-XL/BLK", ["HP-4200dn", "7781-XL/BLK"]),
        ("Es endete 4:3 (2:2) nach Minuten.", ["4:3", "(2:2)"]),
        ("Öffnung 8:00 – 18:30, 2x/Tag", ["8:00 – 18:30", "2x/Tag"]),
        ("Spiel Dm – G7 – C.", ["Dm – G7 – C"]),
        ("Wind mit 15 kn und 5 Bft, 3 Std", ["15 kn", "5 Bft", "3"]),
        ("Gemäß 17 U.S.C. gilt es.", ["17", "U.S.C."]),
        ("Ich ____ gern.", ["____"]),
        ("C:\\Daten\\brief_neu(3).pdf ist da.", ["C:\\Daten\\brief_neu(3).pdf"]),
        ("Drücke [E] und nimm A:B.", ["[E]", "A:B"]),
        ('Mit =IF(A1>0,"ja","nein") geht es.', ['=IF(A1>0,"ja","nein")']),
        ("Lotto: 4 – 8 – 15, Flug MUC–SFO", ["4 – 8 – 15", "MUC–SFO"]),
        ("Wir (a) gehen oder (b) bleiben.", ["(a)", "(b)"]),
        ("Passwort: h4u5-T1er! Platz 7e/124", ["h4u5-T1er", "7e/124"]),
        ("EDDF 261150Z 24012KT 9999 ist da.", ["EDDF 261150Z 24012KT 9999"]),
        ("Die Reifen 205/55 R16 91V passen.", ["205/55 R16 91V"]),
        ("Nimm bitte 2024.pdf oder den Brief.docx von t.me/abc.", ["2024.pdf", "Brief.docx", "t.me/abc"]),
        ("Am 3.mai bei uns.Dann p. ex. usw.Und", ["3"]),
        ("Zuerst BEGIN:VCARD, dann tippe >reload ein.", ["BEGIN:VCARD", ">reload"]),
        ("Der Wein hat 13,5 % vol. und ist gut.", ["13,5 % vol."]),
        ("== Titel ==", []),
        ("Um 9:30 (MESZ) oder UTC+2.", ["9:30", "MESZ", "UTC+2"]),
        ("Rate _ A _ _ E und das […] Wort (!).", ["_ A _ _ E", "[…]", "(!)"]),
        ("Mit C-x C-s und M-x, dann :q! schreiben", ["C-x C-s", "M-x", ":q!"]),
        ("Der Stern HD 209458 b, ISBN 978-3-16.", ["HD 209458 b", "ISBN 978-3-16"]),
        ('Die Regel expr ::= term { "+" term }', ['expr ::= term { "+" term }']),
        ("Von :%s/a/b/g bis °1901 und *1920", [":%s/a/b/g", "°1901", "*1920"]),
        ("Sprich /ʒɑ̃/ und sende ... --- ... bitte", ["/ʒɑ̃/", "... --- ..."]),
        ("Die Rechte drwxr-x--x, -rw-r--r-- und Rh−", ["drwxr-x--x", "-rw-r--r--", "Rh−"]),
        ("Wähle *#06# für c.35delG ▸ magnet:?xt=urn:a", ["*#06#", "c.35delG", "▸", "magnet:?xt=urn:a"]),
        ("Die U.S. Army kam. Er lebt in den U.S. Der Hut", ["U.S."]),
        ("Ein Ph.D. hier, ein M.Sc. Er sagt No. Dann So.We", ["Ph.D.", "M.Sc"]),
        ("Ja -- nein, Haupt- und Lehrer/-innen - so--so", []),
        ("Jeden Tag 0 5 * * 1 und nie.", ["0 5 * * 1"]),
        ("Mit Cache-Control: no-store, max-age=0 geht es.", ["Cache-Control: no-store, max-age=0"]),
        (
            "Setze margin: 0 auto; und div.card > p:first-child.",
            ["margin: 0 auto;", "div.card > p:first-child"],
        ),
        ('Eine Ziffer digit+ ( "." digit+ )? hier.', ['digit+ ( "." digit+ )?']),
        ("Gehe auf origin/main und nimm application/json.", ["origin/main", "application/json"]),
        ("Es steht bei [====>   ] jetzt.", ["[====>   ]"]),
        ("Drücke Ctrl-C oder Alt-F4 bitte.", ["Ctrl-C", "Alt-F4"]),
        ("Weiter [yes/no] oder (ja/nein)?", ["[yes/no]", "(ja/nein)"]),
        ('Größe 30" x 40" und α = 0,5', ['30" x 40"', "α = 0,5"]),
    ],
)
def test_code_within_a_sentence_is_one_phrase(text, found):
    assert phrases(text) == found
