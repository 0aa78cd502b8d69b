"""Mirrors made by `convoy package`, fetched by `convoy fetch` from a folder and from a local server."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from cli.main import app
from engine.bundle.bundle import open_bundle
from engine.errors import CheckpointError
from export.fetching.mirror import Mirror
from export.fetching.web import Web
from loadtest.http.serving import free_port, serving
from tests.support.served import bundles
from tests.support.students import GOLDEN


@pytest.fixture
def tree(tmp_path):
    """Return a mirror of two students."""
    root = tmp_path / "mirror"
    for pair in ("deen", "ende"):
        (root / "tiny" / pair).mkdir(parents=True)
        for path in GOLDEN.glob("*deen*"):
            shutil.copy(path, root / "tiny" / pair / path.name.replace("deen", pair))
    assert app_ends(["package", str(root)]) == 0
    return root


@pytest.fixture
def web(tree):
    """Start a local server of the mirror that supports ranges.

    Its `asked` are the received requests; `cut` is the number of bytes after which a response ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802  (the library's name)
            begin = int(re.sub(r"\D", "", self.headers.get("Range", "0")))
            asked.append((self.path, begin))
            path = tree / self.path.lstrip("/")
            if not path.is_file():
                self.send_error(404)
                return
            data = path.read_bytes()[begin:]
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: cut.pop() if cut and "model" in self.path else None])

        def log_message(self, *_):
            pass

    asked: list[tuple[str, int]] = []
    cut: list[int] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked, cut
    server.shutdown()
    server.server_close()
    thread.join()


