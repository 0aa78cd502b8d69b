"""`convoy placeholders`: lets a model without symbols of its own keep phrases, numbers and names."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli import lines, texts
from cli.choices import AnswerFlags, ModelChoice
from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from engine.api import Borrowing
    from engine.bundle.bundle import Bundle

COUNT: Final = 8
NOTHING: Final = "the model copies no word of its vocabulary reliably: glossaries and ignore are refused"
FILE: Final = "placeholders.json"
THINGS: Final = ("{name}", "12,50 €", "%s", "https://example.org/a", "@anna", "+49 30 123456")
MEASURED: Final = 500  # texts of which the share that is kept whole is told


def placeholders(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder of a translating model.")],
    text: Annotated[
        Path | None, typer.Option(help="Sentences of its source language, one a line; else words it knows.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=64, help="How many phrases a sentence may keep.")] = COUNT,
) -> None:
    """Choose words that a model copies as placeholders, so that glossaries and protection work with it."""
    from engine.bundle.bundle import open_bundle

    opened = open_bundle(bundle)
    if opened.task != "translate":
        raise InvalidRequest(f"{bundle}: only translating models keep phrases")
    sentences = [line for line in lines.read(text) if line.strip()] if text else []
    choice = lend(opened, sentences, count)
    if choice is None:
        typer.echo(f"{bundle}: its vocabulary has placeholder symbols of its own")
    elif not choice.words:
        raise InvalidRequest(f"{bundle}: {NOTHING}")
    else:
        for word, share in zip(choice.words, choice.shares, strict=True):
            typer.echo(f"{word.word}\t{share:.0%}")
    if sentences:
        share = copy_rate(ModelChoice(bundle), opened.name, sentences)
        typer.echo(f"kept whole: {share:.1%} of the texts with such things")


def lend(bundle: Bundle, sentences: Sequence[str] = (), count: int = COUNT) -> Borrowing | None:
    """Choose placeholders of a translating model and write them into its bundle, which has its graphs.

    Returns words and how often each was copied, none where nothing was; None where the vocabulary has symbols
    of its own.
    """
    from engine.bundle.bundle import add_files

    greedy = AnswerFlags({"beam_size": 1})
    with texts.open_service(ModelChoice(bundle.path), greedy) as service:
        (info,) = service.models()
        if info.placeholders and FILE not in bundle.files():
            return None
        choice = service.borrow(info.name, bundle.config.source_vocab, sentences, count)
    if choice.words:
        add_files(bundle.path, choice.files)
    return choice


def copy_rate(place: ModelChoice, name: str, sentences: Sequence[str]) -> float:
    """Measure the share of sentences whose answer holds exactly once what was put into them."""
    draw = random.Random(2)
    pairs = []
    for sentence in draw.sample(sentences, min(MEASURED, len(sentences))):
        thing, words = draw.choice(THINGS), sentence.split(" ")
        words.insert(draw.randint(1, len(words)), thing)
        pairs.append((" ".join(words), thing))
    with texts.open_service(place, AnswerFlags()) as service:
        options = AnswerFlags().options()
        results = service.run_many(name, (text for text, _ in pairs), options)
        hits = [result.text.count(thing) == 1 for result, (_, thing) in zip(results, pairs, strict=True)]
    return sum(hits) / max(1, len(hits))
