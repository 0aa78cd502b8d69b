"""Answers to long texts without decoding: the text side of a shipped model, and a fake that copies sources.

The work of the real path is run in its slices, and each slice is timed by the processor time of this thread.
"""

import gc
import time
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial

import numpy as np

from documents.formats.attributes import read_with_attributes
from documents.formats.html import read_html
from documents.formats.tags import MarkupRules
from documents.projection import protected_ranges
from engine.answers.compose import Retry, settle
from engine.answers.options import TextOptions
from engine.answers.plan import plan
from engine.api import MarkedText, Placement, ServiceSettings
from engine.bundle.bundle import open_bundle
from engine.errors import ConvoyError
from engine.repository.loading import facts_of, open_text
from engine.schedule.slices import one_slice
from engine.text.detect import detect
from engine.types import NO_TIME, Hypothesis, Result
from server.answering.pages import join_pages, parse_pages, read_by_rules
from tests.support.golden_fixtures import ROOT

MODELS = ROOT.parent / "models"
GROUP = 50  # slices that are timed together
MAX_RETRIES = 6  # forms of one sentence
ANSWERS = {
    "swapped": lambda tokens: [
        token for at in range(0, len(tokens), 2) for token in tokens[at : at + 2][::-1]
    ],
    "shorter": lambda tokens: [token for at, token in enumerate(tokens) if at % 3 != 1],
    "a loop": lambda tokens: (tokens[:3] * len(tokens))[: 2 * len(tokens)],
}


@cache
def text_model(name="tatoeba-de-en"):
    """Open the text side of a shipped model; its weights stay on the disk."""
    bundle = open_bundle(MODELS / name)
    return open_text(bundle, facts_of(bundle, ServiceSettings(Placement())).info)


class Meter:
    """Times slices, some together, because reading the processor time of a thread takes as long as a slice.

    total: seconds of processor time of all slices.
    longest: seconds of the longest slice: the time on the wall, at most the processor time of its group.
    group: slices that are timed together; with 1, times on the wall do not count.
    """

    def __init__(self, group=GROUP):
        self.total, self.longest, self.group = 0.0, 0.0, group

    def run(self, slices):
        """Run slices to their end, and return their value."""
        while True:
            began, used, longest = time.perf_counter(), time.thread_time(), 0.0
            try:
                for _ in range(self.group):
                    next(slices)
                    now = time.perf_counter()
                    longest, began = max(longest, now - began), now
            except StopIteration as end:
                longest = max(longest, time.perf_counter() - began)
                return end.value
            finally:
                seconds = time.thread_time() - used
                self.total += seconds
                self.longest = max(self.longest, min(longest, seconds))


def copied(job, way):
    """Return the result of a job: tokens of its source in the order of `way`, with attention if requested."""
    places = ANSWERS[way](list(range(len(job.source) - 1)))
    attention = None
    if job.options.alignment:
        attention = np.full((len(places) + 1, len(job.source)), 0.01, np.float32)
        attention[np.arange(len(places) + 1), [*places, len(job.source) - 1]] = 1.0
        attention /= attention.sum(1, keepdims=True)
    tokens, scores = [job.source[place] for place in places], [-0.1] * (len(places) + 1)
    return Result([Hypothesis(tokens, -1.0, scores, "stop", attention)], NO_TIME)


def answered(meter, text, options, way, model=None):
    """Plan, answer and compose a text."""
    model = model or text_model()
    planned = meter.run(plan(model, text, options))
    results = [copied(job, way) for job in meter.run(planned.job_slices(range(len(planned.job_sentences))))]
    for _ in range(MAX_RETRIES):
        outcome = meter.run(settle(model, planned, results))
        if not isinstance(outcome, Retry):
            return outcome
        planned = outcome.plan
        results = outcome.merge(iter([copied(job, way) for job in meter.run(outcome.job_slices())]))
    raise AssertionError("a sentence is decoded again and again")


def page(meter, read, text, options, way):
    """Read a page, answer its segments, and return the new page."""
    pages = meter.run(parse_pages(read, [text]))
    results = []
    for segment in pages[0].segments:
        marked = MarkedText(segment.text, protected_ranges(segment))
        results.append(answered(meter, marked, replace(options, alignment=bool(segment.spans)), way))
    return meter.run(join_pages(pages, results))


NAMES = frozenset({"code"})
XML = MarkupRules(xml=True, blocks=frozenset({"p"}), keep=NAMES, marks=NAMES)
PROTECT = TextOptions(protect=True)
FORMS = {
    "plain": partial(answered, options=TextOptions()),
    "protected": partial(answered, options=TextOptions(protect=True, follow_form=True)),
    "local numbers": partial(answered, options=TextOptions(protect=True, local_numbers=True)),
    "newlines": partial(answered, options=TextOptions(protect=True, newlines="auto")),
    "alignment": partial(answered, options=TextOptions(protect=True, alignment=True, coverage=True)),
    "HTML": lambda meter, text, way: page(meter, read_html, text, PROTECT, way),
    "attributes": lambda meter, text, way: page(meter, read_with_attributes, text, PROTECT, way),
    "XML": lambda meter, text, way: page(meter, partial(read_by_rules, XML, True), text, PROTECT, way),
    "auto": lambda meter, text, way: meter.run(one_slice(detect, text, ["de", "en", "fr"])),
}


def glossary_of(*pieces):
    """Return the form of a request whose glossary translates pieces, and which keeps others."""
    phrases = [piece.strip() for piece in pieces if piece.strip()]
    options = TextOptions(protect=True, glossary=dict.fromkeys(phrases[:1], "x y"), ignore=tuple(phrases[1:]))
    return partial(answered, options=options)


def measured(form, text, way, group=GROUP):
    """Return the meter of a request in a form; a refused one costs what it took until the refusal."""
    meter = Meter(group)
    gc.disable()  # a collection of the objects of other tests takes a third of a second
    try:
        with suppress(ConvoyError):
            form(meter, text, way=way)
    finally:
        gc.enable()
    return meter
