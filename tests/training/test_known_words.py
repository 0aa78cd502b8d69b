"""Known words are learnt from sentence pairs, and training adds them to bundles of translating models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.text.known_words import KNOWN_WORDS_FILE
from training.data import read_pairs
from training.prepare import prepare
from training.recipe import Augment, Recipe
from training.words.known_words import learn

GERMAN = [
    ("Wir sehen ein Haus.", "We see a house."),
    ("Das Haus ist alt.", "The house is old."),
    ("Das Boot ist alt.", "The boat is old."),
    ("Wir sehen ein Boot.", "We see a boat."),
    ("Wir sehen Quendolin.", "We see Quendolin."),
    ("Wir kennen Quendolin.", "We know Quendolin."),
    ("Sie sehen einen Baum.", "They see a tree."),
]
ENGLISH = [
    ("We see a house on Monday.", "Wir sehen am Montag ein Haus."),
    ("We see Quendolin on a boat.", "Wir sehen Quendolin auf einem Boot."),
    ("They see lake Zorblatt.", "Sie sehen den See Zorblatt."),
    ("They see Lake Zorblatt.", "Sie sehen den See Zorblatt."),
]


def test_words_of_several_sentences_are_known() -> None:
    known = learn(GERMAN, "de")
    assert known.knows("sehen")
    assert known.knows("Haus")
    assert not known.knows("Baum"), "one sentence is too few"


def test_name_that_stays_in_the_translation_is_not_known() -> None:
    assert not learn(GERMAN, "de").knows("Quendolin")
    known = learn(ENGLISH, "en")
    assert not known.knows("Quendolin")
    assert not known.translates("Quendolin")


def test_german_compound_of_known_words_is_known_without_being_in_the_pairs() -> None:
    known = learn(GERMAN, "de")
    assert known.knows("Hausboot")
    assert not known.knows("Hausquendolin")


def test_word_with_a_capital_and_a_translation_is_known() -> None:
    assert learn(ENGLISH, "en").translates("Monday")
    assert not learn(ENGLISH, "en").translates("Montag")


def test_word_before_a_name_is_no_part_of_the_name_if_it_is_translated() -> None:
    known = learn(ENGLISH, "en")
    assert known.precedes_names("Lake")
    assert not known.precedes_names("Zorblatt")


def test_pairs_without_words_give_no_known_words() -> None:
    known = learn([("", ""), ("1 2 3", "1 2 3"), ("...", "")], "de")
    assert not known.knows("")
    assert not len(known.stems)


def test_language_without_rules_has_known_words() -> None:
    assert learn([("ola mundo", "hello world"), ("ola", "hello")], "xx").knows("ola")


def test_training_learns_the_words_of_its_pairs_without_other_forms(
    recipe: Recipe, corpora: Path, vocabulary: Path, tmp_path: Path
) -> None:
    (tmp_path / "vocabulary.model").write_bytes(vocabulary.read_bytes())
    corpus = replace(recipe.corpus, placeholder_share=1.0, beside={"few": 3})
    prepare(replace(recipe, corpus=corpus, augment=Augment(capitals=1.0, joined=1.0)), corpora, tmp_path)
    pairs, few = (read_pairs(corpora / name / "train.tsv.gz", 0, 1) for name in ("numbers", "few"))
    expected = learn(pairs + 3 * few, "de")
    assert (tmp_path / KNOWN_WORDS_FILE).read_bytes() == expected.dump()
    assert expected.knows("eins")
