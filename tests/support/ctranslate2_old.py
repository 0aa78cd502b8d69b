"""Small random models in CTranslate2's first binary version, with the names of OpenNMT-tf."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

LETTERS = "abcdefghijklmnop"
SYMBOLS = ["<blank>", "<s>", "</s>", *LETTERS]  # the last row of a table is the unknown symbol's
DIM, INNER = 32, 48


def _variables(seed: int) -> dict[str, np.ndarray]:
    """Return random variables of a model with two layers on each side and eight heads."""
    rng = np.random.default_rng(seed)
    variables: dict[str, np.ndarray] = {}

    def add(name: str, *shape: int, shift: float = 0.0, scale: float = 1.0) -> None:
        values = shift + scale * rng.standard_normal(shape) * shape[-1] ** -0.5 * 1.4
        variables[f"transformer/{name}:0"] = values.astype("<f4")

    def norm(name: str) -> None:
        add(f"{name}/LayerNorm/beta", DIM)
        add(f"{name}/LayerNorm/gamma", DIM, shift=1.0, scale=0.3)

    def block(name: str, *sizes: tuple[int, int]) -> None:
        norm(name)
        for i, (rows, columns) in enumerate(sizes):
            add(f"{name}/conv1d{f'_{i}' if i else ''}/kernel", rows, columns)
            add(f"{name}/conv1d{f'_{i}' if i else ''}/bias", rows)

    for side, own in (("encoder", "multi_head"), ("decoder", "masked_multi_head")):
        add(f"{side}/w_embs", len(SYMBOLS) + 1, DIM, scale=3.0)
        for i in range(2):
            block(f"{side}/layer_{i}/{own}", (3 * DIM, DIM), (DIM, DIM))
            if side == "decoder":
                block(f"{side}/layer_{i}/multi_head", (DIM, DIM), (2 * DIM, DIM), (DIM, DIM))
            block(f"{side}/layer_{i}/ffn", (INNER, DIM), (DIM, INNER))
        norm(side)
    add("decoder/dense/kernel", len(SYMBOLS) + 1, DIM, scale=2.0)
    add("decoder/dense/bias", len(SYMBOLS) + 1)
    return variables


def write_first_version(folder: Path, *, int16: bool = False, seed: int = 3) -> Path:
    """Write a folder of the first version; matrices are int16 without a stored scale if `int16`."""
    variables = _variables(seed)
    content = struct.pack("<II", 1, len(variables))
    for name, values in variables.items():
        stored = np.rint(values * 1000).astype("<i2") if int16 and values.ndim == 2 else values
        encoded = name.encode() + b"\0"
        content += struct.pack("<H", len(encoded)) + encoded
        content += struct.pack(f"<B{values.ndim}I", values.ndim, *values.shape)
        content += struct.pack("<BI", stored.itemsize, stored.size) + stored.tobytes()
    folder.mkdir(parents=True)
    (folder / "model.bin").write_bytes(content)
    for side in ("source", "target"):
        (folder / f"{side}_vocabulary.txt").write_text("".join(f"{symbol}\n" for symbol in SYMBOLS))
    return folder
