"""DeepL's own client against a server with the shipped models, which have placeholder symbols."""

from contextlib import ExitStack
from pathlib import Path

import deepl
import pytest

from tests.support.deepl_clients import make_impatient
from tests.support.served import server

MODELS = Path(__file__).parents[3] / "models"
KEYS = "a-key-of-somebody,a-key-of-another"


@pytest.fixture(scope="module")
def place():
    """Address of the server, and a web client for it."""
    if not (MODELS / "tatoeba-de-en").is_dir():
        pytest.skip("the shipped models are not there")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.served.bundles", lambda: MODELS)
        lanes = {"lanes": ((1, 4), (5, 8)), "verify": False}
        opened = ExitStack()
        client, _, _ = opened.enter_context(server(service_settings=lanes, api_keys=KEYS))
    with opened:
        yield str(client.base_url).rstrip("/"), client


@pytest.fixture
def translators(place, monkeypatch):
    """DeepL's clients of two users, whose glossaries are deleted afterwards."""
    make_impatient(monkeypatch)
    found = [deepl.Translator(key, server_url=place[0]) for key in KEYS.split(",")]
    yield found
    for translator in found:
        for glossary in translator.list_glossaries():
            translator.delete_glossary(glossary)


@pytest.fixture
def translator(translators):
    return translators[0]
