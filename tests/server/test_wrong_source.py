"""A request that names the wrong language of its text gets its answer, and a warning."""

from __future__ import annotations

import pytest

from engine.text.detect import surely_other
from tests.support.served import server

SERVED = ("de", "en", "fr")
ENGLISH = "The weather is nice today and we are going to the beach."
GERMAN = "Das ist gut und ich gehe heute nach Hause."


@pytest.mark.parametrize(
    ("text", "language", "other"),
    [
        (ENGLISH, "fr", "en"),
        (ENGLISH, "de-AT", "en"),
        (GERMAN, "en", "de"),
        ("Le chat est sur la table et il dort.", "de", "fr"),
        ("Hola amigo, no sé qué hacer con esto en la casa", "en", "es"),  # it is not served
        (ENGLISH + " Xyzzy" * 10_000, "fr", "en"),
    ],
)
def test_language_of_a_clear_text_is_found(text, language, other):
    assert surely_other(text, language, SERVED) == other


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (ENGLISH, "en"),
        (ENGLISH, "en-GB"),
        (ENGLISH, "tlh"),  # without a list of common words
        ("Hello!", "de"),
        ("", "de"),
        ("12:30", "fr"),
        ("Download the app", "de"),
        ("Der Film heißt The Good, the Bad and the Ugly.", "de"),
        ("C'est la vie and that's it for me", "en"),
        ("de la Cruz et al. 2019", "en"),
        ("OK Computer Radiohead Live", "de"),
        ("Das Meeting ist um 5 im Office", "de"),
    ],
)
def test_doubtful_texts_are_left_alone(text, language):
    assert surely_other(text, language, SERVED) is None


def test_libretranslate_and_deepl_warn_and_answer():
    with server() as (client, *_):
        wrong = {"q": ENGLISH, "source": "de", "target": "en"}
        for body in (wrong, wrong | {"q": [ENGLISH]}, wrong | {"q": f"<p>{ENGLISH}</p>", "format": "html"}):
            answer = client.post("/translate", json=body)
            assert answer.status_code == 200
            assert answer.json()["warnings"]["source"] == (
                "the text seems to be in English (en), not in German (de), as the request says"
            )
            assert answer.json()["translatedText"]
        for fine in (wrong | {"q": GERMAN}, wrong | {"source": "auto"}, wrong | {"q": "Hello!"}):
            assert "warnings" not in client.post("/translate", json=fine).json()
        body = {"text": [ENGLISH], "source_lang": "DE", "target_lang": "EN-GB"}
        answer = client.post("/v2/translate", json=body).json()
        assert "English" in answer["warnings"]["source_lang"]
        assert answer["translations"][0]["text"]
        assert "warnings" not in client.post("/v2/translate", json=body | {"text": [GERMAN]}).json()
