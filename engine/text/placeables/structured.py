"""Structured data and code in plain text: settings, messages of programs, programs.

Only the prose of such a text is translated: quoted texts, values of several words, comments. A form or the
head of a mail ("Name: Anna") is no data: its labels are words with a capital, and its values have no quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from engine.text.placeables import code

SIGNS: Final = re.compile(r"[\"=\n]|[(\[{,:> ]'")  # a text without them is no data
STRING: Final = (
    r"(?<![^\W\d_]{3})(?<![\d\"])(?:\"{3}[^\"\n]++\"{3}|\"(?:[^\"\\\n]|\\.)*+\"(?![\w\"])"
    r"|(?<!\w)'(?:[^'\\\n]|\\.|(?<=\w)'(?=\w))*+'(?!\w))"
)
QUOTED: Final = re.compile(STRING)
KEY: Final = r"(?:[A-Za-z_@][\w.$/-]{0,80}|\"[^\"\n]{1,80}\"|'[^'\n]{1,80}')"
ENTRY: Final = re.compile(  # key: value  "key": value  key=value  KEY:value
    rf"[ \t]*+(?:- )?+(?:\{{|\[(?=[\"']))?(?:(?:const|let|var|final|export|set) )?"
    rf"({KEY})(?:(?<=[a-z\d]) \([\w\[\]., ]{{1,40}}\)(?=:)|;[A-Z]+=[\w/-]{{1,40}}(?=:))?"
    r"(:(?=\s|\Z)|(?<=[\"']): ?|(?<=[A-Z]{2}):(?=\S)| ?(?:=>?|:=) ?)(.*)",
    re.DOTALL,
)
CODE_KEY: Final = re.compile(r"[a-z]|[\"'@]|[A-Z]\w*[\d_]|[A-Z][A-Z]+\Z(?<!NB)|\w+\.\w")
COMMAND: Final = rf"(?:{code.SHELL}|{code.TOOLS}) "
DIRECTIVE: Final = r"<[A-Z]\w+ (?![\w:-]+=)[^<>]+>"  # of Apache: <FilesMatch "^\.">
CODE: Final = re.compile(  # a line of code around its strings
    rf"[ \t]*+[^\"'\n]{{0,80}}?(?:\w\([^\"'\n]{{0,40}}?|[{{\[,]){STRING}.*[)\]}};,{{:\"]\Z"
    rf"|[ \t]*+(?:[a-z]\w{{0,30}}(?:\[\d{{1,3}}\])? [a-z]?{STRING}|[\[{{]+{STRING}.*[\]}}],?)"
    r"(?:[,;:]|[ \t][>|&].*)?\Z"
    rf"|(?:FROM \S+[:/]|(?:RUN|CMD) [\[a-z]|ENV \w+=|[ \t]+{COMMAND}"
    r"|(?:\t| {4})(?=.* -{1,2}[a-z])[a-z]).*"
    rf"|[ \t]*+(?=.*[_/{{=])[a-z_]\w*(?: \S+){{0,9}} ?[;{{}}]\Z|{DIRECTIVE}\Z"
)
ROW: Final = re.compile(  # of CSV, with quoted cells
    r"(?=(?:[^\"\n(=]|\"[^\"\n]*+\")*+\Z)(?:\"[^\"]++\"[,;](?=\S)|.*[,;]\"[^\"]++\"(?:[,;](?=\S)|\Z))"
)
CELLS: Final = re.compile(r"[\w .-]{1,40}(?:[,;][\w .-]{1,40})+\s*\Z")
CELL: Final = re.compile(r"(?<=\")[^\"]++(?=\")(?<![,;])|[^\",;]++")
SECTION: Final = re.compile(r"[ \t]*\[{1,2}[\w.:\"'/ *,-]{1,80}\]{1,2}(?:[ \t]*[#;].*)?\Z")
NEUTRAL: Final = re.compile(  # comments, items, brackets, statements; they are no evidence
    r"[ \t]*(?:(?:#!?|;|//|--|/?\*)(?:[ \t:,.~/].*)?|- .*|[\[\](){}<>,;]+|-{3,}|\.{3}|\.\. [\w-]+::.*"
    r"|[a-z]\w*(?: [\w.$]+){0,3}[:;]?|[\w .-]{1,40}(?:[,;][\w .-]{1,40})+|\"{3}.*"
    rf"|(?:def|class|if|for|while|elif|with|except) .{{1,100}}:|{COMMAND}.*"
    r"|(?:COPY|ADD|WORKDIR|ENTRYPOINT|EXPOSE|USER|ARG|LABEL|VOLUME) .*)\Z"
)
# the next lines are code
OPENING: Final = re.compile(rf"[ \t]*(?:\{{\{{[^{{}}]*|[^,]*[\[({{]|{DIRECTIVE})\Z")
CLOSING: Final = re.compile(r"[ \t]*(?:[\])}]|</[A-Z]\w+>)")
SCALAR: Final = re.compile(r"[|>][+-]?\s*\Z|\\\Z")  # the value is in the next lines
COMMENT: Final = re.compile(r"(?:(?<=\s)|\A)(?:#\.?|//|--)[ \t]+(?=\w)|\A[ \t]*(?:;|/?\*+)[ \t]+(?=\w)")
WORD: Final = re.compile(r"(?<![^\s\"'“„«(>])[^\W\d_]{2,}+(?:['’-][^\W\d_]+)*+(?![^\s\"'”“»)<.,:;!?…])")
SIGNED: Final = re.compile(
    rf"\A{COMMAND}|"
    r"(?<!\S)(?:-{1,2}[a-z]|(?:[|>]{1,2}|&&) )|::|[a-z]\.[a-z]+\(|[\w)\]] ?[=!]= ?|&&|\|\||=>"
    r"|;\s*(?:(?:do|then)\s*)?\Z"
)
LONE: Final = re.compile(r"[^\W\d_a-zß-ÿ](?:[^\W\d_A-Z]|(?<=\w)[-'’](?=\w))+[.!?…]*\s*\Z")  # Weiter
BETWEEN_BLOCKS: Final = re.compile(r"(\n[ \t\r]*\n(?![ \t\])}])|(?<=\n)---[ \t]*\n)")
WITHIN_PROSE: Final = re.compile(  # an indented command; rows below a head in capitals
    r"(?<=\n\n)(?:\t| {4})(?=[^\n]{0,200}? (?:-{1,2}[a-z]|\| ))[a-z][^\n]*+"
    r"|^[A-Z][A-Z%-]{1,20}+(?: {2,}[A-Z][A-Z%-]{1,20}+(?: [A-Z]{2,20})?+)++ *+"
    r"(?:\n(?=\S[^\n]{0,200}?\S {2,}\S)[^\n]++)++",
    re.MULTILINE,
)
MAX_CHARACTERS: Final = 1_000  # of a line; a longer one is no line of data


def find_code(text: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the parts of structured data that are no prose. Takes linear time.

    text: any text.
    """
    if not SIGNS.search(text):
        return
    position, found = 0, False
    for block in BETWEEN_BLOCKS.split(text):
        lines = block.split("\n")
        short = block.strip() and max(map(len, lines)) < MAX_CHARACTERS
        inside = list(_bracketed(lines)) if short else []
        if short and _is_data(lines, inside, found=found):
            found = True
            yield from _between_prose(lines, inside, position)
        else:
            for match in WITHIN_PROSE.finditer(block):
                yield position + match.start(), position + match.end()
        position += len(block)


