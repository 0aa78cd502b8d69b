"""The patterns and parsers of documents/: a case each, or why no text of a client reaches it."""

from __future__ import annotations

import re

from tests.project.linear.calls import (
    captions,
    decoded,
    html,
    html_attributes,
    json_strings,
    outlined,
    page,
)
from tests.project.linear.case import (
    BLANKS,
    CATALOGUE,
    LIBRARY,
    MARKDOWN,
    MARKUP,
    PLACEHOLDERS,
    SUBTITLES,
    Case,
)

DOCUMENT_CASES: dict[str, Case | str] = {
    "documents:read_document": "calls the reader of a format",
    "documents.align:WORD_OR_MARK": Case(),
    "documents.formats.attributes:ATTRIBUTE": Case(pumps=(" a=", " a='", " a ")),
    "documents.formats.attributes:DESCRIPTIONS": Case(pumps=("name=", "description "), uses=("fullmatch",)),
    "documents.formats.attributes:NAME": Case(pumps=(" name=", " property =")),
    "documents.formats.attributes:read_with_attributes": Case(
        html_attributes, pumps=(" alt=", "<img alt='"), length=1_000
    ),
    "documents.formats.office.docx:CODE_STYLE": Case(),
    "documents.formats.office.odt:CODE_STYLE": Case(),
    "documents.formats.office.docx:PARTS": Case(),
    "documents.formats.office.docx:read_docx": LIBRARY,
    "documents.formats.tags:NOTE_LINK": Case(pumps=("note", "footnote-"), uses=("search",)),
    "documents.formats.tags:NOTE_REFERENCE": Case(pumps=("[1",), uses=("fullmatch",)),
    "documents.formats.tags:OPENING": Case(pumps=MARKUP),
    "documents.formats.tags:NAME": Case(pumps=MARKUP),
    "documents.formats.tags:TAG_END": Case(pumps=("= ", "=\t")),
    "documents.formats.tags:NOT_TRANSLATED": Case(pumps=(" class=", " class = '", " translate=")),
    "documents.formats.html:WHITE_SPACE": Case(),
    "documents.formats.html:LEADING": Case(pumps=BLANKS),
    "documents.formats.html:TRAILING": Case(pumps=BLANKS),
    "documents.formats.tags:_raw_end": "is timed with `read_html`",
    "documents.formats.tags:_read_markup": "is timed with `read_html`",
    "documents.formats.html:read_html": Case(
        html, pumps=(*MARKUP, *BLANKS, "</scrip", "<style></"), length=1_000
    ),
    "documents.formats.strings.xliff:LINE_BREAK": Case(uses=("sub",)),
    "documents.formats.outline:outline": Case(outlined, pumps=MARKUP, length=1_000),
    "documents.formats.markdown:FRONT_MATTER": Case(pumps=("---\n",)),
    "documents.formats.markdown:SPECIAL": Case(pumps=("&a", "~~")),
    "documents.formats.markdown:BLOCK_MARK": Case(),
    "documents.formats.markdown:TASK_BOX": Case(pumps=("[ ]", "[x] ")),
    "documents.formats.markdown:_address": Case(lambda text: re.search(r"[()\s]", text)),
    "documents.formats.markdown:read_markdown": Case(page("md"), pumps=MARKDOWN, length=1_000),
    "documents.formats.office.odt:WHITE_SPACE": Case(),
    "documents.formats.office.odt:FURTHER_SPACES": Case(),
    "documents.formats.office.odt:LEADING_SPACES": Case(),
    "documents.formats.office.odt:read_odt": LIBRARY,
    "documents.archive:parse_xml": LIBRARY,
    "documents.worker:read_message": "reads messages of the server",
    "documents.formats.plain:CHARSET": Case(pumps=("<meta ", "charset=", "charset =")),
    "documents.formats.plain:NEWLINE": Case(),
    "documents.formats.plain:decode": Case(decoded),
    "documents.formats.plain:read_text": Case(page("txt"), length=1_000),
    "documents.formats.plain:read_page": Case(
        page("html"), pumps=(*MARKUP, "<meta ", "charset="), length=1_000
    ),
    "documents.align:COPIED_TOKEN": Case(),
    "documents.projection:FINAL_MARKS": Case(),
    "documents.projection:LETTERS": Case(),
    "documents.gains:PUNCTUATION": Case(),
    "documents.gains:SEPARATOR": Case(),
    "documents.menus:SEPARATOR": Case(),
    "documents.menus:WORD": Case(),
    "documents.projection:WRITTEN": Case(),
    "documents.formats.epub:read_epub": LIBRARY,
    "documents.formats.strings.messages:BRACE": Case(),
    "documents.formats.strings.messages:BRANCH": Case(
        pumps=("offset:1 ", "one {", " =1", "a {"), uses=("match",)
    ),
    "documents.formats.strings.messages:BRANCH_MARK": Case(pumps=PLACEHOLDERS),
    "documents.formats.strings.messages:CHOICE": Case(pumps=("{a,plural,", "{ a ,", "{ ")),
    "documents.formats.strings.messages:JSON_STRING": "searches text that `json` has parsed",
    "documents.formats.strings.messages:MARK": Case(pumps=PLACEHOLDERS),
    "documents.formats.strings.messages:read_json": Case(
        json_strings, pumps=(*PLACEHOLDERS, *MARKUP), length=1_000
    ),
    "documents.formats.pdf:END_OF_SENTENCE": Case(pumps=('."', ".)")),
    "documents.formats.pdf:HYPHEN": Case(pumps=("a-",)),
    "documents.formats.pdf:LIST_ITEM": Case(pumps=("1. ", "(1"), uses=("match",)),
    "documents.formats.pdf:read_pdf": LIBRARY,
    "documents.formats.strings.po:HEAD_CHARSET": Case(pumps=('"Content-Type:', "charset=")),
    "documents.formats.strings.po:KEYWORD": Case(pumps=("msgstr[1] ", "msgid "), uses=("match",)),
    "documents.formats.strings.po:LINE": Case(uses=("sub",)),
    "documents.formats.strings.po:read_po": Case(page("po"), pumps=CATALOGUE, length=1_000),
    "documents.formats.office.pptx:DIGITS": Case(),
    "documents.formats.office.pptx:PARTS": Case(),
    "documents.formats.office.pptx:read_pptx": LIBRARY,
    "documents.formats.subtitles:TAG": Case(pumps=("{\\", "</", "<a")),
    "documents.formats.subtitles:DIALOGUE": Case(pumps=("<a>", "<> ", " <a> "), uses=("match",)),
    "documents.formats.subtitles:INDEX": Case(uses=("fullmatch",)),
    "documents.formats.subtitles:TIMES": Case(pumps=SUBTITLES, uses=("match",)),
    "documents.formats.subtitles:_parse_subtitles": "is called by the reader of subtitles",
    "documents.formats.subtitles:_read": "is called by the readers of subtitles",
    "documents.formats.subtitles:WEBVTT_HEAD": Case(uses=("match",)),
    "documents.formats.subtitles:WEBVTT_TAG": Case(pumps=("<a", "</", "<0")),
    "documents.formats.subtitles:WEBVTT_TIMES": Case(pumps=SUBTITLES, uses=("match",)),
    "documents.formats.subtitles:read_subrip": Case(page("srt"), pumps=SUBTITLES, length=1_000),
    "documents.formats.subtitles:read_webvtt": Case(captions, pumps=SUBTITLES, length=1_000),
    "documents.formats.strings.xliff:MARKUP": "searches text that lxml has parsed",
    "documents.formats.strings.xliff:STATE": Case(pumps=(" state", " state =", ' state="'), uses=("sub",)),
    "documents.formats.strings.xliff:read_xliff": LIBRARY,
    "documents.formats.strings.yaml:FLOW_SIGN": Case(),
    "documents.formats.strings.yaml:LINE": Case(uses=("match",)),
    "documents.formats.strings.yaml:PROPERTIES": Case(pumps=("&a ", "! "), uses=("match",)),
    "documents.formats.strings.yaml:UNQUOTED": Case(uses=("fullmatch",)),
    "documents.formats.strings.yaml:read_yaml": Case(
        page("yaml"), pumps=("a: b\n", "- a\n", "|\n a\n"), length=1_000
    ),
    "documents.tagged:TAG_NAME": Case(uses=("match",)),
    "documents.tagged:read_tagged": "is timed with `read_json`",
}
