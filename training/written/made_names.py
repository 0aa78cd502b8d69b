"""Make names of persons, places, firms and products, so that a model learns to copy names.

A model that always sees the same names learns these names by heart. The parts of compounds are common parts
of German, English and French names; other names are random syllables.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

from engine.text.given_names import GIVEN_NAMES

PARTS_FILE: Final = Path(__file__).parent / "name_parts.tsv"  # a part that is repeated is more frequent
LANGUAGES: Final = ("german", "english", "french")
OPEN_SHARE: Final = 0.4  # share of the syllables without a coda
CONSONANTS: Final = "bcdfghjklmnpqrstvwxz"


class NameMaker:
    """Makes names from the draws of a generator."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.given = sorted(GIVEN_NAMES)
        rows = (line.split("\t") for line in PARTS_FILE.read_text(encoding="utf-8").splitlines())
        self.parts = {kind: parts.split(" ") for kind, parts in rows}
        self.weights = {
            self.compound: 40,
            self.word: 18,
            self.full: 12,
            self.product: 12,
            self.acronym: 5,
            self.hyphenated: 4,
            self.firm: 4,
            self.command: 5,
        }

    def name(self) -> str:
        """Return a name of any kind: surname, place, person, product, firm, acronym or command."""
        (make,) = self.rng.choices([*self.weights], [*self.weights.values()])
        return make()

    def compound(self) -> str:
        """Return a surname or place of two parts, such as "Silbermoos"."""
        language = self.rng.choice(LANGUAGES)
        first, last = self._part(f"{language} beginnings"), self._part(f"{language} ends")
        return first + (last.capitalize() if first.endswith("-") else last)

    def word(self) -> str:
        """Return a word of two or three syllables with a capital, such as "Radion"."""
        return self._syllables().capitalize()

    def full(self) -> str:
        """Return a first name or initial with a surname, some with a particle."""
        first = self.rng.choice((self.word, self._given, self._given, self._initial))()
        last = self.rng.choice((self.compound, self.compound, self.word))()
        if self.rng.random() < 0.25:
            particle = self._part("particles")
            last = f"{particle}{last}" if particle in ("Mc", "O'") else f"{particle} {last}"
        return f"{first} {last}"

    def product(self) -> str:
        """Return a product with a number or a model, such as "Tarvo 8" or "Kelbury XR15"."""
        name = self.rng.choice((self.word, self.compound))()
        letters = "".join(self.rng.sample(CONSONANTS.upper(), self.rng.randrange(0, 3)))
        number = self.rng.randrange(1, 10 ** self.rng.randrange(1, 5))
        return f"{name} {letters}{self.rng.choice(('', '', '-')) if letters else ''}{number}"

    def acronym(self) -> str:
        """Return two to five capitals, some with a number."""
        letters = "".join(self.rng.choices(CONSONANTS.upper() + "AEIOU", k=self.rng.randrange(2, 6)))
        return letters + self.rng.choice(
            ("", "", f"-{self.rng.randrange(1, 1000)}", str(self.rng.randrange(1, 100)))
        )

    def hyphenated(self) -> str:
        """Return two names with a hyphen."""
        return f"{self.compound()}-{self.rng.choice((self.compound, self.word))()}"

    def firm(self) -> str:
        """Return a firm with its legal form."""
        return f"{self.rng.choice((self.word, self.compound))()} {self._part('legal forms')}"

    def command(self) -> str:
        """Return a word in small letters, such as the name of a program or a server."""
        joint = self.rng.choice(("", "", "-", "_"))
        return f"{self._syllables()}{joint}{self.rng.choice(('', self._syllables(1)))}".strip("-_")

    def _given(self) -> str:
        return self.rng.choice(self.given)

    def _initial(self) -> str:
        return f"{self.rng.choice(CONSONANTS).upper()}."

    def _syllables(self, count: int = 0) -> str:
        """Return syllables in small letters; two or three if `count` is 0."""
        text = ""
        for _ in range(count or self.rng.choice((2, 2, 3))):
            text += self._part("onsets") + self._part("vowels")
            if self.rng.random() > OPEN_SHARE:
                text += self._part("codas")
        return text

    def _part(self, kind: str) -> str:
        return self.rng.choice(self.parts[kind])
