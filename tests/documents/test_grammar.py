"""Every format by a grammar of its own: files that nobody would write are read, translated and read again.

200 cases each; 10,000 under CONVOY_TEST_THOROUGH=1.
"""

import io
import re
import zipfile
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from documents import OversizedDocument, Unreadable, read_document
from documents.formats.plain import read_page
from documents.projection import project
from documents.spans import weave
from tests.documents.test_documents import CONTENT, word
from tests.documents.test_spans import aligned
from tests.support.thorough import THOROUGH

many = settings(
    max_examples=10_000 if THOROUGH else 200, deadline=None, suppress_health_check=list(HealthCheck)
)
WORDS = st.sampled_from(
    ["eins", "zwei", "ß", "ﬁ", "😀", "日本", "a_b", "1.5", "\u00a0", " ", "&", "<", "\\", "x\u0301"]
)
NEWLINES = st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\r\r", "\x0b", "\x0c", "\u2028"])
MARKDOWN = st.sampled_from(
    ["# ", "## ", "- ", "* ", "1. ", "> ", "    ", "\t", "```", "~~~", "---", "===", "| a | b |\n|---|---|\n"]
    + ["|", "*", "**", "_", "`", "``", "[", "]", "](u)", '](<u v> "t")', "![", "<b>", "</b>", "<br>", "~~"]
    + ["<!-- x -->", "<https://x.org>", "[^1]", "[^1]: ", "^[n]", "$", "$$", "$a_b$", "- [ ] ", "- [x] "]
    + [": ", "\\", "&amp;", "[r]: u\n", "\\\n", "  \n", "<code>", "</code>"]
)
MARKUP = st.sampled_from(
    ["<b>", "</b>", "<i x=1>", "</i>", "<p>", "</p>", "<br>", "<img alt='a b'>", '<x title="A"></x>']
    + ["<code>", "</code>", "<!--", "-->", "<script>", "</script>", "<![CDATA[", "]]>", "<", ">", "</"]
    + ["<a", '"', "'", "=", "&lt;", "&#0;"]
)
TIMES = st.sampled_from(
    ["00:00:01,000 --> 00:00:02,000", "1:2:3 --> 4:5:6", "0:0:1.5 -> 0:0:2", "99999:1:1 --> 0:0:0 x"]
)
CUES = st.sampled_from(["<i>", "</i>", "{\\an8}", "- ", "♪", "1", "42", "\ufeff", "-->"]) | TIMES


def text_of(*parts):
    return st.lists(st.one_of(WORDS, NEWLINES, *parts), max_size=24).map("".join)


@st.composite
def xml_of(draw, names, depth=3):
    """Content of an element, of elements by name that nest."""
    parts = []
    for _ in range(draw(st.integers(0, 4))):
        name = draw(st.sampled_from(["", *names]))
        if not name or not depth:
            parts.append(draw(st.sampled_from(["eins ", " zwei", " ", "\n", "&amp;", "ä"])))
        else:
            tag, _, attributes = name.partition(" ")
            parts.append(f"<{tag} {attributes}>{draw(xml_of(names, depth - 1))}</{tag}>")
    return "".join(parts)


ODT = ["text:p", "text:h", "text:span", 'text:span text:style-name="Source_20_Text"', "text:a", "text:s"]
ODT += ["text:tab", "text:line-break", "text:note", "text:note-body", "text:soft-page-break", "text:meta"]
ODT += ['text:s text:c="9"']
DOCX = ["w:p", "w:r", "w:t", "w:rPr", "w:b", "w:hyperlink", "w:ins", "w:br", "w:tab", "w:fldSimple", "w:del"]
DOCX += ['w:fldChar w:fldCharType="begin"', 'w:fldChar w:fldCharType="end"', "w:noBreakHyphen", "w:tbl"]
DOCX += ["w:drawing", "w:proofErr", "w:tc"]


def checked(name, data, seed, read=None):
    """Read, translate and write a file; give the texts before, after, and of what was written."""
    try:
        document = read(data) if read else read_document(name, data)
    except (Unreadable, OversizedDocument):
        return None
    for segment in document.segments:
        assert segment.text.strip()
        assert "".join(v for _, v in weave(segment) if isinstance(v, str)) == segment.text
    translated = []
    for segment in document.segments:
        words = segment.text.split()
        order = words[::-1] if seed % 2 else words
        matrix = [[float((i * 7 + j * seed) % 5 + 1) for j in range(len(words))] for i in range(len(order))]
        result = aligned(words, order, matrix) if words else None
        translated.append(project(segment, result) if result else segment)
    written = document.write(translated)
    assert isinstance(written, bytes)
    return document, translated, written


def stays(name, data):
    """What is not translated is written as it was."""
    document = read_document(name, data)
    assert document.write(document.segments) == data


@many
@given(text_of(), st.integers(0, 3))
def test_text_files(text, seed):
    done = checked("a.txt", text.encode(), seed)
    stays("a.txt", text.encode())
    again = read_document("a.txt", done[2])
    assert len(again.segments) == len(done[0].segments)


@many
@given(text_of(MARKDOWN), st.integers(0, 3))
def test_markdown(text, seed):
    document, translated, written = checked("a.md", text.encode(), seed)
    stays("a.md", text.encode())
    for old, new in zip(document.segments, translated, strict=True):
        assert len(old.spans) == len(new.spans)
    read_document("a.md", written)


@many
@given(text_of(MARKUP), st.integers(0, 3), st.booleans())
def test_pages(text, seed, attributes):
    read = partial(read_page, attributes=attributes)
    document, translated, written = checked("a.html", text.encode(), seed, read)
    assert document.write(document.segments) == text.encode()
    assert len(read(written).segments) >= len([s for s in translated if s.text.strip()]) - len(translated)


@many
@given(text_of(CUES), st.integers(0, 3))
def test_subtitles(text, seed):
    done = checked("a.srt", text.encode(), seed)
    if done is not None:
        stays("a.srt", text.encode())
        times, after = (re.findall(r"^1:2:3 --> 4:5:6$", t, re.M) for t in (text, done[2].decode()))
        assert len(after) >= len(times)


@many
@given(xml_of(ODT), st.integers(0, 3))
def test_opendocument(content, seed):
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as archive:
        archive.writestr("content.xml", CONTENT.format(f"<text:p>{content}</text:p>"))
    done = checked("a.odt", found.getvalue(), seed)
    if done is not None:
        read_document("a.odt", done[2])


PARTS = zipfile.ZipFile(io.BytesIO(word()))


@settings(many, max_examples=many.max_examples // 8)
@given(xml_of(DOCX), st.integers(0, 3))
def test_word_documents(content, seed):
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as archive:
        for name in PARTS.namelist():
            raw = PARTS.read(name)
            if name == "word/document.xml":
                raw = raw.replace(b"<w:body>", f"<w:body><w:p><w:r>{content}</w:r></w:p>".encode(), 1)
            archive.writestr(name, raw)
    done = checked("a.docx", found.getvalue(), seed)
    if done is not None:
        read_document("a.docx", done[2])


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.srt", "a.odt", "a.docx"])
def test_bytes_of_any_kind_are_read_or_refused(name):
    @settings(many, max_examples=many.max_examples // 4)
    @given(st.binary(max_size=200))
    def check(data):
        checked(name, data, 1)

    check()
