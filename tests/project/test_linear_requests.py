"""Whole requests take time linear in their texts, in short slices, whatever the texts are made of.

A generator makes texts of two pieces, each an example or a part of an example of what the grammar, the reader
of markup, the splitter and the projection look for, repeated to a length. Texts go through the real path,
with a fake model that copies. Times are processor times of this thread, and three attempts must fail.
"""

import math
import random
from itertools import product

import pytest

from engine.text.placeables.grammar import KINDS
from tests.support.copying import ANSWERS, FORMS, glossary_of, measured
from tests.support.thorough import THOROUGH
from tests.support.timing import SLACK, slowness, thrice

pytestmark = pytest.mark.no_cover  # a traced function is slower

TEXTS = 5_000 if THOROUGH else 18
LIMIT = 100_000  # characters that one text of a request may have
LENGTH = 8_000  # characters of most texts here
LONGEST_SLICE = 0.25  # seconds of a slice at the limit, on a processor as fast as a Zen 4
SHORTEST_SLICE = 0.04  # seconds of a slice of constant length, such as a window of a search
STEEPEST = 1.5  # power of the length that the time may follow: 1 is linear, 2 quadratic
NOTICEABLE = 0.05  # seconds of a text whose growth is judged
WORDS = (
    "Das ", "ist ", "gut. ", "Ja. ", "und 1 ", "AUF KEINEN Fall ", "NASA ", "Herr Müller ", "Dr. ", "z. B. ",
    "am 3. Mai ", "a", "é", "東", "ไทย", "Straße", "😀", "́", "­", " ", "\n", "\n\n", "\t", " ",
)  # fmt: skip
MARKS = (
    "*", "**x**", "_", "~~", "[", "](", "[x](y)", "`", "```\n", "|", "| a ", "- ", "1. ", "a) ", "> ", "# ",
    " – ", "…", "...", "!?", "(", ")", " (x)", "„", "“", "\"", "'", "«", "»", "&File ", "⟦1⟧", "{0}", "♪",
    "•", "[b]", "[/b]", "\ue000", "%", "$", "@", "-", ".", ",", ":", ";", "=", "/", "\\",
)  # fmt: skip
TAGS = (
    "<b>", "</b>", "<b>x</b>", "<p>", "</p>", "<br>", "<wbr>", "<a href='x'>", "<a ", "<", "</", "<!--",
    "-->", "<!", "<code>", "<code>x</code>", "<script>", "<span translate=no>x</span>", "<img alt='x'>",
    "&lt;b&gt;", "&amp;", "&#", "&nbsp;", "<td>x</td>", "<sup>1</sup>", "<x id=1/>", '="', "<![CDATA[",
    "<?", "<g>x",
)  # fmt: skip
EXAMPLES = tuple(kind.example for kind in KINDS)
PIECES = (
    *WORDS,
    *MARKS,
    *TAGS,
    *(example + " " for example in EXAMPLES),
    *(example[: len(example) // 2] for example in EXAMPLES),
    *(example[len(example) // 2 :] for example in EXAMPLES),
)
PAIRS = tuple(dict.fromkeys(product(dict.fromkeys(PIECES), repeat=2)))
PART = 1 if THOROUGH else 4  # of the known texts
KNOWN = {  # requests that took seconds in one slice, or stopped a server
    "points behind sentences": (
        "HTML",
        "<p>" + "Ja. " * (3_500 // PART) + "Gut <wbr>so. " * (480 // PART) + "</p>",
    ),
    "numbers after an emphasis": ("protected", "*Das* " + "ist gut und 1 " * (5_500 // PART)),
    "scopes in half a tag": ("protected", "<::" * (33_000 // PART)),
    "tags in plain text": ("protected", "<b>" * (33_000 // PART)),
    "half an address": ("protected", "a.b-" * (24_000 // PART)),
    "spans": ("HTML", "<p>" + "<b>x</b>" * (1_500 // PART) + "</p>"),
    "cells of a table": ("protected", "| a " * (24_000 // PART)),
    "phrases in a text that is not read": ("protected", "Gut. " + "😀 *:* " * (16_000 // PART)),
}


def generated():
    """Return requests by name: the form, the text that is repeated, and the way of the answer."""
    rng = random.Random(47)
    pairs = rng.sample(PAIRS, TEXTS)
    kinds = [*FORMS, "a glossary"]
    requests = {}
    for number, pair in enumerate(pairs):
        form, way = kinds[number % len(kinds)], rng.choice(list(ANSWERS))
        text = rng.choice(("", " ", "Das ist gut ", "\n", ". ")).join((*pair, ""))
        requests[f"{form}, {way}: {text!r}"] = (form, pair, text, way)
    return requests


def fault_of(form, pair, text, way, length):
    """Return a description of a slice that is too long, or of growth that is too fast; "" if none is."""
    run = glossary_of(*pair) if form == "a glossary" else FORMS[form]

    def measure(characters, *group):
        return measured(run, text * (characters // len(text)), way, *group)

    whole = measure(length)
    allowed = max(LONGEST_SLICE * length / LIMIT, SHORTEST_SLICE) * SLACK
    if whole.longest > allowed:  # the speed of the processor is measured only if it decides
        slow = slowness()
        allowed *= slow / SLACK
        if whole.longest > allowed and (whole := measure(length, 1)).longest > allowed:
            # a slice that grows no further, such as one of a long sentence, is judged by the longest text
            longest = whole.longest if length == LIMIT else measure(LIMIT, 1).longest
            if longest > LONGEST_SLICE * slow:
                return f"a slice of {longest:.3f} s, {LONGEST_SLICE * slow:.3f} s are allowed"
    if whole.total < NOTICEABLE:
        return ""
    sizes, seconds = [length // 4, length], [measure(length // 4).total, whole.total]
    if _slope(sizes, seconds) > STEEPEST and length < LIMIT:
        # a step, where a limit is reached, is no slope: the time of longer texts decides
        sizes, seconds = [length, LIMIT], [whole.total, measure(LIMIT).total]
    slope = _slope(sizes, seconds)
    return f"{seconds} s for {sizes} characters, a power of {slope:.1f}" if slope > STEEPEST else ""


def _slope(sizes, seconds):
    """Return the power of the size that the time follows: 1 is linear, 2 quadratic."""
    return math.log(seconds[1] / seconds[0]) / math.log(sizes[1] / sizes[0])


def test_generated_requests_take_linear_time_in_short_slices():
    faults = {}
    for form in FORMS.values():  # patterns are compiled, and the model of languages is loaded
        measured(form, "<b>Das</b> ist {x} gut. ", "swapped")
    for number, (name, request) in enumerate(generated().items()):
        length = LIMIT if number % 50 == 49 else LENGTH
        try:
            thrice(lambda: fault_of(*request, length))  # noqa: B023 - called at once
        except AssertionError as fault:
            faults[name] = str(fault)
    assert not faults, f"{len(faults)} of {TEXTS}: {dict(list(faults.items())[:20])}"


@pytest.mark.parametrize("name", KNOWN)
def test_known_attacks_take_short_slices(name):
    form, text = KNOWN[name]

    def attempt():
        longest = measured(FORMS[form], text, "shorter", 1).longest
        allowed = LONGEST_SLICE / PART * slowness()
        return f"a slice of {longest:.3f} s, {allowed:.3f} s are allowed" if longest > allowed else ""

    thrice(attempt)
