"""`convoy placeholders`: chooses words as placeholders for a model without placeholder symbols."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from cli import lines, local
from cli.choices import ModelChoice
from engine.answers.options import USUAL_OPTIONS
from engine.errors import InvalidRequest

DEFAULT_PLACEHOLDERS: Final = 8
THINGS: Final = ("{name}", "12,50 €", "%s", "https://example.org/a", "@anna", "+49 30 123456")
MAX_MEASURED_SENTENCES: Final = 500  # sample of the texts for `copy_rate`


def placeholders(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder of a translating model.")],
    text: Annotated[
        Path | None,
        typer.Option(
            help="File of sentences in the source language, one a line; default: words of the vocabulary."
        ),
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            min=1, max=64, help="Number of placeholders, which limits the phrases kept in a sentence."
        ),
    ] = DEFAULT_PLACEHOLDERS,
) -> None:
    """Choose words that a model copies as placeholders, so that glossaries and protection work with it."""
    from engine.bundle.bundle import add_files, open_bundle
    from export.importers.proving import NOTHING_COPIED, choose_placeholders

    opened = open_bundle(bundle)
    if opened.task != "translate":
        raise InvalidRequest(f"{bundle}: only translating models have placeholders")
    sentences = [line for line in lines.read(text) if line.strip()] if text else []
    choice = choose_placeholders(opened, sentences, count)
    if choice is None:
        typer.echo(f"{bundle}: its vocabulary has placeholder symbols of its own")
    elif not choice.words:
        raise InvalidRequest(f"{bundle}: {NOTHING_COPIED}")
    else:
        add_files(bundle, choice.files)
        for word, share in zip(choice.words, choice.shares, strict=True):
            typer.echo(f"{word.word}\t{share:.0%}")
    if sentences:
        share = copy_rate(ModelChoice(bundle), opened.name, sentences)
        typer.echo(f"copied: {share:.1%} of the inserted numbers, addresses and names")


def copy_rate(place: ModelChoice, name: str, sentences: Sequence[str]) -> float:
    """Return how often a model copies a number, address or name in a sentence, from 0 to 1.

    place: the model, and where it runs.
    name: name of the model.
    sentences: text of the source language; one of THINGS is inserted into each at random.

    A copy counts if the answer contains it exactly once.
    """
    draw = random.Random(2)
    pairs = []
    for sentence in draw.sample(sentences, min(MAX_MEASURED_SENTENCES, len(sentences))):
        thing, words = draw.choice(THINGS), sentence.split(" ")
        words.insert(draw.randint(1, len(words)), thing)
        pairs.append((" ".join(words), thing))
    options = USUAL_OPTIONS["translate"]
    with local.open_service(place, options) as service:
        results = service.run_many(name, (text for text, _ in pairs), options)
        hits = [result.text.count(thing) == 1 for result, (_, thing) in zip(results, pairs, strict=True)]
    return sum(hits) / max(1, len(hits))
