"""`convoy package`: makes a folder of models a mirror for any static web server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def package(
    folder: Annotated[
        Path, typer.Argument(help="Folder of bundles, or of students of Firefox Translations.")
    ],
) -> None:
    """Write FOLDER/index.json, so that `convoy fetch` and `convoy serve --fetch` can use FOLDER as a mirror.

    Every bundle is verified first. Serve the folder with any web server, or use its path as the mirror.
    """
    from export.fetching.mirror import INDEX
    from export.package import package as write_package

    models = write_package(folder)
    megabytes = sum(model.size for model in models) / 1e6
    typer.echo(f"{folder / INDEX}: {len(models)} models, {megabytes:.1f} MB")
