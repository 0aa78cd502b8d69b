"""The checks of a release pass for correct wheels and versions, and fail otherwise."""

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RELEASE = runpy.run_path(str(ROOT / "deploy" / "release.py"))
Failed = RELEASE["Failed"]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    pytest.importorskip("hatchling", reason="building a wheel needs hatchling (the extra `dev`)")
    return RELEASE["build_client"](tmp_path_factory.mktemp("client"))


def test_all_files_have_the_same_version():
    assert RELEASE["versions"]() == VERSION


def test_newest_release_of_the_changelog_is_the_version_of_the_packages():
    releases = re.findall(
        r"^## \[(\d[\d.]*)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert releases[0][0] == VERSION
    assert [date for _, date in releases] == sorted((date for _, date in releases), reverse=True)


def test_client_is_a_distribution_that_needs_only_httpx(client):
    names = zipfile.ZipFile(client).namelist()
    assert {Path(name).parts[0] for name in names} == {"convoy_client", f"convoy_client-{VERSION}.dist-info"}
    assert "convoy_client/py.typed" in names
    assert not [name for name in names if "__pycache__" in name]
    metadata = zipfile.ZipFile(client).read(f"convoy_client-{VERSION}.dist-info/METADATA").decode()
    assert [line for line in metadata.splitlines() if line.startswith("Requires-Dist")] == [
        "Requires-Dist: httpx>=0.28"
    ]


def test_changed_wheel_is_refused(client, tmp_path):
    RELEASE["check_records"](client)
    changed = tmp_path / client.name
    with zipfile.ZipFile(client) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data + b"\n# more" if name.endswith("client.py") else data)
    with pytest.raises(Failed, match="client.py is not what RECORD says"):
        RELEASE["check_records"](changed)
    with zipfile.ZipFile(changed, "a") as more:
        more.writestr("convoy_client/extra.py", "")
    with pytest.raises(Failed, match="differ"):
        RELEASE["check_records"](changed)


@pytest.mark.parametrize(
    "machine, fault", [(b"\x3e\x00", None), (b"\xb7\x00", "another machine"), (None, "0 native libraries")]
)
def test_wheel_has_the_library_of_its_platform(tmp_path, monkeypatch, machine, fault):
    wheel = tmp_path / "convoy_server-0.1.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("x.dist-info/entry_points.txt", "[console_scripts]\nconvoy = cli.main:app\n")
        if machine:
            archive.writestr("engine/native/libconvoy.so", b"\x7fELF" + bytes(14) + machine)
    monkeypatch.setitem(RELEASE["check_wheel"].__globals__, "check_records", lambda _: None)
    if fault is None:
        RELEASE["check_wheel"](wheel)
        return
    with pytest.raises(Failed, match=fault):
        RELEASE["check_wheel"](wheel)


def test_the_list_of_a_release_fails_with_its_check(tmp_path):
    for name in ("pyproject.toml", "deploy", "docker"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    pending = text.replace("## [Unreleased]\n", "## [Unreleased]\n\n### Added\n- A feature.\n", 1)
    (tmp_path / "CHANGELOG.md").write_text(pending, "utf-8")
    command = [sys.executable, "deploy/release.py", "--only", "changelog"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "under [Unreleased]" in done.stdout
    assert done.returncode == 1
    assert "By hand" in done.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_satisfy_the_schema_of_github(path):
    pytest.importorskip("check_jsonschema", reason="needs check-jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*command, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_targets_of_the_makefile_with_read_permissions(path):
    workflow = yaml.safe_load(path.read_text("utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    makefile = (ROOT / "Makefile").read_text("utf-8")
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    runs = "\n".join(step.get("run", "") for step in steps)
    targets = set(re.findall(r"\bmake ([\w-]+)", runs))
    assert targets
    assert targets <= set(re.findall(r"^([\w-]+):.*##", makefile, re.MULTILINE))
    assert "${{" not in runs, "what an event says is no part of a script"
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout")]
    assert all(step["with"] == {"persist-credentials": False} for step in checkouts)
