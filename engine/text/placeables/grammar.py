"""Grammar of placeables: a table of kinds with pattern, example and treatment, and marks around sentences.

Every pattern takes time linear in the text: adjacent repetitions match different characters, are possessive,
or are bounded (`tests/project/test_linear.py`).
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from functools import cache
from typing import Final, Literal, NamedTuple

from engine.text.languages import of_all
from engine.text.placeables import amounts, borders, code
from engine.text.placeables.amounts import EMOJI, PICTURE
from engine.text.placeables.phrases import merge_ranges
from engine.text.placeables.structured import find_code

Treatment = Literal["keep", "read", "border"]


class Placeable(NamedTuple):
    """A kind of placeable.

    treatment: "keep": the model gets a placeholder. "read": the model reads the text itself first, which
        gives better translations; an answer that lacks it is decoded again with a placeholder. "border": the
        text on both sides is translated separately.
    """

    name: str
    pattern: str
    example: str
    treatment: Treatment = "keep"


# The search takes the first kind that matches at a place. So a kind comes before all kinds that match a part
# of it: lines of code before all others, addresses before files, fixed forms of amounts before plain numbers.
KINDS: Final = (
    # between sentences and clauses
    Placeable(
        "block tag",
        f"{borders.BLOCK_TAG}|{borders.LINE_TAG}|{borders.FIRST_TAG}|{borders.LAST_TAG}",
        '<td align="right">',
        "border",
    ),
    Placeable("line break", borders.LINE_BREAK, r"\n", "border"),
    Placeable("head of a line", borders.HEAD, "fix(api):", "border"),
    Placeable("end of a comment", r"(?<=\s)\*/(?=\s|\Z)", "*/", "border"),
    Placeable("schedule", code.SCHEDULE, "0 5 * * 1"),
    Placeable("separator", borders.SEPARATOR, "::", "border"),
    Placeable("blank", borders.FILL, ".....", "border"),
    Placeable("box", borders.BOX, "[x]", "border"),
    Placeable("end of a field", borders.FIELD_END, ";", "border"),
    Placeable("cell", borders.CELL, ";", "border"),
    Placeable("branch", borders.BRANCH, "{count, plural, one {", "border"),
    # code
    Placeable(
        "code block",
        r"(?m:^\[(?:source|listing)[^\[\]\n]{0,60}\]\n----\n(?:(?!----)[^\n]*+\n)*+----$)"
        r"|(?m:^[ \t]{0,3}```[^`\n]*+\n(?:(?![ \t]{0,3}```)[^\n]*+\n)*+[ \t]{0,3}```[ \t]*+$)",
        "```\nx = 1\n```",
    ),
    Placeable("command", code.PROMPT, "max@server:~$ ls -la"),
    Placeable("command", code.BOT, "!play lofi beats"),
    Placeable("command", code.COMMAND, "npm install --save-dev vite"),
    Placeable(
        "code",
        r"(?<!`)(?:(?::[a-z]\w{0,20}){1,2}:)?+(?:`[^`\n]++`|``(?!`)[^\n]{1,200}?``)(?!`)",
        "`git push`",
    ),
    Placeable("code", code.ELEMENT, "<code>main.c</code>"),
    # addresses
    Placeable("address", code.ADDRESS, "https://example.org/a?b=1"),
    Placeable("header", code.HEADER, "Cache-Control: no-store, max-age=0"),
    # placeholders of programs, the longest brackets first
    Placeable("template", code.TEMPLATE, "<%= order.id %>"),
    Placeable("style", code.CSS, ".btn:hover { color: red; }"),
    Placeable("field", r"\$?\{?\{\{[^{}\n]*\}\}\}?", "{{ name }}"),
    Placeable("frame", code.FRAME, "at com.example.Main.run(Main.java:42)"),
    Placeable("field", code.BRACES, "{name}"),
    Placeable("field", code.PRINTF, "%1$s"),
    Placeable("field", r"\$t\([^()\s]*\)|\$\([^()\n]{1,200}\)", "$t(key)"),
    Placeable("formula", code.TEX, r"$E = mc^2$"),
    Placeable("field", r"(?<![^\s(\"'„“/])[:][a-z_]\w*+(?::|!(?= [a-z])|(?![\w:]))", ":user"),
    Placeable(
        "field", r"(?<!>)<(?:(?!br\b)[a-z][\w-]{1,30}|(?=[^\s<>]{0,40}[:@!#&])[^\s<>]{2,80})>", "<name>"
    ),
    Placeable("mask", code.MASK, "[X8X]"),
    Placeable("label", r"(?<![\w\]])\[[^\W\d_][\w-]{1,30}+\](?![(\[\w])", "[INFO]"),
    Placeable("wiki link", r"\[\[[^\[\]\n]{1,200}\]\]", "[[Main Page]]"),
    Placeable(
        "prompt",
        r"(?<![\w/:])[A-Za-z][/:][A-Za-z](?:[/:][A-Za-z])?(?![\w/:-])|\[[A-Z\d]\]|[\[(][A-Za-z](?:/[A-Za-z]){1,3}[\])]|[\[(](?:yes|ja|oui)/(?:no|nein|non)[\])]",
        "[Y/n]",
    ),
    # words and numbers behind a sign
    Placeable("entity", r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});", "&nbsp;"),
    Placeable("formula of a sheet", code.FORMULA, "=SUM(A1:A9)"),
    Placeable("emoji", EMOJI, "😀"),
    Placeable("face", amounts.FACE, ":-)"),
    # paths and files
    Placeable("request", code.REQUEST, "GET /api/v1/users"),
    Placeable("path", code.PATH, r"C:\Users\Max\My Files\letter.docx"),
    Placeable("censored word", code.CENSORED, "f***"),
    Placeable("signs", code.SPACED, "(◕‿◕)"),
    # numbers and formulas with a fixed form
    Placeable("iban", amounts.IBAN, "DE02 1203 0000 0000 2020 51"),
    Placeable("standard", amounts.STANDARD, "ISO 9001:2015"),
    Placeable("licence", code.LICENCE, "CC BY-SA 4.0"),
    Placeable(
        "route",
        r"(?<![\w-])(?:[A-Z]{2,5}(?:[–→-][A-Z]{2,5}){1,4}|[DFG]-[A-Z]{4})(?![\w-])",
        "CDG→JFK",
        "read",
    ),
    Placeable("item", r"(?<=\S )\((?:[a-zA-Z]|[ivx]{2,4}|\w{1,2}(?:, ?\w{1,2}){1,9})\)(?=[\s,.;])", "(ii)"),
    Placeable("chess moves", amounts.MOVES, "1. e4 e5 2. Nf3 Nc6"),
    Placeable("chords", amounts.CHORDS, "Am7 – D9 – G"),
    Placeable("street", amounts.STREET, "221B Baker Street, London NW1 6XE"),
    Placeable("series of codes", amounts.SERIES, "NW1 6XE"),
    Placeable("part number", amounts.PART_NUMBER, "4711-B/22", "read"),
    Placeable("bracketed number", code.BRACKETED, "(1:1)", "read"),
    Placeable("conversion", amounts.CONVERSION, "350°F (175°C)"),
    Placeable("reaction", amounts.REACTION, "CaCO₃ → CaO + CO₂"),
    Placeable("sum", amounts.SUM, "3 × 19,99 € = 59,97 €"),
    Placeable("number plate", amounts.PLATE, "B-MW 1234"),
    Placeable("formula", amounts.FORMULA, "a² + b² = c²"),
    # identifiers and expressions of programs
    Placeable("locale", r"(?<![\w-])(?:[a-z]{2,3}[-_][A-Z]{2}|[A-Za-z]-[A-Za-z])(?![\w-])", "fr-CA"),
    Placeable("version", code.VERSION, "v10.2.3-beta+build.5"),
    Placeable("option", code.OPTION, "--force"),
    Placeable("keys", code.KEYS, "Ctrl+C"),
    Placeable("query", code.SQL, "SELECT * FROM users"),
    Placeable("member", code.MEMBER, '"debug": true'),
    Placeable("comparison", code.COMPARISON, "x === undefined"),
    Placeable("call", code.CALL, "rgb(255, 128, 0)"),
    Placeable("assignment", code.ASSIGNMENT, "PATH=/usr/bin:$PATH"),
    Placeable("device", amounts.DEVICE, "iPhone 15 Pro"),
    Placeable("name in capitals and small letters", code.CAMEL, "camelCase"),
    Placeable("name of parts", code.NAME_OF_PARTS, "letter.docx"),
    # companies, paragraphs of laws, footnotes
    Placeable("person", f"{amounts.PERSON}|{code.INVERTED}", "Anna Müller"),
    Placeable("company", amounts.FIRM, "Müller & Söhne GmbH"),
    Placeable("paragraph", amounts.PARAGRAPH, "§ 433 Abs. 2 BGB"),
    Placeable("day", r"(?<![\w.,])[0-3]?\d\.[01]?\d\.(?=[,;)]| [a-zß-ü(])", "7.11."),
    Placeable("journal", amounts.JOURNAL, "J. Food Hist. 12(3)"),
    Placeable("date mask", amounts.DATE_MASK, "MM/DD/YYYY"),
    Placeable("time zone", rf"(?<=\()(?:{amounts.ZONE})(?=\))", "MESZ"),
    Placeable("footnote", amounts.FOOTNOTE, "[1, 2]"),
    # plain numbers and codes, which the kinds above contain
    Placeable("range", amounts.RANGE, "8:00 – 18:30", "read"),
    Placeable("number", amounts.NUMBER, "1.234,56 €", "read"),
    Placeable(
        "initials",
        r"(?<![\w.])(?:[A-Z]\.){2,8}+(?!\w)(?:(?<=\.[A-Z]\.[A-Z]\.)"
        rf"|(?= (?!(?i:{code.SMALL_WORDS})\b)[A-Z][a-zß-öø-ÿ]{{3}}))",
        "U.S.C.",
        "read",
    ),
    Placeable(
        "degree",
        r"(?<![\w.])(?=[A-Z.]{1,3}[a-z])[A-Z][a-z]?\.[A-Z][a-z]{0,3}(?:\.(?!\s+[A-Z])|(?=\.))(?!\w)",
        "Ph.D.",
        "read",
    ),
    Placeable("letters and digits", amounts.CODE, "H2O", "read"),
    Placeable("line number", amounts.LINE_NUMBER, "LH 1234", "read"),
    Placeable("letter", amounts.LETTER, "B", "read"),
    Placeable("numeral", amounts.ROMAN, "XIV", "read"),
    Placeable("left out", borders.GAP, "_ A _ _"),
    Placeable("symbol", r"[℀-⅏©®™℠¶†‡№§±×÷∀-∑∓-⋿]", "©"),
    Placeable("letters and dashes", code.DASHED, "-rwxr-xr-x"),
)
DATA: Final = Placeable("data", "", "", "border")  # keys and marks of structured data (`structured.py`)
BORDER: Final = "\uf8ff"  # replaces kinds of treatment "border" for the splitter of sentences
# Every placeable contains a sign, so most prose is not searched further. A new kind needs its sign here (a
# test checks its example). To match a sign before its surroundings takes a third of the time.
SIGNS: Final = re.compile(
    r"[^\w\s.,!?'’\"„“”–—-]|!(?<!\S!)(?=[a-z])|[\d_²³¹½¼¾⅐-⅞\u2070-\u209c]|[A-Z](?<=[a-z].)|[IVXLCDM]{2}"
    r"|[B-HK-NP-XZx]\b(?<![^\s(].)|(?:[AK]G|S[AE]|Inc|Ltd|plc)\b"
    r"|\.(?=\.{4}| \.)|\.(?<=\w\.)(?=\w)|\.(?<!\S.)(?=[a-z])|\.(?= ?(?:h|ex)\.)"
    rf"|{amounts.PERSON}"
    r"|-(?=[a-z]{3,20}-)|-(?<!\S-)(?=\w)|-(?=-\w)|-(?=\.)|[.-](?=-[\x20.-])|[,;](?=[\w\"])|X{4}|x{4}|-(?<=[gtdl].)(?=[A-Z])|-(?<=[a-z].)(?=[A-Z]{2})"
)
# A sentence of plain words has none of these signs; to find that takes a third of the time. "Inc", "Ltd" and
# "xxxx" are signs.
PROSE: Final = re.compile(
    r"(?:(?:(?:[acdjlmnstà]|[Qq]u)['’])?+(?:[aàyAIO]|(?!(?:Inc|Ltd|plc)\b|\w{0,30}xxxx)(?:[A-ZÄÖÜÀ-Ý]|[a-zß-öø-ÿ])[a-zß-öø-ÿ]{1,30}+)"
    r"(?:['’-][a-zß-öø-ÿ]{1,30}+)?+(?:,? |(?=[ \u00a0\u202f]?[.!?]\Z)))++[ \u00a0\u202f]?[.!?]\Z"
)
# Where a placeable may begin: at a sign or a word, except plain words before other words (most of a text).
BEGINNING: Final = (
    r"(?=[^\w\s]|\b\w|[⁰¹²³⁴-⁹])"
    rf"(?:(?={code.CALLER}|File \"|Traceback \()|(?<![^\n])(?={borders.COMMIT_TYPES}: )"
    rf"|(?=(?:An|Auf|In|Unter|Hinter|Vor) de[mnr] [A-ZÄÖÜ])"
    rf"|(?=(?:{code.SHELL}|{code.TOOLS}) )|(?={code.CSS_NAME}: )|(?=[a-z_]{{2,30}} {code.OPERATOR} )"
    r"|(?!(?<!\w)(?:[a-zß-öø-ÿ]{2,}+[.,;:!?]?(?:\s|$)"
    r"|[^\W\d_a-zß-öø-ÿ][a-zß-öø-ÿ]++[.,;:!?]?(?:\s[a-zß-öø-ÿ(„“\"]|$))))"
)
EMOJI_STAND_IN: Final = "\u263a"  # replaces pictures for the splitter of sentences

# marks at the beginning of a line before its sentence: lists, headings, quotes, dialogue, songs
BULLET: Final = r"[-*+•‣◦▪▫■□▸►●○·−–—>»♪♫#|]{1,6}+(?=[ \t\u00a0])|[–—](?=\w)|[•♪♫]"
BOX: Final = r"\[[ xX]?\](?=\s)"
ENUMERATION: Final = r"\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,4})\)(?=\s)|[a-z]\.(?=\s+[A-ZÄÖÜÀ-Ý][^\W_])"
NUMBERED: Final = re.compile(r"(\d{1,3}|[A-Za-z])\.[ \t\u00a0]+")  # list number, unless it is an ordinal
FIRST_ITEM: Final = re.compile(r"[aA1][.)](?=[ \u00a0])")  # a line without it has no items
ITEM: Final = re.compile(r"(?<!\S)\(?([A-Za-z]|\d{1,2})[.)](?=[ \u00a0][^\W\d_])")  # a) one b) two
LEADING: Final = re.compile(rf"(?:(?:{BULLET}|{BOX}|{ENUMERATION}|{EMOJI})[ \t\u00a0]*+)++")
# marks at the ends of a sentence that do not belong to it
EDGE_MARK: Final = rf"(?:{BORDER}|{PICTURE}|[♪♫|]|(?<= )[>›·•]|(?<!\S)[*=#~+-]{{2,}}+(?!\S)|<br ?/?>)"
EDGE: Final = re.compile(rf"{EDGE_MARK}(?:[ \t\u00a0]*+{EDGE_MARK})*+")
EDGE_SIGNS: Final = re.compile(
    f"[0-9#*♪♫|>›·•=~+\u2190-\u21ff\u231a-\u23ff\u2500-\u27bf\u2b00-\u2bff\u3030\u303d\U0001f000-\U0001faff{BORDER}-]"
)
# Models lose dashes, dots and final brackets between clauses, so clauses are translated separately.
CLAUSE_SIGNS: Final = re.compile(r"[–—…(!?]|\.\.\.| -")
CLAUSE_MARK: Final = re.compile(
    r"(?<=[^\W_]) (?:[–—-]|--+) (?=[^\W\d_])|(?<=[^\W\d_]) [–—] (?=\d)|(?<=`) [–—] (?=[^\W\d_])"
    r"|(?<=[^\W\d_]) ?(?:\.\.\.|…) (?=[^\W\d_A-ZÄÖÜÀ-Ý])"
)
LAST_BRACKETS: Final = re.compile(
    r"(?<=[^\s(]) \((?=\w)(?![^\s()\d]*+\d[^\s()]*+\))(?=[^()]{0,200}[^\W\d_])"
    r"([^()\[\]]{2,200})\)[.!?:]?\s*+$"
)
SPEECH: Final = re.compile(  # “Come here!” he shouted, “now!”
    r"\s*+[\"„“«»][^\"„“”«»]{1,300}[!?][\u00a0\u202f ]?[\"”“»«](,? )(?=[^\W\d_A-ZÄÖÜÀ-Ý])"
)
ACROSS_CLAUSES: Final = re.compile("[\"„“”«»‚‘()\\[\\]]|(?<!\\w)['’]|['’](?!\\w)")  # paired marks
COLUMN_SIGNS: Final = re.compile(f"[\t\u00a0<{BORDER}]|  ")  # a line without them has one column
COLUMNS: Final = re.compile(rf"[ \u00a0]*\t\s*|[ \u00a0]{{2,}}|<br ?/?>\s*|{BORDER}\s*")
NUMBERED_WORDS: Final = "|".join(of_all(lambda rules: rules.numbered_words))
# a dot that ends no sentence: p. ex.  Art. 5
ABBREVIATION: Final = re.compile(rf"(?<!\w)(?:{code.ABBREVIATED}|(?:{NUMBERED_WORDS})\.(?= ?\d))")
TABLE_ROW: Final = re.compile(r"\s*\|[^|\n]*+\|")  # the beginning of a row of a Markdown table
CELL_BORDER: Final = re.compile(rf"[|{BORDER}][ \u00a0]*")
QUOTATION_CHARACTERS: Final = 300  # searched for the first mark of a quotation
WINDOW_CHARACTERS: Final = 512  # searched at once, with as many more for the end of a match
LONG_CHARACTERS: Final = 8_192  # searched beyond a window for the end of a long kind
LONG_KINDS: Final = frozenset({"code block", "code"})  # they have a closing mark
LONG_SIGNS: Final = re.compile(r"[`{\]]")  # a long kind and a link have one of these signs
LONG_INDENT: Final = 4  # characters from the beginning of a long kind to its sign, at most
MAX_COLUMN_WORDS: Final = 3  # limit for a cell next to two spaces


@cache
def placeables() -> re.Pattern[str]:
    """Compile the patterns of all kinds as one; group `k3` is the kind `KINDS[3]`."""
    kinds = "|".join(f"(?P<k{i}>{kind.pattern})" for i, kind in enumerate(KINDS))
    return re.compile(f"{BEGINNING}(?:{kinds})")


@cache
def long_placeables() -> re.Pattern[str]:
    """Compile the patterns of kinds that may be longer than a window."""
    return re.compile("|".join(kind.pattern for kind in KINDS if kind.name in LONG_KINDS))


def matches(pattern: re.Pattern[str], long: re.Pattern[str], text: str) -> Iterator[re.Match[str] | None]:
    """Find matches as `finditer` does, but in windows, with a None after each window: the caller may pause
    there, and other threads run between two searches.

    pattern: pattern of at least one character. A match that depends on its end has at most
        `WINDOW_CHARACTERS`.
    long: alternatives of `pattern` that depend on their ends and have up to `LONG_CHARACTERS`. They begin
        with one of `LONG_SIGNS`.
    text: any text.
    """
    position = 0
    for window in range(WINDOW_CHARACTERS, len(text) + WINDOW_CHARACTERS, WINDOW_CHARACTERS):
        whole = window + WINDOW_CHARACTERS >= len(text)  # the search reaches the end of the text
        later = None
        if not whole and position < window and LONG_SIGNS.search(text, position, window + LONG_INDENT):
            later = long.search(text, position, window + LONG_CHARACTERS)
        while position < window:
            if later and later.start() < position:
                later = long.search(text, position, window + LONG_CHARACTERS)
            match = pattern.search(text, position, window + WINDOW_CHARACTERS)
            if later and (not match or later.start() < match.start()):
                match = later
            if match and match.start() < window < match.end():  # it may continue beyond the window
                match = pattern.match(text, match.start())
            if not match or match.start() >= window:
                break
            yield match
            position = match.end()
        position = max(position, window)
        yield None


def kind_of(match: re.Match[str]) -> Placeable:
    """Return the kind of a match of `placeables`."""
    assert match.lastgroup
    return KINDS[int(match.lastgroup[1:])]


def find_placeables(text: str) -> Generator[None, None, dict[tuple[int, int], Placeable]]:
    """Map begin and end of each placeable of a text to its kind, in steps; code gets `DATA`."""
    kinds = dict[tuple[int, int], Placeable]()
    for match in matches(placeables(), long_placeables(), text):
        if match is None:
            yield
        elif not _closes_quotation(text, match):
            kinds[match.span()] = kind_of(match)
    return {span: kinds.get(span, DATA) for span in merge_ranges([find_code(text), iter(kinds)])}


def _closes_quotation(text: str, match: re.Match[str]) -> bool:
    """Return whether a match is the last mark of a French quotation."""
    return match[0] == "»" and "«" in text[max(0, match.start() - QUOTATION_CHARACTERS) : match.start()]
