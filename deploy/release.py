"""Runs the checks of a release and prints one line for each.

    python deploy/release.py                 all checks; the exit code is 1 if one fails
    python deploy/release.py --only wheels   checks with this in their name

Nothing is uploaded and no tag is set: the remaining steps are printed at the end.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[1]
MAX_WHEEL_BYTES: Final = 5_000_000
# native libraries by ending of the wheel: first bytes, and position and bytes of the machine type
LIBRARIES: Final = {
    "manylinux2014_x86_64.whl": (b"\x7fELF", 18, b"\x3e\x00"),
    "manylinux2014_aarch64.whl": (b"\x7fELF", 18, b"\xb7\x00"),
    "macosx_11_0_arm64.whl": (b"\xcf\xfa\xed\xfe", 4, b"\x0c\x00\x00\x01"),
}


class NotChecked(Exception):
    """The check can't run on this machine; the message has the reason."""


class Failed(Exception):
    """The check failed; the message has the reason."""


def versions() -> str:
    """Check that all files have the same version, and return it."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    client = tomllib.loads((REPOSITORY / "deploy/client/pyproject.toml").read_text("utf-8"))["project"][
        "version"
    ]
    chart = (REPOSITORY / "deploy/helm/convoy/Chart.yaml").read_text("utf-8")
    found: dict[str, str] = {
        "pyproject.toml": project,
        "deploy/client/pyproject.toml": client,
        "Chart.yaml, version": re.findall(r"^version: (\S+)", chart, re.MULTILINE)[0],
        "Chart.yaml, appVersion": re.findall(r"^appVersion: (\S+)", chart, re.MULTILINE)[0],
    }
    for image in ("docker/Dockerfile", "docker/Dockerfile.gpu"):
        text = (REPOSITORY / image).read_text("utf-8")
        found[image] = re.findall(r"^ARG VERSION=(\S+)", text, re.MULTILINE)[0]
    if wrong := {name: value for name, value in found.items() if value != project}:
        raise Failed(f"version {project} in pyproject.toml, but {wrong}")
    return str(project)


def changelog() -> str:
    """Check that the changelog has a section for the version, and nothing under [Unreleased]."""
    text, version = (REPOSITORY / "CHANGELOG.md").read_text("utf-8"), versions()
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE):
        raise Failed(f"no section [{version}] with a date")
    unreleased = text.partition("## [Unreleased]")[2].partition("\n## ")[0].strip()
    if unreleased:
        raise Failed(
            f"{unreleased.count(chr(10) + '- ') + 1} lines under [Unreleased]: give them a version and a date"
        )
    return f"[{version}]"


def tree() -> str:
    """Check that all changes are committed."""
    changes = _run("git", "status", "--porcelain").splitlines()
    if changes:
        raise Failed(f"{len(changes)} files are not committed: {changes[0]}")
    return _run("git", "rev-parse", "--short", "HEAD").strip()


def tests() -> str:
    """Run lint, types, tests and coverage."""
    _run("make", "lint", "types", "coverage", timeout=3600)
    return "make lint types coverage"


def generated() -> str:
    """Check generated files: settings and chart."""
    _run(sys.executable, "-m", "pytest", "-q", "tests/deploy/test_host.py", "tests/deploy/test_chart.py")
    return "deploy/convoy.env, rendered manifests"


def wheels() -> str:
    """Build wheels for every platform, and check their content."""
    with tempfile.TemporaryDirectory() as folder:
        _run("make", "wheels", timeout=1800)
        for wheel in (REPOSITORY / "dist").glob("*.whl"):
            shutil.copy(wheel, folder)
        built = sorted(Path(folder).glob("*.whl"))
        ends = {end for end in LIBRARIES for wheel in built if wheel.name.endswith(end)}
        if ends != set(LIBRARIES):
            raise Failed(f"no wheel for {sorted(set(LIBRARIES) - ends)}")
        for wheel in built:
            check_wheel(wheel)
    return ", ".join(wheel.name for wheel in built)


def client() -> str:
    """Build the wheel of the client, check it, and import it without the server."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_client(Path(folder))
        check_records(wheel)
        site = Path(folder) / "site"
        zipfile.ZipFile(wheel).extractall(site)
        roots = "{name.partition('.')[0] for name in sys.modules}"
        code = f"import convoy_client, sys; assert not {{'engine', 'server'}} & {roots}, {roots}"
        _run(sys.executable, "-c", code, cwd=site)
        return wheel.name


