"""Known words: their file in a bundle, and words of a text that are not among them."""

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from engine.bundle.bundle import add_files
from engine.errors import BundleError
from engine.text.known_words import (
    KNOWN_WORDS_FILE,
    TENSORS,
    KnownWords,
    hashes,
    is_compound,
    read_known_words,
    stem,
)
from engine.text.placeables.spelling import has_similar_word
from engine.text.unknown_words import find_unknown_words

MODEL = Path(__file__).parents[3] / "models" / "tatoeba-en-de"


@pytest.fixture
def folder(tmp_path):
    if not MODEL.is_dir():
        pytest.skip("models/tatoeba-en-de is not there")
    return shutil.copytree(MODEL, tmp_path / "model")


def known_words(language, small=(), capitals=(), before_names=()):
    stems = {stem(word, language) for word in small}
    return KnownWords(language, hashes(stems), hashes(capitals), hashes(before_names), hashes(()))


ENGLISH = known_words("en", ["we", "meet", "lake", "house", "tuesday"], ["Monday"], ["Lake"])
GERMAN = known_words("de", ["wir", "sehen", "Haus", "Boot", "Fahrt", "Antrag", "Marmelade", "schläft"])


def test_bundle_returns_the_words_that_were_written(folder):
    bundle = add_files(folder, {KNOWN_WORDS_FILE: ENGLISH.dump()})
    assert read_known_words(bundle) == ENGLISH
    assert read_known_words(add_files(folder, {KNOWN_WORDS_FILE: None})) is None


def file_of(**changes):
    return save({name: np.array([1, 5], np.uint32) for name in TENSORS} | changes)


def without_a_tensor():
    return save({name: np.array([1, 5], np.uint32) for name in TENSORS[1:]})


def of_type(name):
    """Return a file with tensors of a type that NumPy may lack."""
    rows = {tensor: {"dtype": name, "shape": [0], "data_offsets": [0, 0]} for tensor in TENSORS}
    head = json.dumps(rows).encode()
    return struct.pack("<Q", len(head)) + head


@pytest.mark.parametrize(
    "content",
    [
        b"",
        file_of()[:40],
        file_of()[:-1],
        file_of() + b"x",
        without_a_tensor(),
        struct.pack("<Q", 2**62) + b"{}",
        struct.pack("<Q", 50_000_000) + b"{}" * 8,
        file_of(stems=np.array([1, 5], np.int64)),
        file_of(stems=np.array([1, 5], np.float32)),
        file_of(capitals=np.array([5, 1], np.uint32)),
        file_of(capitals=np.array([5, 5], np.uint32)),
        file_of(before_names=np.array([[1, 5]], np.uint32)),
        file_of(stems=np.array(5, np.uint32)),
        of_type("BF16"),
        of_type("F8_E4M3"),
        of_type("F4"),
    ],
)
def test_damaged_file_is_refused_with_the_remedy(folder, content):
    bundle = add_files(folder, {KNOWN_WORDS_FILE: content})
    with pytest.raises(
        BundleError, match=r"known_words\.safetensors.*run: convoy words .* --pairs FILE"
    ) as e:
        read_known_words(bundle)
    assert "\n" not in str(e.value)


def test_server_refuses_a_bundle_with_a_damaged_file(folder):
    from engine.api import Placement, Service, ServiceSettings

    add_files(folder, {KNOWN_WORDS_FILE: b"damaged"})
    with pytest.raises(BundleError, match="convoy words"):
        Service.open([folder], ServiceSettings(Placement(lanes=((5, 2),)), verify=False))


@pytest.mark.parametrize(
    ("word", "language", "expected"),
    [
        ("houses", "en", "hous"),
        ("house", "en", "hous"),
        ("Anträge", "de", "antrag"),
        ("Antrags", "de", "antrag"),
        ("Ofen", "de", "ofe"),
        ("Ofens", "de", "ofe"),
        ("Fahrers", "de", "fahr"),
        ("les", "fr", "les"),
        ("Häuser", "xx", "hauser"),
    ],
)
def test_stem_has_neither_endings_nor_umlauts(word, language, expected):
    assert stem(word, language) == expected


def test_german_compound_of_known_words_is_known():
    assert GERMAN.knows("Hausboot")
    assert GERMAN.knows("Hausantragsboote")
    assert not GERMAN.knows("Hausbaum")
    assert not ENGLISH.knows("lakehouse"), "English has few compounds in one word"


def test_long_word_is_no_compound():
    assert not is_compound("haus" * 11, "de", lambda part: True)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("We meet on Monday.", []),
        ("we meet Zorblatt tuesday", [("Zorblatt", True)]),
        ("We meet at the lake", []),
        ("we meet near Lake Zorblatt", [("Zorblatt", True)]),
        ("Zorblatts meet", [("Zorblatts", False)]),
        ("We meet zorblatts", []),
    ],
)
def test_words_that_are_not_known_are_found(text, found):
    known = known_words("en", ["we", "meet", "near", "lake", "tuesday"], ["Monday"], ["Lake"])
    words = list(find_unknown_words(text, known))
    assert [(text[word.begin : word.end], word.name) for word in words] == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Wir sehen das Hausboot.", []),
        ("Wir sehen Zorblatt.", [("Zorblatt", False)]),
        ("Zorblatt Haus", [("Zorblatt Haus", False)]),
        ("„Zorblatter Haus am Boot“", [("Zorblatter Haus", False)]),
        ("Zorblatt Hausantrag", [("Zorblatt Hausantrag", False)]),
        ("Zorblatt Hausbootsfahrt", [("Zorblatt", False)]),
        ("Lisa Hausbootsfahrt", [("Lisa Hausbootsfahrt", False)]),
        ("Wir sehen AfD", [("AfD", False)]),
        ("Wir sehen das „Hausboot“.", [("Hausboot", False)]),
        ("Wir sehen das „Haus“.", []),
        ("Wir sehen SC Haus", [("SC Haus", True)]),
        ("Wir sehen USB Haus", [("USB", True)]),
        ("Wir sehen die AfD", [("AfD", False)]),
        ("Wir sehen Hausdeich", [("Hausdeich", False)]),
    ],
)
def test_german_nouns_that_are_not_known_are_found(text, found):
    words = list(find_unknown_words(text, GERMAN))
    assert [(text[word.begin : word.end], word.name) for word in words] == found


@pytest.mark.parametrize(
    "text",
    [
        "Wir sehen die Zorblatt.",
        "Wir sehen keinen Zorblatt.",
        "Wir sehen Zorblattung",
        "Zorblattweise sehen wir",
        "Wir sehen Zormarmelade",
        "Zorblatten Sie",
        "Zor, wir sehen",
        "Zorblatter Haus",
        "Wir sehen das Zorblatter Haus",
        "Lisas Haus",
    ],
)
def test_german_word_that_is_no_name_is_left_to_the_model(text):
    assert not list(find_unknown_words(text, GERMAN))


def test_word_with_the_same_beginning_is_similar():
    assert has_similar_word("He studies feminism.", "Feminismus")
    assert has_similar_word("Das ist ZORBLATT", "Zorblatt")
    assert not has_similar_word("He studies feminine words.", "Feminismus")
    assert not has_similar_word("He studies zorblattlessly.", "Zorblatt")
    assert not has_similar_word("a lot ofZorblatt", "Zorblatt")
