"""Find the files of a student, and its decoding settings.

A folder holds a model (intgemm8 or fp32 `.bin`, or `.npz`), a lexical shortlist, and one or two
SentencePiece models, each plain or packed (.gz, .zst); optionally settings in YAML and metadata.json.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.errors import CheckpointError
from engine.text.codes import SHORT
from export.importers.json_object import read_object
from export.importers.marian.compressed import contents, plain_name
from export.importers.marian.files import parse_yaml

METADATA_FILE: Final = "metadata.json"
MODELS: Final = (".bin", ".npz")
# settings of Firefox's engine (in its worker and its evaluation), for folders without settings
FIREFOX: Final[Mapping[str, Any]] = {
    "beam-size": 1,
    "normalize": 1.0,
    "word-penalty": 0,
    "max-length-factor": 2.0,
    "max-length-break": 128,
}
# a language, with its script: "de", "hbs", "zh_hant"
LANGUAGE: Final = "([a-z]{2,3}(?:_[a-z]{4})?)"
# a part of a file name, or the beginning of a folder's: "de-en", "en-zh_hant"
HYPHENED: Final = re.compile(f"{LANGUAGE}-{LANGUAGE}(?![a-z])")
KNOWN: Final = frozenset({*SHORT, *SHORT.values(), "hbs", "ceb", "fil", "hmn", "yue"})
# words of file names that two codes of languages make
NO_PAIRS: Final = frozenset({"base", "best", "fast", "last", "test", "tiny"})


@dataclass(frozen=True, slots=True)
class Student:
    """The files of one student.

    vocabularies: files of the source and the target vocabulary.
    settings: settings of its YAML file, completed with Firefox's.
    languages: source and target language in the names of files or folder, or None.
    """

    model: Path
    vocabularies: tuple[Path, Path]
    shortlist: Path | None
    settings: Mapping[str, Any]
    languages: tuple[str | None, str | None]


def find_students(tree: Path) -> Iterator[Path]:
    """Yield the folders of a tree that hold a student, sorted. Raises CheckpointError if there is no tree."""
    if not tree.is_dir():
        raise CheckpointError(f"{tree}: there is no such folder")
    for folder in sorted({path.parent for path in tree.rglob("*") if path.is_file()}):
        if _model_candidates(folder):
            yield folder


def names_of(folders: list[Path], tree: Path) -> dict[str, Path]:
    """Return a name for each student: its folder's ("deen"), or its path in the tree if not unique."""
    short = {folder: folder.name if folder != tree else tree.resolve().name for folder in folders}
    names: dict[str, Path] = {}
    for folder, name in short.items():
        several = list(short.values()).count(name) > 1
        names["-".join(folder.relative_to(tree).parts) if several else name] = folder
    return names


def find_student(folder: Path, weights: str | None = None) -> Student:
    """Find the files of a student.

    folder: folder of the student.
    weights: file name of the model; None: the only one, or the one that the settings name.

    Raises CheckpointError if a file is missing or ambiguous.
    """
    files = {plain_name(path): path for path in sorted(folder.iterdir()) if path.is_file()}
    config = _read_settings(folder, files, weights)
    model = _model_file(folder, files, weights, config)
    vocabularies = _vocabulary_files(folder, files, config)
    shortlist = _shortlist_file(folder, files, config)
    student = Student(
        model, vocabularies, shortlist, {**FIREFOX, **config}, _languages_of(folder, model, vocabularies)
    )
    _verify(folder, model)
    return student


def _model_candidates(folder: Path) -> dict[str, Path]:
    """Return the files of a folder that may be models, by their unpacked names."""
    names = {plain_name(path): path for path in sorted(folder.iterdir()) if path.is_file()}
    return {n: p for n, p in names.items() if n.endswith(MODELS) and not n.startswith(("lex", "quality"))}


def _read_settings(folder: Path, files: Mapping[str, Path], model_name: str | None) -> dict[str, Any]:
    """Return the settings of the folder's YAML file, or of the one among several that names the model."""
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


