"""What the commands of `convoy convert` have in common: their flags, and how each ends."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

import typer

from cli.convert.check import check
from engine.errors import CheckpointError, ConvoyError, InvalidRequest

if TYPE_CHECKING:
    from engine.bundle.bundle import Bundle, Content, Stage
    from export.importers.settings import ImportSettings

PROOF: Final = "A 1."  # a text that every tokenizer can cut
LONGEST_PROOF_TOKENS: Final = 4

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
    """What every conversion is told: fields are flags, see above."""

    name: Name = None
    onnx: Onnx = True
    placeholders: Placeholders = True
    max_sentence_tokens: MaxSentenceTokens = None
    check: Check = False
    overwrite: Overwrite = False

    def convert(self, source: str, folder: Path, out: Path, settings: ImportSettings) -> None:
        """Import a model with all that serves it, or nothing; say what there is now.

        source: a name in `export.importers.SOURCES`.
        folder: of the model.
        out: of the bundle.
        settings: of the source's class; a name in them counts more than the flag.
        """
        from export.importers import convert

        if self.check and not self.onnx:
            raise InvalidRequest("--check needs the graphs: leave out --no-onnx")
        name, stages = settings.name or self.name, self.stages()
        named = replace(settings, name=name, max_sentence_tokens=self.max_sentence_tokens)
        if self.check:
            stages = (*stages, partial(check, folder, getattr(settings, "adapter", None)))
        bundle = convert(source, folder, out, named, overwrite=self.overwrite, stages=stages)
        typer.echo(
            f"{bundle.path}: {bundle.name}, {len(bundle.files())} files; next: convoy inspect {bundle.path}"
        )

    def stages(self) -> tuple[Stage, ...]:
        """Return what adds files to a bundle, and proves it, before it has its place."""
        if not self.onnx:
            return ()
        return (graphs, prove, choose) if self.placeholders else (graphs, prove)


def conversion_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command`, which takes a `Conversion` as `common`, one flag for each of its fields."""
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


def graphs(bundle: Bundle) -> Mapping[str, Content]:
    """Make the graphs that a server on the CPU needs."""
    from export.graphs.onnx import graph_files

    return graph_files(bundle)


def prove(bundle: Bundle) -> Mapping[str, Content]:
    """Answer one short text by the bundle's own defaults. Raises CheckpointError when that can't be done."""
    from cli import texts
    from cli.choices import AnswerFlags, ModelChoice

    if not bundle.config.reads_source:
        return {}
    most = max(LONGEST_PROOF_TOKENS, bundle.options.min_length)
    flags = AnswerFlags({"max_length_a": 0.0, "max_length_b": most})
    try:
        with texts.open_service(ModelChoice(bundle.path), flags) as service:
            list(service.run_many(bundle.name, [PROOF], flags.options()))
    except ConvoyError as error:
        reason = str(error).replace(str(bundle.path), bundle.name)
        raise CheckpointError(
            f"{bundle.name}: the model can't answer as its settings say: {reason}"
        ) from error
    return {}


def choose(bundle: Bundle) -> Mapping[str, Content]:
    """Choose placeholders and say which. A model that can't copy any is imported all the same."""
    from cli.placeholders import NOTHING, choose_placeholders

    if bundle.task != "translate":
        return {}
    try:
        choice = choose_placeholders(bundle)
    except ConvoyError as error:
        typer.echo(f"{bundle.name}: no placeholders: {error}")
        return {}
    if choice is None:
        typer.echo(f"{bundle.name}: its vocabulary has placeholder symbols of its own")
    elif not choice.words:
        typer.echo(f"{bundle.name}: no placeholders: {NOTHING}")
    else:
        words = [f"{w.word} {share:.0%}" for w, share in zip(choice.words, choice.shares, strict=True)]
        listed = ", ".join(words)
        typer.echo(f"{bundle.name}: placeholders, and how often the model copies each by itself: {listed}")
        return choice.files
    return {}
