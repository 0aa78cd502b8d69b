"""The application: internal errors, settings and mounting."""

import httpx
import pytest

from engine.api import BundleError
from server.app import create_app
from server.observing.metrics import Metrics
from server.settings import ServerSettings
from tests.support.served import MODELS, bundles, open_service, server


async def test_internal_error_is_a_json_500_and_is_logged(caplog):
    metrics = Metrics()
    app = create_app(open_service(), ServerSettings(), metrics)

    @app.get("/fault")
    async def fault() -> None:
        raise RuntimeError("by design")

    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/fault")
        assert (answer.status_code, answer.json()) == (500, {"error": "internal error: see the server's log"})
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "by design" in caplog.text
        assert (await client.get("/health/ready")).status_code == 503
        assert (await client.get("/health")).status_code == 200
        answer = await client.post("/translate", json={"q": "Gut.", "source": "de", "target": "de"})
        assert answer.json() == {"translatedText": "Gut."}
    assert 'outcome="failed",route="/fault"' in metrics.text().decode()


def test_settings_come_from_the_environment(monkeypatch, tmp_path):
    for name, value in {"MODELS": f"{tmp_path}:b", "LANES": "1x2, 5x3", "PORT": "9", "THREADS": "3"}.items():
        monkeypatch.setenv(f"CONVOY_{name}", value)
    found = ServerSettings()
    assert [str(m) for m in found.models] == [str(tmp_path), "b"]
    assert (found.lanes, found.port, found.threads) == (((1, 2), (5, 3)), 9, 3)
    assert found.service().placement.lanes == ((1, 2), (5, 3))
    assert ServerSettings(models=bundles()).models == (bundles(),)


@pytest.mark.parametrize("lanes", ["5", "1x2x3", "ax1", "0x4", "", "1x-2"])
def test_invalid_lanes_are_refused(lanes):
    with pytest.raises(ValueError, match="lanes are pairs"):
        ServerSettings(lanes=lanes)


def test_variables_of_libretranslate_are_read(monkeypatch):
    given = {
        "LT_HOST": "0.0.0.0",
        "LT_PORT": "5000",
        "LT_CHAR_LIMIT": "500",
        "LT_BATCH_LIMIT": "10",
        "LT_ALTERNATIVES_LIMIT": "2",
        "LT_THREADS": "4",
        "LT_LOAD_ONLY": "de, EN,pt-BR",
        "LT_URL_PREFIX": "lt/",
        "LT_FRONTEND_TIMEOUT": "9",
        "LT_FRONTEND_LANGUAGE_SOURCE": "de",
        "LT_FRONTEND_LANGUAGE_TARGET": "en",
        "LT_DISABLE_FILES_TRANSLATION": "true",
        "LT_DEBUG": "1",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CONVOY_PORT", "6000")
    found = ServerSettings(threads=3)
    assert (found.host, found.port, found.threads) == (
        "0.0.0.0",
        6000,
        3,
    )  # our variable has precedence over LibreTranslate's, and a flag over both
    assert (found.char_limit, found.batch_limit, found.alternatives_limit) == (500, 10, 2)
    assert (found.languages, found.url_prefix) == (("de", "en", "pb"), "/lt")
    assert (found.frontend_timeout, found.frontend_source, found.frontend_target) == (9, "de", "en")
    assert (found.files, found.log_level) == (False, "debug")
    for name in given:
        monkeypatch.setenv(name, "")
    assert ServerSettings().port == 6000
    assert ServerSettings().host == "127.0.0.1"


def test_load_only_limits_the_loaded_models():
    assert [i.name for i in open_service(languages=("de", "en")).models()] == sorted(MODELS)
    assert [i.name for i in open_service(languages=("en",)).models()] == ["toy-title"]
    with pytest.raises(BundleError, match="no model is for the languages"):
        open_service(languages=("fr",))


def test_server_can_be_mounted_under_a_prefix():
    with server(url_prefix="lt") as (client, _, _):
        for path in ("/lt/languages", "/languages", "/lt/v2/health/live"):
            assert client.get(path).status_code == 200
        assert set(client.get("/lt/v2/usage/x").json()) == {"message"}
        files = {"file": ("a.txt", b"Gut.")}
        answer = client.post("/lt/translate_file", files=files, data={"source": "de", "target": "en"})
        url = answer.json()["translatedFileUrl"]
        assert url.startswith(f"{str(client.base_url).rstrip('/')}/lt/download_file/")
        assert client.get(url).status_code == 200


def test_suggestions_are_off_by_default(client):
    answer = client.post("/suggest", data={"q": "a", "s": "b", "source": "de", "target": "en"})
    assert (answer.status_code, answer.json()) == (
        403,
        {"error": "Suggestions are disabled on this server: --suggestions FILE enables them."},
    )


def test_uninstalled_source_tree_has_its_own_version(monkeypatch):
    from importlib import metadata

    from engine.backends import UNINSTALLED_VERSION, program_version

    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    assert program_version() == metadata.version("convoy-server")
    monkeypatch.setattr(metadata, "version", absent)
    assert program_version() == UNINSTALLED_VERSION


@pytest.mark.parametrize("kind", ["detached", "branch", "packed", "worktree", "wheel", "none"])
def test_version_names_the_commit_of_a_wheel_and_of_a_checkout(tmp_path, monkeypatch, kind):
    from engine import backends

    commit, git, tree = "a1" * 20, tmp_path / ".git", tmp_path
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text(f"{commit}\n" if kind == "detached" else "ref: refs/heads/main\n")
    if kind in ("branch", "worktree"):
        (git / "refs" / "heads" / "main").write_text(f"{commit}\n")
    (git / "packed-refs").write_text(
        f"# pack-refs\n{commit} refs/heads/{'main' if kind == 'packed' else 'x'}\n"
    )
    if kind == "worktree":
        tree, own = tmp_path / "tree", git / "worktrees" / "tree"
        own.mkdir(parents=True)
        tree.mkdir()
        (tree / ".git").write_text(f"gitdir: {own}\n")
        (own / "HEAD").write_text("ref: refs/heads/main\n")
        (own / "commondir").write_text("../..\n")
    (tree / "engine" / "backends").mkdir(parents=True)
    if kind == "wheel":
        (tree / backends.REVISION_FILE).write_text(f"{commit}\n")
    monkeypatch.setattr(backends, "__file__", str(tree / "engine" / "backends" / "__init__.py"))
    assert backends.program_revision.__wrapped__() == ("" if kind == "none" else commit)
