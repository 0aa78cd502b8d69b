"""Bundles: a model as a folder of plain data, verified before use and never half written.

config.json             format, name, task, languages, `ModelConfig`, text settings
generation_config.json  defaults of `DecodeOptions`, by field name
model.safetensors       weights in fp16 or fp32, by the names of `engine.models.weight_shapes`
manifest.json           size and SHA-256 of every other file, sorted by name
README.md (the model card), tokenizer files, onnx/ (optional)

Nothing here is ever unpickled. `write_bundle` and `add_files` build a whole new folder beside the target and
rename it, so a crash leaves the old state.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from engine.config import ModelConfig
from engine.errors import BundleError, ConfigError
from engine.folder import replacing, write_file
from engine.types import DecodeOptions

FORMAT: Final = 1
CONFIG: Final = "config.json"
GENERATION: Final = "generation_config.json"
WEIGHTS: Final = "model.safetensors"
MANIFEST: Final = "manifest.json"
# suffixes under which pickles travel; a bundle has no place for them, so nobody is ever led to load one
PICKLES: Final = frozenset({".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".joblib"})
KEYS: Final = {"format": int, "model": dict, "text": dict} | dict.fromkeys(
    ("name", "task", "source", "target"), str
)
PRECISIONS: Final = ("fp32", "int8")  # of the graphs
SHORTLISTED: Final = "shortlisted"  # the part of a step's graph that reads lists of tokens
AGAIN: Final = "copy or convert the bundle again"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A line of the manifest: bytes and hexadecimal SHA-256."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Description:
    """What a bundle says of itself.

    task: "translate", "summarize", ... source, target: language codes. text: tokenizer settings, at least
    {"kind": ...}. generation: overrides of the defaults of `DecodeOptions`, by field name.
    """

    name: str
    task: str
    source: str
    target: str
    config: ModelConfig
    text: Mapping[str, Any]
    generation: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle. `options` are the decoding defaults of generation_config.json."""

    path: Path
    name: str
    task: str
    source: str
    target: str
    config: ModelConfig
    options: DecodeOptions
    text: dict[str, Any]
    manifest: dict[str, FileEntry]

    @property
    def digest(self) -> str:
        """Hexadecimal SHA-256 of the manifest: bundles that have it in common have all files in common."""
        lines = (f"{entry.sha256} {name}\n" for name, entry in sorted(self.manifest.items()))
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def files(self) -> list[str]:
        """Names of all files of the manifest, sorted, with "/" between folders."""
        return sorted(self.manifest)

    def file(self, relative: str) -> Path:
        """Path of a file of the manifest. Raises BundleError when the manifest does not list it."""
        if relative not in self.manifest:
            raise BundleError(f"{self.path.name}: there is no file {relative!r} in it, only {self.files()}")
        return self.path / relative

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """All weights, fp16 widened to fp32. Raises BundleError when the file is damaged."""
        path = self.file(WEIGHTS)
        try:
            stored = load_file(path)
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            raise BundleError(f"{path}: not a readable safetensors file ({error}); {AGAIN}") from error
        wrong = sorted(n for n, w in stored.items() if w.dtype not in (np.float16, np.float32))
        if wrong:
            raise BundleError(f"{path}: {wrong[0]} is {stored[wrong[0]].dtype}, not fp16 or fp32")
        return {name: weight.astype(np.float32) for name, weight in stored.items()}


def graph_parts(config: ModelConfig) -> tuple[str, ...]:
    """The graphs that a model is made of; a language model has no encoder."""
    return ("encoder", "step") if config.reads_source else ("step",)


def graph_name(part: str, precision: str, kernels: str = "pure") -> str:
    """Where a bundle keeps a graph; part: "encoder", "step" or SHORTLISTED. kernels: of standard operators
    only ("pure") or with our own ("native", see `engine.native`)."""
    return f"onnx/{part}.{precision}{'' if kernels == 'pure' else f'.{kernels}'}.onnx"


