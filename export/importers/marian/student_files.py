"""Which file of a student's folder is what, and what Firefox does where none says.

A folder holds a model (intgemm8 or fp32 `.bin`, or `.npz`), a lexical shortlist, and one or two
SentencePiece models, each as it is or packed (.gz, .zst); maybe settings in YAML, maybe metadata.json.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.errors import CheckpointError
from export.importers.json_object import read_object
from export.importers.marian.compressed import contents, plain_name
from export.importers.marian.files import parse_yaml

METADATA_FILE: Final = "metadata.json"
MODELS: Final = (".bin", ".npz")
# what the engine of Firefox sets (its worker and its evaluation agree), where a folder has no settings
FIREFOX: Final[Mapping[str, Any]] = {
    "beam-size": 1,
    "normalize": 1.0,
    "word-penalty": 0,
    "max-length-factor": 2.0,
    "max-length-break": 128,
}
# of file names: "model.deen.intgemm.alphas.bin"
PAIR: Final = re.compile(r"\.([a-z]{2})-?([a-z]{2}(?:_[a-z]+)?)\.")
# of folders: "deen", "en-zh_hant", "csen.student.tiny11"
FOLDER: Final = re.compile(
    r"^([a-z]{2,3})-([a-z]{2,3}(?:_[a-z]+)?)\b|^([a-z]{2})([a-z]{2}(?:_[a-z]+)?)(?![a-z])"
)


@dataclass(frozen=True, slots=True)
class Student:
    """The files of one student.

    shortlist: None where there is none.
    settings: of its YAML, or Firefox's.
    """

    model: Path
    vocabularies: tuple[Path, Path]
    shortlist: Path | None
    settings: Mapping[str, Any]
    spoken: tuple[str | None, str | None]


def find_students(tree: Path) -> Iterator[Path]:
    """Find the folders of a tree that hold a student, in order."""
    if not tree.is_dir():
        raise CheckpointError(f"{tree}: there is no such folder")
    for folder in sorted({path.parent for path in tree.rglob("*") if path.is_file()}):
        if _models(folder):
            yield folder


def names_of(folders: list[Path], tree: Path) -> dict[str, Path]:
    """Name each student of a tree: its pair ("deen"), and where several have one, the folders above it
    too."""
    short = {folder: folder.name if folder != tree else tree.resolve().name for folder in folders}
    names: dict[str, Path] = {}
    for folder, name in short.items():
        several = list(short.values()).count(name) > 1
        names["-".join(folder.relative_to(tree).parts) if several else name] = folder
    return names


def find_student(folder: Path, weights: str | None = None) -> Student:
    """Find out which file of a folder is what.

    weights: the name of the model's.

    Raises CheckpointError.
    """
    files = {plain_name(path): path for path in sorted(folder.iterdir()) if path.is_file()}
    config = _config(folder, files, weights)
    model = _model(folder, files, weights, config)
    vocabularies = _vocabularies(folder, files, config)
    shortlist = _shortlist(folder, files, config)
    student = Student(
        model, vocabularies, shortlist, {**FIREFOX, **config}, _languages_of(folder, model, vocabularies)
    )
    _verify(folder, model)
    return student


def _models(folder: Path) -> dict[str, Path]:
    """The files of a folder that may hold a student, by their names without packing."""
    names = {plain_name(path): path for path in sorted(folder.iterdir()) if path.is_file()}
    return {n: p for n, p in names.items() if n.endswith(MODELS) and not n.startswith(("lex", "quality"))}


def _config(folder: Path, files: Mapping[str, Path], model_name: str | None) -> dict[str, Any]:
    """The settings of the folder's YAML; of several, those that name the chosen model."""
    paths = {name: path for name, path in files.items() if re.fullmatch(r"(config|decoder).*\.ya?ml", name)}
    parsed = {name: parse_yaml(path, contents(path)) for name, path in paths.items()}
    if len(parsed) > 1 and model_name is not None:
        parsed = {name: values for name, values in parsed.items() if model_name in _names(values, "models")}
    if len(parsed) > 1:
        raise CheckpointError(
            f"{folder}: holds several files of settings {sorted(parsed)}; keep one, or name the model with "
            "--checkpoint"
        )
    return next(iter(parsed.values()), {})


