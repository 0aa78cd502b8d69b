"""Random German sentences with the lengths of news, reproducible from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# clauses of 3 to 9 words; joined, they make sentences of any length
CLAUSES: Final = (
    "der Zug nach Hamburg fährt heute nicht",
    "wir haben das Haus am See verkauft",
    "sie liest jeden Abend ein langes Buch",
    "die Kinder spielen im Garten hinter dem Haus",
    "es regnet seit drei Tagen",
    "mein Bruder arbeitet in einem Krankenhaus",
    "niemand wusste eine Antwort auf die Frage",
    "der Lehrer erklärte uns die Aufgabe noch einmal",
    "ich möchte morgen nach Berlin fahren",
    "die Stadt baut eine neue Brücke",
    "er hat den Schlüssel verloren",
    "das Wetter war im Sommer sehr schön",
    "viele Menschen warten vor dem Bahnhof",
    "die Regierung hat das Gesetz beschlossen",
    "sein Hund schläft unter dem Tisch",
    "im Winter ist der Weg gefährlich",
)
JOINTS: Final = (", und ", ", aber ", ", denn ", ", weil ", ", obwohl ")
# numbers of words of newstest sentences: log-normal
MEDIAN_LOG: Final = 2.9  # median of 18 words
SPREAD: Final = 0.55
LONGEST_WORDS: Final = 70


def sentences(seed: int, path: Path | None = None) -> Iterator[str]:
    """Yield sentences without end.

    seed: start of the random numbers; equal seeds give equal results.
    path: file of one sentence a line to draw from, or None.
    """
    chance = random.Random(seed)
    if path is not None:
        lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
        if not lines:
            raise ValueError(f"{path} holds no sentences")
        while True:
            yield chance.choice(lines)
    while True:
        yield sentence(chance, min(LONGEST_WORDS, max(3, round(chance.lognormvariate(MEDIAN_LOG, SPREAD)))))


def sentence(chance: random.Random, words: int) -> str:
    """Return a sentence of at least one clause and about `words` words."""
    text = chance.choice(CLAUSES)
    while len(text.split()) < words - 3:
        text += chance.choice(JOINTS) + chance.choice(CLAUSES)
    return f"{text[0].upper()}{text[1:]}."


def document(chance: random.Random, count: int) -> str:
    """Return a text of `count` sentences."""
    return " ".join(sentence(chance, chance.randint(6, 30)) for _ in range(count))
