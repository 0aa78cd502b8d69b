"""Phrases with fixed translations, the rule for names, and their file."""

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import table
from cli.name_rules import TriedRule, choose_rule
from engine.api import Placement, Service, ServiceSettings, TextOptions
from engine.bundle.bundle import add_files, open_bundle
from engine.errors import BundleError
from engine.text.words import WORDS_FILE, BundleWords, dump_words, key, read_words

MODEL = Path(__file__).parents[3] / "models" / "tatoeba-en-de"
PROTECTED = TextOptions(protect=True, follow_form=True)
pytestmark = pytest.mark.skipif(not MODEL.is_dir(), reason="models/tatoeba-en-de is not there")


@pytest.fixture(scope="module")
def service():
    service = Service.open([MODEL], ServiceSettings(Placement(lanes=((5, 16),)), verify=False))
    service.start()
    yield service
    service.stop(drain=False, timeout=10)


def answers(service, texts, options=PROTECTED):
    return [result.text for result in asyncio.run(service.run("tatoeba-en-de", texts, options))]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Log out", "Abmelden"),
        ("log out!", "Abmelden!"),
        ("UPLOAD", "HOCHLADEN"),
        ("Hello, World!", "Hallo, Welt!"),
        ("- Upload\n- Log out", "- Hochladen\n- Abmelden"),
        ("<b>Upload</b>", "<b>Hochladen</b>"),
        ("Hello world. Good night!", "Hallo Welt. Gute Nacht!"),
    ],
)
def test_fixed_phrase_gets_its_translation(service, text, answer):
    assert answers(service, [text]) == [answer]


def test_fixed_translation_has_no_tokens_or_alternatives_and_is_aligned_by_words(service):
    options = TextOptions(protect=True, alternatives=2, alignment=True, coverage=True)
    (result,) = asyncio.run(service.run("tatoeba-en-de", ["Log out"], options))
    assert (result.text, result.tokens, result.alternatives) == ("Abmelden", [], [])
    (alignment,) = result.alignment
    assert alignment.fixed
    assert alignment.source_places == [(0, 3), (4, 7), None]
    assert alignment.matrix.tolist() == [[0.5, 0.5, 0], [0, 0, 1]]
    (result,) = asyncio.run(service.run("tatoeba-en-de", ["Save <b>as</b>"], options))
    assert result.text.replace("<b>", "").replace("</b>", "") == "Speichern unter"
    assert result.text.count("<b>") == result.text.count("</b>") == 1


def test_model_translates_phrases_within_a_sentence_with_a_prefix_or_unprotected(service):
    fixed = open_bundle(MODEL, verify=False)
    assert read_words(fixed).translation("Upload") == "Hochladen"
    (result,) = asyncio.run(service.run("tatoeba-en-de", ["Upload"], PROTECTED))
    assert (result.tokens, result.score) == ([], 0.0)
    bare = TextOptions(), TextOptions(protect=True, raw=True)
    for options in (*bare, TextOptions(protect=True, prefix="Das")):
        (result,) = asyncio.run(service.run("tatoeba-en-de", ["Upload"], options))
        assert result.tokens
    assert asyncio.run(service.run("tatoeba-en-de", ["Upload it now."], PROTECTED))[0].tokens


def test_phrases_are_compared_without_case_and_final_marks():
    words = BundleWords(None, {key("Log out"): "Abmelden"})
    assert words.translation(" LOG OUT ?!") == "Abmelden"
    assert words.translation("Log out now") is None
    assert words.translation("Log out" + "!" * 1_000_000) is None


PHRASES = {
    "Dear {f}": "Liebe {f}",
    "Dear {m}": "Lieber {m}",
    "Dear Mr. {s}": "Sehr geehrter Herr {s}",
    "Kind regards": "Mit freundlichen Grüßen",
    "Best wishes, {g}": "Viele Grüße, {g}",
}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Dear Anna,", "Liebe Anna,"),
        ("dear Anna Miller!", "Liebe Anna Miller"),
        ("Dear John:", "Lieber John :"),
        ("Dear Mr. Baker,", "Sehr geehrter Herr Baker,"),
        ("Kind regards,", "Mit freundlichen Grüßen,"),
        ("Best wishes, Peter", "Viele Grüße, Peter"),
        ("Emily Carpenter", "Emily Carpenter"),
        ("Dear Diary,", None),
        ("Dear anna,", None),
        ("Dear Mr. Baker and all,", None),
        ("Red Carpenter", None),
        ("Anna", None),
    ],
)
def test_phrase_keeps_the_comma_and_the_name_at_its_end(text, answer):
    phrases = {key(source): target for source, target in PHRASES.items()}
    assert BundleWords(0, phrases, " :").translation(text) == answer


