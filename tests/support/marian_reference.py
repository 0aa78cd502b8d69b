"""Marian's arithmetic in plain numpy and double precision, and its beam search: a slow oracle.

Written after marian-dev's transformer.h and beam_search.h.
"""

from __future__ import annotations

import math
import struct

import numpy as np


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
}


def positions(length, dim):
    """Return the table of marian-dev's inits::sinusoidalPositionEmbeddings."""
    half = dim / 2
    step = math.log(10000.0) / (half - 1.0)
    table = np.zeros((length, dim))
    for p in range(length):
        for i in range(dim // 2):
            v = p * math.exp(i * -step)
            table[p, i], table[p, i + dim // 2] = math.sin(v), math.cos(v)
    return table


def wide(item):
    """Return an item as floats; an int8 item is a pair of integers and their multiplier."""
    return item[0] * (np.float32(1) / item[1]) if isinstance(item, tuple) else item


class Reference:
    """One model: its arrays and the options of special:model.yml; `int8` uses the file's alphas."""

    def __init__(self, arrays, options, int8=False):
        arrays = {name: item for name, item in arrays.items() if not name.startswith("special")}
        self.w = {name: wide(item).astype(np.float64) for name, item in arrays.items()}
        self.whole = {name: item for name, item in arrays.items() if int8 and isinstance(item, tuple)}
        self.options = options
        self.eps = 1e-6

    def norm(self, x, prefix, suffix=""):
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        scale, bias = self.w[f"{prefix}_ln_scale{suffix}"], self.w[f"{prefix}_ln_bias{suffix}"]
        return (x - mean) / np.sqrt(var + self.eps) * scale + bias

    def pre(self, prefix, x, key="transformer-preprocess"):
        for op in self.options[key]:
            if op == "n":
                x = self.norm(x, prefix, "_pre")
        return x

    def post(self, prefix, x, before, key="transformer-postprocess"):
        for op in self.options[key]:
            if op == "a":
                x = x + before
            elif op == "n":
                x = self.norm(x, prefix)
        return x

    def dense(self, x, prefix, suffix):
        name = f"{prefix}_W{suffix}"
        return self.product(x, name, self.w[name]) + self.w.get(f"{prefix}_b{suffix}", 0.0)

    def product(self, x, name, weight):
        """Return x @ weight, where `weight` is the matrix of that name or its transpose."""
        if name not in self.whole:
            return x @ weight
        whole, multiplier = self.whole[name]
        alpha = np.float32(self.w[f"{name}_QuantMultA"].ravel()[0])
        rounded = np.clip(np.rint(x.astype(np.float32) * alpha), -127, 127)
        matrix = whole if weight.shape == whole.shape else whole.T
        return rounded @ matrix.astype(np.float64) / (float(alpha) * float(multiplier))

    def attention(self, prefix, x, memory, mask):
        heads = self.options["transformer-heads"]
        q = self.pre(f"{prefix}_Wo", x)
        source = q if memory is None else memory
        parts = [self.dense(y, prefix, s) for y, s in ((q, "q"), (source, "k"), (source, "v"))]
        q, k, v = (p.reshape(len(p), heads, -1).transpose(1, 0, 2) for p in parts)
        weights = softmax(q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1]) + mask)
        joined = (weights @ v).transpose(1, 0, 2).reshape(len(x), -1)
        return self.post(f"{prefix}_Wo", self.dense(joined, prefix, "o"), x)

    def average(self, prefix, x):
        """Compute LayerAAN with the running mean of DecoderLayerAAN."""
        mean, rows = np.zeros_like(x[0]), []
        for t, row in enumerate(x):
            mean = (mean * t + row) / (t + 1)
            rows.append(mean)
        y = self.pre(f"{prefix}_ffn", np.stack(rows))
        depth, act = self.options["transformer-aan-depth"], self.options["transformer-aan-activation"]
        for i in range(1, depth):
            y = ACTIVATIONS[act](self.dense(y, prefix, i))
        if y.shape[-1] != x.shape[-1]:
            y = self.dense(y, prefix, depth)
        if not self.options["transformer-aan-nogate"]:
            gi, gf = (1 / (1 + np.exp(-self.dense(z, prefix, s))) for z, s in ((x, "i"), (y, "f")))
            y = gi * x + gf * y
        return self.post(f"{prefix}_ffn", y, x)

    def recurrent(self, prefix, x):
        """Compute SSRU (rnn/cells.h) in LayerRNN."""
        y = self.pre(f"{prefix}_ffn", x)
        candidates, forget = self.dense(y, prefix, ""), 1 / (1 + np.exp(-self.dense(y, prefix, "f")))
        cell, rows = np.zeros_like(x[0]), []
        for candidate, f in zip(candidates, forget, strict=True):
            cell = f * cell + (1 - f) * candidate
            rows.append(np.maximum(cell, 0))
        return self.post(f"{prefix}_ffn", np.stack(rows), x)

    def ffn(self, prefix, x):
        y = self.pre(f"{prefix}_ffn", x)
        y = ACTIVATIONS[self.options["transformer-ffn-activation"]](self.dense(y, prefix, 1))
        return self.post(f"{prefix}_ffn", self.dense(y, prefix, 2), x)

    def embed(self, side, rows):
        dim = rows.shape[-1]
        if "Wpos" in self.w:
            x = rows + self.w["Wpos"][: len(rows)]
        else:
            x = math.sqrt(dim) * rows + positions(len(rows), dim)
        return self.pre(f"{side}_emb", x, "transformer-postprocess-emb")

    def table(self, side):
        return self.w["Wemb"] if "Wemb" in self.w else self.w[f"{side}_Wemb"]

    def encode(self, source):
        x = self.embed("encoder", self.table("encoder")[source])
        for i in range(1, self.options["enc-depth"] + 1):
            x = self.attention(f"encoder_l{i}_self", x, None, 0.0)
            x = self.ffn(f"encoder_l{i}_ffn", x)
        return self.post("encoder_top", x, None, "transformer-postprocess-top")

    def log_probs(self, memory, tokens):
        """Return log-probabilities after every prefix of tokens, [len(tokens) + 1, vocabulary]."""
        table = self.table("decoder")
        rows = np.concatenate([np.zeros((1, table.shape[1])), table[list(tokens)]])
        x, n = self.embed("decoder", rows), len(tokens) + 1
        causal = np.where(np.tril(np.ones((n, n))) > 0, 0.0, -np.inf)
        for i in range(1, self.options["dec-depth"] + 1):
            if self.options["transformer-decoder-autoreg"] == "average-attention":
                x = self.average(f"decoder_l{i}_aan", x)
            elif self.options["transformer-decoder-autoreg"] == "rnn":
                x = self.recurrent(f"decoder_l{i}_rnn", x)
            else:
                x = self.attention(f"decoder_l{i}_self", x, None, causal)
            x = self.attention(f"decoder_l{i}_context", x, memory, 0.0)
            x = self.ffn(f"decoder_l{i}_ffn", x)
        x = self.post("decoder_top", x, None, "transformer-postprocess-top")
        tied = self.options["tied-embeddings"] or self.options["tied-embeddings-all"]
        own = "decoder_ff_logit_out_W" if "decoder_ff_logit_out_W" in self.w else "decoder_ff_logit_out_Wt"
        name = ("Wemb" if "Wemb" in self.w else "decoder_Wemb") if tied else own
        weight = self.w[name] if name == "decoder_ff_logit_out_W" else self.w[name].T
        logits = self.product(x, name, weight) + self.w["decoder_ff_logit_out_b"]
        return (
            logits
            - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
            - logits.max(-1, keepdims=True)
        )

    def beam(self, source, *, beams, alpha, penalty, longest, unk=1, eos=0):
        """Search like beam_search.h and history.h: each finished hypothesis narrows the beam by one; at the
        limit all hypotheses are cut."""
        memory = self.encode(source)
        live, ended = [((), 0.0)], []
        while live:
            candidates = []
            for tokens, total in live:
                scores = self.log_probs(memory, tokens)[-1]
                for token, score in enumerate(scores):
                    if token != unk:
                        candidates.append((total + score, (*tokens, token)))
            candidates.sort(key=lambda c: -c[0])
            room = beams if not live[0][0] else len(live)
            late = len(live[0][0]) + 1 >= longest
            live = []
            for total, tokens in candidates[:room]:
                if tokens[-1] == eos or late:
                    length, end = len(tokens), int(tokens[-1] == eos)
                    ended.append(((total - penalty * length) / length**alpha, tokens[: length - end]))
                else:
                    live.append((tokens, total))
        return max(ended, key=lambda e: e[0])


