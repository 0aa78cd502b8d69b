"""`convoy fetch` from a folder and from a loopback server: listed, resumed, verified, imported."""

from __future__ import annotations

import json
import re
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cli.main import app
from engine.bundle.bundle import open_bundle
from engine.errors import CheckpointError
from export.importers import mirror
from tests.students import GOLDEN


@pytest.fixture
def tree(tmp_path):
    """A mirror of two students."""
    root = tmp_path / "mirror"
    for pair in ("deen", "ende"):
        (root / "tiny" / pair).mkdir(parents=True)
        for path in GOLDEN.glob("*deen*"):
            shutil.copy(path, root / "tiny" / pair / path.name.replace("deen", pair))
    app_ends(["fetch", "--make-index", str(root)])
    return root


@pytest.fixture
def web(tree):
    """The mirror behind a loopback server that knows ranges; asked: what was asked of it, `cut`: bytes after
    which an answer ends."""

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


def test_a_mirror_is_listed(tree, capsys):
    assert app_ends(["fetch", "--mirror", str(tree)]) == 0
    lines = capsys.readouterr().out.splitlines()[-2:]
    assert [line.split()[:3] for line in lines] == [["deen", "de-en", "tiny"], ["ende", "en-de", "tiny"]]


def test_without_a_mirror_nothing_is_asked_of_anybody(capsys):
    assert app_ends(["fetch"]) == 2
    assert "name a mirror" in capsys.readouterr().err


def test_a_download_is_gone_on_with_verified_and_imported(web, tmp_path, capsys):
    address, asked, cut = web
    cut.append(100_000)
    out = tmp_path / "out"
    assert app_ends(["fetch", "de-en", "--mirror", address, "--out", str(out)]) == 2
    assert not (out / "deen").exists()
    assert app_ends(["fetch", "de-en", "--mirror", address, "--out", str(out)]) == 0
    model = next(path for path, _ in asked if "model" in path)
    assert [begin for path, begin in asked if path == model] == [0, 100_000]
    assert [path.name for path in out.iterdir()] == ["deen"]
    bundle = open_bundle(out / "deen")
    assert (bundle.source, bundle.target, bundle.config.quantization) == ("de", "en", "alphas")
    assert "deen" in capsys.readouterr().out


def test_a_file_that_is_not_the_indexs_is_refused_and_not_kept(tree, tmp_path):
    path = next((tree / "tiny" / "deen").glob("model*"))
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    opened = mirror.open_mirror(str(tree))
    with pytest.raises(CheckpointError, match="is not the file of the index"):
        mirror.fetch(opened, mirror.models_of(opened)[0], tmp_path / "there", lambda _: None)
    assert not list((tmp_path / "there").glob("model*"))


def test_a_mirror_out_of_reach_says_so(tmp_path, capsys):
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
def test_an_index_that_lies_is_refused(tree, change):
    listed = json.loads((tree / "index.json").read_text())
    listed["models"][0]["files"][0] |= change
    (tree / "index.json").write_text(json.dumps(listed))
    with pytest.raises(CheckpointError, match=r"index\.json: not an index"):
        mirror.models_of(mirror.open_mirror(str(tree)))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 2, "models": []}', "[" * 5000])
def test_what_is_no_index_is_refused(tmp_path: Path, text):
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"index\.json"):
        mirror.models_of(mirror.open_mirror(str(tmp_path)))