def app_ends(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as end:
        app(arguments)
    return int(end.value.code or 0)


def offers_of(where):
    with closing(Web(print)) as web:
        return Mirror(web, str(where)).offers()


def test_mirror_is_listed(tree, capsys):
    assert app_ends(["fetch", "--mirror", str(tree)]) == 0
    lines = capsys.readouterr().out.splitlines()[-2:]
    assert [line.split()[:4] for line in lines] == [
        ["deen", "de-en", "mirror", "tiny"],
        ["ende", "en-de", "mirror", "tiny"],
    ]


def test_interrupted_download_is_continued_verified_and_imported(web, tmp_path, capsys):
    address, asked, cut = web
    cut.append(100_000)
    out = tmp_path / "out"
    assert app_ends(["fetch", "de-en", "--mirror", address, "--out", str(out)]) == 0
    model = next(path for path, _ in asked if "model" in path)
    assert [begin for path, begin in asked if path == model] == [0, 100_000]
    assert sorted(path.name for path in out.iterdir()) == [".fetched", "deen"]
    bundle = open_bundle(out / "deen")
    assert (bundle.source, bundle.target, bundle.config.quantization) == ("de", "en", "alphas")
    assert "deen" in capsys.readouterr().out


def test_index_from_another_host_is_refused(web):
    address, _, _ = web
    port = address.rpartition(":")[2]
    refused = pytest.raises(CheckpointError, match="sends to another host, localhost")
    with mirror_moved_to(f"http://localhost:{port}") as moved, refused:
        offers_of(moved)
    with mirror_moved_to(address) as moved:  # another port of the same host
        assert offers_of(moved)


@contextmanager
def mirror_moved_to(address):
    """Yield the address of a server that redirects every request to another server."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802  (the library's name)
            self.send_response(302)
            self.send_header("Location", address + self.path)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_file_that_differs_from_the_index_is_refused_and_deleted(tree, tmp_path):
    path = next((tree / "tiny" / "deen").glob("model*"))
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    with (
        closing(Web(print)) as web,
        pytest.raises(CheckpointError, match="is not the file of the index"),
    ):
        opened = Mirror(web, str(tree))
        opened.download(opened.offers()[0], tmp_path / "there", lambda _: None)
    assert not list((tmp_path / "there").glob("model*"))


def test_unreachable_mirror_gives_a_clear_error(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("export.fetching.web.PAUSES", (0.0,))
    assert app_ends(["fetch", "--mirror", "http://127.0.0.1:9", "--out", str(tmp_path)]) == 2
    assert "check the network" in capsys.readouterr().err
    assert app_ends(["fetch", "--mirror", str(tmp_path / "none")]) == 2
    assert "is it a mirror?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"path": "../../evil"},
        {"path": "/etc/passwd"},
        {"path": "a/../../b"},
        {"path": "a\\b"},
        {"path": ".hidden"},
        {"path": 7},
        {"size": -1},
        {"size": 2**40},
        {"size": "1"},
        {"sha256": "0" * 63},
        {"sha256": None},
    ],
)
def test_invalid_index_is_refused(tree, change):
    listed = json.loads((tree / "index.json").read_text())
    listed["models"][0]["files"][0] |= change
    (tree / "index.json").write_text(json.dumps(listed))
    with pytest.raises(CheckpointError, match=r"index\.json: not an index"):
        offers_of(tree)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 2, "models": []}', "[" * 5000])
def test_other_content_as_the_index_is_refused(tmp_path: Path, text):
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"index\.json"):
        offers_of(tmp_path)


# bundles


@pytest.fixture
def bundle_tree(tmp_path):
    """Return a mirror of two bundles and a student."""
    root = tmp_path / "all"
    shutil.copytree(bundles(), root / "toys")
    shutil.rmtree(root / "toys" / "toy-title")
    (root / "deen").mkdir()
    for path in GOLDEN.glob("*deen*"):
        shutil.copy(path, root / "deen")
    assert app_ends(["package", str(root)]) == 0
    return root


def test_mirror_lists_bundles_and_students(bundle_tree):
    models = offers_of(bundle_tree)
    assert [(model.bundle, model.kind) for model in models] == [
        ("toy-de-en", "bundle"),
        ("toy-en-de", "bundle"),
        ("deen", "bergamot"),
    ]
    assert models[0].architecture == "dynamicconv"


def test_bundle_is_fetched_unchanged(bundle_tree, tmp_path, capsys):
    out = tmp_path / "out"
    assert app_ends(["fetch", "toy-de-en", "--mirror", str(bundle_tree), "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == [".fetched", "toy-de-en"]
    assert open_bundle(out / "toy-de-en").digest == open_bundle(bundles() / "toy-de-en").digest
    again = ["fetch", "toy-de-en", "--mirror", str(bundle_tree), "--out", str(out)]
    assert app_ends(again) == 0
    assert "is on disk; --update or --overwrite" in capsys.readouterr().out
    assert app_ends([*again, "--overwrite", "--keep"]) == 0
    assert (
        open_bundle(out / ".fetched" / "toy-de-en" / "files").digest == open_bundle(out / "toy-de-en").digest
    )


def test_download_damaged_in_transit_leaves_no_bundle(bundle_tree, tmp_path):
    weights = bundle_tree / "toys" / "toy-de-en" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    out = tmp_path / "out"
    assert app_ends(["fetch", "toy-de-en", "--mirror", str(bundle_tree), "--out", str(out)]) == 2
    assert not (out / "toy-de-en").exists()
    assert app_ends(["package", str(bundle_tree)]) == 2  # the damaged bundle is not offered again


@pytest.mark.parametrize(
    "change", [{"folder": "toys"}, {"folder": "../toys"}, {"kind": "wheel"}, {"folder": 7}]
)
def test_invalid_index_entry_of_a_bundle_is_refused(bundle_tree, change):
    listed = json.loads((bundle_tree / "index.json").read_text())
    if change == {"folder": "toys"}:  # two files get the same path
        listed["models"][0]["files"].append(listed["models"][0]["files"][0])
    else:
        listed["models"][0] |= change
    (bundle_tree / "index.json").write_text(json.dumps(listed))
    with pytest.raises(CheckpointError, match=r"index\.json: not an index"):
        offers_of(bundle_tree)


def test_serve_fetches_its_models_before_serving(bundle_tree, tmp_path):
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "cli.main",
        "serve",
        "--port",
        str(port),
        "--models",
        str(tmp_path / "m"),
    ]
    command += ["--fetch", "toy-de-en", "--fetch-mirror", str(bundle_tree)]
    with serving(command, port) as (url, _):
        assert [model["name"] for model in httpx.get(f"{url}/models").json()] == ["toy-de-en"]
        asked = {"q": "Das ist gut.", "source": "de", "target": "en"}
        assert httpx.post(f"{url}/translate", json=asked).status_code == 200