def _between_prose(lines: list[str], inside: list[bool], position: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each part of a block that is no prose.

    lines: lines of the block.
    inside: whether each line is in brackets.
    position: position of the block in the text.
    """
    begin, start, scalar = position, position, -1
    for line, bare in zip(lines, inside, strict=True):
        indent = len(line) - len(line.lstrip())
        scalar = scalar if indent > scalar else -1
        for first, end in _prose(line, bracketed=bare, scalar=scalar >= 0):
            if begin < start + first:
                yield begin, start + first
            begin = start + end
        scalar = indent if scalar < 0 and SCALAR.search(line) else scalar
        start += len(line) + 1
    if begin < start - 1:
        yield begin, start - 1


def _bracketed(lines: list[str]) -> Iterator[bool]:
    """Yield, for each line, whether it is in brackets that open and close at ends of lines."""
    last = max((number for number, line in enumerate(lines) if CLOSING.match(line)), default=-1)
    opened = False
    for number, line in enumerate(lines):
        opened = number < last and (opened or bool(OPENING.match(line.rstrip())))
        yield opened or (number == last and number > 0)


def _is_data(lines: list[str], inside: list[bool], *, found: bool) -> bool:
    """Return whether the lines of a block are data.

    inside: whether each line is in brackets.
    found: whether a block before it is data.
    """
    kinds = list(_kinds(lines, inside))
    sure, unclear = kinds.count("code") + any(inside[:-1]), kinds.count("unclear")
    if "" in kinds or (unclear and not (sure or "comment" in kinds)):
        return False
    if len(lines) == 1 and kinds in (["neutral"], ["comment"]):
        return False
    sure += unclear
    entries = kinds.count("entry") + found
    head = "section" in kinds and (entries > 0 or found)
    return kinds.count("label") <= entries + sure and (sure > 0 or entries > 1 or head)


def _kinds(lines: list[str], inside: list[bool]) -> Iterator[str]:
    """Yield the kind of each line that is neither in brackets nor part of the value of a line before it."""
    scalar = -1  # indentation of a line with a value of several lines
    for line, bracketed in zip(lines, inside, strict=True):
        body, indent = line.rstrip(), len(line) - len(line.lstrip())
        if 0 <= scalar < indent or bracketed or not body:
            continue
        yield (kind := _kind(body))
        scalar = indent if kind in ("entry", "code") and SCALAR.search(body) else -1


def _kind(body: str) -> str:
    """Return the kind of a line: code, entry, section, label, comment, neutral, unclear, or "" for prose.

    A line with a sign of code is unclear: it is code next to code or a comment.
    """
    entry = ENTRY.match(body)
    if entry and (CODE_KEY.match(entry[1]) or entry[2] == "="):
        quoted = entry[3].lstrip()[:1] in ('"', "'") or entry[1][0] in "\"'"
        return "code" if quoted or entry[2] == "=" else "entry"
    if CODE.match(body) or ROW.match(body):
        return "code"
    if SECTION.match(body):
        return "section"
    if entry:
        return "label"
    if NEUTRAL.match(body):
        return "comment" if COMMENT.match(body) else "neutral"
    return "unclear" if SIGNED.search(body) else ""


def _prose(line: str, *, bracketed: bool, scalar: bool) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each text in a line of data that is prose.

    line: line of data.
    bracketed: whether it is in brackets, where texts have quotes.
    scalar: whether it is part of the value of a line before it.
    """
    if not bracketed and (ROW.match(line) or CELLS.match(line)):
        yield from (match.span() for match in CELL.finditer(line))
        return
    entry = ENTRY.match(line)
    start = entry.start(3) if entry else 0
    strings = [match.span() for match in QUOTED.finditer(line, start)]
    found = _comments(line, strings)
    comment, text = next(found, (len(line),) * 2)
    strings = [span for span in strings if span[1] <= comment]
    yield from _quoted_prose(line, strings)
    if not (strings or bracketed) and (entry or scalar or line.lstrip().startswith("- ")):
        yield from _value(line, start, comment)
    if text < len(line.rstrip()):
        yield text, len(line.rstrip())


def _value(line: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the value in line[start:end] if it is prose."""
    value = line[start:end].rstrip(" \t\r")
    first = start + len(value) - len(value.lstrip(" \t-{["))
    if _is_prose(line[first : start + len(value)]):
        yield first, start + len(value)


def _comments(line: str, strings: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each mark of a comment outside the strings of a line."""
    for match in COMMENT.finditer(line):
        if not any(a < match.start() < b for a, b in strings):
            yield match.span()


def _quoted_prose(line: str, strings: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the text of each string of a line that is prose and no key."""
    for begin, end in strings:
        begin, end = (begin + 3, end - 3) if line.startswith('"""', begin) else (begin + 1, end - 1)
        if not line.startswith((":", " =>"), end + 1) and _is_prose(line[begin:end]):
            yield begin, end


def _is_prose(value: str) -> bool:
    """Return whether a value is words: several words, or one with a capital."""
    words = len(WORD.findall(value))
    several = words > 1 or (words == 1 and ("{" in value or value[-1] in "!?"))
    code_like = SIGNED.search(value) or 2 * words < len(value.split()) - words
    return bool(LONE.match(value)) or (several and not code_like)
