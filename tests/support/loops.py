"""Encoder-decoders of "Pay Less Attention" written a second time, with Python numbers and loops only.

The source is the paper's equations and docs/reference.md 1, 2, 5 and 10; post-norm, sinusoidal positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Vector = list[float]
Sequence = list[Vector]


@dataclass
class Side:
    """One side of a model: its weights as nested lists under the names below `prefix`, and its options."""

    weights: Mapping[str, Any]
    prefix: str
    stack: Any

    def __getitem__(self, name: str) -> Any:
        return self.weights[f"{self.prefix}.{name}"]

    def has(self, name: str) -> bool:
        return f"{self.prefix}.{name}" in self.weights

    def layer(self, number: int) -> Side:
        return Side(self.weights, f"{self.prefix}.layers.{number}", self.stack)

    def linear(self, name: str, x: Vector) -> Vector:
        bias = self[f"{name}.bias"] if self.has(f"{name}.bias") else [0.0] * len(self[f"{name}.weight"])
        return [
            sum(w * v for w, v in zip(row, x, strict=True)) + b
            for row, b in zip(self[f"{name}.weight"], bias, strict=True)
        ]

    def norm(self, name: str, x: Vector) -> Vector:
        mean = sum(x) / len(x)
        spread = math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + self.stack.norm_eps)
        weight, bias = self[f"{name}.weight"], self[f"{name}.bias"]
        return [(v - mean) / spread * w + b for v, w, b in zip(x, weight, bias, strict=True)]


def softmax(x: Vector) -> Vector:
    powers = [math.exp(v - max(x)) for v in x]
    return [p / sum(powers) for p in powers]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def plus(a: Vector, b: Vector) -> Vector:
    return [u + v for u, v in zip(a, b, strict=True)]


def embed(side: Side, tokens: list[int]) -> Sequence:
    dim, table = side.stack.embed_dim, side["embed_tokens.weight"]
    half = dim // 2
    out = []
    for t, token in enumerate(tokens):
        angles = [(t + 2) * math.exp(-i * math.log(10000) / (half - 1)) for i in range(half)]
        place = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        out.append([math.sqrt(dim) * e + p for e, p in zip(table[token], place, strict=True)])
    return out


def convolution(side: Side, x: Sequence, width: int, left: int) -> Sequence:
    """A full convolution: each output channel depends on each input channel under the kernel."""
    dim, out = len(x[0]), []
    for t in range(len(x)):
        y = list(side["conv.bias"])
        for o in range(dim):
            for k in range(width):
                for c in range(dim):
                    if 0 <= t - left + k < len(x):
                        y[o] += side["conv.weight"][o][k * dim + c] * x[t - left + k][c]
        out.append(y)
    return out


def separate(side: Side, x: Sequence, width: int, left: int) -> Sequence:
    """Lightweight, depthwise and dynamic convolutions between two projections (the paper's sections 3, 4)."""
    stack, out = side.stack, []
    x = [side.linear("linear1", v) for v in x]
    channels, kernels = len(x[0]), stack.conv_heads or stack.heads
    for t in range(len(x)):
        if stack.mixer == "dynamic":
            flat = side.linear("conv.weight_linear", x[t])
            taps = [flat[h * width : (h + 1) * width] for h in range(kernels)]
        else:
            taps = [side["conv.weight"][h][0] for h in range(kernels)]
        if stack.weight_softmax:
            taps = [softmax(row) for row in taps]
        y = [0.0] * channels
        for c in range(channels):
            for k in range(width):
                if 0 <= t - left + k < len(x):
                    y[c] += taps[c * kernels // channels][k] * x[t - left + k][c]
        out.append(side.linear("linear2", y))
    return out


def attend(
    side: Side, name: str, x: Sequence, memory: Sequence, seen: Callable[[int, int], bool]
) -> Sequence:
    heads, width = side.stack.heads, len(x[0]) // side.stack.heads
    keys = [side.linear(f"{name}.k_proj", v) for v in memory]
    values = [side.linear(f"{name}.v_proj", v) for v in memory]
    out = []
    for t, v in enumerate(x):
        query, context = side.linear(f"{name}.q_proj", v), [0.0] * len(v)
        visible = [s for s in range(len(memory)) if seen(t, s)]
        for h in range(heads):
            mine = range(h * width, (h + 1) * width)
            logits = [sum(query[c] * keys[s][c] for c in mine) / math.sqrt(width) for s in visible]
            for s, weight in zip(visible, softmax(logits), strict=True):
                for c in mine:
                    context[c] += weight * values[s][c]
        out.append(side.linear(f"{name}.out_proj", context))
    return out


def average(side: Side, x: Sequence, seen: Callable[[int, int], bool]) -> Sequence:
    """Averaged attention with a feed-forward and a joint gate (docs/reference.md 10)."""
    out = []
    for t, v in enumerate(x):
        visible = [u for s, u in enumerate(x) if seen(t, s)]
        mean = [sum(u[c] for u in visible) / len(visible) for c in range(len(v))]
        g = side.linear("average_out", [max(0.0, h) for h in side.linear("average_hidden.0", mean)])
        gates = [sigmoid(z) for z in side.linear("gates", v + g)]
        gated = [i * a + f * b for i, f, a, b in zip(gates[: len(v)], gates[len(v) :], v, g, strict=True)]
        out.append(gated)
    return out


def mix(side: Side, x: Sequence, width: int, *, causal: bool) -> Sequence:
    """The sub-block that Table 3 varies. Width 0 covers all positions; if causal, all earlier ones."""
    left = width - 1 if causal else width // 2

    def seen(t: int, s: int) -> bool:
        return (not causal or s <= t) and (not width or -left <= s - t <= width - 1 - left)

    if side.stack.mixer == "convolution":
        return convolution(side, x, width, left)
    if side.stack.mixer == "attention":
        return attend(side, "self_attn", x, x, seen)
    if side.stack.mixer == "average":
        return average(side, x, seen)
    return separate(side, x, width, left)


def feed_forward(side: Side, x: Vector) -> Vector:
    return side.linear("fc2", [max(0.0, h) for h in side.linear("fc1", x)])


def encode(side: Side, tokens: list[int]) -> Sequence:
    x = embed(side, tokens)
    for number, width in enumerate(side.stack.kernel_sizes):
        layer = side.layer(number)
        mixed = mix(layer, x, width, causal=False)
        x = [layer.norm("layer_norm1", plus(v, m)) for v, m in zip(x, mixed, strict=True)]
        x = [layer.norm("layer_norm2", plus(v, feed_forward(layer, v))) for v in x]
    return x


def decode(side: Side, tokens: list[int], memory: Sequence) -> Sequence:
    """Return the logits of the token after each position."""
    x = embed(side, tokens)
    for number, width in enumerate(side.stack.kernel_sizes):
        layer = side.layer(number)
        mixed = mix(layer, x, width, causal=True)
        x = [layer.norm("conv_layer_norm", plus(v, m)) for v, m in zip(x, mixed, strict=True)]
        context = attend(layer, "encoder_attn", x, memory, lambda t, s: True)
        x = [layer.norm("encoder_attn_layer_norm", plus(v, c)) for v, c in zip(x, context, strict=True)]
        x = [layer.norm("final_layer_norm", plus(v, feed_forward(layer, v))) for v in x]
    table = side["embed_tokens.weight"]
    return [[sum(a * b for a, b in zip(row, v, strict=True)) for row in table] for v in x]