def write_binary(arrays, path):
    """Write Marian's binary format, version 1 (marian-dev's binary.cpp).

    Pairs of integers and a multiplier become intgemm's items: transposed except embeddings, and padded to
    256 bytes."""
    kinds = {
        "float32": 0x0404,
        "int8": 0x0101,
        "float16": 0x0402,
        "whole int8": 0x4101,
        "whole int16": 0x4102,
    }
    items = []
    for name, item in arrays.items():
        a, whole = (item[0], "whole ") if isinstance(item, tuple) else (item, "")
        data = (a if not whole or "Wemb" in name else a.T).tobytes()
        if whole:
            data += struct.pack("<f", item[1])
            data += bytes(-len(data) % 256)
        items.append((name.encode() + b"\0", a, data, kinds[f"{whole}{a.dtype}"]))
    out = struct.pack("<QQ", 1, len(items))
    for name, a, data, kind in items:
        out += struct.pack("<QQQQ", len(name), kind, a.ndim, len(data))
    out += b"".join(name for name, *_ in items)
    out += b"".join(struct.pack(f"<{a.ndim}i", *a.shape) for _, a, *_ in items)
    gap = ((len(out) + 8) // 256 + 1) * 256 - len(out) - 8
    out += struct.pack("<Q", gap) + bytes(gap) + b"".join(data for *_, data, _ in items)
    path.write_bytes(out)
