"""What is translated and how: all that the bytes of the output depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Self

from engine.api import InvalidRequest, ModelInfo, TextOptions, program_version

SHARD_LINES: Final = 10_000
WINDOW_LINES: Final = 4_000
WINDOW_BYTES: Final = 8 << 20  # of a window's lines, as they were read
MAX_LINE_BYTES: Final = 1 << 20
STATE_VERSION: Final = 1  # of the files in the output folder
ERRORS: Final = ("stop", "mark", "drop")


@dataclass(frozen=True, slots=True)
class CorpusJob:
    """What is done with every file; two jobs with equal fields make equal bytes of equal files.

    models: name to hash, in the order of their work.
    route: what `Service.run_each` calls these models.
    languages: the source's and the target's.
    columns: what is written, in order: name of COLUMNS to the name that it gets.
    column: the text's, of files with columns: a name, or a number from 1 in a file without a header.
    errors: of ERRORS; what becomes of lines whose status is not fine.
    only_language: whether lines in other languages than the source's are left untranslated.
    shard_lines, window_lines: lines of a shard and of a window.
    max_line_bytes: a line of more has the status "too_long".
    runs: the backend, the kind of device and the precision that compute the answers.
    options: how texts are answered.
    convoy: the version of Convoy.
    """

    models: Mapping[str, str]
    route: str
    languages: tuple[str, str]
    columns: Mapping[str, str]
    column: str | None = None
    errors: str = "mark"
    only_language: bool = False
    shard_lines: int = SHARD_LINES
    window_lines: int = WINDOW_LINES
    max_line_bytes: int = MAX_LINE_BYTES
    runs: Mapping[str, Any] = field(default_factory=dict)
    options: TextOptions = TextOptions()
    convoy: str = field(default_factory=program_version)

    @property
    def version(self) -> str:
        """The models' hashes, short."""
        return "+".join(digest[:12] for digest in self.models.values())

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"languages": list(self.languages), "state_version": STATE_VERSION}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        known = {key: value for key, value in values.items() if key in {f.name for f in fields(cls)}}
        options = dict(known["options"])
        options["ignore"] = tuple(options["ignore"])
        return cls(**known | {"languages": tuple(known["languages"]), "options": TextOptions(**options)})


def models_of(infos: Sequence[ModelInfo]) -> dict[str, str]:
    """Name models and their hashes. Raises InvalidRequest where a model would come twice."""
    models = {info.name: info.digest for info in infos}
    if len(models) != len(infos):
        raise InvalidRequest("one model comes twice: name two different ones")
    return models


def differences(old: Mapping[str, Any], new: Mapping[str, Any], inside: str = "") -> list[str]:
    """Name what differs between two jobs as JSON, field by field.

    old: as it was.
    new: as it is.
    inside: names of the fields that both are in, each with a dot.
    """
    found = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, f"{inside}{key}.")
        elif before != after:
            found.append(f"{inside}{key} was {before!r} and is {after!r}")
    return found
