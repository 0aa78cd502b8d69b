"""`convoy convert argos`: import packages of Argos Translate, which LibreTranslate serves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.convert.flags import Name, Onnx, Out, Overwrite, Placeholders, finish


def argos(
    package: Annotated[
        Path, typer.Argument(help="An .argosmodel, its unpacked folder, or a folder of packages.")
    ],
    out: Out,
    name: Name = None,
    onnx: Onnx = True,
    placeholders: Placeholders = True,
    overwrite: Overwrite = False,
) -> None:
    """Import packages of Argos Translate; of a folder of packages each becomes a bundle in OUT."""
    from export.shapes import stand_in

    stand_in()
    from export.importers.argos import convert

    for bundle in convert(package, out, name, overwrite=overwrite):
        finish(bundle, onnx=onnx, placeholders=placeholders)
