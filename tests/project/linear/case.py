"""Cases of `test_linear.py`, and texts that several cases repeat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# characters of a text, where a case has no other length
CASE_LENGTH = 4_096


@dataclass(frozen=True)
class Case:
    """Use of one pattern or parser.

    call: function of the text. None: the pattern's own search, match and substitution.
    pumps: texts to repeat, in addition to those of every case.
    length: characters of the shorter text; less than `CASE_LENGTH` for a slow parser.
    uses: methods of a pattern that the code calls.
    """

    call: Callable[[str], object] | None = None
    pumps: tuple[str, ...] = ()
    length: int = CASE_LENGTH
    uses: tuple[str, ...] = ("search", "match", "sub")


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
DIALECTS = (
    "[[a",
    "[[a]]",
    "[ @",
    "{{<",
    "{{< a >}}",
    "{: ",
    ":a",
    "%%",
    "==a",
    "\n:::a ",
    "\n[!a] ",
    "\n!!! a\n    ",
)
PLACEHOLDERS = ("{a}", "{{a}}", "%(a)", "%1$s", "$t(", "&amp;", "@:a", "{a,plural,", "one {#} ", "<b>", "#")
CATALOGUE = ('msgid "a"\nmsgstr ""\n', 'msgid "a"\n', '"a"\n', "#: a:1\n", "#~ ", 'msgstr[0] ""\n')
SUBTITLES = ("1\n", "1\n00:00:01,000 --> 00:00:02,000\n", " \n", "0:", "-->", "9", "00:00:")
TRUSTED = "reads a file of the operator, not of a client"
LIBRARY = "calls a library in a process of its own, with limits of time and memory"