def _model(
    folder: Path, files: Mapping[str, Path], model_name: str | None, config: Mapping[str, Any]
) -> Path:
    """The chosen file, the one that the settings name, or the only one."""
    named = [model_name] if model_name else _names(config, "models")
    if len(named) > 1:
        raise CheckpointError(f"{folder}: its settings name several models {named}: choose by --checkpoint")
    if named:
        if named[0] not in files:
            raise CheckpointError(f"{folder}: there is no {named[0]}, which holds the weights")
        return files[named[0]]
    models = _models(folder)
    if len(models) != 1:
        which = (
            f"several models {sorted(models)}; name one with --checkpoint"
            if models
            else "no model (.bin, .npz)"
        )
        raise CheckpointError(f"{folder}: holds {which}")
    return next(iter(models.values()))


def _vocabularies(folder: Path, files: Mapping[str, Path], config: Mapping[str, Any]) -> tuple[Path, Path]:
    """Of source and target: what the settings name, else srcvocab and trgvocab, else the only one."""
    named = _names(config, "vocabs")
    if not named:
        pieces = [name for name in files if name.endswith(".spm")]
        sides = [[n for n in pieces if n.startswith(side)] for side in ("srcvocab", "trgvocab")]
        if all(len(side) == 1 for side in sides):
            named = [sides[0][0], sides[1][0]]
        elif len(pieces) == 1:
            named = pieces * 2
        else:
            raise CheckpointError(
                f"{folder}: which vocabularies? It holds {pieces}, not vocab.*.spm alone or srcvocab and "
                "trgvocab"
            )
    missing = [name for name in (named[0], named[-1]) if name not in files]
    if missing:
        raise CheckpointError(f"{folder}: there is no vocabulary {missing[0]}")
    return files[named[0]], files[named[-1]]


def _shortlist(folder: Path, files: Mapping[str, Path], config: Mapping[str, Any]) -> Path | None:
    """What the settings name, else the only lex.*; a folder need not have one."""
    listed = config.get("shortlist")
    if isinstance(listed, list) and listed:
        name = Path(str(listed[0])).name
        name = plain_name(Path(name))
        if name not in files:
            raise CheckpointError(f"{folder}: there is no shortlist {name}, which its settings name")
        return files[name]
    names = [name for name in files if name.startswith("lex")]
    if len(names) > 1:
        raise CheckpointError(
            f"{folder}: holds several shortlists {names}; keep one, or name it in config.yml"
        )
    return files[names[0]] if names else None


def _names(values: Mapping[str, Any], key: str) -> list[str]:
    """File names of a list of paths, which may be another machine's, without their packing."""
    listed = values.get(key)
    return [plain_name(Path(str(name))) for name in listed] if isinstance(listed, list) else []


def _languages_of(
    folder: Path, model: Path, vocabularies: tuple[Path, Path]
) -> tuple[str | None, str | None]:
    """Source and target by the names of files, which are the only sign, or of the folder."""
    for path in (model, *vocabularies):
        if match := PAIR.search(plain_name(path)):
            return match[1], match[2]
    match = FOLDER.search(folder.resolve().name)
    return (match[1] or match[3], match[2] or match[4]) if match else (None, None)


def _verify(folder: Path, model: Path) -> None:
    """Compare the model with what metadata.json says of it, packed or not."""
    path = folder / METADATA_FILE
    if not path.is_file():
        return
    digest = read_object(path).get("hash")
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        return
    if digest not in (hashlib.sha256(data).hexdigest() for data in (contents(model), model.read_bytes())):
        raise CheckpointError(f"{model}: its SHA-256 is not that of {METADATA_FILE}; download both again")
