"""Flags and last steps that all commands of `convoy convert` share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from engine.bundle.bundle import Stage
    from export.importers.settings import ImportSettings

Folder = Annotated[Path, typer.Argument(help="Folder of the model: weights, vocabularies, text models.")]
Out = Annotated[Path, typer.Argument(help="Folder of the new bundle.")]
Name = Annotated[str | None, typer.Option(help="Name of the model; default: name of OUT.")]
Source = Annotated[str | None, typer.Option(help="Source language, if it is not in the files.")]
Target = Annotated[str | None, typer.Option(help="Target language, if it is not in the files.")]
SourceNamed = Annotated[str, typer.Option("--source", help="Source language.")]
TargetNamed = Annotated[str, typer.Option("--target", help="Target language.")]
Checkpoint = Annotated[str | None, typer.Option(help="Name of the file of weights, if there are several.")]
Vocabularies = Annotated[
    list[str] | None,
    typer.Option("--vocabulary", help="File of symbols; repeat it for a target vocabulary that differs."),
]
StoreHalf = Annotated[bool, typer.Option(help="Store fp16 instead of fp32.")]
Half = Annotated[bool | None, typer.Option(help="Store fp16, or fp32; default: precision of the checkpoint.")]
Onnx = Annotated[bool, typer.Option(help="Also write the ONNX graphs that a server on the CPU needs.")]
Placeholders = Annotated[
    bool, typer.Option(help="Choose words that the model copies as placeholders for glossaries and numbers.")
]
MaxSentenceTokens = Annotated[
    int | None,
    typer.Option(min=16, help="Cut sentences of more tokens; default: limit of the model, or 256."),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check", help="Compare ten lines with the original program; README.md states how many are equal."
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing OUT.")]


@dataclass(frozen=True, slots=True)
class Conversion:
    """The flags of every conversion."""

    name: Name = None
    onnx: Onnx = True
    placeholders: Placeholders = True
    max_sentence_tokens: MaxSentenceTokens = None
    check: Check = False
    overwrite: Overwrite = False

    def convert(self, source: str, folder: Path, out: Path, settings: ImportSettings) -> None:
        """Import a model as a bundle that a server can load, and print a line about it.

        source: name in `export.importers.SOURCES`.
        folder: directory with the files of the model.
        out: folder of the bundle.
        settings: settings of the importer; a name in them overrides the flag.
        """
        from export.importers import convert
        from export.importers.proving import check_with_peer

        if self.check and not self.onnx:
            raise InvalidRequest("--check needs the ONNX graphs: leave out --no-onnx")
        name, stages = settings.name or self.name, self.stages()
        named = replace(settings, name=name, max_sentence_tokens=self.max_sentence_tokens)
        if self.check:
            adapter = getattr(settings, "adapter", None)
            stages = (*stages, partial(check_with_peer, typer.echo, folder, adapter))
        bundle = convert(source, folder, out, named, overwrite=self.overwrite, stages=stages)
        typer.echo(
            f"{bundle.path}: {bundle.name}, {len(bundle.files())} files; next: convoy inspect {bundle.path}"
        )

    def stages(self) -> tuple[Stage, ...]:
        """Return the steps that add files to the new bundle and prove it."""
        from export.importers.proving import add_graphs, add_placeholders, prove_answer

        if not self.onnx:
            return ()
        stages = (add_graphs, prove_answer)
        return (*stages, partial(add_placeholders, typer.echo)) if self.placeholders else stages


def conversion_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `common: Conversion` of a command by one flag for each field."""
    hints = get_type_hints(command, include_extras=True)
    old_parameters = [p for name, p in inspect.signature(command).parameters.items() if name != "common"]
    fields = inspect.signature(Conversion).parameters.values()
    common = get_type_hints(Conversion, globals(), include_extras=True)

    @wraps(command)
    def wrapper(**values: Any) -> None:
        flags = {name: values.pop(name) for name in common if name in values}
        command(**values, common=Conversion(**flags))

    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            *(p.replace(annotation=hints[p.name], kind=p.KEYWORD_ONLY) for p in old_parameters),
            *(p.replace(annotation=common[p.name], kind=p.KEYWORD_ONLY) for p in fields),
        ]
    )
    return wrapper
