"""What the commands of `convoy convert` have in common: their flags, and how each ends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import ConvoyError

if TYPE_CHECKING:
    from engine.bundle.bundle import Bundle

Folder = Annotated[Path, typer.Argument(help="The model's files: weights, vocabularies, text models.")]
Out = Annotated[Path, typer.Argument(help="The bundle folder to write.")]
Name = Annotated[str | None, typer.Option(help="Of the model; else that of OUT.")]
Source = Annotated[str | None, typer.Option(help="Source language, where the files don't tell.")]
Target = Annotated[str | None, typer.Option(help="Target language.")]
SourceNamed = Annotated[str, typer.Option("--source", help="Source language.")]
TargetNamed = Annotated[str, typer.Option("--target", help="Target language.")]
Checkpoint = Annotated[str | None, typer.Option(help="Name of the file of weights, where there are several.")]
Vocabularies = Annotated[
    list[str] | None,
    typer.Option("--vocabulary", help="File of symbols: the source's, then the target's, where it differs."),
]
StoreHalf = Annotated[bool, typer.Option(help="Store fp16; else fp32.")]
Half = Annotated[bool | None, typer.Option(help="Store fp16; else as the checkpoint does.")]
Onnx = Annotated[bool, typer.Option(help="Also write the ONNX graphs that the CPU server needs.")]
Placeholders = Annotated[
    bool, typer.Option(help="Choose words that the model copies, so that glossaries and numbers are kept.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing OUT.")]


def finish(bundle: Bundle, *, onnx: bool, placeholders: bool = True) -> None:
    """Add the graphs, and with them the placeholders that a model lends; say what there is now."""
    from engine.bundle.bundle import open_bundle

    if onnx:
        from export.graphs.onnx import add_graphs

        bundle = add_graphs(bundle)
        if placeholders and bundle.task == "translate":
            typer.echo(_choose_placeholders(bundle))
    files = len(open_bundle(bundle.path, verify=False).files())
    typer.echo(f"{bundle.path}: {bundle.name}, {files} files; next: convoy inspect {bundle.path}")


def _choose_placeholders(bundle: Bundle) -> str:
    """Choose placeholders. A model that can't lend any is imported all the same."""
    from cli.placeholders import NOTHING, lend

    try:
        choice = lend(bundle)
    except ConvoyError as error:
        return f"{bundle.path}: no placeholders: {error}"
    if choice is None:
        return f"{bundle.path}: its vocabulary has placeholder symbols of its own"
    if not choice.words:
        return f"{bundle.path}: no placeholders: {NOTHING}"
    words = ", ".join(f"{w.word} {share:.0%}" for w, share in zip(choice.words, choice.shares, strict=True))
    return f"{bundle.path}: placeholders, and how often the model copies each by itself: {words}"
