"""Corpora before training: cleaned pairs, a dictionary, and augmented pairs."""

from __future__ import annotations

import random
import re
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.languages import LANGUAGES
from training.augmentation import Forms, augment, names
from training.cleaning import clean, normalise
from training.recipe import Augment
from training.words.lexicon import lexicon
from training.written.made_names import NameMaker

NOUNS = {
    "Hund": "dog", "Katze": "cat", "Haus": "house", "Baum": "tree", "Buch": "book", "Stuhl": "chair",
    "Tisch": "table", "Ball": "ball", "Brief": "letter", "Apfel": "apple", "Schuh": "shoe", "Hut": "hat",
    "Ring": "ring", "Topf": "pot", "Schirm": "umbrella", "Stein": "stone",
}  # fmt: skip
VERBS = {"sieht": "sees", "kauft": "buys", "sucht": "seeks", "findet": "finds"}
PEOPLE = ["Tom", "Anna", "Boris"]


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    rng = random.Random(0)
    lines = []
    for number in range(400):
        who, verb, noun = rng.choice(PEOPLE), rng.choice(sorted(VERBS)), rng.choice(sorted(NOUNS))
        lines.append((f"Heute {verb} {who} den {noun}.", f"Today {who} {VERBS[verb]} the {NOUNS[noun]}."))
        lines.append((f"Es kostet {number} Euro.", f"It costs {number} euros."))
    return lines


def test_harmful_pairs_are_dropped_and_counted() -> None:
    kept = [("Guten Tag.", "Good day."), ("Nein.", "No, I certainly do not."), ("Firefox", "Firefox")]
    harmful = {
        "copied": ("to be or not to be", "to be or not to be"),
        "empty": ("Ja.", " "),
        "in another language": (
            "The weather is really nice today, is it not?",
            "Das Wetter ist heute wirklich schön, nicht wahr?",
        ),
        "near a validation or test line": ("wo ist  der Bahnhof", "Where's the railway station?"),
        "of unlike lengths": ("Das ist aber ein sehr langer Satz über nichts.", "A sentence."),
        "repeated": kept[0],
    }
    held_out = [("Wo ist der Bahnhof?", "Where is the train station?")]
    cleaned = clean([*kept, *harmful.values()], held_out, ("de", "en"))
    assert cleaned.pairs == kept
    assert cleaned.dropped == dict.fromkeys(sorted(harmful), 1)


def test_normalised_lines_ignore_punctuation_and_case() -> None:
    assert normalise("„Wo ist  der BAHNHOF?“") == normalise("wo ist der bahnhof")
    assert normalise("Zimmer 12") != normalise("Zimmer 13")


def test_summaries_may_be_much_shorter_than_their_texts() -> None:
    pair = ("A long text that says many things about one matter, and then some.", "One matter")
    assert clean([pair], [("x", "y")], ("en", "en")).pairs == [pair]


def test_dictionary_contains_the_words_of_generated_sentences(pairs: list[tuple[str, str]]) -> None:
    entries = dict(lexicon(pairs))
    for german, english in (NOUNS | VERBS).items():
        assert entries[german] == english


def test_word_of_a_fixed_expression_is_no_entry() -> None:
    rng = random.Random(1)
    lines = []
    for _ in range(200):
        noun = rng.choice(sorted(NOUNS))
        lines.append((f"Der {noun} hat Nebenwirkungen.", f"The {NOUNS[noun]} has side effects."))
        lines.append((f"Der {noun} ist da.", f"The {NOUNS[noun]} is here."))
    assert "Nebenwirkungen" not in dict(lexicon(lines))
    assert dict(lexicon(lines))["Katze"] == "cat"


def test_names_have_one_spelling_on_both_sides_inside_sentences(pairs: list[tuple[str, str]]) -> None:
    assert sorted(names(pairs)) == sorted(PEOPLE)


