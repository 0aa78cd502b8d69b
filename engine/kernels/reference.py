"""Convolution, attention and other operators in plain torch: the results that every kernel must reproduce.

"Pay Less Attention" (Wu et al. 2019), sections 3 and 4. Channel c belongs to head c // (C / H); the channels
of a head share a kernel. Its softmax covers all K taps, also those on padding (docs/reference.md 2.1).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function


def dynamic_conv(x: Tensor, taps: Tensor, left: int) -> Tensor:
    """Convolve whole sequences: y[t, c] = sum_k taps[t, head(c), k] * x[t - left + k, c], zeros outside.

    x: [batch, time, channels].
    taps: [batch, time, heads, K], or [heads, K] if they are the same at every step (LightConv).
    left: K - 1 for a causal and K // 2 for a centred window.

    Returns the shape of x.

    The taps become a band matrix [time, time], so that one batched product replaces K shifted copies of x
    (paper, section 3, "Implementation").
    """
    if has_torch_function((x, taps)):  # one node in an ONNX export
        exported: Tensor = handle_torch_function(dynamic_conv, (x, taps), x, taps, left)
        return exported
    batch, time, channels = x.shape
    heads, width = taps.shape[-2:]
    if taps.dim() == 2:
        taps = taps.expand(batch, time, heads, width)
    band = F.pad(taps.transpose(1, 2), (0, time))  # [batch, heads, time, K + time]
    band = band.flatten(2)[..., : time * (time + width - 1)]  # each row moves one step to the right
    band = band.unflatten(2, (time, time + width - 1))[..., left : left + time]
    heads_of_x = x.unflatten(2, (heads, channels // heads)).transpose(1, 2)  # [batch, heads, time, R]
    return torch.matmul(band, heads_of_x).transpose(1, 2).flatten(2)


def dynamic_conv_step(x: Tensor, taps: Tensor, ring: Tensor | None, index: Tensor | None) -> Tensor:
    """Compute one incremental step of the causal convolution: the newest input x and the K - 1 before it.

    x: [slots, beams, channels], the current input (tap K - 1).
    taps: [slots, beams, heads, K] or [heads, K].
    ring: [slots, K - 1, beams, channels], earlier inputs.
    index: int [slots, beams, K - 1], rows of ring.flatten(0, 2) with the inputs of each hypothesis, oldest
        first. Both are None if K is 1.

    Returns [slots, beams, channels]. Beams are followed through `index`; the ring is never reordered.
    """
    if has_torch_function((x, taps)):
        exported: Tensor = handle_torch_function(dynamic_conv_step, (x, taps), x, taps, ring, index)
        return exported
    heads, width = taps.shape[-2:]
    newest = x.unflatten(2, (heads, x.shape[2] // heads))  # [slots, beams, heads, R]
    y: Tensor = taps[..., width - 1 :] * newest
    if ring is not None and index is not None:
        past = ring.flatten(0, 2)[index]
        past = past.unflatten(3, (heads, newest.shape[3]))  # [slots, beams, K-1, heads, R]
        y = y + torch.matmul(taps[..., None, : width - 1], past.transpose(2, 3)).squeeze(-2)
    return y.flatten(2)


def ssru_step(candidate: Tensor, gate: Tensor, ring: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Compute one step of an SSRU: c = f * c' + (1 - f) * candidate, f = sigmoid(gate).

    candidate, gate: [slots, beams, dim], projections of the input.
    ring: [slots, 1, beams, dim], cells c' of the previous step.
    index: int [slots, beams, 1], row of ring.flatten(0, 2) that each hypothesis continues.

    Returns the cells c, in the type of the ring, and relu(c), both [slots, beams, dim].
    """
    if has_torch_function((candidate, gate)):
        exported: tuple[Tensor, Tensor] = handle_torch_function(
            ssru_step, (candidate, gate), candidate, gate, ring, index
        )
        return exported
    return ssru_step_plainly(candidate, gate, ring, index)


