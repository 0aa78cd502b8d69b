"""Sources of settings: empty variables, links of services, and secrets in files."""

import pytest

from engine.errors import InvalidRequest
from server.settings import ServerSettings
from server.settings.sources import is_link

KEY = "0123456789abcdef0123"


def secrets(settings):
    tokens = (settings.metrics_auth_token, settings.docs_auth_token, settings.admin_token)
    return [token and token.get_secret_value() for token in tokens]


def test_empty_variables_are_the_defaults(monkeypatch):
    for name in ServerSettings.model_fields:
        monkeypatch.setenv(f"CONVOY_{name.upper()}", "")
    assert ServerSettings() == ServerSettings.model_construct()


def test_addresses_of_services_are_no_ports(monkeypatch):
    monkeypatch.setenv("CONVOY_PORT", "tcp://10.96.0.12:80")
    assert ServerSettings().port == 8000
    monkeypatch.setenv("CONVOY_PORT", "9000")
    assert ServerSettings().port == 9000
    for name in ("CONVOY_SERVICE_PORT_HTTP", "CONVOY_TEST_SERVICE_HOST", "CONVOY_PORT_80_TCP_ADDR"):
        assert is_link(name, "x")
    for name in ServerSettings.model_fields:
        assert not is_link(f"CONVOY_{name.upper()}", "1")


def test_secrets_are_read_from_files(monkeypatch, tmp_path):
    (tmp_path / "keys").write_text(f"{KEY}\n{KEY[::-1]}\n")
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "redis").write_text("redis://:password@redis:6379\n")
    monkeypatch.setenv("CONVOY_API_KEYS_FILE", str(tmp_path / "keys"))
    monkeypatch.setenv("CONVOY_ADMIN_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("CONVOY_LIMIT_STORAGE_FILE", str(tmp_path / "redis"))
    settings = ServerSettings()
    assert [key.get_secret_value() for key in settings.api_keys] == [KEY, KEY[::-1]]
    assert secrets(settings) == [None, None, "secret"]
    assert settings.limit_storage == "redis://:password@redis:6379"
    assert secrets(ServerSettings(admin_token="of a flag"))[2] == "of a flag"


def test_mounted_secrets_are_found_and_empty_ones_are_none(monkeypatch, tmp_path):
    monkeypatch.setattr("server.settings.sources.SECRETS_FOLDER", tmp_path)
    (tmp_path / "convoy_metrics_auth_token").write_text("secret")
    (tmp_path / "CONVOY_DOCS_AUTH_TOKEN").write_text("other")
    (tmp_path / "convoy_admin_token").write_text("\n")
    (tmp_path / "kubernetes.io").mkdir()
    assert secrets(ServerSettings()) == ["secret", "other", None]
    monkeypatch.setenv("CONVOY_METRICS_AUTH_TOKEN", "of a variable")
    assert secrets(ServerSettings())[0] == "of a variable"


def test_unusable_files_of_secrets_are_refused(monkeypatch, tmp_path):
    path = tmp_path / "token"
    monkeypatch.setenv("CONVOY_ADMIN_TOKEN_FILE", str(path))
    with pytest.raises(InvalidRequest, match=r"CONVOY_ADMIN_TOKEN_FILE: can't read .* \(No such file"):
        ServerSettings()
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidRequest, match="not text in UTF-8"):
        ServerSettings()
    with path.open("wb") as file:
        file.truncate(1 << 21)
    with pytest.raises(InvalidRequest, match="larger than"):
        ServerSettings()
    path.write_text("secret")
    monkeypatch.setenv("CONVOY_ADMIN_TOKEN", "another")
    with pytest.raises(InvalidRequest, match="CONVOY_ADMIN_TOKEN and CONVOY_ADMIN_TOKEN_FILE are both set"):
        ServerSettings()
