"""Content and requirements of the wheel, which is built once without a network."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from engine.native.build import this_machine
from tests.support.thorough import THOROUGH

ROOT = Path(__file__).parents[2]
PARTS = ("engine", "documents", "corpus", "server", "export", "cli", "training", "convoy_client")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling", reason="building a wheel needs hatchling (the extra `dev`)")
    folder = tmp_path_factory.mktemp("wheel")
    for part in PARTS:
        shutil.copytree(ROOT / part, folder / "tree" / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, folder / "tree" / name)
    # a stand-in that writes any file: the real compiler takes half a minute
    compiler = folder / "c++"
    compiler.write_text('#!/bin/sh\nfor word; do [ "$last" = -o ] && echo made > "$word"; last=$word; done\n')
    compiler.chmod(0o755)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    environment = os.environ | ({} if THOROUGH else {"CXX": str(compiler)})
    done = subprocess.run(command, cwd=folder / "tree", env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_contains_the_sources_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    contained = {n for n in names if ".dist-info/" not in n}
    sources = {
        str(p.relative_to(ROOT))
        for part in PARTS
        for p in (ROOT / part).rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    library = f"engine/native/{this_machine().library}"
    assert contained == sources | {library}
    assert {n for n in contained if n.startswith("training/recipes/")}


def test_the_wheel_contains_licence_and_command(wheel):
    archive = zipfile.ZipFile(wheel)
    (licence,) = [n for n in archive.namelist() if n.endswith("licenses/LICENSE")]
    assert "Apache License" in archive.read(licence).decode()
    (entry,) = [n for n in archive.namelist() if n.endswith("entry_points.txt")]
    assert "convoy = cli.main:app" in archive.read(entry).decode()


def test_an_installation_without_extras_needs_no_torch(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [n for n in archive.namelist() if n.endswith("dist-info/METADATA")]
    metadata = email.message_from_bytes(archive.read(name))
    needed = metadata.get_all("Requires-Dist")
    core = {_name(line) for line in needed if "extra ==" not in line}
    assert not core & {"torch", "sacrebleu", "pytest"}
    assert {"numpy", "onnxruntime", "fastapi", "typer"} <= core
    assert "torch" in {_name(line) for line in needed if "extra == 'torch'" in line}
    assert metadata["Requires-Python"] == ">=3.11"


def test_every_dependency_is_pinned_to_an_allowed_version():
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins = dict(line.lower().replace("_", "-").split("==") for line in text.splitlines() if "==" in line)
    for wanted in map(Requirement, lines):
        if wanted.name != project["name"]:
            assert pins[wanted.name] in wanted.specifier, wanted.name


def test_every_import_of_a_library_is_a_declared_dependency():
    import ast

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]
    declared = {_name(line).replace("-", "_") for line in lines} | {
        "multipart",
        "yaml",
        "markdown_it",
        "docx",
        "google",  # protobuf
        "pynvml",  # nvidia-ml-py
        "grpc",
        "grpc_health",
        "grpc_reflection",
    }
    # dependencies of declared packages, and part of their API
    declared |= {"opentelemetry", "pydantic", "starlette"}
    # the package must fit the driver of the machine: docs/tensorrt.md
    declared |= {"tensorrt"}
    own = set(PARTS)
    for part in own:
        for path in (ROOT / part).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
                roots = {n.split(".")[0] for n in names} - own - set(sys.stdlib_module_names)
                assert roots <= declared, f"{path.relative_to(ROOT)} imports {roots - declared}"


def _name(requirement: str) -> str:
    return re.split(r"[ <>=!~;\[(]", requirement)[0].lower()
