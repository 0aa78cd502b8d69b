"""Augment sentence pairs with kinds of text that users type, but that a corpus of sentences lacks.

Each form changes both sides of a pair, or only the source if the model is to correct it. The seed decides
which pairs are changed, and how.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final

from engine.text.languages import rules_of
from engine.text.languages.rules import ENGLISH_NUMERALS
from training.recipe import Augment
from training.words.lexicon import lexicon
from training.written.made_names import NameMaker

Pair = tuple[str, str]
MAX_JOINED: Final = 4
ENDS: Final = ".!?"
QUOTES: Final = [('"', '"'), ("„", "“"), ("“", "”"), ("»", "«"), ("«", "»"), ("'", "'")]
TYPOGRAPHY: Final = {"'": "’", "...": "…", '"': "”", " - ": " – "}
NUMBER: Final = re.compile(r"(?<![\w.,:])\d+(?![\w:]|[.,]\d)")
NAME_WORD: Final = re.compile(r"\b[A-Z][a-z]{2,}\b")
COMMAS: Final = ",,:"  # a comma twice as often as a colon
MAX_COMMA_WORDS: Final = 8
SHORT_WORDS: Final = 2  # words of a greeting or a button
KNOWN_NAME_SHARE: Final = 0.2  # share of the names of the corpus among the other names
MIN_NAME_SENTENCES: Final = 2  # a name must occur inside this many sentences


class Forms:
    """The forms of a pair, named like their shares in a recipe's [augment]; None if a form does not fit."""

    def __init__(self, pairs: Sequence[Pair], languages: tuple[str, str], seed: int) -> None:
        self.pairs, self.languages = pairs, languages
        self.rng = random.Random(seed)  # nosec B311 # reproducible, no secret
        self.names = names(pairs)
        self.known_names = sorted(self.names)
        self.maker = NameMaker(self.rng)

    def joined(self, pair: Pair) -> Pair:
        """Return two to four pairs joined in one line."""
        others = [self.rng.choice(self.pairs) for _ in range(self.rng.randint(1, MAX_JOINED - 1))]
        sources, targets = zip(pair, *others, strict=True)
        return " ".join(sources), " ".join(targets)

    def bare(self, pair: Pair) -> Pair | None:
        """Return a pair without final marks, which menus, headings and chats leave out."""
        if not all(len(text) > 1 and text[-1] in ENDS and text[-2].isalnum() for text in pair):
            return None
        return pair[0][:-1], pair[1][:-1]

    def commas(self, pair: Pair) -> Pair | None:
        """Return a short pair with a comma or colon at its end, as openings of letters and items have."""
        pair = self.bare(pair) or pair
        if len(pair[0].split()) > MAX_COMMA_WORDS or not all(text[-1:].isalnum() for text in pair):
            return None
        mark = self.rng.choice(COMMAS)
        spaced = (" " if mark == ":" and language == "fr" else "" for language in self.languages)
        source, target = (f"{text}{space}{mark}" for text, space in zip(pair, spaced, strict=True))
        return source, target

    def lower(self, pair: Pair) -> Pair:
        """Return the source in lower case, with or without its final mark; the target keeps its case."""
        # `bare` returns None for a pair without final marks: the pair itself is taken
        source, target = (self.rng.random() < 0.5 and self.bare(pair)) or pair
        return source.lower(), target

    def capitals(self, pair: Pair) -> Pair:
        """Return both sides in ALL CAPS."""
        return pair[0].upper(), pair[1].upper()

    def quoted(self, pair: Pair) -> Pair:
        """Return both sides in quotes: the source's of any style, the target's plain."""
        opening, closing = self.rng.choice(QUOTES)
        inner = "'" if opening == "'" else '"'
        return f"{opening}{pair[0]}{closing}", f"{inner}{pair[1]}{inner}"

    def typographic(self, pair: Pair) -> Pair | None:
        """Return the source with typographic apostrophes, quotes, dots and dashes."""
        source = pair[0]
        for plain, typeset in TYPOGRAPHY.items():
            source = source.replace(plain, typeset)
        return None if source == pair[0] else (source, pair[1])

    def numbers(self, pair: Pair) -> Pair | None:
        """Replace the numbers that both sides share by others, in the spelling of each language."""
        source, target = pair
        shared = sorted(set(NUMBER.findall(source)) & set(NUMBER.findall(target)))
        if not shared:
            return None
        others = {number: self._number(number) for number in shared}

        def replace_numbers(text: str, side: int) -> str:
            return NUMBER.sub(lambda match: others[match[0]][side] if match[0] in others else match[0], text)

        return replace_numbers(source, 0), replace_numbers(target, 1)

    def named(self, pair: Pair) -> Pair | None:
        """Replace a name that both sides share by another name of the corpus, or by a made one."""
        shared = sorted(set(NAME_WORD.findall(pair[0])) & set(NAME_WORD.findall(pair[1])) & self.names.keys())
        if not shared:
            return None
        old, new = self.rng.choice(shared), self._name()
        pattern = re.compile(rf"\b{old}\b")
        return pattern.sub(new, pair[0]), pattern.sub(new, pair[1])

    def _number(self, like: str) -> Pair:
        """Return a number with as many digits as `like`, in the spelling of both languages.

        15 % of the numbers have decimals, 10 % a group of three further digits.
        """
        value = self.rng.randrange(10 ** (len(like) - 1), 10 ** len(like))
        kind = self.rng.random()
        spelled = [(str(value), str(value))]
        numerals = [rules_of(language).numerals or ENGLISH_NUMERALS for language in self.languages]
        if kind < 0.15:
            tail = self.rng.randrange(1, 100)
            spelled = [(f"{value}{numerals[0].decimal}{tail}", f"{value}{numerals[1].decimal}{tail}")]
        elif kind < 0.25:
            tail = self.rng.randrange(1000)
            spelled = [(f"{value}{numerals[0].group}{tail:03}", f"{value}{numerals[1].group}{tail:03}")]
        return spelled[0]

    def _name(self) -> str:
        """Return a name of the corpus, or a made one."""
        known = self.rng.random() < KNOWN_NAME_SHARE
        return self.rng.choice(self.known_names) if known else self.maker.name()


