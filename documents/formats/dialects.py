"""Markup of Markdown's dialects as tokens that stay: GitHub, Obsidian, Docusaurus, VitePress, MkDocs, Hugo,
Jekyll, pandoc, MDX and directives of reStructuredText.

The rules are for markdown-it-py, which reads all of these as prose. A line of such a dialect ends a
paragraph; its title is prose.
"""

from __future__ import annotations

import re
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from mdit_py_plugins.admon import admon_plugin

ADMONITIONS: Final = "note|warning|tip|important|caution|danger|hint|attention|error|seealso|admonition"
# a whole line of markup, such as `:::note[Title] Title`; groups are titles
LINE: Final = re.compile(
    r":{3,}[ \t]*(?:[\w-]+)?(?:\[([^\[\]\n]*)\])?[ \t]*(?:\{[^{}\n]*\})?[ \t]*([^\n]*)"
    r"|\[![\w-]+(?:\|[^\[\]\n]*)?\][+-]?(?!\S)[ \t]*([^\n]*)"  # [!NOTE] Title
    r"|===[+!]?[ \t]+\"([^\"\n]*)\"[ \t]*$"  # a tab of MkDocs
    rf"|\.\.[ \t]+(?:{ADMONITIONS})::[ \t]*([^\n]*)"
    r"|\.\.[ \t]+[\w-]+::[^\n]*"
    r"|\{\{[<%][^{}\n]*[%>]\}\}[ \t]*$|\{%[^{}\n]*%\}[ \t]*$"  # shortcodes of Hugo, tags of Liquid
    r"|\{:[^{}\n]*\}[ \t]*$|\[TOC\][ \t]*$|\[\[_?TOC_?\]\][ \t]*$|%%[^%\n]*%%[ \t]*$"
    r"|</?[A-Z][\w.]*(?:[ \t][^<>\n]*)?>[ \t]*$",  # a tag of a component
    re.IGNORECASE,
)
TAB, TAB_INDENT = "===", 4
COMPONENT: Final = re.compile(r"</?[a-z]")  # other tags are HTML
# the first line of JavaScript in MDX, which ends with a blank line
SCRIPT: Final = re.compile(
    r"import[ \t]+(?:[\"'{]|\*[ \t]+as\b|[\w$]+[ \t]*(?:,[ \t]*\{[^{}\n]*\}[ \t]*)?from[ \t]+[\"'])"
    r"|export[ \t]+(?:default|const|let|var|function|async|class|\{|\*)"
)
INLINE: Final = re.compile(
    r"!?\[\[[^\[\]\n]+\]\]"  # a link or embedding of a wiki
    r"|\[(?:[^\[\]\n]*[ ;])?-?@\w[^\[\]\n]*\]"  # a citation
    r"|\{\{[^{}\n]*\}\}|\{ ?(?:[:#.%]|[\w-]{1,32}=)[^{}\n]*\}"  # a template, attributes
    r"|:[a-z][a-z0-9_+-]*:(?!\w)|%%[^%\n]*%%"  # an emoji, a comment
)
# a link whose address is a shortcode: the text, and the markup after it
SHORTCODE_LINK: Final = re.compile(r"\[([^\[\]\n]+)(\]\(\{\{[<%][^{}\n]*[%>]\}\}\))")
HIGHLIGHT: Final = re.compile(r"==(?![\s=])[^=\n]*(?<!\s)==(?!=)")
POINT: Final = re.compile(
    r"!\[\[|\{ ?(?:[:#.]|[\w-]{1,32}=)|%%"
)  # begin of a mark that the model does not read
ENDED_BLOCKS: Final = ["paragraph", "reference", "blockquote", "list"]


def add_dialects(parser: MarkdownIt) -> None:
    """Add the rules of all dialects to a parser."""
    parser.use(admon_plugin)
    parser.block.ruler.before("table", "dialect_line", _line, {"alt": ENDED_BLOCKS})
    parser.block.ruler.before("table", "dialect_script", _script)
    parser.inline.ruler.after("backticks", "dialect", _inline)
    parser.inline.ruler.after("backticks", "highlight", _highlight)
    parser.inline.ruler.before("link", "shortcode_link", _shortcode_link)


def _line(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Read a line of markup; its title becomes inline content, with its column in `meta`."""
    begin, end = state.bMarks[first] + state.tShift[first], state.eMarks[first]
    match = None if state.is_code_block(first) else LINE.match(state.src, begin, end)
    if match is None or match.end() < end or COMPONENT.match(state.src, begin, end):
        return False
    if silent:
        return True
    state.line = first + 1
    for group, title in enumerate(match.groups(), 1):
        if title and title.strip():
            token = state.push("inline", "", 0)
            token.content, token.children, token.map = title.strip(), [], [first, first + 1]
            token.meta["column"] = match.start(group) - (state.src.rfind("\n", 0, begin) + 1)
    if match[0].startswith(TAB):
        _tab_content(state, first, last)
    return True


def _tab_content(state: StateBlock, first: int, last: int) -> None:
    """Read the lines after the title of a tab of MkDocs that are indented by four spaces.

    first, last: lines [first, last) from the title to the end of the block around it.
    """
    indent, line = state.sCount[first] + TAB_INDENT, first + 1
    while line < last and (state.isEmpty(line) or state.sCount[line] >= indent):
        line += 1
    old = state.blkIndent, state.lineMax, state.parentType
    state.blkIndent, state.lineMax, state.parentType = indent, line, "tab"
    state.md.block.tokenize(state, first + 1, line)
    state.blkIndent, state.lineMax, state.parentType = old
    state.line = line


def _script(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Read JavaScript up to the next blank line."""
    begin, end = state.bMarks[first] + state.tShift[first], state.eMarks[first]
    if state.is_code_block(first) or not SCRIPT.match(state.src, begin, end):
        return False
    if not silent:
        state.line = next((line for line in range(first, last) if state.isEmpty(line)), last)
    return True


def _inline(state: StateInline, silent: bool) -> bool:
    """Read a mark within a line."""
    match = INLINE.match(state.src, state.pos, state.posMax)
    if match is None or (match[0][0] == ":" and state.src[state.pos - 1 : state.pos].isalnum()):
        return False
    if not silent:
        kind = "dialect_point" if POINT.match(match[0]) else "dialect"
        state.push(kind, "", 0).content = match[0]
    state.pos = match.end()
    return True


def _read_between(state: StateInline, begin: int, end: int) -> None:
    """Read the characters [begin, end) of a text."""
    last = state.posMax
    state.pos, state.posMax = begin, end
    state.md.inline.tokenize(state)
    state.posMax = last


def _highlight(state: StateInline, silent: bool) -> bool:
    """Read `==highlighted text==`."""
    match = HIGHLIGHT.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        state.push("mark_open", "mark", 1).markup = "=="
        _read_between(state, state.pos + 2, match.end() - 2)
        state.push("mark_close", "mark", -1).markup = "=="
    state.pos = match.end()
    return True


def _shortcode_link(state: StateInline, silent: bool) -> bool:
    """Read a link whose address is a shortcode."""
    match = SHORTCODE_LINK.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        state.push("link_open", "a", 1)
        _read_between(state, match.start(1), match.end(1))
        state.push("link_close", "a", -1).meta["source"] = match[2]
    state.pos = match.end()
    return True
