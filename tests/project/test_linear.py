"""Whoever sends a text twice as long waits twice as long: every pattern and parser that sees text from
outside takes linear time. A new one without a line below fails.

Each is given the same characters over and over ("pumps"), which is what makes patterns and loops slow: at
one length, up to 64,000 characters where it takes no noticeable time, and then at four times the length. That
may take a little more than four times as long; by default it is tried only where the length took more than
its share beside a quarter of it. Time is that of this thread's processor: a busy machine changes little.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from engine.text.placeables.grammar import KINDS
from tests.support.thorough import THOROUGH
from tests.support.timing import processor_seconds, thrice

pytestmark = pytest.mark.no_cover  # what is timed is not traced
ROOT = Path(__file__).parents[2]
FOLDERS = ("server", "engine/text", "documents")
PARSER = re.compile(
    r"_?(read|parse|split|mask|decode|locate|outline|detect|present|preserve|on_one_line)(_|\b)"
)

LENGTH = 4_096
LONGEST = 64_000  # characters that are tried where the line's length takes no noticeable time
NOTICEABLE = 0.004  # seconds; a quadratic pattern takes several times as long at this length
GROWTH = 9.0  # of the time at four times the length: 4 is linear, 16 quadratic
DOUBTFUL = 5.0  # the same from a quarter of the length on: what grows ninefold later grows more than this

CHARACTERS = "a1.,;:!?-_*~`'\"<>()[]{}&%$#@/\\|=+ \t\n\r。あ\u0301\u00a0"
PAIRS = tuple(map("".join, permutations(CHARACTERS, 2))) if THOROUGH else ()
PUMPS = (
    *CHARACTERS,
    *PAIRS,
    "a ",
    " \n",
    ". ",
    "a.",
    "a@",
    "a-",
    "1.",
    ".1",
    "\r\n",
    "<a",
    "</",
    "<!--",
    "a=",
)
SUFFIXES = ("", "\x01", "!x")  # what makes a match fail at the very end


@dataclass(frozen=True)
class Line:
    """How a pattern or parser is used, and what else to pump into it.

    call: given a text. None: a pattern's own search, match and substitution.
    pumps: beside PUMPS.
    length: characters, where LENGTH would take long.
    uses: of a pattern: the ways in which the code uses it, where not all are.
    """

    call: Callable[[str], object] | None = None
    pumps: tuple[str, ...] = ()
    length: int = LENGTH
    uses: tuple[str, ...] = ("search", "match", "sub")


def page(kind: str) -> Callable[[str], object]:
    """Reads a file of a kind, and writes it again as it was."""

    def read(text: str) -> object:
        from documents import Unreadable, read_document

        try:
            document = read_document(f"x.{kind}", text.encode("utf-8", "surrogatepass"))
        except Unreadable:
            return None
        return document.write(document.segments)

    return read


def masked(text: str) -> object:
    from engine.text.placeables.masking import MarkedText, MaskRules, mask

    return mask(MarkedText(text), MaskRules(ignore=["a b", "a.", "x"], glossary={"a": "b"}, protect=True))


def marked_up(text: str) -> object:
    from engine.text.placeables.markup import read_markup

    return read_markup(text)


def in_capitals(text: str) -> object:
    from engine.text.placeables.markup import PlainText, read_capitals

    return read_capitals(PlainText(text), "de", lambda word: 1 if word.islower() else 9)


def named(text: str) -> object:
    from engine.text.placeables.names import NameRule, find_acronyms, find_names

    rules = (
        NameRule(language, lambda word: 1 if word.islower() else 9, 4) for language in ("de", "en", "fr")
    )
    return [(list(find_names(text, rule)), list(find_acronyms(text, rule))) for rule in rules]


def with_counterparts(text: str) -> object:
    from engine.text.placeables.counterparts import find_counterparts, title_before

    pairs = [(there, here) for there in ("de", "en", "fr") for here in ("de", "en", "fr")]
    return [(list(find_counterparts(text, pair)), title_before(text, len(text), pair)) for pair in pairs]


def in_clauses(text: str) -> object:
    from engine.text.split import split

    return split(text, "de", clauses=True)


def in_pairs(text: str) -> object:
    from engine.text.placeables.pairs import keeps_pairs, without_pairs

    return keeps_pairs(text, text), without_pairs(text, "en")


def amount(text: str) -> object:
    from engine.text.placeables.numerals import localise

    return localise(text, "de", "en")


def subword_tokens(text: str) -> object:
    from engine.text.tokenizers.subwords import split

    return split(text)


def ending(text: str) -> object:
    from engine.text.form import beginning, follow

    return follow(text, text, ("de", "en")), beginning(text, text, ("de", "en"))


def cased(text: str) -> object:
    from engine.text.form import follow

    return follow("Ab Cd Ef", text, ("de", "en"))


def sentences(text: str) -> object:
    from engine.text.split import split

    return split(text, "de", lambda part: len(part) < 200)


def entries(text: str) -> object:
    from engine.api import InvalidRequest
    from server.contracts.deepl.glossaries import read_entries

    for kind in ("tsv", "csv"):
        with suppress(InvalidRequest):
            read_entries(text, kind)


def one_line(text: str) -> object:
    from server.contracts.deepl.translate import on_one_line

    return on_one_line(text)


def instruction(text: str) -> object:
    from server.contracts.openai.tasks import read_instruction

    return read_instruction(text)


def present_phrases(text: str) -> object:
    from engine.api import at_once
    from server.contracts.deepl.glossaries import present

    return at_once(present({"a b c": "x", "a" * 100: "y", "b": "z"}, [text]))


def body(text: str) -> object:
    from engine.api import InvalidRequest
    from server.http.parameters import parse_json

    try:
        return parse_json(text.encode())
    except InvalidRequest:
        return None


def tensors(text: str) -> object:
    from engine.api import InvalidRequest
    from server.contracts.kserve.tensors import read_tensors

    tensor = {"name": "text_input", "datatype": "BYTES", "shape": [ord(c) for c in text], "data": ["a"]}
    flat = tensor | {"shape": [len(text)], "data": list(text)}
    nested = tensor | {"shape": [1], "data": [[c] for c in text]}
    packed = tensor | {"shape": [len(text)], "parameters": {"binary_data_size": 4 * len(text)}}
    for one in (tensor, flat, nested, packed):
        with suppress(InvalidRequest):
            read_tensors({"inputs": [one]}, b"\0\0\0\0" * len(text), "m", -1)
    with suppress(InvalidRequest):
        read_tensors({"inputs": [flat], "outputs": list(text)}, b"", "m", -1)
    return None


def form_fields(text: str) -> object:
    from engine.api import InvalidRequest, at_once
    from server.http.forms import read_fields

    try:
        return at_once(read_fields(text.encode("utf-8", "surrogatepass")))
    except InvalidRequest:
        return None


def html(text: str) -> object:
    from documents.formats.html import read_html

    found = read_html(text)
    return found.join(found.segments)


def grpc_messages(text: str) -> object:
    pytest.importorskip("grpc")
    from server.grpc.codec import BadMessage, parse_message, read_parameters, read_request
    from server.grpc.messages import make_pool, message_classes

    kind = message_classes(make_pool())["ModelInferRequest"]
    message = kind(model_name=text)
    message.parameters["text"].string_param = text
    for letter in text[::16]:  # to make a tensor takes far longer than to read one
        message.inputs.add(name="text_input", datatype="BYTES").contents.bytes_contents.append(
            letter.encode()
        )
    read_parameters(message.parameters)
    with suppress(BadMessage):
        parse_message(kind, text.encode())
    with suppress(BadMessage):
        read_request(parse_message(kind, message.SerializeToString()))
    return None


def json_strings(text: str) -> object:
    import json

    return page("json")(json.dumps([text, f"{{n, plural, one {{{text}}} other {{x}}}}"]))


def captions(text: str) -> object:
    return page("vtt")("WEBVTT\n\n" + text), page("vtt")("WEBVTT\n\n00:01.000 --> 00:02.000\n" + text)


def server_names(text: str) -> object:
    pytest.importorskip("mcp")
    from server.contracts.mcp.routes import NAME

    return sum(1 for _ in NAME.finditer(text.encode()))


def html_attributes(text: str) -> object:
    from documents.formats.attributes import read_with_attributes

    page = read_with_attributes(f"<p><img{text}></p>")
    return page.join(page.segments)


def outlined(text: str) -> object:
    from documents.formats.html import MarkupRules, outline

    return outline(text, MarkupRules(xml=True))


def placed(text: str) -> object:
    from engine.text.places import locate

    return locate(text, list(text[: len(text) // 2]))


def detected(text: str) -> object:
    from engine.text.detect import detect

    return detect(text[:4000], ["de", "en"])


def decoded(text: str) -> object:
    from documents.formats.plain import decode

    return decode(text.encode("utf-8", "surrogatepass"))


BLANKS = ("&nbsp;", "&nbsp; ", "&#xa0")
MARKUP = ("<b>", "</b>", "<b></b>", "<p>", "<br>", "&amp;", "<a href='", "<!", "<b ", "<script>", "x<b>y</b>")
MARKDOWN = (
    "> ",
    "- ",
    "* ",
    "1. ",
    "[x](",
    "![",
    "**a",
    "`a",
    "| ",
    "\n- ",
    "\n> ",
    "](",
    "[a]",
    "~~",
    "***",
)
PLACEHOLDERS = ("{a}", "{{a}}", "%(a)", "%1$s", "$t(", "&amp;", "@:a", "{a,plural,", "one {#} ", "<b>", "#")
CATALOGUE = ('msgid "a"\nmsgstr ""\n', 'msgid "a"\n', '"a"\n', "#: a:1\n", "#~ ", 'msgstr[0] ""\n')
SUBTITLES = ("1\n", "1\n00:00:01,000 --> 00:00:02,000\n", " \n", "0:", "-->", "9", "00:00:")
TRUSTED = "reads a file of the operator's, not of a client"
LIBRARY = "a library reads it, in a process of its own with limits of time and memory"
# what is under "trusted" does not see text from outside, for the reason given
LINES: dict[str, Line | str] = {
    "server.callers.access:__init__": "patterns of the operator's own; an address or a path is a line",
    "server.observing.context:ID": Line(),
    "server.callers.keys:read_keys": TRUSTED,
    "server.settings:_pattern": "a pattern of the operator's own",
    "server.files.shared_records:RECORD_ID": Line(),
    "server.files.store:UNSAFE": Line(),
    "server.app:who": "paths of our own",
    "server.languages:REGION": Line(uses=("fullmatch",)),
    "server.http.completing:PLAIN_CODE": "codes of languages that are served",
    "server.http.forms:read_fields": Line(form_fields, pumps=("%", "%6", "%61", "a&", "a=b&")),
    "server.http.parameters:_read_body": "takes a body as it comes, up to its limit",
    "server.answering.translation:read_pages": "hands on to a reader of tags",
    "server.http.parameters:parse_json": Line(
        body, pumps=("[", "{", '"a",', '{"a":', "\\u0041", "1,", "[],")
    ),
    "server.contracts.deepl.glossaries:read_entries": Line(entries, pumps=("a\tb\n", "a,b\n", '"', '""')),
    "server.contracts.deepl.glossaries:present": Line(present_phrases, pumps=("a b ", "ab")),
    "server.contracts.deepl.glossaries:_present": "is tried with `present`",
    "server.contracts.deepl.multilingual_routes:FORM_FIELD": Line(
        pumps=("dictionaries[1].a",), uses=("fullmatch",)
    ),
    "server.contracts.deepl.translate:on_one_line": Line(one_line, pumps=("\n a",)),
    "server.contracts.libretranslate.languages:detect": "a route",
    "server.contracts.openai.tasks:INSTRUCTION": Line(pumps=("translate ", "summar"), uses=("search",)),
    "server.contracts.openai.tasks:LANGUAGE": Line(pumps=("to ", "from a-", "to en (en) ")),
    "server.contracts.openai.tasks:read_instruction": Line(
        instruction, pumps=("translate to ", "translate from en to ")
    ),
    "server.contracts.reading.shapes:_read_deeplx": "takes values out of an object",
    "server.contracts.reading.shapes:_read_immersive": "takes values out of an object",
    "server.contracts.reading.shapes:_read_kiss": "takes values out of an object",
    "server.contracts.reading.shapes:_read_mtran": "takes values out of an object",
    "server.contracts.reading.shapes:_read_hcfy": "takes values out of an object",
    "server.contracts.reading.shapes:_read_google": "takes values out of an object",
    "server.contracts.reading.shapes:_read_free_google": "takes values out of an object",
    "server.contracts.reading.shapes:_read_apertium": "takes values out of an object",
    "server.contracts.reading.routes:_detect": "hands on to the detection of languages",
    "server.contracts.mcp.routes:NAME": Line(server_names, pumps=('" ', '"a":', '"  :')),
    "server.contracts.mcp.tools:detect_language": "hands on to the detection of languages",
    "server.contracts.openai.tasks:read_wishes": "takes values out of an object",
    "server.contracts.openai.chat:read_messages": "loops over lists that the JSON reader has bounded",
    "server.contracts.kserve.tensors:read_tensors": Line(tensors),
    "server.grpc.codec:parse_message": "is tried with `read_request`",
    "server.grpc.codec:read_parameters": "is tried with `read_request`",
    "server.grpc.codec:read_request": Line(grpc_messages),
    "engine.text.placeables.masking:NUMBERS": Line(
        pumps=("1,1", "+1", "1 11", "0 11", "€ 1", "EUR ", "(11)"), uses=("search",)
    ),
    "engine.text.placeables.spelling:TRUSTED": Line(
        pumps=("1,1", "A1", "A-1", "EUR "), uses=("search", "fullmatch")
    ),
    "engine.text.placeables.spelling:_with_name": "a name, letter by letter",
    "engine.text.placeables.spelling:WORD": Line(pumps=("a-", "a-a"), uses=("search",)),
    "engine.text.placeables.masking:PICTURES": Line(pumps=("😀", "😀 ", "😀\u200d"), uses=("fullmatch",)),
    "engine.text.placeables.masking:TAG_AROUND": Line(pumps=("<a", "<a "), uses=("search",)),
    "engine.text.placeables.masking:SOLID": Line(uses=("search",)),
    "engine.text.placeables.phrases:__init__": "one class of characters",
    "engine.text.placeables.grammar:NUMBERED": Line(pumps=("1. ",), uses=("match",)),
    "engine.text.placeables.grammar:LEADING": Line(pumps=("- ", "a) ", "[ ] ", "😀 "), uses=("match",)),
    "engine.text.placeables.grammar:EDGE": Line(pumps=("😀", "😀 ", "♪"), uses=("search",)),
    "engine.text.placeables.grammar:COLUMNS": Line(uses=("search",)),
    "engine.text.form:INITIAL": Line(pumps=("a'",), uses=("sub",)),
    "engine.text.form:CLITIC": Line(pumps=("a'", "a'a"), uses=("sub",)),
    "engine.text.form:WORD": Line(uses=("match", "sub")),
    "engine.text.tokenizers.placeholder_words:SYMBOL": Line(),
    "engine.text.tokenizers.placeholder_words:read_placeholder_words": TRUSTED,
    "engine.text.placeables.masking:mask": Line(
        masked,
        length=2_048,
        pumps=(
            "http://",
            "www.",
            "a@a.",
            "{{",
            "{a}",
            "%(",
            "1.1,",
            "%1$",
            "😀",
            "DE11 ",
            "+1",
            "@a.",
            "/a",
            "a.txt.",
            *(kind.example for kind in KINDS),
            *(
                "`",
                *(
                    "[[a",
                    "{%",
                    "$(a",
                    "\\a{",
                    "a=",
                    "a.b(",
                    "a::b",
                    "a1",
                    "*.a",
                    "[a-z]",
                    "ab/",
                    "SELECT a",
                    "1. e4 ",
                ),
                "``a",
                "```\n",
                "{a, plural,",
                "{a{",
                "[X1",
                "$a",
                ":a",
                "&a",
                "\\n",
                "--a=",
                "Ctrl+",
                "a_",
            ),
            *(
                "aB",
                "a.b.",
                "a²",
                "a+",
                "1 × 1",
                "0x",
                "#1",
                "§1",
                "a.com/",
                "(a/",
                "%A_",
                "@@a",
                "C:\\a ",
                "A & ",
                "a == ",
                '"a": ',
                "a(1, ",
                "§ 1 Abs. 1 ",
            ),
        ),
    ),
    "engine.text.placeables.grammar:placeables": "what `mask` looks for",
    "engine.text.placeables.grammar:long_placeables": "what `mask` looks for, further",
    "engine.text.placeables.grammar:EDGE_SIGNS": "one class of characters",
    "engine.text.placeables.grammar:COLUMN_SIGNS": "a class of characters, and two spaces",
    "engine.text.placeables.grammar:ABBREVIATION": Line(pumps=("Art.", "aStr", "p. "), uses=("sub",)),
    "engine.text.placeables.markup:TAG_NAME": Line(pumps=("<a", "&lt;a", "[a"), uses=("match",)),
    "engine.text.placeables.grammar:CLAUSE_SIGNS": "a class of characters, and three dots",
    "engine.text.placeables.grammar:CLAUSE_MARK": Line(
        in_clauses, pumps=("a – ", "a ... ", "a (b", "a (", "a (b) ", "a… ", '"a!" ')
    ),
    "engine.text.placeables.grammar:LAST_BRACKETS": Line(
        pumps=(" (", "a (b", "a (b) ", "a (1", ") "), uses=("search",)
    ),
    "engine.text.placeables.grammar:SPEECH": Line(pumps=('"a!" ', "„", "«a!» a", "!?"), uses=("match",)),
    "engine.text.placeables.grammar:ACROSS_CLAUSES": Line(uses=("search",)),
    "engine.text.placeables.grammar:SIGNS": Line(uses=("search",)),
    "engine.text.placeables.grammar:TABLE_ROW": Line(pumps=("|a", "| "), uses=("match",)),
    "engine.text.placeables.grammar:CELL_BORDER": Line(pumps=("| ",), uses=("search",)),
    "engine.text.placeables.markup:read_markup": Line(
        marked_up,
        pumps=(
            *MARKUP,
            *MARKDOWN,
            "[X1X]",
            "[X1X]a",
            "{1}a",
            "&lt;b",
            "&lt;b&gt;",
            "[b]",
            "&A",
            "_A",
            "<0>",
            "</0>",
            "_a",
            "a*",
            "\u00ad",
            "<!--",
            "](a",
            "a](",
        ),
    ),
    "engine.text.placeables.markup:_scanner": "what `read_markup` looks for",
    "engine.text.placeables.markup:_long_tokens": "what `read_markup` looks for, further",
    "engine.text.placeables.markup:SIGNS": Line(),
    "engine.text.placeables.markup:CAPITALS": Line(pumps=("A'", "AAA ")),
    "engine.text.placeables.markup:read_capitals": Line(in_capitals, pumps=("AAA ", "AAA a ")),
    "engine.text.placeables.names:WORD": Line(named, pumps=("Aa ", "A-", "Mr. Aa ", "A'b ", "l'", "qu'a ")),
    "engine.text.placeables.counterparts:DIGITS": "one class of characters",
    "engine.text.placeables.counterparts:_counterpart": "is given what `_pattern` has found",
    "engine.text.placeables.counterparts:_pattern": Line(
        with_counterparts, pumps=("1. Mai ", "May 1", "1 May 1999 ", "1 mai ", "z. ", "z. B.", "c.-à-d.")
    ),
    "engine.text.placeables.counterparts:_titles": Line(
        with_counterparts, pumps=("Herr ", "Sehr geehrter Herr ", "Mr. ", "M. ", "Chère Mme ")
    ),
    "engine.text.placeables.names:ACRONYM": Line(named, pumps=("ABC ", "ABC.", "ABC-")),
    "engine.text.placeables.names:FRENCH_WORD": "is tried with `WORD`",
    "engine.text.placeables.names:MAY_BE_NAME": Line(pumps=("Aa ", "A-"), uses=("search",)),
    "engine.text.placeables.names:NOUNS_MAY_BE_NAME": Line(
        pumps=("Aa ", "A-", "A'", "Aa van ", "Herr "), uses=("search",)
    ),
    "engine.text.placeables.names:INFLECTION": Line(uses=("fullmatch",)),
    "engine.text.placeables.names:ADJECTIVE": Line(uses=("fullmatch",), pumps=("isch", "ische")),
    "engine.text.placeables.names:BEFORE_NOUN": Line(uses=("fullmatch",), pumps=("isch", "liche", "1", "a")),
    "engine.text.placeables.names:DERIVED": Line(uses=("fullmatch",), pumps=("ish", "eses", "iani")),
    "engine.text.placeables.names:TRANSLATED_PLACE": Line(uses=("fullmatch",), pumps=("land", "ien", "isch")),
    "engine.text.placeables.pairs:MARK": Line(
        in_pairs, pumps=("„", "“", "« ", " »", "(a", "a)", '"a" ', "„a‚")
    ),
    "engine.text.words:read_words": TRUSTED,
    "engine.text.first_words:WORD": Line(pumps=("a'", "a'a ")),
    "engine.text.split:split": Line(sentences, pumps=("Dr. ", "a. A", "1. ", '." ', "。")),
    "engine.text.split:CUTS": Line(),
    "engine.text.split:UNUSUAL": Line(),
    "engine.text.placeables.numerals:_amount": Line(amount, pumps=("1", ".111", "1.", " 111", ",1", "a²")),
    "engine.text.detect:detect": Line(detected, length=1_000),
    "engine.text.tokenizers.added:__init__": "symbols of the operator's own, without repetition",
    "engine.text.tokenizers.byte_bpe:WORDS": Line(pumps=(" '", "'l", "'re")),
    "engine.text.tokenizers.byte_bpe:read_merges": TRUSTED,
    "engine.text.tokenizers.mapped_pieces:read_ids": TRUSTED,
    "engine.text.tokenizers.subwords:ESCAPED": Line(pumps=("\\\\", "\\1")),
    "engine.text.tokenizers.subwords:read_subtokens": TRUSTED,
    "engine.text.tokenizers.subwords:read_subwords": TRUSTED,
    "engine.text.tokenizers.subwords:split": Line(subword_tokens),
    "engine.text.tokenizers.symbols:read_list": TRUSTED,
    "engine.text.tokenizers.unknown:read_table": TRUSTED,
    "engine.text.tokenizers.marian:BYTE": Line(uses=("fullmatch",)),
    "engine.text.tokenizers.marian:read_vocabulary": TRUSTED,
    "engine.text.tokenizers.pieces:read_processor": TRUSTED,
    "engine.text.tokenizers.marian:read_side": TRUSTED,
    "engine.text.tokenizers.fairseq:read_bpe": TRUSTED,
    "engine.text.tokenizers.dictionary:read_dictionary": TRUSTED,
    "documents:read_document": "hands on to the reader of a kind",
    "documents.align:WORD_OR_MARK": Line(),
    "engine.text.places:locate": Line(placed, pumps=("ab",), length=2_000),
    "documents.formats.attributes:ATTRIBUTE": Line(pumps=(" a=", " a='", " a ")),
    "documents.formats.attributes:DESCRIPTIONS": Line(pumps=("name=", "description "), uses=("fullmatch",)),
    "documents.formats.attributes:NAME": Line(pumps=(" name=", " property =")),
    "documents.formats.attributes:read_with_attributes": Line(
        html_attributes, pumps=(" alt=", "<img alt='"), length=1_000
    ),
    "documents.formats.docx:CODE_STYLE": Line(),
    "documents.formats.odt:CODE_STYLE": Line(),
    "documents.formats.docx:PARTS": Line(),
    "documents.formats.docx:read_docx": LIBRARY,
    "documents.formats.html:NOTE_LINK": Line(pumps=("note", "footnote-"), uses=("search",)),
    "documents.formats.html:NOTE_REFERENCE": Line(pumps=("[1",), uses=("fullmatch",)),
    "documents.formats.html:OPENING": Line(pumps=MARKUP),
    "documents.formats.html:NAME": Line(pumps=MARKUP),
    "documents.formats.html:TAG_END": Line(pumps=("= ", "=\t")),
    "documents.formats.html:NOT_TRANSLATED": Line(pumps=(" class=", " class = '", " translate=")),
    "documents.formats.html:WHITE_SPACE": Line(),
    "documents.formats.html:LEADING": Line(pumps=BLANKS),
    "documents.formats.html:TRAILING": Line(pumps=BLANKS),
    "documents.formats.html:_raw_end": "is tried with `read_html`",
    "documents.formats.html:read_html": Line(
        html, pumps=(*MARKUP, *BLANKS, "</scrip", "<style></"), length=1_000
    ),
    "documents.formats.html:outline": Line(outlined, pumps=MARKUP, length=1_000),
    "documents.formats.markdown:FRONT_MATTER": Line(pumps=("---\n",)),
    "documents.formats.markdown:SPECIAL": Line(pumps=("&a", "~~")),
    "documents.formats.markdown:BLOCK_MARK": Line(),
    "documents.formats.markdown:TASK_BOX": Line(pumps=("[ ]", "[x] ")),
    "documents.formats.markdown:_address": Line(lambda text: re.search(r"[()\s]", text)),
    "documents.formats.markdown:read_markdown": Line(page("md"), pumps=MARKDOWN, length=1_000),
    "documents.formats.odt:WHITE_SPACE": Line(),
    "documents.formats.odt:FURTHER_SPACES": Line(),
    "documents.formats.odt:LEADING_SPACES": Line(),
    "documents.formats.odt:read_odt": LIBRARY,
    "documents.archive:parse_xml": LIBRARY,
    "documents.worker:read_message": "reads what the server itself has written",
    "documents.formats.plain:CHARSET": Line(pumps=("<meta ", "charset=", "charset =")),
    "documents.formats.plain:NEWLINE": Line(),
    "documents.formats.plain:decode": Line(decoded),
    "documents.formats.plain:read_text": Line(page("txt"), length=1_000),
    "documents.formats.plain:read_page": Line(
        page("html"), pumps=(*MARKUP, "<meta ", "charset="), length=1_000
    ),
    "documents.projection:COPIED_TOKEN": Line(),
    "documents.projection:FINAL_MARKS": Line(),
    "documents.projection:PUNCTUATION": Line(),
    "documents.projection:WRITTEN": Line(),
    "documents.formats.epub:read_epub": LIBRARY,
    "documents.formats.messages:BRACE": Line(),
    "documents.formats.messages:BRANCH": Line(pumps=("offset:1 ", "one {", " =1", "a {"), uses=("match",)),
    "documents.formats.messages:BRANCH_MARK": Line(pumps=PLACEHOLDERS),
    "documents.formats.messages:CHOICE": Line(pumps=("{a,plural,", "{ a ,", "{ ")),
    "documents.formats.messages:JSON_STRING": "looks for strings in what `json` has read without a fault",
    "documents.formats.messages:MARK": Line(pumps=PLACEHOLDERS),
    "documents.formats.messages:read_json": Line(json_strings, pumps=(*PLACEHOLDERS, *MARKUP), length=1_000),
    "documents.formats.pdf:END_OF_SENTENCE": Line(pumps=('."', ".)")),
    "documents.formats.pdf:HYPHEN": Line(pumps=("a-",)),
    "documents.formats.pdf:LIST_ITEM": Line(pumps=("1. ", "(1"), uses=("match",)),
    "documents.formats.pdf:read_pdf": LIBRARY,
    "documents.formats.po:HEAD_CHARSET": Line(pumps=('"Content-Type:', "charset=")),
    "documents.formats.po:KEYWORD": Line(pumps=("msgstr[1] ", "msgid "), uses=("match",)),
    "documents.formats.po:LINE": Line(uses=("sub",)),
    "documents.formats.po:read_po": Line(page("po"), pumps=CATALOGUE, length=1_000),
    "documents.formats.pptx:DIGITS": Line(),
    "documents.formats.pptx:PARTS": Line(),
    "documents.formats.pptx:read_pptx": LIBRARY,
    "documents.formats.subtitles:TAG": Line(pumps=("{\\", "</", "<a")),
    "documents.formats.subtitles:DIALOGUE": Line(pumps=("<a>", "<> ", " <a> "), uses=("match",)),
    "documents.formats.subtitles:INDEX": Line(uses=("fullmatch",)),
    "documents.formats.subtitles:TIMES": Line(pumps=SUBTITLES, uses=("match",)),
    "documents.formats.subtitles:_parse_subtitles": "is called by the reader of subtitles",
    "documents.formats.subtitles:_read": "is called by the readers of subtitles",
    "documents.formats.subtitles:WEBVTT_HEAD": Line(uses=("match",)),
    "documents.formats.subtitles:WEBVTT_TAG": Line(pumps=("<a", "</", "<0")),
    "documents.formats.subtitles:WEBVTT_TIMES": Line(pumps=SUBTITLES, uses=("match",)),
    "documents.formats.subtitles:read_subrip": Line(page("srt"), pumps=SUBTITLES, length=1_000),
    "documents.formats.subtitles:read_webvtt": Line(captions, pumps=SUBTITLES, length=1_000),
    "documents.formats.xliff:MARKUP": "looks for tags in what lxml has read without a fault",
    "documents.formats.xliff:STATE": Line(pumps=(" state", " state =", ' state="'), uses=("sub",)),
    "documents.formats.xliff:read_xliff": LIBRARY,
    "documents.formats.yaml:FLOW_SIGN": Line(),
    "documents.formats.yaml:LINE": Line(uses=("match",)),
    "documents.formats.yaml:PROPERTIES": Line(pumps=("&a ", "! "), uses=("match",)),
    "documents.formats.yaml:UNQUOTED": Line(uses=("fullmatch",)),
    "documents.formats.yaml:read_yaml": Line(
        page("yaml"), pumps=("a: b\n", "- a\n", "|\n a\n"), length=1_000
    ),
    "documents.tagged:TAG_NAME": Line(uses=("match",)),
    "documents.tagged:read_tagged": "is tried with `read_json`",
}
TESTED = sorted(name for name, line in LINES.items() if isinstance(line, Line))


def test_every_pattern_and_parser_has_a_line():
    missing = sorted(set(_sources()) - set(LINES))
    assert not missing, f"tests/project/test_linear.py has no line for {', '.join(missing)}"


def test_every_line_has_its_pattern_or_parser():
    assert not set(LINES) - set(_sources())


@pytest.mark.parametrize("name", TESTED)
def test_time_grows_as_the_text_does(name):
    line = LINES[name]
    assert isinstance(line, Line)
    for call in _calls(name, line):
        growth = Growth(call, line.length, name)
        for number, pump in enumerate(dict.fromkeys((*PUMPS, *line.pumps))):
            for suffix in _suffixes(number, line):
                if growth.check(pump, suffix) and line.call is not None and not THOROUGH:
                    break


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_text_grows_in_a_loop_at_a_place_of_a_list(folder):
    """`texts[-1] += more` copies all of the text each time; only a local name is spared that."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for loop in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(loop, ast.For | ast.While | ast.AsyncFor)
        for node in ast.walk(loop)
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)
        if isinstance(node.target, ast.Subscript) and ast.unparse(node.target.slice) in ("-1", "0")
    ]
    assert not wrong


