"""Bundles: a model as a folder of plain data, verified before use and written as a whole.

config.json             format, name, task, languages, `ModelConfig`, text settings
generation_config.json  defaults of `DecodeOptions`, by field name
model.safetensors       weights in fp16, fp32 or int8 (`engine.bundle.weights`), by the names of
                        `engine.models.weight_shapes`
manifest.json           size and SHA-256 of every other file, sorted by name; origin of a fetched model
README.md (the model card), tokenizer files, onnx/ (optional; a large int8 model has `packed.safetensors`)
optional: shortlist.safetensors, int8.json (scores), placeholders.json, words.json (phrases and the rule for
names), known_words.safetensors (words that the training data translates)

No file is ever unpickled. `write_bundle` and `add_files` build a complete new folder next to the target and
rename it, so a crash leaves the old state.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from safetensors import SafetensorError

from engine.bundle.config import ModelConfig
from engine.bundle.folder import replacing, write_file
from engine.bundle.json_file import read_json
from engine.bundle.manifest import (
    CONFIG,
    FORMAT,
    GENERATION,
    MANIFEST,
    PICKLES,
    PROVENANCE,
    REMEDY,
    WEIGHTS,
    FileEntry,
    Provenance,
    check_file,
    check_name,
    file_digest,
    read_manifest,
    read_versioned,
    typed,
)
from engine.bundle.strict import from_json
from engine.bundle.tensors import MappedTensors, SharedArrays
from engine.bundle.weights import Stored, Weights, write_weights
from engine.errors import BundleError, ConfigError
from engine.types import MAX_SENTENCE_TOKENS, DecodeOptions

T = TypeVar("T")
F = TypeVar("F")
# content of a file: bytes, the path of a file to copy, or a function that writes it
Content: TypeAlias = bytes | Path | Callable[[Path], None]
PACKED: Final = "onnx/packed.safetensors"  # int8 weights of a large model in the order of native products
PRECISIONS: Final = ("fp32", "int8")  # precisions of the graphs
# name of the step graph that reads shortlists, and of the setting that enables them by default
SHORTLISTED: Final = "shortlisted"
MIN_SENTENCE_TOKENS: Final = 16  # a character may be several tokens
# defaults of `Description`; only other values are written to config.json
DEFAULTS: Final = {SHORTLISTED: False, "truncates": False, "max_sentence_tokens": MAX_SENTENCE_TOKENS}


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """Content of config.json; `format` is the version of the bundle format."""

    format: int
    name: str
    task: str
    source: str
    target: str
    model: dict[str, Any]
    text: dict[str, Any]
    shortlisted: bool = False
    truncates: bool = False
    max_sentence_tokens: int = MAX_SENTENCE_TOKENS


@dataclass(frozen=True, slots=True)
class Description:
    """Name, languages and settings that `write_bundle` writes to config.json and generation_config.json.

    task: "translate", "summarize", ...
    source, target: language codes.
    text: tokenizer settings, at least {"kind": ...}.
    generation: overrides of the defaults of `DecodeOptions`, by field name.
    shortlisted: decode with the shortlist unless a request disables it.
    truncates: read only the beginning of a text that is too long, without being asked.
    max_sentence_tokens: largest number of tokens of a source, end-of-sentence included; longer ones are cut.
    """

    name: str
    task: str
    source: str
    target: str
    config: ModelConfig
    text: Mapping[str, Any]
    generation: Mapping[str, Any] = field(default_factory=dict)
    shortlisted: bool = False
    truncates: bool = False
    max_sentence_tokens: int = MAX_SENTENCE_TOKENS


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle. `options` are the decoding defaults of generation_config.json.

    shortlisted, truncates, max_sentence_tokens: see `Description`.
    provenance: origin of a fetched model; None: it was not fetched.
    """

    path: Path
    name: str
    task: str
    source: str
    target: str
    config: ModelConfig
    options: DecodeOptions
    text: dict[str, Any]
    manifest: dict[str, FileEntry]
    shortlisted: bool = False
    truncates: bool = False
    max_sentence_tokens: int = MAX_SENTENCE_TOKENS
    provenance: Provenance | None = None

    def text_settings(self, cls: type[T]) -> T:
        """Convert the tokenizer's settings to `cls`. Raises BundleError that names every error."""
        settings = {name: value for name, value in self.text.items() if name != "kind"}
        try:
            return from_json(cls, settings, "text")
        except ConfigError as error:
            raise BundleError(f"{self.path}: {error}; convert the bundle again") from None

    @property
    def digest(self) -> str:
        """Hexadecimal SHA-256 of the manifest: two bundles with equal digests have equal files."""
        lines = (f"{entry.sha256} {name}\n" for name, entry in sorted(self.manifest.items()))
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def files(self) -> list[str]:
        """List the names of all files of the manifest, sorted, with "/" between folders."""
        return sorted(self.manifest)

    def file(self, relative: str) -> Path:
        """Return the path of a file of the manifest. Raises BundleError if the file is not listed."""
        if relative not in self.manifest:
            raise BundleError(f"{self.path.name}: the bundle has no file {relative!r}, only {self.files()}")
        return self.path / relative

    def weights(self, shared: Path | None = None) -> Weights:
        """Map all weights. Raises BundleError when the file is damaged.

        shared: folder for arrays made from weights, which several processes map; None: no sharing.
        """
        path = self.file(WEIGHTS)
        try:
            packed = MappedTensors(self.file(PACKED)) if PACKED in self.manifest else None
            stored = MappedTensors(path)
            arrays = SharedArrays(shared, self.name, self.digest) if shared else None
            weights = Weights(stored, packed, arrays)
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            raise BundleError(f"{path}: not a readable safetensors file ({error}); {REMEDY}") from error
        stored.forget()  # the pages that the checks have read may never be needed
        return weights


