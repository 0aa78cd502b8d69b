"""TensorRT engines in a bundle, each compiled for one GPU, and the check that one fits bundle and machine.

    tensorrt/<gpu>-trt<version>/<precision>-<beams>x<slots>/{encoder,step}.engine, engine.json

An engine is built from weights, graphs and kernels. `engine.json` holds the hash of each, so that a stale or
foreign engine is refused with the command that builds it again.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from engine.bundle.bundle import Bundle, graph_name, graph_parts
from engine.bundle.json_file import read_json
from engine.bundle.manifest import WEIGHTS
from engine.bundle.strict import from_json
from engine.errors import BundleError, ConfigError

FOLDER: Final = "tensorrt"
DESCRIPTION: Final = "engine.json"
SOURCES_ROOT: Final = Path(__file__).parents[2]
# source files that determine an engine: kernels, their launch and compilation, models, tracing of graphs
SOURCES: Final = (
    "engine/kernels/*.cu*",
    "engine/kernels/calls.py",
    "engine/kernels/nvrtc.py",
    "engine/kernels/reference.py",
    "engine/kernels/trt_plugin.py",
    "engine/models/*.py",
    "export/graphs/*.py",
)


@dataclass(frozen=True, slots=True)
class Target:
    """Machine and lane of an engine: name of the GPU, version of TensorRT, precision, beams and slots."""

    gpu: str
    tensorrt: str
    precision: str
    beams: int
    slots: int

    @property
    def folder(self) -> str:
        """Folder of the engine within a bundle."""
        gpu = re.sub(r"[^a-z0-9]+", "-", self.gpu.lower()).strip("-")
        return f"{FOLDER}/{gpu}-trt{self.tensorrt}/{self.precision}-{self.beams}x{self.slots}"

    def command(self, bundle: Bundle) -> str:
        """Return the command that builds the engine."""
        size = f"--beams {self.beams} --slots {self.slots}"
        return f"convoy export {bundle.path} --to tensorrt --precision {self.precision} {size}"


@dataclass(frozen=True, slots=True)
class EngineDescription:
    """Content of engine.json.

    weights, graphs, kernels: SHA-256 of the files from which the engine was built.
    k: number of candidates of a row.
    slots: maximum number of slots of each profile.
    source: length of the longest source.
    """

    gpu: str
    tensorrt: str
    precision: str
    beams: int
    weights: str
    graphs: str
    kernels: str
    k: int
    slots: tuple[int, ...]
    source: int

    def to_json(self) -> bytes:
        return (json.dumps(asdict(self), indent=2) + "\n").encode()


def fingerprints(bundle: Bundle) -> dict[str, str]:
    """Return the hashes of the files from which an engine of this bundle would be built."""
    parts = [graph_name(part, "fp32") for part in graph_parts(bundle.config)]
    missing = [name for name in (WEIGHTS, *parts) if name not in bundle.manifest]
    if missing:
        raise BundleError(f"{bundle.path} has no {missing[0]}; run: convoy export {bundle.path}")
    paths = [path for pattern in SOURCES for path in sorted(SOURCES_ROOT.glob(pattern))]
    sources = b"".join(path.read_bytes() for path in paths)
    graphs = "".join(bundle.manifest[name].sha256 for name in parts)
    return {
        "weights": bundle.manifest[WEIGHTS].sha256,
        "graphs": hashlib.sha256(graphs.encode()).hexdigest(),
        "kernels": hashlib.sha256(sources).hexdigest(),
    }


def find(bundle: Bundle, target: Target) -> tuple[EngineDescription, dict[str, Path]]:
    """Return the description and the engine files of a bundle for a target, by part.

    Raises BundleError that names the command to run if there is no engine, or one of another machine,
    TensorRT version or state of the bundle.
    """
    command = target.command(bundle)
    name = f"{target.folder}/{DESCRIPTION}"
    if name not in bundle.manifest:
        others = sorted({Path(f).parts[1] for f in bundle.files() if f.startswith(f"{FOLDER}/")})
        existing = f"only for {', '.join(others)}" if others else "none at all"
        raise BundleError(
            f"{bundle.path} has no {target.precision} engine of {target.beams} x {target.slots} for "
            f"{target.gpu} with TensorRT {target.tensorrt} ({existing}); run: {command}"
        )
    description = _read_description(bundle.file(name), command)
    if (description.gpu, description.tensorrt) != (target.gpu, target.tensorrt):
        raise BundleError(
            f"{bundle.file(name)}: built for {description.gpu} with TensorRT {description.tensorrt}, "
            f"this is {target.gpu} with {target.tensorrt}; run: {command}"
        )
    stale = [part for part, now in fingerprints(bundle).items() if getattr(description, part) != now]
    if stale:
        raise BundleError(f"{bundle.file(name)}: built from other {' and '.join(stale)}; run: {command}")
    parts = {part: f"{target.folder}/{part}.engine" for part in graph_parts(bundle.config)}
    missing = [path for path in parts.values() if path not in bundle.manifest]
    if missing:
        raise BundleError(f"{bundle.path} lacks {missing[0]}; run: {command}")
    return description, {part: bundle.file(path) for part, path in parts.items()}


def _read_description(path: Path, command: str) -> EngineDescription:
    """Read an engine.json. Raises BundleError, with the command that builds the engine again."""
    description = read_json(path, dict, f"run: {command}")
    try:
        return from_json(EngineDescription, description, "the description")
    except ConfigError as error:
        raise BundleError(f"{path}: {error}; run: {command}") from None
