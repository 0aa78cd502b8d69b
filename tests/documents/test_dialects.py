"""Markdown's dialects: only prose changes, and the marks of every dialect stay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from documents import read_document
from documents.restoring import Restorer
from engine.schedule.slices import at_once
from tests.documents.samples import shouted, texts

# each file as it is with its prose in capitals
DIALECTS = {
    "alert of GitHub": "> [!NOTE]\n> THIS IS IMPORTANT.\n> AND THIS.\n",
    "callout of Obsidian": "> [!info]- READ THIS\n> Text_ HERE.\n".replace("Text_", "TEXT"),
    "callout with a class": "> [!quote|right] SAID\n",
    "link of a wiki": "SEE [[My Page]] AND [[other|this]].\n",
    "embedding": "![[picture.png]]\n\nTEXT.\n",
    "block of Docusaurus": ":::note\n\nTHIS IS IMPORTANT.\n\n:::\n",
    "tight block with a title": ":::tip MY TITLE\nTHIS IS IMPORTANT.\n:::\n",
    "title in brackets": ":::warning[WATCH OUT]\nTEXT.\n:::\n",
    "block of pandoc": "::: {.warning}\nTHIS IS IMPORTANT.\n:::\n",
    "block of VitePress": "::: details CLICK ME\nTEXT.\n:::\n",
    "nested blocks": "::::tabs\n:::tab\nTEXT.\n:::\n::::\n",
    "admonition of MkDocs": '!!! warning "BE CAREFUL"\n    DO NOT GO.\n\n    ALSO NOT.\n\nEND.\n',
    "admonition without a title": "!!! note\n    TEXT.\n",
    "closed admonition": '??? note "MORE"\n    TEXT.\n',
    "open admonition": '???+ tip "note"\n    TEXT.\n'.replace('"note"', '"NOTE"'),
    "tab of MkDocs": '=== "FIRST"\n\n- TEXT.\n',
    "tab with indented content": '=== "FIRST"\n\n    TEXT.\n\n        code\n\n    - MORE\n'
    '=== "NEXT"\n\n    END.\n\nLAST.\n',
    "shortcode of Hugo": 'TEXT.\n{{< figure src="a.png" >}}\nMORE.\n',
    "paired shortcode": "{{% notice tip %}}\nTEXT.\n{{% /notice %}}\n",
    "shortcode in a link": 'SEE [THIS]({{< ref "a.md" >}}) NOW.\n',
    "template": "HELLO {{ user_name }}, {% if x %}YES{% endif %}.\n",
    "attributes of kramdown": "TEXT.\n{: .note}\n\nMORE *THERE*{: .x #y}\n",
    "name of a heading": "## TITLE {#the-title}\n",
    "attributes of a picture": "![a](x.png){ width=300 .big }\n[HOME](/) · [BLOG](/b)\n",
    "contents": "[TOC]\n\nTEXT.\n",
    "contents of GitLab": "[[_TOC_]]\n\nTEXT.\n",
    "TOML front matter": '+++\ntitle = "My post"\ndate = 2024-01-01\n+++\nTEXT.\n',
    "imports of MDX": "import Tabs from '@a'\nimport {a} from './b'\n\nexport const x = {\n y\n}\n\nTEXT.\n",
    "components of MDX": '<T>\n<TabItem value="a">\nTEXT.\n</TabItem>\n</T>\n\nA <Badge text="x" />.\n',
    "citation": "AS [@smith2020, p. 3] AND [see @doe99; @roe] WRITE.\n",
    "highlight": "THIS IS ==VERY *IMPORTANT*== HERE.\n",
    "directive": ".. note::\n\n   TEXT.\n\n.. image:: a.png\n",
    "directive with text": ".. warning:: TEXT HERE.\n",
    "keys": "PRESS <kbd>Ctrl</kbd>+<kbd>C</kbd> NOW.\n",
    "emoji": "DONE :tada: AT 12:30:45.\n",
    "comment of Obsidian": "%%not this%%\n\nTEXT HERE.%%nor this%%\n",
    "placeholder in brackets": "DEAR [Name], *THANKS*.\n".replace("Name", "NAME"),
    "signs": "A_B 2 * 3 < 4 & C [X] ~ `x` 5 $.\n",
    "wrapped paragraph": "ONE TWO\nTHREE FOUR\nFIVE.\n\n- SIX\n  SEVEN\n",
    "details": "<details>\n<summary>MORE</summary>\n\nTEXT.\n\n</details>\n".replace("MORE", "More"),
    "badges": "[![Build](https://x.org/b.svg)](https://x.org)\n\nTEXT.\n",
}


@pytest.mark.parametrize("name", sorted(DIALECTS))
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_only_the_prose_of_a_dialect_changes(name, newline):
    wanted = DIALECTS[name].replace("\n", newline)
    document = read_document("a.md", wanted.encode())
    kept = [span for segment in document.segments for span in segment.spans if span.kept]
    small = [_in_small_letters(segment) for segment in document.segments]
    written = document.write(small).decode()
    assert shouted("a.md", written.encode()).decode() == wanted, kept
    again = read_document("a.md", wanted.encode())
    assert again.write(again.segments).decode() == wanted


def _in_small_letters(segment):
    """Return the segment in small letters, except its kept spans."""
    text = list(segment.text.lower())
    for span in segment.spans:
        if span.kept:
            text[span.begin : span.end] = segment.text[span.begin : span.end]
    return replace(segment, text="".join(text))


def test_text_of_a_link_to_a_shortcode_is_the_text_of_a_link():
    (segment,) = read_document("a.md", b'See [this]({{< ref "a.md" >}}) now.').segments
    assert segment.text == "See this now."
    assert segment.spans[0].link


def test_titles_are_prose_and_names_of_kinds_are_not():
    assert texts("a.md", b':::note note\nx y\n:::\n\n!!! Note\n    a\n\n!!! note "note"\n    b\n') == [
        "note",
        "x y",
        "a",
        "note",
        "b",
    ]


def test_line_break_of_a_translation_begins_no_block_and_no_paragraph():
    for text, wanted in (
        ("a - b", b"a\n\\- b\n"),
        ("one two", b"one\ntwo\n"),
    ):
        document = read_document("a.md", b"eins\nzwei\n")
        (segment,) = document.segments
        at = text.index(" ") + 1
        new = replace(segment, text=text, spans=(replace(segment.spans[0], begin=at, end=at),))
        assert document.write([new]) == wanted
    for at in (0, 3):
        document = read_document("a.md", b"> eins\n> zwei\n")
        (segment,) = document.segments
        new = replace(segment, text="one", spans=(replace(segment.spans[0], begin=at, end=at),))
        assert document.write([new]).strip().replace(b"  ", b" ").strip() == b"> one"


def test_characters_are_escaped_only_where_they_would_be_markup():
    for source, text, wanted in (
        (b"[Name] a", "see [Name] *b", b"see [Name] *b"),
        (b"a [r]\n\n[r]: x", "a [r] [x]", b"a [r] [x]"),
        (b"a\n\n[r]: x", "a [r]", b"a \\[r\\]"),
        (b"a", "*b* c", b"\\*b\\* c"),
        (b"a", "b ==c== d", b"b ==c== d"),
    ):
        document = read_document("a.md", source)
        written = document.write([replace(document.segments[0], text=text, spans=())])
        assert written.split(b"\n")[0] in (wanted, wanted.replace(b" [r] [x]", b" \\[r\\] \\[x\\]"))


SPELLINGS = {
    "address of a reference": "SEE [THIS *TEXT*][ref], [THAT](<b c> 'T') AND ![Alt][ref].\n\n[ref]: x\n",
    "emphasis": "_ONE_ AND __TWO__, `` ` `` AND `` x``.\n",
    "escaped characters": "A \\$5 AND $6, \\[X\\] AND &nbsp; &copy; \\_Y_.\n",
    "hard breaks": "> ONE  \n> TWO\\\n> _THREE   \n> FOUR_\n> FIVE.\n",
    "wrapped code": "- ONE `x\n  y` TWO [THREE\n  FOUR](\n  /a) FIVE ^[x\n  y].\n",
    "unequal indents": "- ONE\n      TWO\n  THREE\nFOUR.\n",
    "elements side by side": "ONE <A x /> <B/> {#name}\n\nTWO <A/><B/> THREE.\n",
    "mark of no block": "# ONE\n\n: TWO\n\nTHREE\nFOUR\n: FIVE\n",
}


@pytest.mark.parametrize("name", sorted(SPELLINGS))
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_spelling_of_markup_stays(name, newline):
    wanted = SPELLINGS[name].replace("\n", newline)
    small = _translated(wanted, _in_small_letters)
    assert small != wanted
    assert _translated(small, lambda segment: replace(segment, text=segment.text.upper())) == wanted


def _translated(text, change):
    """Return a file whose segments are changed and restored, as for a translation."""
    document = read_document("a.md", text.encode())
    changed = [at_once(Restorer(segment, change(segment), {}).restored()) for segment in document.segments]
    return document.write(changed).decode()


def test_link_whose_text_names_its_address_keeps_the_address():
    data = b"A [link], [one][] and [*two*].\n\n[link]: a\n[one]: b\n[*two*]: c\n"
    wanted = b"A [LINK][link], [ONE][one] AND [*TWO*][*two*]."
    assert shouted("a.md", data).partition(b"\n")[0] == wanted
    assert shouted("a.md", wanted + data[data.index(b"\n") :]).partition(b"\n")[0] == wanted


def test_underscores_within_words_and_escapes_that_move_are_markup_or_text_as_before():
    (segment,) = read_document("a.md", b"_a_ b").segments
    document = read_document("a.md", b"_a_ b")
    assert document.write([replace(segment, text="ab", spans=(replace(segment.spans[0], end=1),))]) == b"*a*b"
    for source, text, wanted in (
        (b"1\\. a. b.", "1. b", b"1\\. b"),
        (b"\\$a", "$a $b$", b"\\$a \\$b\\$"),
        (b"a &amp; b", "a & b & c", b"a &amp; b &amp; c"),
    ):
        document = read_document("a.md", source)
        assert document.write([replace(document.segments[0], text=text)]) == wanted
