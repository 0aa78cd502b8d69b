"""`convoy keys`."""

from __future__ import annotations

import json

from server.callers.keys import KeyRing
from tests.cli.commands import done, failure


def test_key_is_printed_once_listed_by_id_and_revoked(tmp_path, capsys):
    path = tmp_path / "keys.json"
    done("keys", "new", "--file", path, "--name", "Ann", "--requests", 5, "--characters", -1)
    printed = capsys.readouterr()
    (token,) = printed.out.split()
    assert token not in printed.err
    done("keys", "new", "--file", path)
    other = capsys.readouterr().out.strip()
    done("keys", "list", "--file", path, "--json")
    listed = capsys.readouterr().out
    first, second = json.loads(listed)
    assert (first["name"], first["requests"], first["characters"]) == ("Ann", 5, -1)
    done("keys", "list", "--file", path)
    shown = capsys.readouterr().out
    assert [row.split()[0] for row in shown.splitlines()] == ["id", first["id"], second["id"]]
    assert not [text for text in (token, other) if text in shown + listed + path.read_text()]
    assert KeyRing((), path).find(token).name == "Ann"
    done("keys", "revoke", "--file", path, "Ann")
    assert KeyRing((), path).find(token) is None
    assert KeyRing((), path).find(other).id == second["id"]


def test_errors_of_keys_name_the_remedy(tmp_path, capsys):
    missing = tmp_path / "none.json"
    for command in (["list"], ["revoke", "Ann"]):
        code, message = failure(capsys, "keys", *command, "--file", missing)
        assert code == 2
        assert "convoy keys new" in message
    assert not missing.exists()
    done("keys", "new", "--file", missing)
    capsys.readouterr()
    assert "keys list" in failure(capsys, "keys", "revoke", "Bob", "--file", missing)[1]
    assert failure(capsys, "keys")[0] == 2
    assert "--file" in failure(capsys, "keys", "new")[1]
