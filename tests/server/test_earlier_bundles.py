"""Bundles of earlier releases are served, by their standard graphs if the operators have changed since.

With CONVOY_TEST_THOROUGH=1 those of all releases in the history are served; others have the same differences.
Native graphs were added in 0.2.0; at first they had other attributes and kinds of weights.
"""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import onnx
import pytest

from cli.main import app
from engine.api import Service
from engine.bundle.bundle import add_files
from engine.bundle.manifest import MANIFEST
from engine.bundle.recipes import METADATA
from engine.errors import BundleError
from engine.native import library
from tests.support.served import bundles, server, settings_of
from tests.support.thorough import THOROUGH

pytestmark = pytest.mark.skipif(
    library() is None, reason="without the native operators all graphs are standard"
)
ROOT = Path(__file__).parents[2]
NAME = "toy-de-en"
SHIPPED = "tatoeba-de-en"
TEXTS = ["Das ist gut.", "Wo ist der Bahnhof?"]


def without_native_graphs(folder):
    """Remove the native graphs, as before 0.2.0."""
    manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    for name in [name for name in manifest["files"] if ".native." in name]:
        del manifest["files"][name]
        (folder / name).unlink()
    (folder / MANIFEST).write_text(json.dumps(manifest), "utf-8")


def with_changed_graphs(change):
    """Return a function that changes each native graph of a folder."""

    def apply(folder):
        graphs = {}
        for path in (folder / "onnx").glob("*.native.onnx"):
            graph = onnx.load(path, load_external_data=False)
            change(graph)
            graphs[f"onnx/{path.name}"] = graph.SerializeToString()
        add_files(folder, graphs)

    return apply


def without_attributes(graph):
    """Remove the attributes of our operators, as an operator that needs another one finds them."""
    for node in graph.graph.node:
        if node.domain and node.op_type == "Linear":
            del node.attribute[:]


def with_packed_weights(graph):
    """Name a form of weights that no release after 0.2.0 reads."""
    for entry in graph.metadata_props:
        if entry.key == METADATA:
            recipes = json.loads(entry.value)
            for recipe in recipes.values():
                if recipe.get("form") in ("panels", "panels32"):
                    recipe["form"] = "packed"
            entry.value = json.dumps(recipes)


CHANGES = {
    "none": without_native_graphs,
    "attributes": with_changed_graphs(without_attributes),
    "weights": with_changed_graphs(with_packed_weights),
}


@pytest.fixture(params=CHANGES)
def earlier(request, tmp_path):
    """A bundle that an earlier release would have made."""
    shutil.copytree(bundles() / NAME, tmp_path / NAME)
    CHANGES[request.param](tmp_path / NAME)
    return tmp_path / NAME


def answers(folder, **settings):
    """Return the translations of a server of one bundle."""
    with server(opened=lambda observe: Service.open([folder], settings_of(**settings), observe)) as (
        client,
        _,
        _,
    ):
        answer = client.post("/translate", json={"q": TEXTS, "source": "de", "target": "en"})
    assert answer.status_code == 200, answer.text
    return answer.json()["translatedText"]


def export(folder):
    """Write the graphs again, as the message of the refusal says."""
    with pytest.raises(SystemExit) as stopped:
        app(["export", str(folder)])
    assert stopped.value.code == 0


@pytest.fixture(scope="module")
def expected():
    """The translations by the standard graphs of this release."""
    return answers(bundles() / NAME, backend="onnx-pure")


def test_bundle_of_an_earlier_release_is_served_with_a_warning(earlier, expected, caplog):
    found = answers(earlier)
    (warning,) = {r.getMessage() for r in caplog.records if r.name == "engine.executors"}
    assert warning.startswith(f"{NAME} is served by its standard graphs, which are slower: ")
    assert "run: convoy export" in warning
    assert found == expected


def test_graphs_that_fit_nothing_are_refused_with_the_first_reason(tmp_path):
    shutil.copytree(bundles() / NAME, tmp_path / NAME)
    (name,) = [path.name for path in (tmp_path / NAME / "onnx").glob("step.fp32.onnx")]
    add_files(tmp_path / NAME, {f"onnx/{name}": b"\x00"})
    with_changed_graphs(without_attributes)(tmp_path / NAME)
    with pytest.raises(BundleError, match="No attribute"):
        Service.open([tmp_path / NAME], settings_of())


def test_native_backend_refuses_earlier_graphs(earlier):
    with pytest.raises(BundleError, match="run: convoy export"):
        Service.open([earlier], settings_of(backend="onnx-native"))


def test_bundle_of_the_first_release_is_served_after_its_graphs_are_written_again(tmp_path):
    """Release 0.1.0 had another key in its configuration, and steps with other inputs."""
    folder = tmp_path / NAME
    shutil.copytree(bundles() / NAME, folder)
    config = (folder / "config.json").read_text("utf-8")
    assert '"mixer"' in config
    graph = onnx.load(folder / "onnx" / "step.fp32.onnx", load_external_data=False)
    graph.graph.input[0].name = "earlier"
    add_files(folder, {"onnx/step.fp32.onnx": graph.SerializeToString()})
    without_native_graphs(folder)
    earlier = config.replace('"mixer"', '"conv_type"').encode()
    (folder / "config.json").write_bytes(earlier)
    manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    manifest["files"]["config.json"] = {"size": len(earlier), "sha256": hashlib.sha256(earlier).hexdigest()}
    (folder / MANIFEST).write_text(json.dumps(manifest), "utf-8")
    with pytest.raises(BundleError, match=rf"run: convoy export {folder}"):
        Service.open([folder], settings_of())
    pytest.importorskip("torch", reason="the remedy needs the extra torch")
    export(folder)
    assert answers(folder) == answers(bundles() / NAME)


def releases():
    """Return the commits of a shipped bundle at the end of the days of releases; none without the history."""
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    dates = re.findall(r"^## \[[\d.]+\] - (\S+)$", changelog, re.MULTILINE)
    git = ["git", "log", "-1", "--format=%H"]
    path = f"models/{SHIPPED}/manifest.json"
    if shutil.which("git") is None:
        return []
    found = [
        subprocess.run(
            [*git, f"--until={date}T23:59:59Z", "--", path], cwd=ROOT, capture_output=True, text=True
        )
        for date in dates
    ]
    return sorted({done.stdout.strip() for done in found} - {""})


@pytest.mark.skipif(not THOROUGH, reason="seconds for each release: CONVOY_TEST_THOROUGH=1")
def test_shipped_bundles_of_all_releases_are_served_or_refused_with_the_remedy(tmp_path):
    served = 0
    for commit in releases():
        archive = subprocess.run(
            ["git", "archive", commit, f"models/{SHIPPED}"], cwd=ROOT, capture_output=True
        )
        (tmp_path / commit).mkdir()
        subprocess.run(["tar", "-x", "-C", tmp_path / commit], input=archive.stdout, check=True)
        folder = tmp_path / commit / "models" / SHIPPED
        try:
            translated = answers(folder, lanes=((5, 4),))
            served += 1
        except BundleError as error:
            assert f"run: convoy export {folder}" in str(error)
            export(folder)
            translated = answers(folder, lanes=((5, 4),))
        assert translated[1].startswith("Where")
    assert served or not releases()
