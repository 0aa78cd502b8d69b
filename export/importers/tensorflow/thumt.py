"""`convoy convert thumt`: read an averaged attention network (bzhangGo/transformer-aan).

The folder is the output of training: a checkpoint, `params.json`, `transformer.json` and vocabularies.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from engine.bundle.bundle import Content
from engine.errors import CheckpointError
from engine.text.tokenizers.fairseq import read_bpe
from engine.text.tokenizers.symbols import SymbolsSettings as TextSettings
from export.importers.importing import ImportedModel, ProblemList, StoppedError, known_length
from export.importers.json_object import read_object
from export.importers.settings import ThumtImport
from export.importers.tensorflow import aan
from export.importers.tensorflow.checkpoint import read_variables

OPTIONS: Final = ("params.json", "transformer.json")
SPECIAL: Final = {"pad": "<pad>", "eos": "<eos>", "unk": "<unk>"}  # defaults of the options


def read(folder: Path, settings: ThumtImport, problems: ProblemList) -> ImportedModel:
    """Read the averaged attention network of a folder.

    folder: folder of checkpoint, options and vocabularies.
    settings: settings of the user, which must include the languages.
    problems: receives whatever is missing, unsupported or does not fit.
    """
    if settings.source is None or settings.target is None:
        problems.add(f"{folder}: does not name its languages: give --source and --target")
    codes = None if settings.codes is None else folder / settings.codes
    if codes is not None:
        problems.attempt(lambda: read_bpe(codes))
    found = problems.attempt(lambda: read_variables(folder, settings.checkpoint))
    options = _options(folder)
    vocabularies = [_symbols(path, options) for path in _paths(folder, options, settings.vocabularies)]
    specials = [_specials(symbols, options, folder) for symbols in vocabularies]
    if specials[0] != specials[1]:
        raise CheckpointError(f"{folder}: the special symbols have other ids in the two vocabularies")
    options = {**options, "pad_id": specials[0]["pad"], "eos_id": specials[0]["eos"]}
    config = aan.config(options, (len(vocabularies[0]), len(vocabularies[1])), unk=specials[0]["unk"])
    if found is None:
        raise StoppedError
    path, variables = found
    weights = problems.require(str(path), lambda: aan.weights(variables, config))
    names = [f"vocab.{side}.json" for side in ("source", "target")]
    files: dict[str, Content] = {
        name: json.dumps(symbols, ensure_ascii=False, indent=0).encode()
        for name, symbols in zip(names, vocabularies, strict=True)
    }
    if codes is not None:
        files["bpecodes"] = codes
    text = TextSettings(
        source_vocabulary=names[0],
        target_vocabulary=names[1],
        bpe=None if codes is None else "bpecodes",
        source_language=str(settings.source),
        target_language=str(settings.target),
    )
    return ImportedModel(
        origin=f"`convoy convert thumt` ({path.name})",
        config=config,
        weights=weights,
        text={"kind": "symbols", **asdict(text)},
        files=files,
        source=str(settings.source),
        target=str(settings.target),
        half=False,
        max_sentence_tokens=known_length(options.get("max_length")),  # longest training sentence
    )


def _options(folder: Path) -> dict[str, Any]:
    paths = [folder / name for name in OPTIONS if (folder / name).is_file()]
    if not paths:
        raise CheckpointError(f"{folder}: holds neither {' nor '.join(OPTIONS)}, the model's options")
    return {name: value for path in paths for name, value in read_object(path).items()}


def _paths(folder: Path, options: dict[str, Any], vocabularies: tuple[str, ...]) -> list[Path]:
    """Return the chosen vocabularies, or the options' ones, whose folder belongs to another machine."""
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
    """Return the symbols, one a line; the options may append the end-of-sentence."""
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
