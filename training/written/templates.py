"""Make sentence pairs of the written templates: letters, names, times, shops, forms, contracts and so on.

`training/written/templates.tsv` has a template a line, in three languages; `slots.tsv` has the values of the
slots. A slot is written {name}; its value is the same on all sides. {name2} is another value of {name}.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from training.data import PLACEHOLDERS

LANGUAGES: Final = ("de", "fr", "en")
FOLDER: Final = Path(__file__).parent
SLOT: Final = re.compile(r"\{([a-z_]+?)(\d?)\}")
VOWEL: Final = re.compile(r"[aeiouyàâéèêëîïôœùûh]", re.IGNORECASE)
HALVES: Final = (
    "eins",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
)
HEURES: Final = (
    "une",
    "deux",
    "trois",
    "quatre",
    "cinq",
    "six",
    "sept",
    "huit",
    "neuf",
    "dix",
    "onze",
    "midi",
)
HOURS: Final = (
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
# minutes after the hour, or before it if negative, in words of each language
MINUTES: Final = {
    5: ("fünf nach", "cinq", "five past"),
    10: ("zehn nach", "dix", "ten past"),
    15: ("Viertel nach", "et quart", "quarter past"),
    20: ("zwanzig nach", "vingt", "twenty past"),
    -20: ("zwanzig vor", "moins vingt", "twenty to"),
    -15: ("Viertel vor", "moins le quart", "quarter to"),
    -10: ("zehn vor", "moins dix", "ten to"),
    -5: ("fünf vor", "moins cinq", "five to"),
}
UNCAPITALISED: Final = ("notes", "names", "chat")  # domains whose lines may begin in small letters
MOST_DRAWS: Final = 4  # draws for each wanted pair of a template, since draws may be equal

Sides = tuple[str, str, str]  # a text in the order of LANGUAGES


class Slots:
    """Values of slots, drawn at random."""

    def __init__(self, values: Mapping[str, Sequence[Sides]], rng: random.Random) -> None:
        self.values, self.rng = values, rng
        self.made: Mapping[str, Callable[[], Sides]] = {
            "amount": self._amount,
            "clock": self._clock,
            "date": self._date,
            "num": lambda: self._same(rng.randrange(1000, 100_000)),
            "n": lambda: self._same(rng.randrange(2, 61)),
            "percent": self._percent,
            "ph": lambda: (rng.choice(PLACEHOLDERS),) * 3,
            "temp": lambda: self._same(rng.randrange(140, 241, 10)),
            "time": self._time,
            "year": lambda: self._same(rng.randrange(1950, 2031)),
        }

    def fill(self, template: Sides) -> Sides:
        """Return the three sides of a template with the same values in their slots."""
        drawn: dict[str, Sides] = {}
        sides = []
        for side, text in enumerate(template):
            sides.append(SLOT.sub(partial(self._value, side=side, drawn=drawn), text))
        return sides[0], sides[1], sides[2]

    def _value(self, match: re.Match[str], side: int, drawn: dict[str, Sides]) -> str:
        """Return the value of a slot on a side: a value of the table, or a phrase around one."""
        name, number = match.groups()
        if name in PHRASES:
            base, phrase = PHRASES[name]
            return phrase(self._draw(base + number, drawn)[side])
        text = self._draw(name + number, drawn)[side]
        return ARTICLE.sub("", text) if name == "food" else text

    def _draw(self, slot: str, drawn: dict[str, Sides]) -> Sides:
        """Return the value of a slot, which differs from the values of its other numbers."""
        name = slot.rstrip("0123456789")
        while slot not in drawn:
            value = self.made[name]() if name in self.made else self.rng.choice(self.values[name])
            if value not in drawn.values():
                drawn[slot] = value
        return drawn[slot]

    def _same(self, value: int) -> Sides:
        return str(value), str(value), str(value)

    def _amount(self) -> Sides:
        """Return an amount of euros, with cents, with thousands or in words."""
        kind, euros, cents = self.rng.random(), self.rng.randrange(1, 200), self.rng.randrange(100)
        if kind < 0.3:
            return f"{euros} Euro", f"{euros} euros", f"{euros} euros"
        if kind < 0.45:
            thousands, rest = self.rng.randrange(1, 40), self.rng.randrange(1000)
            return (
                f"{thousands}.{rest:03} €",
                f"{thousands} {rest:03} €",
                f"€{thousands},{rest:03}",
            )
        if kind < 0.6:
            return f"{euros} €", f"{euros} €", f"€{euros}"
        return f"{euros},{cents:02} €", f"{euros},{cents:02} €", f"€{euros}.{cents:02}"

    def _percent(self) -> Sides:
        """Return a share in percent, half of them with a decimal."""
        whole, tenth = self.rng.randrange(2, 80), self.rng.randrange(1, 10)
        if self.rng.random() < 0.5:
            return f"{whole} Prozent", f"{whole} %", f"{whole} percent"
        return f"{whole},{tenth} %", f"{whole},{tenth} %", f"{whole}.{tenth}%"

    def _date(self) -> Sides:
        """Return a day of a month."""
        day, (german, french, english) = self.rng.randrange(1, 29), self.rng.choice(self.values["month"])
        return f"{day}. {german}", f"{'1er' if day == 1 else day} {french}", f"{english} {day}"

    def _time(self) -> Sides:
        """Return a time of day in digits, a third of them on the hour."""
        hour, minute = self.rng.randrange(7, 23), self.rng.choice([0, 0, 5, 10, 15, 20, 30, 30, 40, 45, 50])
        half, english = "a.m." if hour < 12 else "p.m.", (hour - 1) % 12 + 1
        if not minute:
            return f"{hour} Uhr", f"{hour} h", f"{english} {half}"
        return f"{hour}:{minute:02} Uhr", f"{hour} h {minute:02}", f"{english}:{minute:02} {half}"

    def _clock(self) -> Sides:
        """Return a time of day in words, two fifths of them half hours."""
        hour, kind = self.rng.randrange(12), self.rng.random()
        french = HEURES[hour] + ("" if hour == 11 else " heure" if hour == 0 else " heures")
        if kind < 0.4:
            following = (hour + 1) % 12
            german = str(following + 1) if self.rng.random() < 0.15 else HALVES[following]
            half = "et demi" if hour == 11 else "et demie"
            return f"halb {german}", f"{french} {half}", f"half past {HOURS[hour]}"
        if kind < 0.55:
            spoken = "ein" if hour == 0 else HALVES[hour]
            return f"{spoken} Uhr", french, f"{HOURS[hour]} o'clock"
        german, after, english = MINUTES[self.rng.choice([*MINUTES, 15, -15])]
        return f"{german} {HALVES[hour]}", f"{french} {after}", f"{english} {HOURS[hour]}"


ARTICLE: Final = re.compile(r"^(?:le |la |l')")


def _of(text: str) -> str:
    """Return a French noun without its article after "de"."""
    bare = ARTICLE.sub("", text)
    return f"d'{bare}" if VOWEL.match(bare) else f"de {bare}"


# phrases around a value of the table: slot of the value, function of the value
PHRASES: Final[Mapping[str, tuple[str, Callable[[str], str]]]] = {
    "de_food": ("food", _of),
    "le_food": ("food", lambda text: text),
    "le_en_food": ("food", lambda text: f"the {text}"),
    "of_things": ("things", _of),
    "some_things": ("things", lambda text: f"des {text}"),
    "the_things": ("things", lambda text: f"die {text}"),
    "les_things": ("things", lambda text: f"les {text}"),
    "the_en_things": ("things", lambda text: f"the {text}"),
}


def read_slots(path: Path) -> dict[str, list[Sides]]:
    """Return the values by slot. A row of two columns has words that are the same in all languages."""
    values: dict[str, list[Sides]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        slot, *sides = line.split("\t")
        rows = [(sides[0], sides[1], sides[2])] if len(sides) > 1 else [(w, w, w) for w in sides[0].split()]
        values.setdefault(slot, []).extend(rows)
    values["g"] = values["f"] + values["m"]
    return values


def expand(languages: tuple[str, str], most: int, seed: int, folder: Path = FOLDER) -> list[tuple[str, ...]]:
    """Return distinct (domain, source, target) rows of all templates.

    languages: codes of source and target, of LANGUAGES.
    most: largest number of pairs of a template; a template of names has four times as many.
    seed: seed of all draws.
    folder: folder of the templates and slots.
    """
    rng = random.Random(seed)  # nosec B311 # reproducible, no secret
    slots = Slots(read_slots(folder / "slots.tsv"), rng)
    source, target = map(LANGUAGES.index, languages)
    rows: dict[tuple[str, ...], None] = {}
    for line in (folder / "templates.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        domain, german, french, english = line.split("\t")
        wanted = (most * 4 if domain == "names" else most) if SLOT.search(german) else 1
        found: dict[tuple[str, ...], None] = {}
        for _ in range(wanted * MOST_DRAWS):
            if len(found) == wanted:
                break
            sides = slots.fill((german, french, english))
            if german.startswith("{") and domain not in UNCAPITALISED:
                sides = tuple(text[:1].upper() + text[1:] for text in sides)  # type: ignore[assignment]
            found[domain, sides[source], sides[target]] = None
        rows |= found
    return list(rows)