def augment(pairs: Sequence[Pair], shares: Augment, languages: tuple[str, str], seed: int) -> list[Pair]:
    """Return the pairs, followed by the augmented ones.

    pairs: pairs of all corpora.
    shares: share of the pairs that are also changed to each form.
    languages: codes of the source and target language.
    seed: seed of all draws.
    """
    forms = Forms(pairs, languages, seed)
    more: list[Pair] = []
    for name, share in asdict(shares).items():
        if name not in REPEATED:
            form: Callable[[Pair], Pair | None] = getattr(forms, name)
            sampled = (form(pair) for pair in pairs if forms.rng.random() < share)
            more += [pair for pair in sampled if pair is not None]
        elif share:
            more += REPEATED[name](forms) * share
    return [*pairs, *more]


def _words(forms: Forms) -> list[Pair]:
    """Return the entries of a dictionary learnt from the pairs."""
    return lexicon(forms.pairs)


def _short(forms: Forms) -> list[Pair]:
    """Return the pairs of one or two source words, without final marks."""
    short = (pair for pair in dict.fromkeys(forms.pairs) if len(pair[0].split()) <= SHORT_WORDS)
    return [forms.bare(pair) or pair for pair in short]


# forms whose "share" is a number of repetitions of all their pairs
REPEATED: Final[dict[str, Callable[[Forms], list[Pair]]]] = {"words": _words, "short": _short}


def names(pairs: Sequence[Pair]) -> Counter[str]:
    """Return the names in the pairs, with the number of pairs of each.

    A name has the same spelling with a capital on both sides of a pair, never occurs in lower case, and does
    not only occur at the beginning of sentences.
    """
    inside: Counter[str] = Counter()
    lower: set[str] = set()
    for source, target in pairs:
        lower.update(word for text in (source, target) for word in re.findall(r"\b[a-z]+\b", text))
        common = set(NAME_WORD.findall(source)) & set(NAME_WORD.findall(target))
        inside.update(word for word in common if not (source.startswith(word) and target.startswith(word)))
    return Counter({w: n for w, n in inside.items() if n >= MIN_NAME_SENTENCES and w.lower() not in lower})
