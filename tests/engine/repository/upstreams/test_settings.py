"""The file with the upstreams, and one clear line for each mistake in it."""

import pytest

from engine.errors import ConfigError
from engine.repository.upstreams.settings import read_upstreams

LEAST = 'url = "http://localhost:11434"\nmodel = "gemma"\nlanguages = ["de", "en"]\n'


def read(folder, text):
    (folder / "upstream.toml").write_text(text, "utf-8")
    return read_upstreams(folder / "upstream.toml")


def test_the_least_settings_are_an_address_a_model_and_languages(tmp_path):
    (found,) = read(tmp_path, f"[gemma]\n{LEAST}")
    assert (found.name, found.model, found.host) == ("gemma", "gemma", "localhost:11434")
    assert found.directions.sources == found.directions.targets == ("de", "en")


@pytest.mark.parametrize(
    "address", ["http://h:1", "http://h:1/v1", "http://h:1/v1/", "http://h:1/v1/chat/completions"]
)
def test_the_address_may_end_anywhere_before_chat_completions(tmp_path, address):
    text = LEAST.replace("http://localhost:11434", address)
    assert read(tmp_path, f"[gemma]\n{text}")[0].url == "http://h:1/v1/chat/completions"


def test_the_key_comes_from_a_variable_and_is_no_part_of_texts_or_digests(tmp_path, monkeypatch):
    text = f'[gemma]\n{LEAST}key_variable = "KEY_OF_TEST"\n'
    found = []
    for key in ("one", "two"):
        monkeypatch.setenv("KEY_OF_TEST", key)
        found += read(tmp_path, text)
    assert [one.key for one in found] == ["one", "two"]
    assert found[0].digest == found[1].digest
    assert "'one'" not in repr(found[0])


def test_the_digest_depends_on_the_settings_that_change_answers(tmp_path):
    def count(*additions):
        return len({read(tmp_path, f"[gemma]\n{LEAST}{more}")[0].digest for more in additions})

    assert (
        count("", 'unit = "sentence"', "longest = 500", 'family = "hy-mt"', "[gemma.body]\neffort = 1") == 5
    )
    assert count("", "timeout = 5", "parallel = 9", "price = 1.0") == 1, "a job continues with other limits"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gemma", "not a TOML file"),
        ("gemma = 1", "must be a table"),
        ('["a+b"]\nurl = "x"', "must be a table"),
        ('[gemma]\nmodel = "m"\nlanguages = "*"', "url is missing"),
        (f"[gemma]\n{LEAST}temprature = 1", "unknown entry 'temprature'"),
        (f"[gemma]\n{LEAST}timeout = -1", "timeout must be a number between"),
        (f"[gemma]\n{LEAST}timeout = true", "timeout must be a number between"),
        (f'[gemma]\n{LEAST}family = "gpt"', "family must be one of generic"),
        (f'[gemma]\n{LEAST}unit = "text"', "unit must be one of sentence"),
        (f'[gemma]\n{LEAST}prefers = ["german"]', "prefers must be pairs"),
        (f"[gemma]\n{LEAST}prefers = 5", "prefers must be pairs"),
        (f"[gemma]\n{LEAST}price = [1]", "price must be one price"),
        (f"[gemma]\n{LEAST}price_per_day = 1", "price_per_day needs price"),
        (f"[gemma]\n{LEAST}body = 1", "body must be a table"),
        (f'[gemma]\n{LEAST}key_file = "none"', "can't read"),
        (f'[gemma]\n{LEAST}key_variable = "NO_SUCH_VARIABLE_HERE"', "is not set"),
        (f'[gemma]\n{LEAST}key_file = "a"\nkey_variable = "b"', "set one of"),
        (f'[gemma]\n{LEAST}key = "sk-1"', "unknown entry 'key'"),
        ("[gemma]\n" + LEAST.replace("http://", "http://me:pw@"), "must not contain a password"),
        ("[gemma]\n" + LEAST.replace("http://", "file:///"), "url must be an address"),
        ("[gemma]\n" + LEAST.replace('"de"', '"klingon"'), "no code of a language"),
        ("[gemma]\n" + LEAST.replace('["de", "en"]', "[]"), "languages must be codes"),
    ],
)
def test_a_mistake_is_refused_with_the_remedy(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message) as refusal:
        read(tmp_path, text)
    assert "sk-1" not in str(refusal.value) and "pw" not in str(refusal.value)


def test_a_missing_or_enormous_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="can't read"):
        read_upstreams(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="larger than"):
        read(tmp_path, "#" * (1 << 20) + "\n")
