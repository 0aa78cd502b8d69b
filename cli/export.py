"""`convoy export`: write the ONNX graphs of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder; its onnx/ is written or replaced.")],
) -> None:
    """Write the ONNX graphs of a bundle (needs the extra `torch`)."""
    from engine.bundle import open_bundle
    from export.onnx import add_graphs

    written = add_graphs(open_bundle(bundle))
    for name in written.files():
        if name.startswith("onnx/"):
            typer.echo(f"{written.file(name)}: {written.manifest[name].size:,} bytes")
