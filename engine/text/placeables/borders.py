"""Patterns of the grammar: borders between sentences and clauses, such as block tags, separators, log heads.

The words on both sides of a border are translated separately, and the border stays between them.
"""

from __future__ import annotations

import re
from typing import Final

from engine.text.placeables import code

# elements of HTML that are lines of their own, not parts of a sentence
BLOCK: Final = (
    "(?:address|article|aside|blockquote|body|button|caption|center|d[dlt]|details|div|fieldset|fig(?:caption|ure)"
    "|footer|form|h[1-6]|head(?:er)?|html|legend|li|main|nav|[ou]l|opt(?:group|ion)|p|pre|section|select|summary"
    "|table|tbody|t[dhr]|tfoot|thead|title)"
)
BLOCK_TAG: Final = rf"</?{BLOCK}(?:\s[^<>]{{0,400}})?/?>"
WIDTHS: Final = ("", *(" " * width for width in (1, 2, 3, 4, 6, 8, 12)), "\t", "\t\t")
INDENTS: Final = "|".join(rf"(?<=\n{width})" for width in WIDTHS)
LINE_END: Final = r"(?=[ \t]*(?:\n|\Z))"
LINE_TAG: Final = (  # alone in its line; and the mark of an item of BBCode
    rf"(?:\A(?=[^\n]{{1,400}}\n)|{INDENTS})(?:(?:</?[A-Za-z][\w:.-]*(?:\s[^<>\n]{{0,400}})?>"
    rf"|\[/?[a-z]{{2,12}}(?:=[^\[\]\n]{{1,80}})?\]){LINE_END}|\[\*\])"
)
# the tags of an element that is the whole of its line, which `encloses_line` leaves in the text
FIRST_TAG: Final = rf"(?:\A|{INDENTS})<[A-Za-z][\w:.-]*(?:\s[^<>\n]{{0,400}})?>(?=[^\n]{{1,1000}}</)"
LAST_TAG: Final = rf"</[A-Za-z][\w:.-]*>{LINE_END}"
ELEMENT: Final = re.compile(r"[ \t]*<([A-Za-z][\w:.-]*)(?:\s[^<>]*)?>(?:[^<]|<(?!/\1>))++</\1>\s*\Z")
ELEMENT_CHARACTERS: Final = 1_000  # of a line that is an element, at most
# \n as two characters, not the beginning of a command such as \neq or \ref; <br> at the end of a sentence
LINE_BREAK: Final = r"(?:\\[rnt](?![a-z])|(?<=[^\s\\])\\n(?=[a-z]))++|(?<=[.!?:…])<br ?/?>"
# heads of lines: logs, commits, numbered clauses, comments
LINE_START: Final = r"(?<![^\n])"
DAY: Final = r"(?:\d{4}[-/.]\d\d[-/.]\d\d|\d\d[-/.]\d\d[-/.]\d{2,4}|[A-Z][a-z]{2} {1,2}\d{1,2}|[IWEF]?\d{4})"
STAMP: Final = (
    rf"\[?(?:{DAY}[T ]\d\d:\d\d(?::\d\d)?|\d\d:\d\d:\d\d)"
    r"(?:[.,]\d{1,9})?(?:Z| ?[+-]\d\d:?\d\d)?\]?"
)
FIELD: Final = (  # of a log: [worker-3]  ERROR  sshd[123]:  com.example.Main
    r"(?:\[[^\[\]\n]{0,60}\]:?|\([\w .-]{1,30}\)|[A-Z]{3,8}(?!\w):?|[a-z][\w$-]{0,40}+(?:\.[\w$-]{1,40}+)++:?"
    r"|[\w.-]{1,40}:\d{1,7}[\]:]|[\w.-]{0,40}\d:(?=[ \t])|(?:0x)?\d{1,9}(?=[ \t][\w.-]{1,40}:\d)"
    r"|[\w./-]{1,40}+\[\d{1,9}\]:?|[\w.-]{1,40}+(?=[ \t][\w./-]{1,40}(?:\[\d{1,9}\])?:[ \t])|[-–:|]+)"
)
LOG: Final = (
    rf"{LINE_START}(?:[A-Z]{{4,8}}:?[ \t]+{STAMP}(?=\s)|{STAMP}(?=[ \t]+{FIELD}\s))"
    rf"(?:[ \t]+{FIELD}(?=[ \t])){{0,8}}+"
)
COMMIT_TYPES: Final = "(?:feat|fix|docs|chore|refactor|perf|test|ci|build|style|revert)"
# Reviewed-by:  :Author: of RST
TRAILER: Final = r"BREAKING[ -]CHANGE|(?:[A-Z][a-z]{1,12}-)(?:[a-z]{1,12}-)?by|:[A-Za-z][\w -]{0,30}"
COMMIT: Final = rf"{LINE_START}(?:{TRAILER}|[a-z]{{2,10}}(?:\([\w./, -]{{1,40}}\)!?|!)|{COMMIT_TYPES}):(?= )"
CLAUSE: Final = (
    rf"{LINE_START}\d{{1,3}}(?:\.\d{{1,3}}){{0,5}}(?:\.\d{{1,3}}\.\d{{1,3}}|(?:\(\w{{1,4}}\))+)(?= [^\W\d_])"
)
COMMENT: Final = (  # // TODO(max):  /** @param name
    r"(?<!\S)(?:(?:/\*{1,2}|//[/!]?|\*(?=[ \t]@))(?:[ \t]+[A-Z]{3,8}(?:\([^()\n]{1,40}\))?:)?"
    r"|(?<=[;,)] )--|#[ \t]+(?:TODO|FIXME|XXX|HACK)(?:\([^()\n]{1,40}\))?:?)"
    r"(?:[ \t]+@(?:param|property|arg|throws)(?:[ \t]+\{[^{}\n]{1,60}\})?[ \t]+[\w.$]{1,60}"
    r"|[ \t]+@\w{1,20})?(?=\s)"
)
COMPILER: Final = (
    rf"{LINE_START}[\w./-]{{1,80}}\.\w{{1,5}}:\d{{1,7}}(?::\d{{1,5}})?:(?: (?:error|warning|note):)?(?= )"
)
# a first word that is no word, before ":": java.lang.NullPointerException:  [WARN] disk0s1:
SOURCE: Final = (
    rf"{LINE_START}[VDIWEF]/[\w.-]{{1,40}}\([ \d]{{1,8}}\):(?= )"
    rf"|{LINE_START}(?:\[[A-Za-z]{{3,8}}\][ \t])?+(?=[^\s:]{{0,60}}(?:[\d_]|[a-z]\.[a-zA-Z]{{2}}))"
    r"(?=[^\s:]{0,60}[a-z])(?![^\s:]{0,60}://)[A-Za-z][\w./()$-]{2,80}:(?=[ \t]\S)"
)
SPEAKER: Final = rf"(?:{LINE_START}|(?<=[.?!] ))[A-Z]:(?= [^\W\d_])"  # Q: Who? A: Tom.
LISTING: Final = (  # drwxr-xr-x 2 root root 4096
    rf"{LINE_START}[bcdlps-](?:[r-][w-][xsStT-]){{3}}[+@.]?[ \t]+\d{{1,6}}(?:[ \t]+[\w-]{{1,32}}){{2}}"
    r"[ \t]+[\d.,]{1,12}[KMG]?(?=\s)"
)
# [    0.123456] usb 1-1:
KERNEL: Final = rf"{LINE_START}\[ {{0,8}}\d{{1,6}}\.\d{{6}}\](?: [\w.-]{{1,30}}(?: [\d.:-]{{1,20}})?:(?= ))?+"
SUBJECT: Final = rf"{LINE_START}(?:[A-Z][A-Za-z]{{0,3}}: ){{1,4}}[A-Z][A-Za-z]{{0,3}}:(?= \S)"  # Re: Fwd:
REPLY: Final = (
    r"(?:(?<=Subject: )|(?<=Betreff: )|(?<=Objet: )|(?<=Objet : ))(?:R[Ee]|F[Ww]d?|AW|WG|T[Rr]):(?= \S)"
)
DIRECTIVE: Final = rf"{LINE_START}[ \t]{{0,8}}\.\. [a-z-]{{2,30}}::(?=\s|\Z)"  # .. note::
STACK: Final = (
    rf"(?:{INDENTS})(?:{code.CALLER}[^\n]{{0,200}}"
    rf"|{code.FILE}[^\n]{{0,100}}(?:\n[ \t]{{4,12}}[^\n]{{1,200}})?)"
    r"|Traceback \(most recent call last\):"
)
HEAD: Final = (
    f"{STACK}|{LOG}|{SPEAKER}|{COMPILER}|{COMMIT}|{CLAUSE}|{COMMENT}"
    f"|{SOURCE}|{LISTING}|{KERNEL}|{SUBJECT}|{REPLY}|{DIRECTIVE}"
)
# syntax of ICU's messages around their branches; fields such as {name} are found first
BRANCH: Final = (
    r"\{\s?\w{1,60}+,\s?(?:plural|select|selectordinal),\s{0,9}(?:offset:\d{1,9}\s)?(?:=\d{1,9}|\w{1,60}+)\s{0,9}\{"
    r"|\}\s{0,9}(?:=\d{1,9}|\w{1,60}+)\s{0,9}\{|\}\s{0,9}\}"
)
# a run of signs with spaces around: Home :: Settings; dashes and ":" are marks of sentences
SHAPES: Final = "\u25a0-\u25ff★❨-❵➔-➾"
ARROWS: Final = "\u2190-\u21ff\u27f0-\u27ff\u2900-\u297f\u2b00-\u2b11"
SEPARATOR: Final = (
    rf"(?<=\S[ \u00a0])(?:[=<>|/\\~*+#^·•›»¦‖{SHAPES}{ARROWS}]|::)"
    rf"[=<>|/\\~*+#:^·•›»¦‖{SHAPES}{ARROWS}-]{{0,30}}+"
    r"(?=[ \u00a0]\S)|(?<=\S[ \u00a0])-{1,2}>(?=[ \u00a0]\S)"
)
# the blank of a form: Name: ______  Date: __/__/____; elsewhere it is a word that is left out
BLANK: Final = r"(?:_{2,}+(?:[/.:-]_{1,}+)++|_{3,}+)"
GAP: Final = rf"{BLANK}|(?<!\w)(?=[_A-ZÄÖÜ] )(?=(?:[^\W_] ){{0,4}}_(?!\w))\w(?: \w(?!\w)){{1,40}}+"  # _ A _ _
FILL: Final = (
    rf"(?:(?<=[:?] )|(?<=[:?]))\[?{BLANK}\]?|\.{{4,}}+|(?<= )\.{{3}}(?= [$€£]?\d)|\.(?: \.){{3,}}+|…{{3,}}+"
    r"|(?<!\S)(?=[~*=+•°-]{0,20}(?:~[*=+•°-]|[*=+•°-]~))[~*=+•°-]{3,40}(?!\S)"  # ~*~*~
)
BOX: Final = r"(?<!\S)(?:\[[ xX✓✗]?\]|\( ?\)|\([xX]\))(?=\s+[^\W\d_])"  # [x] yes  ( ) no
# between fields: Size: M; Colour: red
FIELD_END: Final = (
    r";(?= [^\W\d_][\w.-]{0,20}+(?: [\w.-]{1,20}+)?+ ?: \S)|,(?= [^\W\d_][\w.-]{0,20}+ ?: [\d#+-])"
)
# of a line of CSV: a mark without a space after it
CELL: Final = r";(?=[^\s;)])(?<=[^\s;(];)(?<!\(\w;)|,(?=[^\W\d_]|\"\w|(?<=[\")],)\d)(?<=[\w\")],)"


def encloses_line(text: str, begin: int, end: int) -> bool:
    """Return whether a tag begins or ends an element that is the whole of a line, in a text of several lines.

    text: any text.
    begin: position of the tag.
    end: position after it.
    """
    first = text.rfind("\n", max(0, begin - ELEMENT_CHARACTERS), begin) + 1
    last = text.find("\n", end, end + ELEMENT_CHARACTERS)
    line = text[first : last if last >= 0 else end + ELEMENT_CHARACTERS]
    edge = not text[first:begin].strip() or not text[end : first + len(line)].strip()
    return edge and (first > 0 or last >= 0) and len(line) < ELEMENT_CHARACTERS and bool(ELEMENT.match(line))
