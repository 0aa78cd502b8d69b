"""Foreign models in `--models`: packages of Argos, such as in a volume of LibreTranslate, and folders of
CTranslate2. Each is converted once, into a cache, and served as a bundle from there.

Conversion needs much memory, so it runs in its own process.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import typer

from engine.errors import CheckpointError, InvalidRequest

CONVERSION_VERSION: Final = 2  # version of converted bundles; a new one converts all models again
# folders of packages in a mounted volume of LibreTranslate, and in a home folder
PACKAGES: Final = ("share/argos-translate/packages", ".local/share/argos-translate/packages")


@dataclass(frozen=True, slots=True)
class ForeignModel:
    """A model that is not a bundle.

    path: file or folder of the model.
    kind: command of `convoy convert` that imports it.
    source, target: codes of its languages.
    version: parts of the version of a package.
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
    """Return the paths of the given bundles and of a converted bundle for each foreign model.

    paths: bundles, folders of bundles, and foreign models.
    cache: folder of converted models; None: in `store`, otherwise in the user's cache.
    store: folder of the files that the server stores; None: there is none.
    languages: codes of languages; models of other languages are not converted. Empty: all.

    Raises InvalidRequest if a package for the conversion is missing, CheckpointError for a model that can't
    be converted.
    """
    served: list[Path] = []
    models: list[ForeignModel] = []
    for path in paths:
        models_here = models_at(path)
        models += models_here
        if not models_here or (path.is_dir() and any(map(_is_bundle, path.iterdir()))):
            served.append(path)
    selection = [m for m in newest(models) if not languages or {m.source, m.target} <= set(languages)]
    if models and not selection:
        raise InvalidRequest(f"none of the models has the languages {', '.join(sorted(languages))}")
    if selection:
        folder = _cache_folder(cache, store)
        served += _convert_missing(selection, folder)
    return tuple(served)


def models_at(path: Path) -> list[ForeignModel]:
    """Return the foreign models at a path or in its folder; none for a bundle or a folder of bundles."""
    if not path.exists() or _is_bundle(path):
        return []
    path = next((path / below for below in PACKAGES if (path / below).is_dir()), path)
    model = _model_at(path)
    if model is not None or (path / "metadata.json").exists():
        return [] if model is None else [model]
    inside = sorted(path.iterdir()) if path.is_dir() else []
    return [found for found in map(_model_at, inside) if found is not None]


def newest(models: Sequence[ForeignModel]) -> list[ForeignModel]:
    """Return the newest package for each pair of languages."""
    best: dict[str, ForeignModel] = {}
    for model in models:
        previous = best.get(model.name)
        if previous is None or model.version > previous.version:
            best[model.name] = model
        if previous is not None:
            older = previous if best[model.name] is model else model
            typer.echo(f"convoy: {older.path} is ignored: {best[model.name].path} is newer", err=True)
    return list(best.values())


def _is_bundle(path: Path) -> bool:
    from engine.bundle.manifest import MANIFEST

    return (path / MANIFEST).is_file()


def _model_at(path: Path) -> ForeignModel | None:
    """Return the Argos or CTranslate2 model at a path; None: there is none. Raises InvalidRequest."""
    from export.fetching.offers import languages_in, version_parts

    if path.suffix == ".argosmodel" and path.is_file():
        pair = languages_in(path.stem)
        if not pair:
            raise InvalidRequest(f"{path}: its name has no language codes; unpack it")
        return ForeignModel(path, "argos", *pair, version_parts(path.stem.rpartition("-")[2]))
    if (path / "metadata.json").is_file() and (path / "model" / "model.bin").is_file():
        return _argos_model(path)
    if (path / "model.bin").is_file() and any(path.glob("*vocabulary*")):
        pair = languages_in(path.name)
        if not pair:
            raise InvalidRequest(
                f"{path}: its name has no language codes, such as opus-en-de; run: convoy convert "
                "ctranslate2 FOLDER OUT --source en --target de"
            )
        return ForeignModel(path, "ctranslate2", *pair)
    return None


