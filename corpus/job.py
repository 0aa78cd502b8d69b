"""The job of a corpus: everything that the bytes of the output depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Self

from engine.api import InvalidRequest, ModelInfo, TextOptions, program_version

SHARD_LINES: Final = 10_000
REMOTE_SHARD_LINES: Final = 500  # for upstreams, whose answers are slow or have a price
WINDOW_LINES: Final = 4_000
WINDOW_BYTES: Final = 8 << 20  # bytes of the lines of a window, as read
MAX_LINE_BYTES: Final = 1 << 20
STATE_VERSION: Final = 1  # format of the files in the output folder
ERRORS: Final = ("stop", "mark", "drop")


@dataclass(frozen=True, slots=True)
class CorpusJob:
    """The settings of a job; jobs with equal fields turn equal files into equal bytes.

    models: hash of each model by name, in the order in which they translate.
    route: name of these models for `Service.run_each`.
    languages: source and target language.
    columns: name in the output by name in COLUMNS, in the order of writing.
    column: column of the text: its name, or its number from 1 in a file without a header.
    errors: treatment of bad lines, one of ERRORS.
    only_language: leave lines in other languages than the source language untranslated.
    shard_lines, window_lines: maximum number of lines of a shard and of a window.
    max_line_bytes: size limit of a line; longer lines have the status "too_long".
    runs: backend, kind of device and precision that compute the answers.
    options: decoding and text options of every line.
    fallbacks: hash of each local model that answers in the place of a failed upstream, by name.
    convoy: version of Convoy.
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
    fallbacks: Mapping[str, str] = field(default_factory=dict)
    convoy: str = field(default_factory=program_version)

    def version_of(self, model: str) -> str:
        """Return the first 12 digits of the hash of each model that answered.

        model: names of the models, joined by "+"; "": the models of the job.
        """
        known = {**self.fallbacks, **self.models}
        digests = [known.get(name, "") for name in model.split("+")] if model else self.models.values()
        return "+".join(digest[:12] for digest in digests)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"languages": list(self.languages), "state_version": STATE_VERSION}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the job from its JSON object; unknown members are ignored."""
        known = {key: value for key, value in values.items() if key in {f.name for f in fields(cls)}}
        options = dict(known["options"])
        options["ignore"] = tuple(options["ignore"])
        return cls(**known | {"languages": tuple(known["languages"]), "options": TextOptions(**options)})


def models_of(infos: Sequence[ModelInfo]) -> dict[str, str]:
    """Return the hash of each model by name. Raises InvalidRequest if a model comes twice."""
    models = {info.name: info.digest for info in infos}
    if len(models) != len(infos):
        raise InvalidRequest("one model comes twice: name two different ones")
    return models


def differences(old: Mapping[str, Any], new: Mapping[str, Any], inside: str = "") -> list[str]:
    """Describe each field that differs between two jobs as JSON.

    old: stored job.
    new: job of the command line.
    inside: path of the compared objects: the name of each outer field with a dot.
    """
    found = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, f"{inside}{key}.")
        elif before != after:
            found.append(f"{inside}{key} was {before!r} and is {after!r}")
    return found
