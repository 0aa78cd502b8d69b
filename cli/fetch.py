"""`convoy fetch`: students from a mirror, verified and imported."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from export.importers.mirror import Mirror, MirrorModel

FETCHED = ".fetched"  # within OUT: what has been fetched and is not yet imported


def fetch(
    pairs: Annotated[
        list[str] | None, typer.Argument(help="Names or pairs (de-en) to fetch; none: list what there is.")
    ] = None,
    mirror: Annotated[
        str | None, typer.Option(help="Address or folder with index.json; none is known from the start.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of bundles.")] = Path("models"),
    architecture: Annotated[
        str | None, typer.Option(help="tiny, base-memory or base, where a pair has several models.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the fetched files beside the bundles, in .fetched.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace bundles that are there.")] = False,
    index: Annotated[
        Path | None, typer.Option("--make-index", help="Make this folder of students a mirror, and end.")
    ] = None,
) -> None:
    """Fetch students from a mirror that you name, verify and import them (needs the extra `convert`).

    An interrupted download is gone on with. Nothing is asked of any server but the mirror.
    """
    from export.importers.mirror import make_index, models_of, open_mirror

    if index is not None:
        models = make_index(index)
        typer.echo(
            f"{index / 'index.json'}: {len(models)} models, {_size(sum(model.size for model in models))}"
        )
        return
    if mirror is None:
        raise InvalidRequest("name a mirror: --mirror ADDRESS or FOLDER, or the variable CONVOY_FETCH_MIRROR")
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
    fitting = [m for m in models if pair in (m.name, f"{m.source}-{m.target}", f"{m.source}{m.target}")]
    if architecture is not None:
        fitting = [m for m in fitting if m.architecture == architecture]
    if not fitting:
        raise InvalidRequest(f"the mirror has no {architecture or ''} {pair}; convoy fetch lists what it has")
    if len(fitting) > 1:
        several = ", ".join(f"{m.name} ({m.architecture})" for m in fitting)
        raise InvalidRequest(
            f"the mirror has several models for {pair}: {several}; name one, or its --architecture"
        )
    return fitting[0]


def _import(mirror: Mirror, model: MirrorModel, out: Path, *, keep: bool, overwrite: bool) -> None:
    from tqdm import tqdm

    from cli.convert.flags import finish
    from export.importers.bergamot import convert
    from export.importers.imported import check_folders
    from export.importers.marian_model import Settings
    from export.importers.mirror import fetch as fetch_files

    folder = out / FETCHED / model.name
    folder.mkdir(parents=True, exist_ok=True)
    check_folders(folder, out / model.name, overwrite=overwrite)
    with tqdm(total=model.size, unit="B", unit_scale=True, desc=model.name, disable=None) as bar:
        fetch_files(mirror, model, folder, bar.update)
    settings = Settings(source=model.source, target=model.target)
    finish(convert(folder, out / model.name, settings, overwrite=overwrite), onnx=True)
    if not keep:
        shutil.rmtree(folder)
        if not any((out / FETCHED).iterdir()):
            (out / FETCHED).rmdir()


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
