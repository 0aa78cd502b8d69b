"""`convoy fetch`: fetches models from a mirror, verifies them, and imports students."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import BundleError, InvalidRequest

if TYPE_CHECKING:
    from export.mirror import Mirror, MirrorModel

FETCHED = ".fetched"  # folder in OUT with files that are not imported yet


def fetch(
    pairs: Annotated[
        list[str] | None,
        typer.Argument(help="Names or pairs (de-en) to fetch; without any: list the models."),
    ] = None,
    mirror: Annotated[
        str | None, typer.Option(help="Address or folder with index.json; there is no default.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of bundles.")] = Path("models"),
    architecture: Annotated[
        str | None, typer.Option(help="tiny, base-memory or base, if a pair has several models.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the fetched files in OUT/.fetched.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing bundles.")] = False,
) -> None:
    """Fetch models from a mirror and verify them.

    Students are imported as bundles (needs the extra `convert`). An interrupted download continues. No other
    server is contacted.
    """
    from export.mirror import models_of, open_mirror

    if mirror is None:
        raise InvalidRequest("give --mirror with an address or a folder, or set CONVOY_FETCH_MIRROR")
    opened = open_mirror(mirror)
    models = models_of(opened)
    if not pairs:
        for model in models:
            typer.echo(
                f"{model.name:24} {model.source}-{model.target:8} {model.architecture:12} {_size(model.size)}"
            )
        return
    for model in [_find_model(models, pair, architecture) for pair in pairs]:
        _import(opened, model, out, keep=keep, overwrite=overwrite)


def _find_model(models: list[MirrorModel], pair: str, architecture: str | None) -> MirrorModel:
    """Return the one model of a pair such as "en-de". Raises InvalidRequest unless exactly one fits."""
    fitting = [m for m in models if pair in (m.name, f"{m.source}-{m.target}", f"{m.source}{m.target}")]
    if architecture is not None:
        fitting = [m for m in fitting if m.architecture == architecture]
    if not fitting:
        raise InvalidRequest(f"the mirror has no {architecture or ''} {pair}; convoy fetch lists its models")
    if len(fitting) > 1:
        names = ", ".join(f"{m.name} ({m.architecture})" for m in fitting)
        raise InvalidRequest(
            f"the mirror has several models for {pair}: {names}; name one, or its --architecture"
        )
    return fitting[0]


def fetch_missing(pairs: Sequence[str], mirror: str, out: Path) -> None:
    """Fetch the models that are missing in the folder of a server.

    pairs: names of models, or pairs of languages.
    mirror: address or folder of the mirror.
    out: folder of bundles.

    Raises InvalidRequest without a mirror, or if it lacks a model.
    """
    from export.mirror import models_of, open_mirror

    if not mirror:
        raise InvalidRequest("--fetch needs a mirror: give --fetch-mirror, or set CONVOY_FETCH_MIRROR")
    if all((out / pair).is_dir() for pair in pairs):
        return  # all are there, so the mirror is not needed
    opened = open_mirror(mirror)
    models = models_of(opened)
    for model in [_find_model(models, pair, None) for pair in pairs]:
        if not (out / model.name).exists():
            _import(opened, model, out, keep=False, overwrite=False)


def _import(mirror: Mirror, model: MirrorModel, out: Path, *, keep: bool, overwrite: bool) -> None:
    """Download a model and put its bundle into `out`; with `keep`, leave the downloaded files."""
    from tqdm import tqdm

    from export.mirror import BUNDLE, place_bundle
    from export.mirror import fetch as fetch_files

    folder, target = out / FETCHED / model.name, out / model.name
    folder.mkdir(parents=True, exist_ok=True)
    if target.exists() and not overwrite:
        raise BundleError(f"{target}: already exists; --overwrite replaces it")
    with tqdm(total=model.size, unit="B", unit_scale=True, desc=model.name, disable=None) as bar:
        fetch_files(mirror, model, folder, bar.update)
    if model.kind == BUNDLE:
        place_bundle(folder, target, keep=keep)
    else:
        _import_student(model, folder, target, overwrite=overwrite)
    if not keep:
        shutil.rmtree(folder)
        if not any((out / FETCHED).iterdir()):
            (out / FETCHED).rmdir()


def _import_student(model: MirrorModel, folder: Path, target: Path, *, overwrite: bool) -> None:
    """Convert a downloaded Bergamot model to a bundle."""
    from cli.convert.flags import Conversion
    from export.importers.settings import StudentImport

    settings = StudentImport(source=model.source, target=model.target)
    Conversion(overwrite=overwrite).convert("bergamot", folder, target, settings)


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
