"""Written templates, collected text with placeholders, and encoded corpora of both directions."""

from __future__ import annotations

import gzip
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.training.numbers import TINY, write_numbers
from training import encoded
from training.augmentation import Forms
from training.cleaning import normalise
from training.collect import (
    HELD_OUT_COLUMNS,
    HELD_OUT_FILE,
    WRITTEN_COLUMNS,
    WRITTEN_FILE,
    masked,
    read_held_out,
)
from training.data import train_vocabulary
from training.encode_corpus import build
from training.prepare import prepare, read_part
from training.recipe import Recipe, load
from training.written.templates import FOLDER, LANGUAGES, PHRASES, SLOT, Slots, expand, read_slots


def slots_of(text: str) -> set[str]:
    """Return the slots whose values a text has."""
    found = SLOT.findall(text)
    return {(PHRASES[name][0] if name in PHRASES else name) + number for name, number in found}


def test_every_template_has_known_slots_that_all_its_languages_share() -> None:
    values = read_slots(FOLDER / "slots.tsv")
    known = {*values, *Slots(values, random.Random(0)).made}
    for line in (FOLDER / "templates.tsv").read_text("utf-8").splitlines()[1:]:
        domain, *sides = line.split("\t")
        assert domain and len(sides) == len(LANGUAGES), line
        german, *others = map(slots_of, sides)
        assert all(slots == german for slots in others), line
        assert {slot.rstrip("0123456789") for slot in german} <= known, line


def test_pairs_of_templates_are_distinct_filled_and_reproducible() -> None:
    rows = expand(("de", "en"), 5, 1)
    assert rows == expand(("de", "en"), 5, 1) and len(set(rows)) == len(rows) > 1000
    assert not [row for row in rows if re.search(r"\{[a-z_]+\d?\}", row[1] + row[2])]
    greetings = [(source, target) for _, source, target in rows if source.startswith("Liebe Frau ")]
    assert greetings and all(source.split()[-1] == target.split()[-1] for source, target in greetings)


def test_half_hours_of_templates_have_the_hour_of_each_language() -> None:
    hours = {"halb acht": "half past seven", "halb eins": "half past twelve"}
    rows = {source: target for _, source, target in expand(("de", "en"), 60, 1)}
    for german, english in hours.items():
        assert rows[f"Es ist {german}."] == f"It's {english}."


def test_protected_text_of_collected_pairs_becomes_the_same_placeholder_on_both_sides() -> None:
    rng = random.Random(1)
    source, target = masked(("<b>%s</b> von {name}", "{name} has <b>%s</b>"), rng) or ("", "")
    first, second = re.findall(r"<ph\d+>", source)
    assert (source, target) == (f"{first} von {second}", f"{second} has {first}")
    assert masked(("%s Dateien", "%d files"), rng) is None
    assert masked(("{name}", "{name}"), rng) is None


@pytest.mark.parametrize(("language", "colon"), [("de", ":"), ("fr", " :")])
def test_comma_or_colon_ends_both_sides_of_short_pairs(language: str, colon: str) -> None:
    forms = Forms([("a", "b")], (language, "en"), 1)
    found = {forms.commas(("Hund.", "Dog.")) for _ in range(30)}
    assert found == {("Hund,", "Dog,"), (f"Hund{colon}", "Dog:")}
    assert forms.commas(("Hund (alt)", "Dog (old)")) is None
    assert forms.commas(("Das ist ein sehr langer Satz mit vielen Wörtern.", "x.")) is None


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Recipe, Recipe]:
    """An encoded corpus, its vocabulary and its recipes."""
    folder = tmp_path_factory.mktemp("both")
    write_numbers(folder, {"train": 200, "valid": 20, "test": 20})
    forward = TINY.replace("source_column = 0", "").replace("target_column = 1", "")
    columns = "[corpus]\nsource_column = 1\ntarget_column = 0"
    (folder / "there.toml").write_text(forward, "utf-8")
    back = forward.replace("[corpus]", columns).replace('name = "numbers"', 'name = "back"')
    (folder / "back.toml").write_text(back, "utf-8")
    first, second = (load(folder / name, "cpu") for name in ("there.toml", "back.toml"))
    train_vocabulary(first, read_part(first, folder, "numbers", "train"), folder / "vocabulary")
    return folder, folder / "vocabulary.model", first, second


def test_encoded_corpus_gives_each_direction_its_pairs(both: tuple[Path, Path, Recipe, Recipe]) -> None:
    folder, vocabulary, first, second = both
    (folder / "run").mkdir()
    (folder / "run" / "vocabulary.model").write_bytes(vocabulary.read_bytes())
    plain = prepare(second, folder, folder / "run")
    more = folder / "more.tsv"
    more.write_text(
        "\n".join("\t".join(pair) for pair in read_part(second, folder, "numbers", "test")), "utf-8"
    )
    path = build((first, second), folder, vocabulary, {"back": more})
    there, back = (encoded.pairs_of(path, name) for name in ("numbers", "back"))
    assert len(back[0].sources) == len(there[0].sources) + 20
    for own, opposite in ((there[0], back[0]), (there[1], back[1])):
        for mine, theirs in ((own.sources, opposite.targets), (own.targets, opposite.sources)):
            assert [row.tolist() for row in mine] == [row.tolist() for row in theirs[: len(mine)]]
    assert [row.tolist() for row in plain[1].sources] == [row.tolist() for row in back[1].sources]
    assert len(prepare(second, folder, folder / "elsewhere")[0].sources) == len(back[0].sources)


def held_out_sides() -> set[str]:
    """Return the normalised texts of all languages of the held-out lines."""
    pairs = (pair for language in ("de", "fr") for pair in read_held_out(HELD_OUT_FILE, language))
    return {normalise(side) for pair in pairs for side in pair}


def test_held_out_set_has_two_hundred_lines_of_each_domain_in_three_languages() -> None:
    rows = [line.split("\t") for line in HELD_OUT_FILE.read_text("utf-8").splitlines()]
    assert {len(row) for row in rows} == {len(HELD_OUT_COLUMNS)} and all(map(all, rows))
    domains = "letters", "chat", "shops", "software", "recipes", "laws", "news", "everyday"
    assert Counter(row[0] for row in rows) == dict.fromkeys(domains, 200)
    for number in range(1, len(HELD_OUT_COLUMNS)):
        assert len({normalise(row[number]) for row in rows}) == len(rows)


def test_held_out_lines_keep_fields_and_numbers_in_all_languages() -> None:
    for row in (line.split("\t") for line in HELD_OUT_FILE.read_text("utf-8").splitlines()):
        assert len({tuple(sorted(re.findall(r"\{\w+\}|%(?:\d\$)?[ds]", side))) for side in row[1:]}) == 1, row


def test_written_lines_have_three_sides_and_equal_no_held_out_line() -> None:
    with gzip.open(WRITTEN_FILE, "rt", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    assert {len(row) for row in rows} == {len(WRITTEN_COLUMNS)} and all(map(all, rows))
    assert len({(row[0].lower(), row[1].lower()) for row in rows}) == len(rows) > 10_000
    assert held_out_sides().isdisjoint(normalise(side) for row in rows for side in row)


def test_no_template_or_phrase_equals_a_held_out_line() -> None:
    sides = held_out_sides()
    for language in ("de", "fr"):
        made = {normalise(side) for row in expand((language, "en"), 5, 1) for side in row[1:]}
        phrases = (FOLDER.parent / "phrases.tsv").read_text("utf-8").splitlines()[1:]
        made |= {normalise(side) for line in phrases for side in line.split("\t")}
        assert sides.isdisjoint(made)
