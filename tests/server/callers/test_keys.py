"""API keys at rest: hashes, edits and changes of the key file."""

import hashlib
import json
import stat
import threading

import pytest

from engine.api import ConfigError, InvalidRequest
from server.app import create_app
from server.callers import keys
from server.callers.keys import KeyRing, digest_of, editing, keys_from_tokens, make_key, read_keys, remove_key
from server.observing.metrics import Metrics
from server.settings import ServerSettings

KEY = "a-key-that-an-operator-chose"


def test_key_file_holds_hashes_but_no_tokens(tmp_path):
    path = tmp_path / "keys.json"
    with editing(path) as stored:
        made = [make_key(name, 10, 500) for name in ("Ann", "Bob", "Bob")]
        stored += [key for key, _ in made]
    text = path.read_text()
    assert not [token for _, token in made if token in text]
    for (_, token), entry in zip(made, json.loads(text)["keys"], strict=True):
        assert entry["digest"] == hashlib.sha256(token.encode()).hexdigest()
        assert len(token) == len("cvy_") + 43  # 256 bits in base64
    assert len({token for _, token in made}) == 3
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_keys(path) == tuple(key for key, _ in made)


def test_concurrent_edits_are_all_kept(tmp_path):
    path = tmp_path / "keys.json"

    def add(number):
        for _ in range(10):
            with editing(path) as stored:
                stored.append(make_key(f"{number}")[0])

    threads = [threading.Thread(target=add, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(key.name for key in read_keys(path)) == sorted("0123" * 10)
    assert {p.name for p in tmp_path.iterdir()} == {"keys.json", ".keys.json.lock"}


def test_failed_edit_changes_nothing(tmp_path):
    path = tmp_path / "keys.json"
    with editing(path) as stored:
        stored.append(make_key("Ann")[0])
    before = path.read_bytes()
    with pytest.raises(InvalidRequest, match="keys list"), editing(path) as stored:
        stored.clear()
        remove_key(stored, "Bob")
    assert path.read_bytes() == before


def test_key_is_revoked_by_id_or_unique_name():
    made = [make_key(name)[0] for name in ("Ann", "Bob", "Bob")]
    stored = list(made)
    with pytest.raises(InvalidRequest, match="2 keys are named 'Bob'"):
        remove_key(stored, "Bob")
    assert remove_key(stored, made[1].id) == made[1]
    assert remove_key(stored, "Bob") == made[2]
    assert stored == [made[0]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "keys": []}',
        '{"version": 1, "keys": [{"id": "a"}]}',
        '{"version": 1, "keys": ["secret-token-secret"]}',
        "secret-token-secret",
        "[" * 100_000,
        '{"version":1,"keys":[{"id":"a","name":"b","digest":"zz","created":"","requests":1,"characters":1}]}',
        '{"version":1,"keys":[{"id":"a","name":"b","digest":"%s","created":"","requests":-2,"characters":1}]}'
        % ("00" * 32),
    ],
)
def test_invalid_key_file_is_refused_without_quoting_it(tmp_path, text):
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="keys.json") as raised:
        read_keys(path)
    assert "secret" not in str(raised.value)


def test_error_of_a_missing_key_file_names_the_command(tmp_path):
    with pytest.raises(ConfigError, match="convoy keys new"):
        create_app(None, ServerSettings(api_key_file=tmp_path / "none.json"), Metrics())


def test_changed_key_file_is_read_and_damaged_file_keeps_the_last_keys(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(keys, "STALE_SECONDS", -1.0)  # check the file at every request
    path = tmp_path / "keys.json"
    (ann, token), (bob, other) = make_key("Ann"), make_key("Bob")
    with editing(path) as stored:
        stored.append(ann)
    ring = KeyRing(keys_from_tokens([KEY]), path)
    assert ring.find(token) == ann
    assert ring.find(other) is None
    with editing(path) as stored:
        stored[:] = [bob]
    assert ring.find(token) is None
    assert ring.find(other) == bob
    path.write_text("{")
    assert ring.find(other) == bob
    assert "the last keys stay valid" in caplog.text
    path.unlink()
    assert ring.find(other) == bob
    assert ring.find(KEY) is not None


async def test_digest_of_a_token_is_sha_256():
    assert digest_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
