"""Language codes of two and three letters, and directions by both."""

import pytest

from engine.answers.directions import Directions, name_of, parse_direction
from engine.errors import UnknownModel
from engine.text.codes import SHORT, by_short_code, short
from engine.text.language_names import LANGUAGE_NAMES
from server.languages import inward

OPUS = Directions(("en",), tuple(by_short_code(("deu", "fra", "srp_Cyrl", "de"))))


def test_every_language_of_the_server_has_one_code_of_three_letters():
    own = {"no", "pb", "zt", "zh"}  # codes of LibreTranslate, and codes of several languages
    assert set(LANGUAGE_NAMES) - own <= set(SHORT.values())
    assert len(set(SHORT.values())) == len(SHORT)
    assert all(len(long) == 3 and len(code) == 2 for long, code in SHORT.items())


@pytest.mark.parametrize(
    ("long", "code"), [("deu", "de"), ("eng", "en"), ("nld", "nl"), ("zho", "zh"), ("ces", "cs")]
)
def test_code_of_three_letters_gives_the_code_of_two(long, code):
    assert short(long) == short(code) == inward(long.upper()) == code


def test_codes_without_a_short_form_stay():
    assert [short(code) for code in ("ase", "srp_Cyrl", "pt-br", "")] == ["ase", "srp_Cyrl", "pt-br", ""]


def test_directions_are_listed_once_and_found_by_both_codes():
    assert OPUS.targets == ("de", "fr", "srp_Cyrl")
    assert OPUS.fit("eng", "deu")
    assert OPUS.fit(None, "fra")
    assert not OPUS.fit("deu", "fr")
    assert not OPUS.fit("en", "eng")
    assert name_of("opus", OPUS, "eng", "fra") == name_of("opus", OPUS, "en", "fr") == "opus@en:fr"
    assert name_of("opus", OPUS, "eng", "deu") == "opus"
    assert parse_direction("opus", OPUS, "eng:fra") == ("en", "fr")
    assert OPUS.within(("eng", "deu")) == Directions(("en",), ("de",))
    with pytest.raises(UnknownModel):
        parse_direction("opus", OPUS, "de:fr")