def build_client(folder: Path) -> Path:
    """Build the wheel of the client in a folder, and return its path."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    _run(*command, cwd=REPOSITORY / "deploy" / "client")
    (wheel,) = folder.glob("convoy_client-*.whl")
    return wheel


def check_wheel(wheel: Path) -> None:
    """Check records, size, command and native library of a server wheel. Raises Failed."""
    check_records(wheel)
    if wheel.stat().st_size > MAX_WHEEL_BYTES:
        raise Failed(
            f"{wheel.name} has {wheel.stat().st_size:,} bytes; {MAX_WHEEL_BYTES:,} are expected at most"
        )
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    (entries,) = [name for name in names if name.endswith("entry_points.txt")]
    if b"convoy = cli.main:app" not in archive.read(entries):
        raise Failed(f"{wheel.name} has no command `convoy`")
    libraries = [name for name in names if re.fullmatch(r"engine/native/libconvoy\S*\.(so|dylib)", name)]
    if len(libraries) != 1:
        raise Failed(f"{wheel.name} has {len(libraries)} native libraries")
    (magic, place, machine) = next(value for end, value in LIBRARIES.items() if wheel.name.endswith(end))
    head = archive.read(libraries[0])[:64]
    if not head.startswith(magic) or head[place : place + len(machine)] != machine:
        raise Failed(f"{wheel.name}: {libraries[0]} is for another machine")


def check_records(wheel: Path) -> None:
    """Check that RECORD of a wheel lists every file with its hash. Raises Failed."""
    archive = zipfile.ZipFile(wheel)
    (record,) = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
    rows = {row[0]: row[1] for row in csv.reader(io.StringIO(archive.read(record).decode()))}
    if set(rows) != set(archive.namelist()):
        raise Failed(f"{wheel.name}: RECORD and the archive differ: {set(rows) ^ set(archive.namelist())}")
    for name, said in rows.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).rstrip(b"=").decode()
        if name != record and said != f"sha256={digest}":
            raise Failed(f"{wheel.name}: {name} is not what RECORD says")


def workflows() -> str:
    """Check the workflows of GitHub against their schema."""
    files = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    if subprocess.run([*command, "--version"], capture_output=True).returncode:
        raise NotChecked("needs check-jsonschema (pip install check-jsonschema)")
    _run(*command, *map(str, files))
    return ", ".join(file.name for file in files)


def images() -> str:
    """Build both images and translate with them."""
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        raise NotChecked("no Docker engine; run on another machine: make test-containers")
    _run("make", "test-containers", timeout=3600)
    return "make test-containers"


LIST: Final[tuple[Callable[[], str], ...]] = (
    versions,
    changelog,
    tree,
    generated,
    workflows,
    client,
    wheels,
    tests,
    images,
)
BY_HAND: Final = """\
By hand, if every check has passed:
  git tag -s vVERSION && git push origin vVERSION      (.github/workflows/release.yml builds and publishes)
  for images of arm64: docker buildx build --platform linux/arm64, and run one
  on a machine with a GPU: bash loadtest/gpu.sh right"""


def _run(*command: str, cwd: Path = REPOSITORY, timeout: float = 600) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise Failed(f"{' '.join(command[:4])} ...: {(done.stderr + done.stdout).strip()[-400:]}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="run only checks with this in their name")
    options = parser.parse_args()
    failed = 0
    for line in LIST:
        if options.only not in line.__name__:
            continue
        try:
            outcome = f"fine: {line()}"
        except NotChecked as why:
            outcome = f"NOT CHECKED: {why}"
        except (Failed, subprocess.TimeoutExpired) as wrong:
            outcome, failed = f"FAILED: {wrong}", failed + 1
        print(f"{line.__name__:10} {outcome}", flush=True)
    print(BY_HAND)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