def _model_file(
    folder: Path, files: Mapping[str, Path], model_name: str | None, config: Mapping[str, Any]
) -> Path:
    """Return the chosen model file, the one that the settings name, or the only one."""
    named = [model_name] if model_name else _names(config, "models")
    if len(named) > 1:
        raise CheckpointError(f"{folder}: its settings name several models {named}: choose by --checkpoint")
    if named:
        if named[0] not in files:
            raise CheckpointError(f"{folder}: there is no {named[0]}, which holds the weights")
        return files[named[0]]
    models = _model_candidates(folder)
    if len(models) != 1:
        which = (
            f"several models {sorted(models)}; name one with --checkpoint"
            if models
            else "no model (.bin, .npz)"
        )
        raise CheckpointError(f"{folder}: holds {which}")
    return next(iter(models.values()))


def _vocabulary_files(
    folder: Path, files: Mapping[str, Path], config: Mapping[str, Any]
) -> tuple[Path, Path]:
    """Return both vocabularies: named by the settings, or srcvocab and trgvocab, or the only one."""
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


def _shortlist_file(folder: Path, files: Mapping[str, Path], config: Mapping[str, Any]) -> Path | None:
    """Return the shortlist that the settings name, or the only lex.*, or None."""
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
    """Return the unpacked file names of a list of paths, which may belong to another machine."""
    listed = values.get(key)
    return [plain_name(Path(str(name))) for name in listed] if isinstance(listed, list) else []


def _languages_of(
    folder: Path, model: Path, vocabularies: tuple[Path, Path]
) -> tuple[str | None, str | None]:
    """Return source and target language from the names; None if unknown.

    The name of the model counts, otherwise the folder's. Two joined codes of a folder, such as "ende", count
    only if a vocabulary has the same languages: "tiny" and "opus" are no directions. A vocabulary serves both
    directions, so its name alone gives none.
    """
    named = _pair_in(model)
    if named is not None:
        return named
    place = folder.resolve().name
    hyphened = _pair(HYPHENED.match(place))
    joined = _joined_pair(re.split(r"[^a-z_]", place)[0])
    both = [set(pair) for pair in map(_pair_in, vocabularies) if pair is not None]
    return hyphened or (joined if joined is not None and set(joined) in both else None) or (None, None)


def _pair_in(path: Path) -> tuple[str, str] | None:
    """Return the languages in a file name; None if there are none."""
    pairs = (
        _pair(HYPHENED.fullmatch(part)) or _joined_pair(part) for part in plain_name(path).split(".")[1:-1]
    )
    return next((pair for pair in pairs if pair is not None), None)


def _joined_pair(part: str) -> tuple[str, str] | None:
    """Return the languages of a name such as "deen"; None if there are none, or several possible pairs."""
    splits = {_pair(re.fullmatch(f"(.{{{i}}})(.*)", part)) for i in range(2, len(part) - 1)} - {None}
    return None if part in NO_PAIRS or len(splits) != 1 else splits.pop()


def _pair(match: re.Match[str] | None) -> tuple[str, str] | None:
    """Return the tags of the two groups of a match if both are known languages."""
    if match is None or any(
        not re.fullmatch(LANGUAGE, code) or code.partition("_")[0] not in KNOWN for code in match.groups()
    ):
        return None
    return _tag(match[1]), _tag(match[2])


def _tag(code: str) -> str:
    """Return the tag of a language with its script: "zh-Hant" for "zh_hant"."""
    language, _, script = code.partition("_")
    return f"{language}-{script.title()}" if script else language


def _verify(folder: Path, model: Path) -> None:
    """Compare the model's SHA-256, packed or unpacked, with metadata.json."""
    path = folder / METADATA_FILE
    if not path.is_file():
        return
    digest = read_object(path).get("hash")
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        return
    if digest not in (hashlib.sha256(data).hexdigest() for data in (contents(model), model.read_bytes())):
        raise CheckpointError(f"{model}: its SHA-256 is not that of {METADATA_FILE}; download both again")
