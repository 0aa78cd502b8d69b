"""`convoy package`: a folder of models becomes a mirror, for any static web server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def package(
    folder: Annotated[Path, typer.Argument(help="Folder of bundles, or of students of Firefox.")],
) -> None:
    """Write FOLDER/index.json: what `convoy fetch` and `convoy serve --fetch` take models from.

    Every bundle is verified first. Serve the folder with any web server, or name it as it lies.
    """
    from export.mirror import INDEX
    from export.package import package as write_package

    models = write_package(folder)
    megabytes = sum(model.size for model in models) / 1e6
    typer.echo(f"{folder / INDEX}: {len(models)} models, {megabytes:.1f} MB")