def _argos_model(path: Path) -> ForeignModel | None:
    from export.fetching.offers import version_parts
    from export.importers.ctranslate2.packages import TRANSLATION, read_package

    package = read_package(path)
    if package.kind != TRANSLATION:
        return None  # a package for sentence boundaries
    return ForeignModel(path, "argos", package.source, package.target, version_parts(package.version))


def _user_id() -> int:
    """Return the number of the user; 0 on Windows, where all files have owner 0."""
    if sys.platform == "win32":
        return 0
    return os.getuid()


def _cache_folder(cache: Path | None, store: Path | None) -> Path:
    """Return the chosen folder, or the first default folder that is writable."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    defaults = [home / "convoy", Path(tempfile.gettempdir()) / f"convoy-{_user_id()}"]
    in_store = [] if store is None else [store / "converted"]
    for folder in [cache] if cache is not None else [*in_store, *defaults]:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(folder, os.W_OK) and folder.stat().st_uid in (_user_id(), 0):
            return folder
    raise InvalidRequest(
        f"{cache or defaults[0]}: can't write converted models there; set --cache (CONVOY_CACHE)"
    )


def _convert_missing(models: Sequence[ForeignModel], cache: Path) -> list[Path]:
    """Return the bundles of models; missing bundles are converted, by one process.

    If two servers convert the same model at a time, both use the bundle that was ready first.
    """
    bundles = {model: cache / f"{model.name}-{digest(model.path)}" for model in models}
    new = {model: path for model, path in bundles.items() if not _is_bundle(path)}
    if new:
        with tempfile.TemporaryDirectory(prefix=".new-", dir=cache) as fresh:
            _convert({model: Path(fresh) / path.name for model, path in new.items()})
            for path in new.values():
                _move_bundle(Path(fresh) / path.name, path)
    return list(bundles.values())


def _move_bundle(fresh: Path, bundle: Path) -> None:
    try:
        fresh.rename(bundle)
    except OSError:
        if not _is_bundle(bundle):
            raise


def _convert(bundles: Mapping[ForeignModel, Path]) -> None:
    """Convert models in a child process, so that its memory is freed."""
    for model in bundles:
        typer.echo(f"convoy: converting {model.path}, once", err=True)
    with ProcessPoolExecutor(1, get_context("spawn")) as child:
        try:
            child.submit(convert_all, dict(bundles)).result()
        except BrokenProcessPool as error:
            names = ", ".join(str(model.path) for model in bundles)
            raise CheckpointError(
                f"{names}: the converting process was killed; give it more memory, "
                "or convert on another machine"
            ) from error


def convert_all(bundles: Mapping[ForeignModel, Path]) -> None:
    """Convert each model to a bundle with graphs; choosing placeholders would take minutes.

    Raises CheckpointError for the first model that can't be converted.
    """
    from export.importers import convert
    from export.importers.ctranslate2.packages import open_package
    from export.importers.proving import add_graphs
    from export.importers.settings import CTranslate2Import, ImportSettings

    for model, out in bundles.items():
        if model.kind == "argos":
            with open_package(model.path) as package:
                named = ImportSettings(name=model.name)
                convert("argos", package.folder, out, named, stages=[add_graphs])
        else:
            settings = CTranslate2Import(name=model.name, source=model.source, target=model.target)
            convert("ctranslate2", model.path, out, settings, stages=[add_graphs])


def digest(path: Path) -> str:
    """Return a hexadecimal hash of all files of a model and of CONVERSION_VERSION."""
    whole = hashlib.sha256(f"{CONVERSION_VERSION}".encode())
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    for file in files:
        with file.open("rb") as content:
            part = hashlib.file_digest(content, "sha256").hexdigest()
        whole.update(f"{file.relative_to(path.parent)}\0{part}\n".encode())
    return whole.hexdigest()[:16]
