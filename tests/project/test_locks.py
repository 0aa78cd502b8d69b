"""The locks of docker/ and constraints.txt satisfy the requirements of pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
LOCKS = {
    "docker/requirements.txt": ("hub", "otel", "redis"),
    "docker/requirements-gpu.txt": ("otel", "redis", "torch"),
    "docker/requirements-ray.txt": ("otel", "redis", "ray"),
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def pins(file):
    found = PIN.findall((ROOT / file).read_text("utf-8"))
    return {canonicalize_name(name): version for name, version in found}


def requirements(extras):
    """Return the requirements of the project and of some extras; extras of extras are resolved."""
    found, left = [], [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]
    while left:
        wanted = Requirement(left.pop())
        if wanted.name == PROJECT["name"]:
            left += [line for extra in wanted.extras for line in EXTRAS[extra]]
        elif wanted.marker is None or wanted.marker.evaluate({"sys_platform": "linux", "extra": ""}):
            found.append(wanted)
    return found


@pytest.mark.parametrize("lock", sorted(LOCKS))
def test_a_lock_has_every_direct_dependency_in_an_allowed_version(lock):
    found = pins(lock)
    wrong = [
        f"{wanted}: {found.get(canonicalize_name(wanted.name), 'missing')}"
        for wanted in requirements(LOCKS[lock])
        if not wanted.specifier.contains(found.get(canonicalize_name(wanted.name), "0"), prereleases=True)
    ]
    assert not wrong, "make lock"


@pytest.mark.parametrize("lock", sorted(LOCKS))
def test_every_package_of_a_lock_has_a_hash_and_the_version_of_the_constraints(lock):
    text, constraints = (ROOT / lock).read_text("utf-8"), pins("constraints.txt")
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(pins(lock)) > 30
    assert not [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry]
    other = {n: v for n, v in pins(lock).items() if constraints.get(n, v) != v}
    assert not other, "make lock"


def test_the_constraints_have_every_direct_dependency_in_an_allowed_version():
    found = pins("constraints.txt")
    wrong = [
        str(wanted)
        for wanted in requirements(EXTRAS)
        if not wanted.specifier.contains(found.get(canonicalize_name(wanted.name), "0"), prereleases=True)
    ]
    assert not wrong
