"""Keep only the hashes of wheels that the images can install: CPython 3.11 on Linux with glibc.

python docker/linux_hashes.py FILE...

`uv pip compile --generate-hashes` writes the hash of every file of a release, most of which are for other
systems and versions of Python. The index at https://pypi.org/simple names the file of each hash.
"""

import re
import sys
from pathlib import Path

import httpx
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

INDEX = "https://pypi.org/simple"
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?==[^ ]+.*\\$")
HASH = re.compile(r"^    --hash=sha256:(?P<digest>[0-9a-f]{64})( \\)?$")
PLATFORMS = re.compile(r"any|(manylinux.*|linux)_(x86_64|aarch64)")


def main(paths: list[str]) -> None:
    with httpx.Client(headers={"Accept": "application/vnd.pypi.simple.v1+json"}, timeout=60) as client:
        for path in map(Path, paths):
            path.write_text("".join(pruned(path.read_text().splitlines(), client)))


def pruned(lines: list[str], client: httpx.Client) -> list[str]:
    """Return the lines of a requirements file, each pin with the hashes of its usable wheels only."""
    kept: list[str] = []
    files: dict[str, str] = {}
    hashes: list[str] = []
    for line in [*lines, ""]:
        found = HASH.match(line)
        if found:
            hashes.append(found["digest"])
            continue
        if hashes:
            usable = [digest for digest in hashes if is_usable(files[digest])]
            if not usable:
                raise SystemExit(f"no wheel for Linux among the hashes above {line!r}")
            kept += [f"    --hash=sha256:{digest} \\\n" for digest in usable[:-1]]
            kept.append(f"    --hash=sha256:{usable[-1]}\n")
            hashes = []
        pin = PIN.match(line)
        if pin:
            answer = client.get(f"{INDEX}/{pin['name']}/").raise_for_status().json()
            files = {file["hashes"]["sha256"]: file["filename"] for file in answer["files"]}
        kept.append(f"{line}\n")
    return kept[:-1]


def is_usable(filename: str) -> bool:
    """Return whether a file is a wheel for CPython 3.11 on Linux with glibc."""
    try:
        *_, tags = parse_wheel_filename(filename)
    except InvalidWheelFilename:  # a source distribution
        return False
    return any(is_python(tag.interpreter, tag.abi) and PLATFORMS.fullmatch(tag.platform) for tag in tags)


def is_python(interpreter: str, abi: str) -> bool:
    """Return whether CPython 3.11 loads wheels with these tags."""
    if interpreter in ("py3", "py2.py3", "cp311"):
        return abi in ("none", "cp311", "abi3")
    return abi == "abi3" and interpreter.startswith("cp3") and int(interpreter[3:]) <= 11


if __name__ == "__main__":
    main(sys.argv[1:])
