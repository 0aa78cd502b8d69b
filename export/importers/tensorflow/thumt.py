"""`convoy convert thumt`: a folder of an averaged attention network (bzhangGo/transformer-aan) to a bundle.

The folder is a training's output: a checkpoint, `params.json` and `transformer.json`, and the vocabularies.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from engine.bundle.bundle import Bundle, Description
from engine.errors import BundleError, CheckpointError
from engine.text.fairseq import read_bpe
from engine.text.symbols import Settings as TextSettings
from export.importers import aan
from export.importers.imported import ImportedModel, check_folders, write
from export.importers.json_object import read_object
from export.importers.tensorflow import read_variables

OPTIONS: Final = ("params.json", "transformer.json")
SPECIAL: Final = {"pad": "<pad>", "eos": "<eos>", "unk": "<unk>"}  # unless the options name others


@dataclass(frozen=True, slots=True)
class Settings:
    """What a folder does not say. None: find out from it, or refuse.

    source, target: language codes.
    checkpoint: its name, such as "model.ckpt-250000".
    vocabularies: names of the source's and the target's files.
    codes: name of the file of BPE codes; without, text comes and goes as symbols between spaces.
    """

    source: str
    target: str
    name: str | None = None
    checkpoint: str | None = None
    vocabularies: tuple[str, ...] = ()
    codes: str | None = None
    half: bool = False


def convert(folder: Path, out: Path, settings: Settings, *, overwrite: bool = False) -> Bundle:
    """Import the model of `folder` as the bundle `out`.

    Raises CheckpointError that names what is missing, unsupported or does not fit; BundleError when `out`
    exists. Nothing is written before everything was checked.
    """
    folder = Path(folder)
    check_folders(folder, out, overwrite=overwrite)
    options = _options(folder)
    vocabularies = [_symbols(path, options) for path in _paths(folder, options, settings.vocabularies)]
    specials = [_specials(symbols, options, folder) for symbols in vocabularies]
    if specials[0] != specials[1]:
        raise CheckpointError(f"{folder}: the special symbols have other ids in the two vocabularies")
    options = {**options, "pad_id": specials[0]["pad"], "eos_id": specials[0]["eos"]}
    sizes = len(vocabularies[0]), len(vocabularies[1])
    config = aan.config(options, sizes, unk=specials[0]["unk"])
    path, variables = read_variables(folder, settings.checkpoint)
    try:
        weights = aan.weights(variables, config)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    names = [f"vocab.{side}.json" for side in ("source", "target")]
    files: dict[str, bytes | Path] = {
        name: json.dumps(symbols, ensure_ascii=False, indent=0).encode()
        for name, symbols in zip(names, vocabularies, strict=True)
    }
    if settings.codes is not None:
        files["bpecodes"] = _codes(folder / settings.codes)
    text = TextSettings(
        source_vocabulary=names[0],
        target_vocabulary=names[1],
        bpe="bpecodes" if settings.codes is not None else None,
        source_language=settings.source,
        target_language=settings.target,
    )
    description = Description(
        name=settings.name or out.resolve().name,
        task="translate",
        source=settings.source,
        target=settings.target,
        config=config,
        text={"kind": "symbols", **asdict(text)},
    )
    origin = f"`convoy convert thumt` ({path.name})"
    return write(ImportedModel(origin, description, weights, files, settings.half), out, overwrite=overwrite)


def _options(folder: Path) -> dict[str, Any]:
    paths = [folder / name for name in OPTIONS if (folder / name).is_file()]
    if not paths:
        raise CheckpointError(f"{folder}: holds neither {' nor '.join(OPTIONS)}, the model's options")
    return {name: value for path in paths for name, value in read_object(path).items()}


def _paths(folder: Path, options: dict[str, Any], vocabularies: tuple[str, ...]) -> list[Path]:
    """The chosen vocabularies, else those that the options name; their folder is another machine's."""
    listed = options.get("vocab")
    named = listed if isinstance(listed, list) and all(isinstance(name, str) for name in listed) else []
    names = list(vocabularies) or [Path(name).name for name in named]
    if len(names) != 2:
        raise CheckpointError(
            f"{folder}: which vocabularies? Name the source's, then the target's, each with --vocabulary"
        )
    for name in names:
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder}: there is no vocabulary {name}")
    return [folder / name for name in names]


def _symbols(path: Path, options: dict[str, Any]) -> list[str]:
    """One a line; the end-of-sentence is behind them where the options say so."""
    try:
        symbols = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not UTF-8 ({error}); copy the vocabulary again") from error
    more = [_special(options, "eos")] if options.get("append_eos") else []
    return [symbol.strip() for symbol in symbols] + more


def _special(options: dict[str, Any], name: str) -> str:
    return str(options.get(name, SPECIAL[name]))


def _specials(symbols: list[str], options: dict[str, Any], folder: Path) -> dict[str, int]:
    missing = [s for s in (_special(options, name) for name in SPECIAL) if s not in symbols]
    if missing:
        raise CheckpointError(f"{folder}: a vocabulary lacks {missing}, so it is not one of this model")
    return {name: symbols.index(_special(options, name)) for name in SPECIAL}


def _codes(path: Path) -> Path:
    try:
        read_bpe(path)
    except BundleError as error:
        raise CheckpointError(str(error)) from error
    return path