def ssru_step_plainly(candidate: Tensor, gate: Tensor, ring: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `ssru_step` with standard operators.

    candidate, gate, ring, index: arguments of `ssru_step`.
    """
    before = F.embedding(index, ring.flatten(0, 2)).squeeze(2)
    forget = torch.sigmoid(gate)
    cell = forget * before + (1.0 - forget) * candidate
    return cell, F.relu(cell)


def add_norm(x: Tensor, added: Tensor, gain: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """Compute the layer norm of x + added over the last axis.

    x: [..., dim].
    added: [..., dim], the branch of a residual connection.
    gain: [dim].
    bias: [dim].
    epsilon: constant added to the variance.
    """
    if has_torch_function((x, added)):
        exported: Tensor = handle_torch_function(add_norm, (x, added), x, added, gain, bias, epsilon)
        return exported
    return add_norm_plainly(x, added, gain, bias, epsilon)


def add_norm_plainly(x: Tensor, added: Tensor, gain: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """Compute `add_norm` with standard operators.

    x: [..., dim].
    added: [..., dim], the branch of a residual connection.
    gain: [dim].
    bias: [dim].
    epsilon: constant added to the variance.
    """
    return F.layer_norm(x + added, gain.shape, gain, bias, epsilon)


def attend(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, dropout: float = 0.0, mean_heads: int = 0
) -> tuple[Tensor, Tensor]:
    """Compute multi-head attention of queries that share a memory.

    q: [batch, queries, dim], scaled.
    keys: [batch, heads, dim / heads, source].
    values: [batch, heads, source, dim / heads].
    mask: [batch, source], 0 or -inf.
    dropout: dropout rate of the weights in training.
    mean_heads: number of heads, from the first, in the mean of the weights; 0: all.

    Returns the context [batch, queries, dim] and the weights [batch, queries, source].
    """
    if has_torch_function((q, keys, values, mask)):
        exported: tuple[Tensor, Tensor] = handle_torch_function(
            attend, (q, keys, values, mask), q, keys, values, mask, dropout, mean_heads
        )
        return exported
    return attend_plainly(q, keys, values, mask, dropout, mean_heads)


def attend_plainly(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, dropout: float = 0.0, mean_heads: int = 0
) -> tuple[Tensor, Tensor]:
    """Compute `attend` with standard operators.

    q, keys, values, mask, dropout, mean_heads: arguments of `attend`.
    """
    heads, width = keys.shape[1], keys.shape[2]
    logits = torch.matmul(q.unflatten(2, (heads, width)).transpose(1, 2), keys) + mask[:, None, None, :]
    weights = F.softmax(logits, dim=-1)  # [batch, heads, queries, source]
    dropped = F.dropout(weights, dropout) if dropout else weights
    selection = weights[:, :mean_heads] if mean_heads else weights
    return torch.matmul(dropped, values).transpose(1, 2).flatten(2), selection.mean(1)


class QKV(NamedTuple):
    """Scaled query, key and value, each [slots, beams, dim] or [batch, time, dim]."""

    q: Tensor
    key: Tensor
    value: Tensor


def attend_whole(
    qkv: QKV, mask: Tensor, heads: int, bias: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """Compute multi-head self-attention within whole sequences.

    qkv: queries, keys and values of all positions, each [batch, time, dim].
    mask: [batch or 1, time or 1, time], 0 or -inf.
    heads: number of heads.
    bias: addend of the logits [heads, time, time], or None.
    dropout: dropout rate of the weights in training.

    Returns [batch, time, dim].
    """
    if has_torch_function((qkv.q,)):
        context: Tensor = handle_torch_function(attend_whole, (qkv.q,), qkv, mask, heads, bias, dropout)
        return context
    return attend_whole_plainly(qkv, mask, heads, bias, dropout)


def attend_whole_plainly(
    qkv: QKV, mask: Tensor, heads: int, bias: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """Compute `attend_whole` with standard operators.

    qkv, mask, heads, bias, dropout: arguments of `attend_whole`.
    """
    q, keys, values = (y.unflatten(2, (heads, y.shape[2] // heads)) for y in qkv)
    logits = torch.matmul(q.transpose(1, 2), keys.permute(0, 2, 3, 1)) + mask[:, None]
    weights = F.softmax(logits if bias is None else logits + bias, dim=-1)
    dropped = F.dropout(weights, dropout) if dropout else weights
    return torch.matmul(dropped, values.transpose(1, 2)).transpose(1, 2).flatten(2)


def attend_cached(
    qkv: QKV,
    past: tuple[Tensor, Tensor],
    lineage: Tensor,
    bias: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Compute multi-head self-attention of a new position to itself and all earlier ones of its hypothesis.

    qkv: query, key and value of the new position.
    past: cached keys and values [slots, heads, columns, beams, dim / heads].
    lineage: [slots, beams, columns * beams], 0 at the entries of the hypothesis, -inf at all others.
    bias: addends of the logits of cached entries [slots, heads, 1, columns * beams] and of the new position
        [slots, heads, 1, 1], or None.

    Returns [slots, beams, dim]. Nothing is gathered.
    """
    if has_torch_function((qkv.q,)):
        exported: Tensor = handle_torch_function(attend_cached, (qkv.q,), qkv, past, lineage, bias)
        return exported
    return attend_cached_plainly(qkv, past, lineage, bias)


def attend_cached_plainly(
    qkv: QKV,
    past: tuple[Tensor, Tensor],
    lineage: Tensor,
    bias: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Compute `attend_cached` with standard operators: multiply each query with the entries of all beams.

    qkv, past, lineage, bias: arguments of `attend_cached`.
    """
    heads, width = past[0].shape[1], past[0].shape[4]
    q, key, value = (y.unflatten(2, (heads, width)).transpose(1, 2) for y in qkv)
    keys, values = (y.flatten(2, 3) for y in past)
    before = torch.matmul(q, keys.transpose(2, 3)) + lineage[:, None]
    now = (q * key).sum(-1)[..., None]
    if bias is not None:
        before, now = before + bias[0], now + bias[1]
    weights = F.softmax(torch.cat([before, now], -1), dim=-1)
    context: Tensor = torch.matmul(weights[..., :-1], values) + weights[..., -1:] * value
    return context.transpose(1, 2).flatten(2)


def attend_window(
    qkv: QKV,
    past: tuple[Tensor, Tensor],
    index: Tensor,
    mask: Tensor,
    heads: int,
) -> Tensor:
    """Compute self-attention of a new position of each hypothesis to itself and to the window before it.

    qkv: query, key and value of the new position.
    past: rings of keys and values [slots, window, beams, dim].
    index: int [slots, beams, window], rows of ring.flatten(0, 2) with the positions of each hypothesis,
        oldest first.
    mask: [slots, 1, window], -inf before the first token.
    heads: number of heads.

    Returns [slots, beams, dim].
    """
    if not isinstance(qkv.q, Tensor):
        exported: Tensor = handle_torch_function(attend_window, (qkv.q,), qkv, past, index, mask, heads)
        return exported
    return attend_window_plainly(qkv, past, index, mask, heads)


def attend_window_plainly(
    qkv: QKV,
    past: tuple[Tensor, Tensor],
    index: Tensor,
    mask: Tensor,
    heads: int,
) -> Tensor:
    """Compute `attend_window` with standard operators.

    qkv, past, index, mask, heads: arguments of `attend_window`.
    """
    q, key, value = qkv
    split = heads, q.shape[2] // heads
    before = (F.embedding(index, ring.flatten(0, 2)) for ring in past)
    keys, values = (
        torch.cat([old, new[:, :, None]], 2).unflatten(3, split).transpose(2, 3)
        for old, new in zip(before, (key, value), strict=True)
    )
    # the new position attends to itself too
    full_mask = torch.cat([mask, torch.zeros_like(mask[..., :1])], -1)[:, :, None, None]
    query = q.unflatten(2, split)[:, :, :, None]  # [slots, beams, heads, 1, width]
    logits = torch.matmul(query, keys.transpose(3, 4)) + full_mask
    return torch.matmul(F.softmax(logits, dim=-1), values).squeeze(3).flatten(2)


def project_among(features: Tensor, output: tuple[Tensor, Tensor | None], among: Tensor, eos: int) -> Tensor:
    """Return logits [slots, beams, vocab] of the listed tokens, -inf elsewhere.

    features: [slots, beams, dim].
    output: weight [vocab, dim] and bias [vocab] or None.
    among: int [slots, W], distinct tokens including `eos`, padded with -1.
    eos: id of end-of-sentence.
    """
    weight, bias = output
    if has_torch_function((features,)):
        exported: Tensor = handle_torch_function(
            project_among, (features,), features, (weight, bias), among, eos
        )
        return exported
    return project_among_plainly(features, (weight, bias), among, eos)


def project_among_plainly(
    features: Tensor, output: tuple[Tensor, Tensor | None], among: Tensor, eos: int
) -> Tensor:
    """Compute `project_among` with standard operators: compute all logits and mask most of them.

    features: [slots, beams, dim].
    output: weight [vocab, dim] and bias [vocab] or None.
    among: int [slots, W], distinct tokens including `eos`, padded with -1.
    eos: id of end-of-sentence.
    """
    weight, bias = output
    logits = F.linear(features, weight, bias)
    # padding becomes `eos`, which is listed anyway
    listed = torch.where(among < 0, torch.full_like(among, eos), among)[:, None]
    return logits + torch.full_like(logits[:, :1], -torch.inf).scatter(2, listed, 0.0)