def test_full_name_is_left_to_a_model_without_a_rule_for_names():
    assert BundleWords(None, {}).translation("Emily Carpenter") is None


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b"{",
        b'{"names": true}',
        b'{"names": -1}',
        b'{"names": 1e400}',
        b'{"names": "4"}',
        b'{"phrases": []}',
    ]
    + [b'{"phrases": {"a": 1}}', b'{"phrases": {"": "a"}}', b'{"phrases": {"a": " "}}']
    + [
        json.dumps({"phrases": {"a" * 65: "b"}}).encode(),
        json.dumps({"phrases": {str(i): "b" for i in range(4097)}}).encode(),
    ],
)
def test_error_names_a_file_with_other_content(tmp_path, content):
    shutil.copytree(MODEL, tmp_path / "model")
    bundle = add_files(tmp_path / "model", {WORDS_FILE: content})
    with pytest.raises(BundleError, match=r"words\.json.*run: convoy words"):
        read_words(bundle)


def test_command_writes_the_phrases_of_the_direction_and_the_card_lists_them(tmp_path):
    shutil.copytree(MODEL, tmp_path / "model")
    phrases = tmp_path / "phrases.tsv"
    phrases.write_text(
        "de\ten\tfr\nHaus\tHouse\tMaison\nHeim\tHouse\tFoyer\n"
        "Das ist alles viel zu lang hier\tAll of this is much too long\t-\n"
    )
    for _ in range(2):  # the second run replaces the file of the first
        command = ["words", str(tmp_path / "model"), "--phrases", str(phrases), "--names", "5"]
        result = CliRunner().invoke(table, command)
        assert result.exit_code == 0, result.output
    bundle = open_bundle(tmp_path / "model")
    assert read_words(bundle) == BundleWords(5, {"house": "Haus"})
    assert bundle.file(WORDS_FILE).read_bytes() == dump_words(5, {"House": "Haus"})
    card = bundle.file("README.md").read_text("utf-8")
    assert card.count("## Words by rule") == card.count("## Scores\n") == card.count("House = Haus") == 1
    assert "5 tokens or more" in card


def test_settings_without_a_flag_stay_unchanged(tmp_path):
    folder = shutil.copytree(MODEL, tmp_path / "model")
    before = read_words(open_bundle(folder))
    assert before.phrases
    manifest = (folder / "manifest.json").read_bytes()

    def words(*flags):
        result = CliRunner().invoke(table, ["words", str(folder), *flags])
        assert result.exit_code == 0, result.output
        return result.output, read_words(open_bundle(folder))

    told, found = words()
    assert (folder / "manifest.json").read_bytes() == manifest
    assert f"{len(before.phrases)} phrases, --names {before.names}, " in told
    assert words("--names", "9")[1] == replace(before, names=9)
    (tmp_path / "phrases.tsv").write_text("de\ten\nHaus\tHouse\n")
    assert words("--phrases", str(tmp_path / "phrases.tsv"))[1] == BundleWords(9, {"house": "Haus"})
    assert words("--reset")[1] == BundleWords()
    add_files(folder, {WORDS_FILE: b"[]"})
    assert words("--reset", "--names", "4")[1] == BundleWords(4), "as the error about such a file says"


def test_phrases_of_other_languages_are_refused(tmp_path):
    phrases = tmp_path / "phrases.tsv"
    phrases.write_text("de\tes\nHaus\tCasa\n")
    result = CliRunner().invoke(table, ["words", str(MODEL), "--phrases", str(phrases)])
    assert result.exit_code and "has no column en" in str(result.exception)


def test_rule_that_keeps_most_words_and_loses_no_score_is_chosen():
    tried = [
        TriedRule(None, 30.0, 0.5),
        TriedRule(0, 29.95, 0.8),
        TriedRule(3, 29.5, 0.99),
        TriedRule(4, 31.0, 0.8),
    ]
    assert choose_rule(tried).names == 0
    assert choose_rule([TriedRule(None, 30.0, 0.5), TriedRule(0, 29.0, 0.9)]).names is None


def test_rule_for_names_is_chosen_by_pairs_and_written(tmp_path):
    """Without a rule the model loses these names. Every rule keeps them, so the first is chosen."""
    pytest.importorskip("sacrebleu")
    shutil.copytree(MODEL, tmp_path / "model")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(
        "Have you seen Quvenzhané Wallis?\tHast du Quvenzhané Wallis gesehen?\n"
        "I met Krzysztof Szczepański.\tIch habe Krzysztof Szczepański getroffen.\n",
        "utf-8",
    )
    command = ["words", str(tmp_path / "model"), "--choose-names", str(pairs)]
    result = CliRunner().invoke(table, command)
    assert result.exit_code == 0, result.output
    none, chosen, *_ = (line.split("\t") for line in result.output.splitlines()[1:])
    assert (none[0], chosen[0], chosen[3]) == ("-", "0", "chosen")
    assert float(none[2].rstrip("%")) < float(chosen[2].rstrip("%"))
    assert read_words(open_bundle(tmp_path / "model")).names == 0
    refused = CliRunner().invoke(table, [*command, "--names", "3"])
    assert refused.exit_code != 0
    assert "--choose-names" in str(refused.exception)
