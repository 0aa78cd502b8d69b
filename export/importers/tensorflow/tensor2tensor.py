"""`convoy convert tensor2tensor`: read a SliceNet that tensor2tensor trained.

The folder is the output of training: a checkpoint, `hparams.json`, and the vocabulary of the problem.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from engine.errors import CheckpointError
from engine.text.tokenizers.subwords import read_subtokens
from export.importers.importing import ImportedModel, ProblemList, StoppedError, known_length
from export.importers.json_object import read_object
from export.importers.settings import Tensor2TensorImport
from export.importers.tensorflow import slicenet
from export.importers.tensorflow.checkpoint import read_variables

HPARAMS: Final = "hparams.json"


def read(folder: Path, settings: Tensor2TensorImport, problems: ProblemList) -> ImportedModel:
    """Read the SliceNet of a folder.

    folder: folder of checkpoint, hparams.json and vocabularies.
    settings: settings of the user, which must include the languages.
    problems: receives whatever is missing, unsupported or does not fit.
    """
    if settings.source is None or settings.target is None:
        problems.add(f"{folder}: does not name its languages: give --source and --target")
    found = problems.attempt(lambda: read_variables(folder, settings.checkpoint))
    paths = _vocabularies(folder, settings.vocabularies)
    sizes = [len(read_subtokens(path)) for path in paths]
    hyperparameters = _hyperparameters(folder, settings, sizes)
    config, findings = slicenet.model_config(hyperparameters)
    problems.add_under(f"{folder / HPARAMS}: can't be imported", findings)
    if config is None or found is None:
        raise StoppedError
    path, variables = found
    weights, findings = slicenet.weights(variables, config)
    problems.add_under(f"{path}: its variables do not fit its options", findings)
    names = [f"{side}.subwords" for side in ("source", "target")] if len(paths) > 1 else ["vocab.subwords"]
    return ImportedModel(
        origin=f"`convoy convert tensor2tensor` ({path.name})",
        config=config,
        weights=weights,
        text={"kind": "subwords", "source": names[0], "target": names[-1]},
        files=dict(zip(names, paths, strict=True)),
        source=str(settings.source),
        target=str(settings.target),
        half=False,
        max_sentence_tokens=known_length(hyperparameters.get("max_length")),  # longest training sentence
    )


def _vocabularies(folder: Path, file_names: tuple[str, ...]) -> list[Path]:
    """Return the chosen vocabularies, or the only one."""
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


def _hyperparameters(folder: Path, settings: Tensor2TensorImport, sizes: list[int]) -> Mapping[str, Any]:
    """Return the hyperparameters with the vocabularies' sizes, rounded up to rows of tables."""
    values = read_object(folder / HPARAMS)
    step = values.get("vocab_divisor", 1)
    if type(step) is not int or not 0 < step <= 65536:
        raise CheckpointError(f"{folder / HPARAMS}: vocab_divisor = {step!r} is not an integer")
    rows = [-(-size // step) * step for size in sizes]
    space = values.get("target_space_id", 0) if settings.target_space is None else settings.target_space
    return {**values, "vocab_in": rows[0], "vocab_out": rows[-1], "target_space_id": space}
