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
MaxSentenceTokens = Annotated[
    int | None,
    typer.Option(min=16, help="Cut sentences of more tokens; else as the source says, or at 256."),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check", help="Let the source's own engine answer ten lines too; README.md says how many agreed."
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
        folder: folder of the model.
        out: folder of the bundle.
        settings: settings of the importer; a name in them overrides the flag.
        """
        from export.importers import convert
        from export.importers.proving import check_with_peer

        if self.check and not self.onnx:
            raise InvalidRequest("--check needs the graphs: leave out --no-onnx")
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
        proved = (add_graphs, prove_answer)
        return (*proved, partial(add_placeholders, typer.echo)) if self.placeholders else proved


def conversion_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `common: Conversion` of a command by one flag for each field."""
    hints = get_type_hints(command, include_extras=True)
    own = [p for name, p in inspect.signature(command).parameters.items() if name != "common"]
    fields = inspect.signature(Conversion).parameters.values()
    common = get_type_hints(Conversion, globals(), include_extras=True)

    @wraps(command)
    def wrapper(**values: Any) -> None:
        flags = {name: values.pop(name) for name in common if name in values}
        command(**values, common=Conversion(**flags))

    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            *(p.replace(annotation=hints[p.name], kind=p.KEYWORD_ONLY) for p in own),
            *(p.replace(annotation=common[p.name], kind=p.KEYWORD_ONLY) for p in fields),
        ]
    )
    return wrapper