def open_bundle(path: Path, *, verify: bool = True) -> Bundle:
    """Open a bundle; sizes are always compared with the manifest, hashes when `verify` is set.

    Raises BundleError (or its child ConfigError) that names the file and the remedy. Files that the manifest
    does not list are ignored, except pickles, which are refused.
    """
    path = Path(path)
    if not path.is_dir():
        raise BundleError(f"{path}: no such bundle folder; check the path or make it with `convoy convert`")
    manifest = _manifest(path)
    pickles = sorted(p.name for p in path.rglob("*") if p.suffix.lower() in PICKLES)
    if pickles:
        raise BundleError(f"{path}: holds {pickles[0]}; a bundle must hold no pickle-like files: remove it")
    for name, entry in manifest.items():
        _check_file(path / name, entry, verify)
    values = _config(path / CONFIG)
    try:
        config = ModelConfig.from_dict(values["model"])
    except ConfigError as error:
        raise ConfigError(f"{path / CONFIG}: {error}") from error
    return Bundle(
        path=path,
        name=values["name"],
        task=values["task"],
        source=values["source"],
        target=values["target"],
        config=config,
        options=_options(path / GENERATION, _json(path / GENERATION)),
        text=values["text"],
        manifest=manifest,
    )


def write_bundle(
    path: Path,
    description: Description,
    weights: Mapping[str, NDArray[Any]],
    files: Mapping[str, bytes | Path],
    *,
    half: bool,
    overwrite: bool = False,
) -> Bundle:
    """Write a bundle and open it. The same input gives the same bytes.

    weights: by name, any float dtype; stored as fp16 when `half`, else as fp32. files: further files by their
    name in the bundle. An existing `path` is refused unless `overwrite`; then the old bundle stays in place
    until the new one is complete. Raises BundleError on weights that are not finite in the stored precision.
    """
    path = Path(path)
    if path.exists() and not overwrite:
        raise BundleError(f"{path}: already exists; choose another name or ask to overwrite it")
    said = {key: getattr(description, key) for key in ("name", "task", "source", "target")}
    config = {"format": FORMAT, **said, "model": description.config.to_dict(), "text": dict(description.text)}
    own = {
        CONFIG: _dump(config),
        GENERATION: _dump(dict(description.generation)),
        WEIGHTS: save(_stored(path, weights, half)),
    }
    contents: dict[str, bytes | Path] = {**_named(path, files, {*own, MANIFEST}), **own}
    return _replace(path, contents, None)


def add_files(path: Path, files: Mapping[str, bytes | Path]) -> Bundle:
    """Add or replace files (not configuration or weights), and the manifest with them: all or nothing."""
    bundle = open_bundle(path)
    contents = _named(bundle.path, files, {CONFIG, GENERATION, WEIGHTS, MANIFEST})
    return _replace(bundle.path, contents, bundle)


def _replace(path: Path, contents: Mapping[str, bytes | Path], old: Bundle | None) -> Bundle:
    """Put a folder of `contents`, over the files of `old`, at `path`, opened before as any reader would."""
    with replacing(path, extend=old is not None) as fresh:
        manifest = dict(old.manifest) if old else {}
        for name, content in sorted(contents.items()):
            data = content if isinstance(content, bytes) else content.read_bytes()
            write_file(fresh / name, data)
            manifest[name] = FileEntry(len(data), hashlib.sha256(data).hexdigest())
        listed = {name: dataclasses.asdict(entry) for name, entry in sorted(manifest.items())}
        write_file(fresh / MANIFEST, _dump({"format": FORMAT, "files": listed}))
        bundle = open_bundle(fresh, verify=False)
    return dataclasses.replace(bundle, path=path)


