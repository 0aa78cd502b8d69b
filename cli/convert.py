"""`convoy convert`: import a foreign checkpoint as a bundle."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from engine.errors import InvalidRequest

FORMATS: Final = ("fairseq", "marian")


def convert(
    kind: Annotated[
        str,
        typer.Argument(metavar="FORMAT", help="fairseq (0.6 to 0.12) or marian (OPUS-MT, either layout)."),
    ],
    folder: Annotated[Path, typer.Argument(help="The model's files: weights, vocabularies, text models.")],
    out: Annotated[Path, typer.Argument(help="The bundle folder to write.")],
    name: Annotated[str | None, typer.Option(help="Of the model; else that of OUT.")] = None,
    task: Annotated[str | None, typer.Option(help="translate, summarize, ...; else by the model.")] = None,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(help="File name. Several (repeated, or between ',' or ':') become an ensemble."),
    ] = None,
    average: Annotated[
        bool, typer.Option("--average", help="One model of the checkpoints' mean weights.")
    ] = False,
    dictionaries: Annotated[
        Path | None, typer.Option(help="Folder of dict.*.txt, where not beside the checkpoint.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Source language, else from the checkpoint.")] = None,
    target: Annotated[str | None, typer.Option(help="Target language.")] = None,
    normalize: Annotated[str, typer.Option(help="Language of the punctuation rules; '' for none.")] = "en",
    aggressive: Annotated[bool | None, typer.Option(help="Moses: split dashes.")] = None,
    escape: Annotated[bool | None, typer.Option(help="Moses: escape &, |, <, >, ', \", [ and ].")] = None,
    lowercase: Annotated[bool | None, typer.Option(help="Lower-case the source.")] = None,
    pretokenized: Annotated[bool | None, typer.Option(help="Text is tokens separated by spaces.")] = None,
    unk_dictionary: Annotated[
        Path | None, typer.Option(help="Lines 'source target': words for unknown ones (--replace-unk).")
    ] = None,
    half: Annotated[bool | None, typer.Option(help="Store fp16; else as the checkpoint does.")] = None,
    onnx: Annotated[bool, typer.Option(help="Also write the ONNX graphs that the CPU server needs.")] = True,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing OUT.")] = False,
) -> None:
    """Import a checkpoint as a bundle, without running anything it holds (needs the extra `torch`)."""
    if kind not in FORMATS:
        raise InvalidRequest(f"can't convert {kind!r}; known formats are {', '.join(FORMATS)}")
    from export import fairseq, marian
    from export.onnx import add_graphs

    names = tuple(name for given in checkpoint or () for name in _names(folder, given))
    if kind == "marian":
        foreign = {
            "--task": task,
            "--average": average or None,
            "--dictionaries": dictionaries,
            "--normalize": normalize if normalize != "en" else None,
            "--aggressive": aggressive,
            "--escape": escape,
            "--lowercase": lowercase,
            "--pretokenized": pretokenized,
            "--unk-dictionary": unk_dictionary,
            "--checkpoint (several)": names if len(names) > 1 else None,
        }
        wrong = [flag for flag, value in foreign.items() if value is not None]
        if wrong:
            raise InvalidRequest(f"{', '.join(wrong)}: of fairseq's models only; leave it out")
        known = marian.Settings(name, source, target, names[0] if names else None, half)
        bundle = marian.convert(folder, out, known, overwrite=overwrite)
    else:
        settings = fairseq.Settings(
            name=name,
            task=task,
            checkpoints=names,
            average=average,
            dictionaries=dictionaries,
            source=source,
            target=target,
            normalize=normalize,
            aggressive=aggressive,
            escape=escape,
            lowercase=lowercase,
            pretokenized=pretokenized,
            unk_dictionary=unk_dictionary,
            half=half,
        )
        bundle = fairseq.convert(folder, out, settings, overwrite=overwrite)
    if onnx:
        bundle = add_graphs(bundle)
    typer.echo(f"{out}: {bundle.name}, {len(bundle.files())} files; next: convoy inspect {out}")


def _names(folder: Path, given: str) -> list[str]:
    """Names between commas or colons (fairseq's own --path), unless all of it is one file's name."""
    whole = (folder / given).is_file()
    return [given] if whole else [name for name in re.split("[,:]", given) if name]
