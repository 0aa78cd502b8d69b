"""Compare Convoy with CTranslate2 on one Marian file, read by the converter of each.

The model has OPUS-MT's size (6 + 6 layers, 512 wide, swish) with random weights in Marian's own layout. Every
sentence is translated to as many tokens as it has. A run is the whole translation: encoder, decoding steps
and search. The result is the ratio, since both share the machine and its noise.

    python -m loadtest.engine.marian_compare --threads 1,2

Needs ctranslate2 from PyPI and the extra `torch`.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from loadtest.engine.cpu_compare import (
    Translate,
    add_work,
    lanes_of,
    pure_and_native,
    translators_of,
)

DIM, FFN, HEADS, LAYERS = 512, 2048, 8, 6
OPTIONS = {
    "type": "transformer",
    "dim-emb": DIM,
    "transformer-dim-ffn": FFN,
    "transformer-heads": HEADS,
    "enc-depth": LAYERS,
    "dec-depth": LAYERS,
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-ffn-activation": "swish",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-guided-alignment-layer": "last",
    "transformer-no-projection": False,
    "tied-embeddings-all": True,
}


def write_model(folder: Path, vocab: int) -> None:
    """Write model.npz and vocab.yml in Marian's layout."""
    g = np.random.default_rng(0)
    arrays: dict[str, NDArray[Any]] = {}

    def dense(prefix: str, suffix: str, inner: int, outer: int) -> None:
        arrays[f"{prefix}_W{suffix}"] = (g.standard_normal((inner, outer)) * inner**-0.5).astype(np.float32)
        arrays[f"{prefix}_b{suffix}"] = np.zeros((1, outer), np.float32)

    def norm(prefix: str) -> None:
        arrays[f"{prefix}_ln_scale"] = np.ones((1, DIM), np.float32)
        arrays[f"{prefix}_ln_bias"] = np.zeros((1, DIM), np.float32)

    for side, parts in (("encoder", ("self",)), ("decoder", ("self", "context"))):
        for i in range(1, LAYERS + 1):
            for part in parts:
                for letter in "qkvo":
                    dense(f"{side}_l{i}_{part}", letter, DIM, DIM)
                norm(f"{side}_l{i}_{part}_Wo")
            dense(f"{side}_l{i}_ffn", "1", DIM, FFN)
            dense(f"{side}_l{i}_ffn", "2", FFN, DIM)
            norm(f"{side}_l{i}_ffn_ffn")
    arrays["Wemb"] = (g.standard_normal((vocab, DIM)) * DIM**-0.5).astype(np.float32)
    arrays["decoder_ff_logit_out_b"] = np.zeros((1, vocab), np.float32)
    options = yaml.safe_dump({**OPTIONS, "dim-vocabs": [vocab, vocab]}).encode() + b"\0"
    arrays["special:model.yml"] = np.frombuffer(options, np.int8)
    np.savez(folder / "model.npz", **arrays)
    words = ["</s>", "<unk>", *(f"t{i}" for i in range(2, vocab))]
    (folder / "vocab.yml").write_text("".join(f'"{w}": {i}\n' for i, w in enumerate(words)), "utf-8")


def convoy(folder: Path, vocab: int, kernels: str) -> Translate:
    """Make a lane of Convoy over the bundle of a folder.

    folder: directory with Marian's model and vocabulary; gets the bundle, too.
    vocab: number of symbols.
    kernels: "pure" or "native".
    """
    from engine.bundle.bundle import open_bundle
    from export.importers import convert
    from export.importers.settings import MarianImport

    if not (folder / "bundle").exists():
        convert("marian", folder, folder / "bundle", MarianImport(source="en", target="nl"))
    bundle = open_bundle(folder / "bundle")
    options = replace(bundle.options, beam_rule="fairseq")
    return lanes_of(bundle.config, bundle.weights(), options, kernels, vocab)


def ctranslate2(folder: Path, vocab: int) -> Translate:
    """Return a function that times CTranslate2 on the converted model."""
    from ctranslate2.converters import MarianConverter

    converter = MarianConverter(str(folder / "model.npz"), [str(folder / "vocab.yml")] * 2)
    converter.convert(str(folder / "ct2"), force=True)
    return translators_of(folder / "ct2", vocab)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vocab", type=int, default=32_000)
    add_work(parser)
    options = parser.parse_args()
    shape = "{dim-emb} wide, {transformer-dim-ffn} within, {enc-depth} + {dec-depth} layers".format(**OPTIONS)
    print(f"Transformer, {shape}, {options.vocab} symbols; on", end=" ")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder, options.vocab)
        peer = ctranslate2(folder, options.vocab)
        pure_and_native(peer, partial(convoy, folder, options.vocab), options, "opus-mt")


if __name__ == "__main__":
    main()
