"""The measured models: presets with random weights, as bundles in a folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from engine.bundle.bundle import Bundle, Description, open_bundle, write_bundle
from engine.bundle.config import ModelConfig
from engine.bundle.presets import preset

JOINT: Final = (32_768, 32_768)  # "Pay Less Attention", section 5: a joint BPE vocabulary of 33K, Table 3
SIX: Final = "dynamicconv-200M"  # without GLU, as in the paper's Tables 3 and 7
GLU: Final = "dynamicconv-213M"
ONE: Final = "dynamicconv-1-decoder-layer"
IWSLT: Final = "dynamicconv-iwslt"
ATTENTION: Final = "transformer-210M"
OPUS: Final = "transformer-opus"  # the size of the published OPUS-MT models
MODELS: Final = {
    SIX: ("dynamicconv_big_no_glu", JOINT),
    GLU: ("dynamicconv_wmt_en_de_big", JOINT),
    ONE: ("dynamicconv_1_decoder_layer", JOINT),
    IWSLT: ("dynamicconv_iwslt_de_en", (8_848, 6_632)),
    ATTENTION: ("transformer_wmt_en_de_big", JOINT),
    OPUS: ("transformer_wmt_en_de", (58_101, 58_101)),
}
PREPARING: Final = "preparing"  # file with the id of the process that writes all bundles
SMALL: Final = {"embed_dim": 32, "conv_dim": 32, "ffn_dim": 64, "heads": 4}
SMALL_VOCABULARY: Final = 97


def config_of(name: str, *, tiny: bool = False) -> ModelConfig:
    """Return the configuration of a model.

    name: key of MODELS.
    tiny: reduce all sizes, for testing the measurement itself.
    """
    architecture, vocabularies = MODELS[name]
    if not tiny:
        return preset(architecture, *vocabularies)
    both: dict[str, Any] = {"encoder": SMALL, "decoder": SMALL, "max_source": 256, "max_target": 256}
    return preset(architecture, SMALL_VOCABULARY, SMALL_VOCABULARY, both)


def bundle_of(folder: Path, name: str, *, tiny: bool = False, seed: int = 1) -> Bundle:
    """Open the bundle of a model in a folder. A missing bundle is written first: weights in fp32 as the
    initialiser of training draws them, and the graphs of ONNX Runtime. Weights affect the speed through the
    lengths of answers only, and the lengths are given (see `sentences`).

    folder: directory with one bundle a model.
    name: key of MODELS.
    tiny: use the small twin.
    seed: number that determines the random weights.
    """
    path = folder / name
    while not path.exists() and _prepared_elsewhere(folder):
        time.sleep(0.2)
    return open_bundle(path, verify=False) if path.exists() else _write_model(path, name, tiny, seed)


@contextmanager
def preparing(folder: Path, *, tiny: bool) -> Iterator[subprocess.Popen[bytes]]:
    """Write the bundles of all models in another process while the context is open. `bundle_of` waits for its
    bundle meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", __name__, str(folder), *(["--tiny"] if tiny else [])]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[3])
    (folder / PREPARING).write_text(str(process.pid), "utf-8")  # before the process has started
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def prepare(folder: Path, *, tiny: bool) -> None:
    """Write all missing bundles, then remove the file PREPARING, for which other processes wait."""
    try:
        for name in MODELS:
            if not (folder / name).exists():
                _write_model(folder / name, name, tiny, 1)
    finally:
        (folder / PREPARING).unlink(missing_ok=True)


def _prepared_elsewhere(folder: Path) -> bool:
    """Return whether another process prepares, and still runs."""
    try:
        process = int((folder / PREPARING).read_text("utf-8"))
        os.kill(process, 0)
    except (OSError, ValueError):
        return False
    return process != os.getpid()


def _write_model(path: Path, name: str, tiny: bool, seed: int) -> Bundle:  # noqa: FBT001
    """Write a bundle with random weights and ONNX graphs."""
    from engine.models import build
    from export.graphs.onnx import graphs

    config = config_of(name, tiny=tiny)
    model = build(config)
    model.initialise(seed)
    weights = {key: value.detach().numpy() for key, value in model.named_parameters()}
    description = Description(name, "translate", "en", "de", config, {"kind": "none"})
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_bundle(path, description, weights, graphs(config), half=False)


def copy_bundle(folder: Path, path: Path) -> Bundle:
    """Copy a bundle, so that engines and graphs can be added, and open it."""
    copy = folder / path.name
    if not copy.exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(path, copy)
    return open_bundle(copy)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]), tiny=sys.argv[2:] == ["--tiny"])