@pytest.mark.parametrize("pattern", [r"\s*\n\s*", r"[.!?]+$", r"[\w.]+@x"])
def test_slow_patterns_are_noticed(pattern):
    slow = re.compile(pattern).search
    with pytest.raises(AssertionError, match="times as long"):
        growth = Growth(slow, LENGTH, pattern)
        for pump in PUMPS:
            for suffix in SUFFIXES:
                growth.check(pump, suffix)


def _suffixes(number: int, line: Line) -> tuple[str, ...]:
    """All for a pattern. A parser has many patterns and takes long: its pumps take one each in turn, and
    where that takes no noticeable time none too, for a longer text."""
    if THOROUGH or line.call is None:
        return SUFFIXES
    return SUFFIXES[1 + number % 2], ""


class Growth:
    """How the time of a pattern's use or of a parser, `name`, grows from `length` characters on."""

    def __init__(self, call: Callable[[Any], object], length: int, name: str) -> None:
        self.call, self.length, self.name = call, length, name
        self.nothing = min(processor_seconds(call, "") for _ in range(2))

    def check(self, pump: str, suffix: str) -> bool:
        """Fail when it grows too fast, and tell whether it takes noticeable time."""

        def seconds(characters: int) -> float:
            return processor_seconds(self.call, pump * (characters // len(pump)) + suffix)

        length = self.length
        once = seconds(length)
        if once < NOTICEABLE and not suffix:
            length = LONGEST
            once = seconds(length)
        if once < NOTICEABLE:
            return False
        quarter = seconds(length // 4)
        if not THOROUGH and once - self.nothing < DOUBTFUL * (quarter - self.nothing):
            return True

        def attempt() -> str:
            first, longer = min(seconds(length), seconds(length)), seconds(4 * length)
            times = longer / first
            found = f"{self.name}: {pump!r} takes {times:.0f} times as long four times over"
            return found if times > GROWTH else ""

        thrice(attempt)
        return True


def _calls(name: str, line: Line) -> Iterator[Callable[[Any], object]]:
    if line.call is not None:
        yield line.call
        return
    module, _, target = name.partition(":")
    found = getattr(importlib.import_module(module), target, None)
    assert found is not None, f"{name}: say in its line how it is called"
    patterns = found if isinstance(found, list | tuple) else [found]
    for pattern in patterns:
        for name in line.uses:
            use = partial(pattern.sub, _empty(pattern)) if name == "sub" else getattr(pattern, name)
            yield _encoded(use) if isinstance(pattern.pattern, bytes) else use


def _empty(pattern: re.Pattern[Any]) -> Any:
    return b"" if isinstance(pattern.pattern, bytes) else ""


def _encoded(use: Callable[[bytes], object]) -> Callable[[str], object]:
    return lambda text: use(text.encode())


def _sources() -> Iterator[str]:
    """module:name of every pattern (or the function that makes it) and every parser."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            module = ".".join(parts).removesuffix(".__init__")
            yield from (f"{module}:{name}" for name in _named(ast.parse(path.read_text("utf-8")), None))


def _named(node: ast.AST, owner: str | None) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        name = owner
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            name = child.name
            if isinstance(node, ast.Module) and PARSER.match(name):
                yield name
        elif isinstance(node, ast.Module) and isinstance(child, ast.Assign | ast.AnnAssign):
            target = child.targets[0] if isinstance(child, ast.Assign) else child.target
            name = target.id if isinstance(target, ast.Name) else None
        elif isinstance(child, ast.Call) and _is_pattern(child.func) and owner:
            yield owner
        yield from _named(child, name)


def _is_pattern(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id in ("re", "regex", "re2")
        and function.attr != "escape"
    )
