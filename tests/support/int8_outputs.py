"""Compute the encoder of an int8 model in every way that ONNX Runtime runs it, without torch.

`python -m tests.support.int8_outputs BUNDLE STANDALONE OUT` writes OUT, an .npz file with one array for each
way: the bundle's graph of standard operators, its graph of native operators (if these are built), and the
stand-alone graph.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

from engine.bundle.bundle import graph_name, open_bundle
from engine.executors.onnx.sessions import open_sessions
from engine.native import library

FEEDS = {
    "tokens": np.arange(4, 20)[None] % 40,
    "positions": np.arange(16),
    "real": np.ones((1, 16), np.float32),
}
OUTPUT = "keys.0"


def main(bundle_folder: str, standalone: str, out: str) -> None:
    bundle = open_bundle(Path(bundle_folder))
    found = {}
    for kind, operators in {"pure": None, "native": library()}.items():
        if kind == "native" and operators is None:
            continue
        names = {part: graph_name(part, "int8", kind) for part in ("encoder", "step")}
        graphs = {part: (bundle.path / name).read_bytes() for part, name in names.items()}
        sessions = open_sessions(bundle.config, graphs, bundle.weights(), 1, operators)
        assert sessions.encoder is not None
        found[kind] = sessions.encoder.run([OUTPUT], FEEDS)[0]
    options = ort.SessionOptions()
    options.log_severity_level = 4
    path = Path(standalone, "encoder.onnx")
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    found["stand-alone"] = session.run([OUTPUT], FEEDS)[0]
    np.savez(out, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
