"""Packages of the images, and of the engine that tests may start."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.without_torch import HIDE

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "tests" / "containers" / "engine.sh"


@pytest.mark.parametrize("there", [(), ("iptables",)])
def test_engine_packages_are_installed_without_lists_of_apt(tmp_path, there):
    """Runs on a fake machine whose apt stores its arguments."""
    asked = tmp_path / "asked"
    lines = {"apt-get": f'echo "$*" >>{asked}; [ "$1" != indextargets ] || exit 1'} | dict.fromkeys(
        there, ":"
    )
    for name, line in lines.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{line}\n", "utf-8")
        (tmp_path / name).chmod(0o755)
    command = [shutil.which("bash"), ENGINE, "packages"]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    update, install = asked.read_text("utf-8").splitlines()
    assert update == "update"
    assert {"docker.io", "debootstrap", "prometheus"} <= set(install.split())


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-gpu.txt", "requirements-ray.txt"])
def test_images_install_tested_versions_with_hashes(name):
    from packaging.requirements import Requirement

    def pins(path):
        lines = path.read_text("utf-8").lower().replace("_", "-").splitlines()
        return dict(line.split(" ")[0].split("==") for line in lines if re.match(r"[a-z0-9.-]+==", line))

    tested, locked = pins(ROOT / "constraints.txt"), pins(ROOT / "docker" / name)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = ("otel", "redis", "torch" if "gpu" in name else "ray" if "ray" in name else "hub")
    wanted = [*project["dependencies"], *sum((project["optional-dependencies"][e] for e in extras), [])]
    assert {Requirement(line).name.lower() for line in wanted} - {project["name"]} <= set(locked)
    assert {n: v for n, v in locked.items() if n in tested} == {n: tested[n] for n in locked if n in tested}
    if "gpu" not in name:
        assert "torch" not in locked
        assert set(locked) <= set(tested)
        assert "onnx" in locked  # the image imports what it fetches
    entries = re.split(r"\n(?=[a-z0-9])", (ROOT / "docker" / name).read_text("utf-8").lower())
    assert all("--hash=sha256:" in entry for entry in entries)


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.gpu"])
def test_images_copy_every_package_of_the_wheel(name):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    copied = set(re.findall(r"^COPY (\w+) \1$", (ROOT / "docker" / name).read_text("utf-8"), re.MULTILINE))
    assert copied == packages
    allowed = (ROOT / ".dockerignore").read_text("utf-8").split()
    assert {f"!{package}" for package in packages | {"models"}} <= set(allowed)


def test_modules_that_an_image_compiles_are_imported_without_torch():
    code = f"{HIDE}\nimport runpy\nrunpy.run_path('docker/warm.py')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
