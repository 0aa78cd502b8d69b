"""Models of others that `--models` names: packages of Argos, as a volume of LibreTranslate holds them, and
folders of CTranslate2. Each is converted once, into a cache, and served as a bundle from there.

Conversion traces graphs, with torch or what stands in for it: it runs in a process of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Final

import typer

from engine.errors import CheckpointError, InvalidRequest

VERSION: Final = 1  # of what conversion makes; a new one makes all again
WORD: Final = re.compile(r"[a-z]{2,3}")
OTHER: Final = frozenset({"mt", "big", "ct", "opt", "int", "nmt", "wmt"})  # short words that name no language
NEEDED: Final = ("onnx", "yaml", "ml_dtypes")
CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{1,15}")
# where Argos keeps packages below the folder that a volume of LibreTranslate is mounted at, and below a home
PACKAGES: Final = ("share/argos-translate/packages", ".local/share/argos-translate/packages")


@dataclass(frozen=True, slots=True)
class Foreign:
    """A model that is not a bundle.

    kind: the command of `convoy convert` that reads it.
    version: of a package, in parts.
    """

    path: Path
    kind: str
    source: str
    target: str
    version: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.source}-{self.target}"


def served_paths(
    paths: Iterable[Path], cache: Path | None, store: Path | None, languages: Collection[str]
) -> tuple[Path, ...]:
    """Return the paths of bundles: those given, and bundles of all models of others among and in them.

    cache: where converted models lie; None: beside what the server stores (`store`), else in the user's
        cache.
    languages: convert only models of these, where any are given.

    Raises InvalidRequest that names what is missing, CheckpointError for a model that can't be converted.
    """
    served: list[Path] = []
    models: list[Foreign] = []
    for path in paths:
        models_here = models_at(path)
        models += models_here
        if not models_here or (path.is_dir() and any(map(_is_bundle, path.iterdir()))):
            served.append(path)
    selection = [m for m in newest(models) if not languages or {m.source, m.target} <= set(languages)]
    if models and not selection:
        raise InvalidRequest(f"none of the models is of the languages {', '.join(sorted(languages))}")
    if selection:
        folder = _cache(cache, store)
        served += _convert_missing(selection, folder)
    return tuple(served)


def models_at(path: Path) -> list[Foreign]:
    """Find the models of others that a path is, or that lie in it.

    There are none for a bundle or a folder of bundles.
    """
    if not path.exists() or _is_bundle(path):
        return []
    path = next((path / below for below in PACKAGES if (path / below).is_dir()), path)
    own = _model_at(path)
    if own is not None or (path / "metadata.json").exists():
        return [] if own is None else [own]
    inside = sorted(path.iterdir()) if path.is_dir() else []
    return [model for model in map(_model_at, inside) if model is not None]


def newest(models: Sequence[Foreign]) -> list[Foreign]:
    """Keep the newest of several packages for the same languages."""
    best: dict[str, Foreign] = {}
    for model in models:
        previous = best.get(model.name)
        if previous is None or model.version > previous.version:
            best[model.name] = model
        if previous is not None:
            older = previous if best[model.name] is model else model
            typer.echo(f"convoy: {older.path} is left out: {best[model.name].path} is newer", err=True)
    return list(best.values())


def _is_bundle(path: Path) -> bool:
    from engine.bundle.bundle import MANIFEST

    return (path / MANIFEST).is_file()


def _model_at(path: Path) -> Foreign | None:
    if path.suffix == ".argosmodel" and path.is_file():
        pair = _pair(path.stem)
        if not pair:
            raise InvalidRequest(f"{path}: its name does not tell its languages; unpack it")
        return Foreign(path, "argos", *pair, _numbers(path.stem.rpartition("-")[2]))
    if (path / "metadata.json").is_file() and (path / "model" / "model.bin").is_file():
        return _package(path)
    if (path / "model.bin").is_file() and any(path.glob("*vocabulary*")):
        pair = _pair(path.name)
        if not pair:
            raise InvalidRequest(
                f"{path}: its name does not tell its languages, as in opus-en-de; run: convoy convert "
                "ctranslate2 FOLDER OUT --source en --target de"
            )
        return Foreign(path, "ctranslate2", *pair)
    return None


def _pair(name: str) -> tuple[str, str] | None:
    """The languages that a name such as opus-mt-en-de-ct2 ends with."""
    words = re.split("[-_.]", name)
    codes = [word if WORD.fullmatch(word) and word not in OTHER else None for word in words]
    pairs = [(a, b) for a, b in pairwise(codes) if a and b]
    return pairs[-1] if pairs else None


def _package(path: Path) -> Foreign | None:
    try:
        metadata = json.loads((path / "metadata.json").read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path / 'metadata.json'}: not readable ({error}); install it again"
        ) from error
    if not isinstance(metadata, dict) or metadata.get("type", "translate") != "translate":
        return None  # of sentence boundaries
    codes = [metadata.get(key) for key in ("from_code", "to_code")]
    if not all(isinstance(code, str) and CODE.fullmatch(code) for code in codes):
        raise CheckpointError(f"{path / 'metadata.json'}: names no languages; install the package again")
    return Foreign(
        path, "argos", str(codes[0]), str(codes[1]), _numbers(str(metadata.get("package_version")))
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part[:9]) for part in re.findall(r"[0-9]+", version[:100]))


def _user() -> int:
    """The user's number; files of Windows all have number 0."""
    if sys.platform == "win32":
        return 0
    return os.getuid()