def _dump(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _stored(path: Path, weights: Mapping[str, NDArray[Any]], half: bool) -> dict[str, NDArray[Any]]:
    stored = {}
    with np.errstate(over="ignore"):
        for name, weight in weights.items():
            stored[name] = np.ascontiguousarray(weight, np.float16 if half else np.float32)
    wrong = sorted(name for name, weight in stored.items() if not np.isfinite(weight).all())
    if wrong:
        remedy = (
            "store it as fp32"
            if half and np.isfinite(weights[wrong[0]]).all()
            else "the checkpoint is damaged"
        )
        raise BundleError(f"{path / WEIGHTS}: {wrong[0]} holds values that are not finite numbers: {remedy}")
    return stored


def _named(path: Path, files: Mapping[str, bytes | Path], reserved: set[str]) -> dict[str, bytes | Path]:
    for name in files:
        _check_name(path, name)
        if name in reserved:
            raise BundleError(f"{path}: {name} is written by the bundle itself; give the file another name")
    return dict(files)


def _check_name(path: Path, name: str) -> None:
    """Names are relative, normalised, with "/" between folders, and never those of pickles."""
    pure = PurePosixPath(name)
    parts = name.split("/")
    if (
        pure.is_absolute()
        or "\\" in name
        or ":" in name
        or "\0" in name
        or not {"", ".", ".."}.isdisjoint(parts)
    ):
        raise BundleError(f"{path}: the file name {name!r} leaves the bundle's folder; {AGAIN}")
    if pure.suffix.lower() in PICKLES:
        raise BundleError(f"{path}: {name} looks like a pickle; convert it to safetensors or leave it out")


def _check_file(path: Path, entry: FileEntry, verify: bool) -> None:
    if not path.is_file():
        raise BundleError(f"{path}: the file is missing; {AGAIN}")
    size = path.stat().st_size
    if size != entry.size:
        raise BundleError(f"{path}: has {size} bytes, the manifest says {entry.size}; {AGAIN}")
    if verify:
        with path.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        if found != entry.sha256:
            raise BundleError(f"{path}: its SHA-256 is not the manifest's, the content has changed; {AGAIN}")


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise BundleError(f"{path}: the file is missing; {AGAIN}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(f"{path}: not readable as JSON ({error}); {AGAIN}") from error
    if not isinstance(value, dict):
        raise BundleError(f"{path}: must be a JSON object, not {type(value).__name__}; {AGAIN}")
    return value


def _versioned(path: Path) -> dict[str, Any]:
    values = _json(path)
    if values.get("format") != FORMAT or isinstance(values["format"], bool):
        found = values.get("format")
        raise BundleError(f"{path}: format {found!r} is unknown, this version reads {FORMAT}: upgrade Convoy")
    return values


def _manifest(path: Path) -> dict[str, FileEntry]:
    listed = _versioned(path / MANIFEST).get("files")
    if not isinstance(listed, dict):
        raise BundleError(f"{path / MANIFEST}: lacks the object `files`; {AGAIN}")
    manifest = {}
    for name, entry in sorted(listed.items()):
        _check_name(path / MANIFEST, name)
        size, digest = (entry.get("size"), entry.get("sha256")) if isinstance(entry, dict) else (None, None)
        if type(size) is not int or not isinstance(digest, str):
            raise BundleError(f"{path / MANIFEST}: {name} needs a size and a sha256; {AGAIN}")
        manifest[name] = FileEntry(size, digest)
    missing = [name for name in (CONFIG, GENERATION, WEIGHTS) if name not in manifest]
    if missing:
        raise BundleError(f"{path / MANIFEST}: does not list {missing[0]}; {AGAIN}")
    return manifest


def _config(path: Path) -> dict[str, Any]:
    values = _versioned(path)
    unknown = sorted(set(values) - set(KEYS))
    if unknown:
        raise BundleError(f"{path}: unknown keys {unknown}: was it written by a newer Convoy?")
    for key, kind in KEYS.items():
        if not isinstance(values.get(key), kind):
            raise BundleError(f"{path}: needs {key!r} of type {kind.__name__}; {AGAIN}")
    if not isinstance(values["text"].get("kind"), str):
        raise BundleError(f"{path}: text needs a 'kind', such as \"sentencepiece\"; {AGAIN}")
    return values


def _options(path: Path, values: Mapping[str, Any]) -> DecodeOptions:
    known = {f.name: str(f.type) for f in dataclasses.fields(DecodeOptions)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise BundleError(f"{path}: unknown decoding options {unknown}; known are {sorted(known)}")
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if not _fits(value, known[name]):
            raise BundleError(f"{path}: {name} must be of type {known[name]}, not {value!r}")
        checked[name] = tuple(value) if isinstance(value, list) else value
    return DecodeOptions(**checked)


def _fits(value: Any, kind: str) -> bool:
    if kind.startswith("tuple"):
        return isinstance(value, (list, tuple)) and all(type(v) is int for v in value)
    allowed: dict[str, tuple[type, ...]] = {
        "int": (int,),
        "float": (int, float),
        "bool": (bool,),
        "str": (str,),
        "int | None": (int, type(None)),
    }
    return type(value) in allowed[kind]
