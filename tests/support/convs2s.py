"""Options and random weights of fairseq's ConvS2S."""

from __future__ import annotations

import numpy as np
import torch

from engine.models import load
from export.importers.fairseq import fconv

VOCAB = 23


EOS, PAD = 2, 1


HALF = 0.5**0.5


GIVEN = {
    "arch": "fconv",
    "encoder_embed_dim": 12,
    "encoder_layers": "[(10, 4)] + [(14, 3, 2), (8, 2, 0), (8, 1, 4)]",
    "decoder_embed_dim": 12,
    "decoder_layers": "[(10, 3, 1), (10, 2, 2)] + [(6, 1, 0)] * 1 + [(9, 4, 3)]",
    "decoder_out_embed_dim": 7,
    "decoder_attention": "[False, True] * 2",
    "max_source_positions": 40,
    "max_target_positions": 30,
}


def draw(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.5


def state_of(given: dict[str, object], *, old: bool = False) -> dict[str, torch.Tensor]:
    """Return random weights with the names and shapes of fairseq's `fconv`, with weight normalisation."""
    values, problems = fconv.options(given)
    assert not problems
    state: dict[str, torch.Tensor] = {}

    def add(name: str, *shape: int) -> None:
        state[name] = draw(shape, len(state))

    def linear(name: str, dim: int, width: int) -> None:
        add(f"{name}.weight_v", width, dim)
        add(f"{name}.weight_g", width, 1)
        add(f"{name}.bias", width)

    for side in ("encoder", "decoder"):
        embed, layers = values[f"{side}_embed_dim"], values[f"{side}_layers"]
        positions = values["max_source_positions" if side == "encoder" else "max_target_positions"]
        add(f"{side}.embed_tokens.weight", VOCAB, embed)
        add(f"{side}.embed_positions.weight", positions, embed)
        linear(f"{side}.fc1", embed, layers[0][0])
        made = [layers[0][0]]
        for i, (width, kernel, back) in enumerate(layers):
            if back and made[-back] != width:
                linear(f"{side}.projections.{i}", made[-back], width)
            conv = f"{side}.convolutions.{i}"
            add(f"{conv}.weight_v", kernel, made[-1], 2 * width)
            add(f"{conv}.weight_g", *((kernel, 1, 1) if old and side == "decoder" else (1, 1, 2 * width)))
            add(f"{conv}.bias", 2 * width)
            if side == "decoder" and values["decoder_attention"][i]:
                linear(f"decoder.attention.{i}.in_projection", width, embed)
                linear(f"decoder.attention.{i}.out_projection", embed, width)
            made.append(width)
        linear(f"{side}.fc2", made[-1], embed if side == "encoder" else values["decoder_out_embed_dim"])
    if values["share_input_output_embed"]:
        state["decoder.fc3.weight"] = state["decoder.embed_tokens.weight"].clone()
        add("decoder.fc3.bias", VOCAB)
    else:
        linear("decoder.fc3", values["decoder_out_embed_dim"], VOCAB)
    if not old:
        state["decoder.version"] = torch.tensor([2.0])
    return state


class Plain:
    """Computes one sentence from fairseq's weights in loops over positions and taps (docs/reference.md 4)."""

    def __init__(self, given: dict[str, object], state: dict[str, torch.Tensor]) -> None:
        self.values = fconv.options(given)[0]
        self.state = {name: weight.double().numpy() for name, weight in state.items()}

    def weight(self, name: str) -> np.ndarray:
        if f"{name}.weight" in self.state:
            return self.state[f"{name}.weight"]
        v, g = self.state[f"{name}.weight_v"], self.state[f"{name}.weight_g"]
        out = np.empty_like(v)
        axis = next((i for i, size in enumerate(g.shape) if size > 1), 0)
        for i in range(v.shape[axis]):
            at = tuple(i if a == axis else slice(None) for a in range(v.ndim))
            out[at] = g.reshape(-1)[i] * v[at] / np.sqrt((v[at] ** 2).sum())
        return out

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.weight(name).T + self.state[f"{name}.bias"]

    def conv(self, name: str, x: np.ndarray, left: int) -> np.ndarray:
        weight, bias = self.weight(name), self.state[f"{name}.bias"]
        rows = []
        for t in range(len(x)):
            y = bias.copy()
            for k in range(len(weight)):
                if 0 <= t - left + k < len(x):
                    y = y + x[t - left + k] @ weight[k]
            value, gate = np.split(y, 2)
            rows.append(value / (1 + np.exp(-gate)))
        return np.stack(rows)

    def side(self, side: str, tokens: list[int], attend=None) -> tuple[np.ndarray, np.ndarray]:
        table, places = (self.state[f"{side}.embed_{kind}.weight"] for kind in ("tokens", "positions"))
        embedded = np.stack([table[token] + places[PAD + 1 + i] for i, token in enumerate(tokens)])
        before = [self.linear(f"{side}.fc1", embedded)]
        for i, (_, kernel, back) in enumerate(self.values[f"{side}_layers"]):
            left = kernel - 1 if side == "decoder" else (kernel - 1) // 2
            y = self.conv(f"{side}.convolutions.{i}", before[-1], left)
            if attend is not None:
                y = attend(i, y, embedded)
            if back:
                residual, name = before[-back], f"{side}.projections.{i}"
                y = (y + (self.linear(name, residual) if f"{name}.bias" in self.state else residual)) * HALF
            before.append(y)
        return self.linear(f"{side}.fc2", before[-1]), embedded

    def __call__(self, source: list[int], target: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return log-probabilities [target, vocab] and attention [target, source]."""
        a, embedded = self.side("encoder", source)
        b = (a + embedded) * HALF
        total = np.zeros((len(target), len(source)))

        def attend(i: int, x: np.ndarray, tokens: np.ndarray) -> np.ndarray:
            name = f"decoder.attention.{i}"
            if f"{name}.in_projection.bias" not in self.state:
                return x
            logits = (self.linear(f"{name}.in_projection", x) + tokens) * HALF @ a.T
            weights = np.exp(logits - logits.max(1, keepdims=True))
            weights /= weights.sum(1, keepdims=True)
            total[:] += weights / len(self.values["decoder_layers"])
            context = weights @ b * np.sqrt(len(source))
            return (self.linear(f"{name}.out_projection", context) + x) * HALF

        features, _ = self.side("decoder", target, attend)
        logits = self.linear("decoder.fc3", features)
        return logits - np.log(np.exp(logits).sum(1, keepdims=True)), total


def arrays(state: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Return the weights as an importer reads them."""
    return {name: weight.numpy() for name, weight in state.items()}


def imported(given: dict[str, object], state: dict[str, torch.Tensor]):
    config, problems = fconv.model_config(given, VOCAB, VOCAB)
    assert config is not None, problems
    weights, problems = fconv.model_weights(arrays(state), config)
    assert not problems
    return load(config, weights)


SHAPES = {
    "every option": GIVEN,
    "shared output": GIVEN | {"decoder_out_embed_dim": 12, "share_input_output_embed": True},
    "plain": {
        "arch": "fconv_iwslt_de_en",
        "encoder_embed_dim": 8,
        "encoder_layers": "[(6, 3)] * 2",
        "decoder_embed_dim": 8,
        "decoder_layers": "((6, 5), (6, 1))",
        "decoder_out_embed_dim": 8,
    },
}
