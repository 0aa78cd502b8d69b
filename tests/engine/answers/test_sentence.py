"""The form of an answer to one sentence."""

from dataclasses import replace

import pytest

from engine.answers.options import ResolvedOptions
from engine.answers.sentence import Sentence
from engine.text.placeables import grammar, markup
from engine.types import DecodeOptions
from tests.support.copying import text_model

PLAIN = ResolvedOptions(DecodeOptions(), protect=True)
FORMED = replace(PLAIN, follow_form=True)
PAIR = ("en", "de")


@pytest.mark.parametrize(
    ("text", "answer", "plain", "formed"),
    [
        ("the door is open", "Die Tür ist offen.", "Die Tür ist offen.", "Die Tür ist offen"),
        ("come in!", "komm rein.", "komm rein.", "komm rein!"),
        ("PLEASE COME IN!", "Komm bitte rein.", "KOMM BITTE REIN.", "KOMM BITTE REIN!"),
    ],
)
def test_case_and_final_marks_follow_on_request_and_capitals_always(text, answer, plain, formed):
    sentence = Sentence(text, [1])
    assert sentence.formed(answer, PLAIN, PAIR) == plain
    assert sentence.formed(answer, FORMED, PAIR) == formed
    # a clause has no final mark of its own
    assert replace(sentence, clause=True).formed(answer, PLAIN, PAIR) == formed


def test_beginning_of_a_stream_is_a_beginning_of_the_answer():
    sentence = Sentence("PLEASE COME IN!", [1])
    for options in (PLAIN, FORMED):
        whole = sentence.formed("Komm bitte rein.", options, PAIR)
        assert whole.startswith(sentence.formed_beginning("Komm bitte", options, PAIR))


def test_sentence_with_wrong_numbers_is_decoded_from_its_digits_on_without_them():
    options = Sentence("um acht", [1], banned=(7, 9), prefix=(4, 5)).options(DecodeOptions(beam_size=3))
    assert (options.prefix, options.quotas, options.n_best) == ((4, 5), ((7, 0), (9, 0)), 3)


def test_first_text_compiles_no_large_pattern():
    compiled = grammar.placeables, markup._markup_pattern, markup._long_pattern
    for pattern in compiled:
        pattern.cache_clear()
    text_model.__wrapped__()
    assert [pattern.cache_info().currsize for pattern in compiled] == [1, 1, 1]
