"""`convoy convert tensor2tensor`: a folder of a SliceNet that tensor2tensor trained to a bundle.

The folder is a training's output: a checkpoint, `hparams.json`, and the vocabulary of the problem.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.bundle.bundle import Bundle, Description
from engine.errors import BundleError, CheckpointError
from engine.text.subwords import read_subtokens
from export.importers import slicenet
from export.importers.imported import ImportedModel, check_folders, write
from export.importers.json_object import read_object
from export.importers.tensorflow import read_variables

HPARAMS: Final = "hparams.json"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a folder does not say. None: find out from it, or refuse.

    source, target: language codes.
    checkpoint: its name, such as "model.ckpt-250000".
    vocabularies: names of the source's and the target's files.
    target_space: the problem's number of the target space, which hparams.json seldom holds.
    """

    source: str
    target: str
    name: str | None = None
    checkpoint: str | None = None
    vocabularies: tuple[str, ...] = ()
    target_space: int | None = None
    half: bool = False


def convert(folder: Path, out: Path, settings: Settings, *, overwrite: bool = False) -> Bundle:
    """Import the model of `folder` as the bundle `out`.

    Raises CheckpointError that names what is missing, unsupported or does not fit; BundleError when `out`
    exists. Nothing is written before everything was checked.
    """
    folder = Path(folder)
    check_folders(folder, out, overwrite=overwrite)
    paths = _vocabularies(folder, settings.vocabularies)
    try:
        sizes = [len(read_subtokens(path)) for path in paths]
    except BundleError as error:
        raise CheckpointError(str(error)) from error
    hyperparameters = _hyperparameters(folder, settings, sizes)
    config, problems = slicenet.model_config(hyperparameters)
    if config is None:
        raise CheckpointError(f"{folder / HPARAMS}: can't be imported: " + "; ".join(problems))
    path, variables = read_variables(folder, settings.checkpoint)
    weights, problems = slicenet.weights(variables, config)
    if problems:
        raise CheckpointError(f"{path}: its variables do not fit its options: " + "; ".join(problems))
    names = [f"{side}.subwords" for side in ("source", "target")] if len(paths) > 1 else ["vocab.subwords"]
    description = Description(
        name=settings.name or out.resolve().name,
        task="translate",
        source=settings.source,
        target=settings.target,
        config=config,
        text={"kind": "subwords", "source": names[0], "target": names[-1]},
    )
    origin = f"`convoy convert tensor2tensor` ({path.name})"
    files = dict(zip(names, paths, strict=True))
    return write(ImportedModel(origin, description, weights, files, settings.half), out, overwrite=overwrite)


def _vocabularies(folder: Path, file_names: tuple[str, ...]) -> list[Path]:
    """The chosen files, else the only one."""
    paths = [folder / name for name in file_names] or sorted(folder.glob("vocab.*"))
    for path in paths:
        if not path.is_file():
            raise CheckpointError(f"{folder}: there is no vocabulary {path.name}")
    if len(paths) > 1 and not file_names:
        names = [path.name for path in paths]
        raise CheckpointError(
            f"{folder}: holds several vocabularies {names}; name the source's, then the target's, each with "
            "--vocabulary"
        )
    if not 0 < len(paths) < 3:
        raise CheckpointError(f"{folder}: a model has one or two vocabularies vocab.*, not {len(paths)}")
    return paths


def _hyperparameters(folder: Path, settings: Settings, sizes: list[int]) -> Mapping[str, Any]:
    values = read_object(folder / HPARAMS)
    step = values.get("vocab_divisor", 1)
    if type(step) is not int or not 0 < step <= 65536:
        raise CheckpointError(f"{folder / HPARAMS}: vocab_divisor = {step!r} is no whole number")
    rows = [-(-size // step) * step for size in sizes]
    space = values.get("target_space_id", 0) if settings.target_space is None else settings.target_space
    return {**values, "vocab_in": rows[0], "vocab_out": rows[-1], "target_space_id": space}
