"""The files that `convoy translate` is given: one or several, folders, patterns, and their endings."""

from __future__ import annotations

import glob
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from documents import FORMATS, written_ending
from engine.errors import InvalidRequest

LINE_ENDINGS: Final = frozenset({"", ".txt", ".text"})  # endings of files with one text a line


@dataclass(frozen=True, slots=True)
class FileToTranslate:
    """A file and the path of its translation.

    path: the file.
    output: path of the translation.
    """

    path: Path
    output: Path


def is_document(path: Path, *, lines: bool) -> bool:
    """Return whether a file is translated as a document, and not line by line.

    path: the file.
    lines: each line is a text, whatever the ending says.

    Raises InvalidRequest on an ending that is neither a document's nor a text's.
    """
    ending = path.suffix.lower()
    if lines or ending in LINE_ENDINGS:
        return False
    if ending not in FORMATS:
        raise InvalidRequest(
            f"{path}: file format not supported; there are {', '.join(FORMATS)}. If each line is a text, "
            "say so with --lines"
        )
    return True


def files_of(arguments: Sequence[str], folder: Path, *, lines: bool) -> list[FileToTranslate]:
    """Return the files of all arguments, in order, with their paths in the folder of the translations.

    arguments: paths of files and folders, and patterns such as `docs/**/*.md`.
    folder: folder of the translations; the files of a folder keep their places in it.
    lines: each line of each file is a text.

    A folder gives its documents and texts; its other files are named on standard error. Raises InvalidRequest
    on an argument without a file, an unknown ending, or two files with one translation.
    """
    found = dict[Path, Path]()
    for argument in arguments:
        for path, place in _files(argument):
            if Path(argument).is_dir():
                if not lines and path.suffix.lower() not in FORMATS:
                    print(f"convoy: {path}: not translated", file=sys.stderr)
                    continue
            elif not lines and path.suffix:
                is_document(path, lines=False)
            output = folder / place.with_suffix(place.suffix if lines else written_ending(path.name))
            if output.resolve() == path.resolve():
                raise InvalidRequest(f"{path}: the translation would replace it; name another --output-dir")
            if found.setdefault(output, path) != path:
                raise InvalidRequest(f"{path} and {found[output]} would both be written to {output}")
    if not found:
        raise InvalidRequest("there is no file to translate")
    return [FileToTranslate(path, output) for output, path in found.items()]


def _files(argument: str) -> Iterator[tuple[Path, Path]]:
    """Yield each file of an argument with its path relative to the folder of the argument."""
    path = Path(argument)
    if path.is_dir():
        inner = sorted(file for file in path.rglob("*") if file.is_file() and not _is_hidden(file, path))
        yield from ((file, file.relative_to(path)) for file in inner)
        return
    if path.exists():
        yield path, Path(path.name)
        return
    matches = sorted(Path(match) for match in glob.iglob(argument, recursive=True))
    files = [match for match in matches if match.is_file()]
    if not files:
        raise InvalidRequest(f"{argument}: no such file")
    root = Path(*_fixed_parts(argument))
    yield from ((file, file.relative_to(root)) for file in files)


def _fixed_parts(pattern: str) -> Iterator[str]:
    """Yield the folders of a pattern before its first part with a wildcard."""
    for part in Path(pattern).parts[:-1]:
        if glob.has_magic(part):
            return
        yield part


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)
