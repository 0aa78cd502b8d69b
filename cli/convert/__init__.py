"""`convoy convert`: a group of commands, one for each source of models.

A new source is a module in this folder with a function of the same name, and its name in `ModelSources`. The
function calls an importer of `export.importers`.
"""

from __future__ import annotations

from typing import Final

import typer

from cli.commands import SETTINGS, Commands


class ModelSources(Commands):
    """The sources of models."""

    package = "cli.convert"
    names = (
        "bergamot",
        "fairseq",
        "hf",
        "marian",
        "argos",
        "ctranslate2",
        "tensor2tensor",
        "thumt",
    )


table: Final = typer.Typer(cls=ModelSources, **SETTINGS)


@table.callback()
def convert() -> None:
    """Import models of other programs as bundles, without running code from their files.

    Needs the extra `torch`; for argos, bergamot and ctranslate2 `convert` is enough."""
