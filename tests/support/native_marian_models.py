"""Random models in Marian's own layout."""

from __future__ import annotations

import numpy as np
import yaml

from tests.support.marian_models import pieces, vocabulary
from tests.support.marian_reference import write_binary

DIM, FFN, HEADS = 24, 32, 4
BASE = {
    "type": "transformer",
    "dim-emb": DIM,
    "transformer-dim-ffn": FFN,
    "transformer-heads": HEADS,
    "enc-depth": 2,
    "dec-depth": 2,
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-ffn-activation": "swish",
    "transformer-ffn-depth": 2,
    "transformer-decoder-autoreg": "self-attention",
    "transformer-aan-activation": "swish",
    "transformer-aan-depth": 2,
    "transformer-aan-nogate": False,
    "transformer-dim-aan": 40,
    "transformer-guided-alignment-layer": "last",
    "transformer-no-projection": False,
    "transformer-tied-layers": [],
    "transformer-train-position-embeddings": False,
    "tied-embeddings": False,
    "tied-embeddings-all": True,
    "tied-embeddings-src": False,
    "version": "v1.9.0",
}
PRE = {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n"}
AAN = {"transformer-decoder-autoreg": "average-attention"}
SSRU = {"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru", "transformer-ffn-activation": "relu"}
VARIANTS = {
    "post-norm": {},
    "pre-norm": PRE,
    "relu, normalised embeddings": {
        "transformer-ffn-activation": "relu",
        "transformer-postprocess-emb": "nd",
    },
    "gelu": {"transformer-ffn-activation": "gelu"},
    "separate": {"tied-embeddings-all": False},
    "tied output": {"tied-embeddings-all": False, "tied-embeddings": True},
    "narrow decoder": {"transformer-decoder-dim-ffn": 20, "dec-depth": 1},
    "aan": AAN,
    "aan pre-norm": AAN | PRE,
    "aan without gate": AAN | {"transformer-aan-nogate": True, "transformer-aan-activation": "relu"},
    "aan of depth 1": AAN | {"transformer-aan-depth": 1},
    "aan as wide as the model": AAN | {"transformer-dim-aan": DIM, "transformer-aan-depth": 3},
    "learned positions": {"transformer-train-position-embeddings": True},
    "ssru": SSRU,
    "ssru pre-norm": SSRU | PRE,
    "ssru of two vocabularies": SSRU | {"tied-embeddings-all": False, "tied-embeddings": True},
}
DECODING = {"beam-size": 4, "normalize": 0.8, "word-penalty": 0.3, "max-length-factor": 2}


def random_arrays(options, sizes, seed=3):
    """Return random weights by Marian's names.

    options: options of the model.
    sizes: number of source and of target tokens.
    """
    g = np.random.default_rng(seed)
    made = {}

    def put(name, *shape, around=0.0, spread=0.3):
        made[name] = (around + spread * g.normal(size=shape)).astype(np.float32)

    def dense(prefix, suffix, inner, outer):
        put(f"{prefix}_W{suffix}", inner, outer)
        put(f"{prefix}_b{suffix}", 1, outer)

    def norm(prefix, suffix=""):
        put(f"{prefix}_ln_scale{suffix}", 1, DIM, around=1.0)
        put(f"{prefix}_ln_bias{suffix}", 1, DIM)

    def around(prefix):
        for key, suffix in (("transformer-preprocess", "_pre"), ("transformer-postprocess", "")):
            if "n" in options[key]:
                norm(prefix, suffix)

    def attention(prefix):
        for letter in "qkvo":
            dense(prefix, letter, DIM, DIM)
        around(f"{prefix}_Wo")

    for side, size in zip(("encoder", "decoder"), sizes, strict=True):
        if not options["tied-embeddings-all"]:
            put(f"{side}_Wemb", size, DIM, spread=DIM**-0.5)
        if "n" in options["transformer-postprocess-emb"]:
            norm(f"{side}_emb", "_pre")
        if options["transformer-postprocess-top"]:
            norm(f"{side}_top")
        for i in range(1, options[f"{side[:3]}-depth"] + 1):
            here = f"{side}_l{i}"
            if side == "decoder" and options["transformer-decoder-autoreg"] == "average-attention":
                width, depth = options["transformer-dim-aan"], options["transformer-aan-depth"]
                inner = DIM
                for j in range(1, depth):
                    dense(f"{here}_aan", j, inner, width)
                    inner = width
                if inner != DIM:
                    dense(f"{here}_aan", depth, inner, DIM)
                if not options["transformer-aan-nogate"]:
                    dense(f"{here}_aan", "i", DIM, DIM)
                    dense(f"{here}_aan", "f", DIM, DIM)
                around(f"{here}_aan_ffn")
            elif side == "decoder" and options["transformer-decoder-autoreg"] == "rnn":
                put(f"{here}_rnn_W", DIM, DIM)
                dense(f"{here}_rnn", "f", DIM, DIM)
                around(f"{here}_rnn_ffn")
            else:
                attention(f"{here}_self")
            if side == "decoder":
                attention(f"{here}_context")
            width = (side == "decoder" and options.get("transformer-decoder-dim-ffn")) or FFN
            dense(f"{here}_ffn", 1, DIM, width)
            dense(f"{here}_ffn", 2, width, DIM)
            around(f"{here}_ffn_ffn")
    if options["tied-embeddings-all"]:
        put("Wemb", sizes[0], DIM, spread=DIM**-0.5)
    if not (options["tied-embeddings-all"] or options["tied-embeddings"]):
        put("decoder_ff_logit_out_W", DIM, sizes[1])
    put("decoder_ff_logit_out_b", 1, sizes[1])
    made["decoder_ff_logit_out_b"][0, 0] += 2.5  # makes answers end
    if options["transformer-train-position-embeddings"]:
        put("Wpos", 80, DIM)
    return made


def with_options(arrays, options):
    text = yaml.safe_dump(options).encode() + b"\0"
    return {"special:model.yml": np.frombuffer(text, np.int8), **arrays}


def make(folder, name, binary=False):
    """Write a folder in the layout of OPUS-MT's archives, and return its weights and options.

    name: a variant in VARIANTS.
    """
    folder.mkdir(parents=True)
    options = BASE | VARIANTS[name]
    models = [pieces("source"), pieces("target")]
    if options["tied-embeddings-all"]:
        vocabularies = [vocabulary(models)] * 2
        names = ["vocab.yml", "vocab.yml"]
    else:
        vocabularies, names = [vocabulary([model]) for model in models], ["vocab.src.yml", "vocab.trg.yml"]
    for side, model in zip(("source", "target"), models, strict=True):
        (folder / f"{side}.spm").write_bytes(model)
    for symbols, file in zip(vocabularies, names, strict=True):
        lines = [f'"{symbol}": {i}\n' for symbol, i in symbols.items() if symbol != "<pad>"]
        (folder / file).write_text("".join(lines), "utf-8")
    options["dim-vocabs"] = [len(symbols) - 1 for symbols in vocabularies]
    arrays = random_arrays(options, options["dim-vocabs"])
    file = "model.bin" if binary else "model.npz"
    if binary:
        write_binary(with_options(arrays, options), folder / file)
    else:
        np.savez(folder / file, **with_options(arrays, options))
    decoder = {"models": [f"/data/train/{file}"], "vocabs": [f"/data/train/{n}" for n in names], **DECODING}
    (folder / "decoder.yml").write_text(yaml.safe_dump(decoder))
    return arrays, options
