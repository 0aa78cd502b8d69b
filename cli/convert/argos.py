"""`convoy convert argos`: import packages of Argos Translate, the models of LibreTranslate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.convert.flags import Conversion, Out, conversion_flags
from engine.errors import InvalidRequest


@conversion_flags
def argos(
    package: Annotated[
        Path, typer.Argument(help="An .argosmodel file, its unpacked folder, or a folder of packages.")
    ],
    out: Out,
    common: Conversion,
) -> None:
    """Import packages of Argos Translate; for a folder of packages, OUT is a folder of bundles."""
    from export.importers.ctranslate2.packages import open_package, packages_at
    from export.importers.settings import ImportSettings

    paths = packages_at(package)
    several = paths != [package]
    if several and common.name is not None:
        raise InvalidRequest(
            f"{package}: has {len(paths)} packages, which are named by their languages: leave out --name"
        )
    for path in paths:
        with open_package(path) as opened:
            settings = ImportSettings(name=common.name or opened.name)
            common.convert("argos", opened.folder, out / opened.name if several else out, settings)
