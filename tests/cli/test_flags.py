"""Flags that are made of the fields of TextOptions and DecodeOptions."""

import inspect
from collections.abc import Mapping
from typing import Literal

import pytest
import typer
from typer.testing import CliRunner

from cli.corpus import corpus
from cli.flags import NO_FLAGS, flags_of, option_flag, options_of
from cli.translate import translate
from engine.api import USUAL_OPTIONS, InvalidRequest, offered_options


@pytest.mark.parametrize("command", [translate, corpus])
def test_every_text_option_of_translations_is_a_flag(command):
    names = {option.name for option in offered_options("translate")} - NO_FLAGS
    assert {"raw", "ignore", "glossary"} < names
    assert names <= inspect.signature(command).parameters.keys()


@pytest.mark.parametrize(
    ("kind", "words", "value"),
    [
        (str | None, ["--tag", "a b"], "a b"),
        (Literal["a", "b"], ["--tag", "a"], "a"),
        (tuple[str, ...], ["--tag", "a", "--tag", "b"], ["a", "b"]),
        (tuple[int, ...] | None, ["--tag", "3"], [3]),
        (Mapping[str, str], ["--tag", "a=b"], ["a=b"]),
        (bool, ["--tag"], True),
        (float, [], None),
        (tuple[str, ...], [], None),
    ],
)
def test_option_of_any_type_has_a_flag(kind, words, value):
    found, app = [], typer.Typer()

    @app.command()
    def command(tag: option_flag("tag", kind, "A tag.") = None):
        found.append(tag)

    assert CliRunner().invoke(app, words).exit_code == 0
    assert found == [value]


def test_flags_that_are_not_given_leave_the_usual_options():
    assert options_of("translate", dict.fromkeys(flags_of("translate"))) == USUAL_OPTIONS["translate"]
    assert options_of("summarize", {}) == USUAL_OPTIONS["summarize"]


def test_repeated_flags_become_tuples_and_mappings():
    values = {"ignore": ["Das Haus", "a=b"], "glossary": ["Baum=tree", "x=y=z"], "beam_size": 3}
    options = options_of("translate", values)
    assert (options.ignore, dict(options.decode)) == (("Das Haus", "a=b"), {"beam_size": 3})
    assert options.glossary == {"Baum": "tree", "x": "y=z"}


@pytest.mark.parametrize("text", ["Baum", "=tree", "Baum="])
def test_glossary_entry_without_two_phrases_is_refused(text):
    with pytest.raises(InvalidRequest, match="SOURCE=TARGET"):
        options_of("translate", {"glossary": [text]})