def test_made_names_are_seldom_repeated() -> None:
    maker = NameMaker(random.Random(1))
    made = [maker.name() for _ in range(2000)]
    assert len(set(made)) > 1950
    assert all(name == name.strip() and "  " not in name for name in made)
    assert NameMaker(random.Random(1)).name() == made[0]


def test_made_names_have_every_kind() -> None:
    maker = NameMaker(random.Random(1))
    text = "\n".join(maker.name() for _ in range(2000))
    for pattern in (
        r"^\w+ \w+$",
        r"^[A-Z]\. \w+",
        r"^[A-Z]{2,5}$",
        r"^\w+ [A-Z]*-?\d+$",
        r"^\w+-\w+$",
        r" GmbH$",
        r"^[^\W\d_A-Z]+$",
    ):
        assert re.search(pattern, text, re.MULTILINE), pattern


def test_every_form_changes_both_sides_consistently(pairs: list[tuple[str, str]]) -> None:
    forms = Forms(pairs, ("de", "en"), seed=1)
    pair = ("Heute sieht Tom den Hund.", "Today Tom sees the dog.")
    assert forms.bare(pair) == ("Heute sieht Tom den Hund", "Today Tom sees the dog")
    assert forms.bare(("Hund", "dog")) is None
    assert forms.capitals(pair) == ("HEUTE SIEHT TOM DEN HUND.", "TODAY TOM SEES THE DOG.")
    for _ in range(20):
        source, target = forms.named(pair)
        name = source.removeprefix("Heute sieht ").removesuffix(" den Hund.")
        assert name and target == f"Today {name} sees the dog."
        source, target = forms.joined(pair)
        assert source.startswith(pair[0])
        assert target.startswith(pair[1])
        assert source.count(".") == target.count(".") >= 2
        source, target = forms.quoted(pair)
        assert source[1:-1] == pair[0]
        assert target[1:-1] == pair[1]
        source, target = forms.lower(pair)
        assert source.removesuffix(".") == "heute sieht tom den hund"
        assert target.removesuffix(".") == "Today Tom sees the dog"
    assert forms.typographic(("It's - well...", "x")) == ("It’s – well…", "x")
    assert forms.typographic(pair) is None


@given(number=st.integers(0, 10**7), seed=st.integers(0, 99))
def test_numbers_change_consistently_in_the_spelling_of_each_language(number: int, seed: int) -> None:
    forms = Forms([("a", "b")], ("de", "en"), seed)
    changed = forms.numbers((f"Es kostet {number} Euro.", f"It costs {number} euros."))
    assert changed is not None
    spelled = [re.search(r"[\d.,]*\d", text)[0] for text in changed]
    values = []
    for text, language in zip(spelled, ("de", "en"), strict=True):
        numerals = LANGUAGES[language].numerals
        values.append(float(text.replace(numerals.group, "").replace(numerals.decimal, ".")))
    assert values[0] == values[1]


def test_short_pairs_are_repeated_without_final_marks() -> None:
    greeting, button, sentence = (
        ("Guten Morgen!", "Good morning!"),
        ("Weiter", "Next"),
        ("Wo bist du?", "Where?"),
    )
    more = augment([greeting, button, sentence, button], Augment(short=2), ("de", "en"), 1)[4:]
    assert more == [("Guten Morgen", "Good morning"), button] * 2


def test_augmentation_adds_nothing_without_shares_and_is_reproducible(
    pairs: list[tuple[str, str]],
) -> None:
    assert augment(pairs, Augment(), ("de", "en"), 1) == pairs
    every = Augment(**dict.fromkeys(asdict(Augment()), 1))
    more = augment(pairs, every, ("de", "en"), 1)
    assert more[: len(pairs)] == pairs
    assert ("Katze", "cat") in more
    assert len(more) > 6 * len(pairs)
    assert more == augment(pairs, every, ("de", "en"), 1)
    assert more != augment(pairs, every, ("de", "en"), 2)