# a function that returns further files for a bundle in a temporary folder
Stage: TypeAlias = Callable[[Bundle], Mapping[str, Content]]


def graph_parts(config: ModelConfig) -> tuple[str, ...]:
    """Return the names of a model's graphs; a language model has no encoder."""
    return ("encoder", "step") if config.reads_source else ("step",)


def graph_name(part: str, precision: str, kernels: str = "pure") -> str:
    """Return the file name of a graph within a bundle.

    part: "encoder", "step" or SHORTLISTED.
    precision: precision of the matrix products, one of PRECISIONS.
    kernels: "pure" (standard ONNX operators only) or "native" (with the operators of `engine.native`).
    """
    return f"onnx/{part}.{precision}{'' if kernels == 'pure' else f'.{kernels}'}.onnx"


def open_bundle(path: Path, *, verify: bool = True) -> Bundle:
    """Open a bundle; sizes are always compared with the manifest, hashes when `verify` is set.

    Raises BundleError (or its child ConfigError) that names the file and the remedy. Files that the manifest
    does not list are ignored, except pickles, which are refused.
    """
    path = Path(path)
    if not path.is_dir():
        raise BundleError(f"{path}: no such bundle folder; check the path or make it with `convoy convert`")
    if not (path / MANIFEST).exists() and (
        bundles := sorted(p.parent.name for p in path.glob(f"*/{MANIFEST}"))
    ):
        names = ", ".join(bundles[:5]) + (", ..." if bundles[5:] else "")
        raise BundleError(f"{path}: a folder of bundles, not a bundle; choose one of them: {names}")
    odd = next((p for p in sorted(path.rglob("*")) if not p.is_dir() and not p.is_file()), None)
    if odd is not None:  # reading a pipe or a device would block for ever
        raise BundleError(f"{path}: {odd.name} is no regular file: remove it")
    manifest, provenance = read_manifest(path)
    pickles = sorted(p.name for p in path.rglob("*") if p.suffix.lower() in PICKLES)
    if pickles:
        raise BundleError(f"{path}: holds {pickles[0]}; a bundle must hold no pickle-like files: remove it")
    for name, entry in manifest.items():
        check_file(path / name, entry, verify)
    described = _description(path / CONFIG)
    try:
        config = ModelConfig.from_dict(described.model)
    except ConfigError as error:
        raise ConfigError(f"{path / CONFIG}: {error}") from error
    generation = read_json(path / GENERATION, dict, REMEDY)
    return Bundle(
        path=path,
        name=described.name,
        task=described.task,
        source=described.source,
        target=described.target,
        config=config,
        options=typed(DecodeOptions, generation, path / GENERATION, "options"),
        text=described.text,
        manifest=manifest,
        shortlisted=described.shortlisted,
        truncates=described.truncates,
        max_sentence_tokens=described.max_sentence_tokens,
        provenance=provenance,
    )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of `write_in_stages`.

    half: store floats as fp16 instead of fp32.
    overwrite: replace an existing bundle; the old one stays in place until the new one is complete.
    stages: functions called in order with the partly written bundle in a temporary folder; each returns
        further files. After an exception the temporary folder is removed.
    """

    half: bool
    overwrite: bool = False
    stages: tuple[Stage, ...] = ()


def write_bundle(
    path: Path,
    description: Description,
    weights: Mapping[str, Stored],
    files: Mapping[str, Content],
    *,
    half: bool,
    overwrite: bool = False,
) -> Bundle:
    """Write a bundle in one stage (`write_in_stages`).

    path: folder of the bundle.
    description: name, languages and settings.
    weights: weights by name, of any float type; int8 stays int8.
    files: further files by their name in the bundle.
    half: store floats as fp16 instead of fp32.
    overwrite: replace an existing `path`.
    """
    return write_in_stages(path, description, weights, files, WriteOptions(half, overwrite))


def write_in_stages(
    path: Path,
    description: Description,
    weights: Mapping[str, Stored],
    files: Mapping[str, Content],
    how: WriteOptions,
) -> Bundle:
    """Write a bundle and open it. The same input gives the same bytes.

    path: folder of the bundle.
    description: name, languages and settings.
    weights: weights by name, of any float type; int8 stays int8.
    files: further files by their name in the bundle.
    how: precision, stages, and whether to replace an existing bundle.

    Raises BundleError if `path` exists and may not be replaced, and on weights that are not finite in the
    stored type.
    """
    path = Path(path)
    if path.exists() and not how.overwrite:
        raise BundleError(f"{path}: already exists; choose another name or ask to overwrite it")
    labels = {key: getattr(description, key) for key in ("name", "task", "source", "target")}
    config = {
        "format": FORMAT,
        **labels,
        "model": description.config.to_dict(),
        "text": dict(description.text),
    }
    values = {name: getattr(description, name) for name in DEFAULTS}
    config |= {name: value for name, value in values.items() if value != DEFAULTS[name]}
    own: dict[str, Content] = {
        CONFIG: _dump(config),
        GENERATION: _dump(dict(description.generation)),
        WEIGHTS: partial(write_weights, path=path, weights=weights, half=how.half),
    }
    contents: dict[str, Content] = {**_check_names(path, files, {*own, MANIFEST}), **own}
    return _replace(path, contents, None, how.stages)


def add_files(
    path: Path, files: Mapping[str, Content | None], provenance: Provenance | None = None
) -> Bundle:
    """Add, replace or remove files (not configuration or weights) and update the manifest, all or nothing.

    path: folder of the bundle.
    files: new files by name; None: the file is removed.
    provenance: origin of the model; None: the bundle's origin does not change.
    """
    bundle = open_bundle(path)
    contents = _check_names(bundle.path, files, {CONFIG, GENERATION, WEIGHTS, MANIFEST})
    bundle = dataclasses.replace(bundle, provenance=provenance or bundle.provenance)
    return _replace(bundle.path, contents, bundle)


def _replace(
    path: Path, contents: Mapping[str, Content | None], old: Bundle | None, stages: Iterable[Stage] = ()
) -> Bundle:
    """Write `contents` and the files of `old`, if given, to `path`; on an error `path` stays as it was."""
    with replacing(path, extend=old is not None) as fresh:
        provenance = old.provenance if old else None
        bundle = _extend(fresh, contents, dict(old.manifest) if old else {}, provenance)
        for stage in stages:
            if more := stage(bundle):
                names = _check_names(path, more, {CONFIG, GENERATION, WEIGHTS, MANIFEST})
                bundle = _extend(fresh, names, bundle.manifest, provenance)
    return dataclasses.replace(bundle, path=path)


def _extend(
    folder: Path,
    contents: Mapping[str, Content | None],
    manifest: dict[str, FileEntry],
    provenance: Provenance | None,
) -> Bundle:
    """Write or remove files in a temporary folder, write its manifest and open it."""
    for name, content in sorted(contents.items()):
        if content is None:
            manifest.pop(name, None)
            (folder / name).unlink(missing_ok=True)
            continue
        if callable(content):
            content(folder / name)
        else:
            write_file(folder / name, content if isinstance(content, bytes) else content.read_bytes())
        manifest[name] = FileEntry((folder / name).stat().st_size, file_digest(folder / name))
    listed = {name: dataclasses.asdict(entry) for name, entry in sorted(manifest.items())}
    origin = {} if provenance is None else {PROVENANCE: dataclasses.asdict(provenance)}
    write_file(folder / MANIFEST, _dump({"format": FORMAT, "files": listed} | origin))
    return open_bundle(folder, verify=False)


def _dump(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _check_names(path: Path, files: Mapping[str, F], reserved: set[str]) -> dict[str, F]:
    """Return the files as a dict. Raises BundleError for a name that is unsafe or reserved."""
    for name in files:
        check_name(path, name)
        if name in reserved:
            raise BundleError(f"{path}: {name} is written by the bundle itself; give the file another name")
    return dict(files)


def _description(path: Path) -> ConfigFile:
    """Read config.json. Raises BundleError, which names the remedy."""
    described = typed(ConfigFile, read_versioned(path), path, "config")
    if not isinstance(described.text.get("kind"), str):
        raise BundleError(f"{path}: text needs a 'kind', such as \"sentencepiece\"; {REMEDY}")
    if described.max_sentence_tokens < MIN_SENTENCE_TOKENS:
        raise BundleError(
            f"{path}: max_sentence_tokens must be at least {MIN_SENTENCE_TOKENS}, not "
            f"{described.max_sentence_tokens}; {REMEDY}"
        )
    return described