def _cache(cache: Path | None, store: Path | None) -> Path:
    """The chosen folder, else the first that can be written to."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    usual = [home / "convoy", Path(tempfile.gettempdir()) / f"convoy-{_user()}"]
    beside = [] if store is None else [store / "converted"]
    for folder in [cache] if cache is not None else [*beside, *usual]:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(folder, os.W_OK) and folder.stat().st_uid in (_user(), 0):
            return folder
    raise InvalidRequest(
        f"{cache or usual[0]}: converted models can't be written there; set --cache (CONVOY_CACHE)"
    )


def _convert_missing(models: Sequence[Foreign], cache: Path) -> list[Path]:
    """The bundles of models; those that are not there yet are made, by one process.

    Two servers may make the same bundle at a time: both can use the one that was ready first.
    """
    bundles = {model: cache / f"{model.name}-{digest(model.path)}" for model in models}
    new = {model: path for model, path in bundles.items() if not _is_bundle(path)}
    missing = [name for name in NEEDED if new and find_spec(name) is None]
    if missing:
        raise InvalidRequest(
            f"{next(iter(new)).path}: must be converted once, which needs {', '.join(missing)}: pip install "
            f"'convoy-server[convert]', or convert it elsewhere and bring its cache along (--cache: {cache})"
        )
    if new:
        with tempfile.TemporaryDirectory(prefix=".new-", dir=cache) as fresh:
            _convert({model: Path(fresh) / path.name for model, path in new.items()})
            for path in new.values():
                _place(Path(fresh) / path.name, path)
    return list(bundles.values())


def _place(fresh: Path, bundle: Path) -> None:
    try:
        fresh.rename(bundle)
    except OSError:
        if not _is_bundle(bundle):
            raise


def _convert(bundles: Mapping[Foreign, Path]) -> None:
    """Run the command of each model's kind, all in one process."""
    commands = []
    for model, out in bundles.items():
        languages = [] if model.kind == "argos" else ["--source", model.source, "--target", model.target]
        named = ["--name", model.name, "--no-placeholders"]  # which take minutes: a server is to start
        commands.append([model.kind, str(model.path), str(out), *named, *languages])
        typer.echo(f"convoy: converting {model.path}, once", err=True)
    # settings of a person's own conversions don't count here
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CONVOY_CONVERT")}
    ended = subprocess.run(
        [sys.executable, "-m", "cli.foreign"],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        env=clean,
    )
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        raise CheckpointError(lines[-1].removeprefix("convoy: error: "))


def run_commands(commands: Sequence[Sequence[str]]) -> None:
    """Run `convoy convert` with each list of words; ends the process at the first that fails."""
    from cli.main import app

    for words in commands:
        try:
            app(["convert", *words])
        except SystemExit as ended:
            if ended.code:
                raise


def digest(path: Path) -> str:
    """Compute hexadecimal digits that stand for all files of a model and for how it is converted."""
    whole = hashlib.sha256(f"{VERSION}".encode())
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    for file in files:
        with file.open("rb") as content:
            part = hashlib.file_digest(content, "sha256").hexdigest()
        whole.update(f"{file.relative_to(path.parent)}\0{part}\n".encode())
    return whole.hexdigest()[:16]


if __name__ == "__main__":
    run_commands(json.load(sys.stdin))
