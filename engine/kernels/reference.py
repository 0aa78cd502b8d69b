"""Dynamic and light convolution, and attention, in plain torch: what every faster kernel must reproduce.

"Pay Less Attention" (Wu et al. 2019), sections 3 and 4. Channel c belongs to head c // (C / H); heads share
a kernel. The kernel's softmax runs over all K taps, also those that fall on padding (REFERENCE.md 2.1).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function


def dynamic_conv(x: Tensor, taps: Tensor, left: int) -> Tensor:
    """Full-sequence convolution y[t, c] = sum_k taps[t, head(c), k] * x[t - left + k, c], zeros outside.

    x: [batch, time, channels]. taps: [batch, time, heads, K], or [heads, K] when they are the same for every
    step (LightConv). `left` is K - 1 for a causal and K // 2 for a centred window. Returns the shape of x.

    The taps become a band matrix [time, time], so that one batched product replaces K shifted copies of x
    (paper, section 3, "Implementation").
    """
    if has_torch_function((x, taps)):  # export to ONNX sees one node
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
    """One incremental step of the causal convolution: the newest input x and the K - 1 before it.

    x: [slots, beams, channels], the current input (tap K - 1). taps: [slots, beams, heads, K] or [heads, K].
    ring: [slots, K - 1, beams, channels], earlier inputs. index: int [slots, beams, K - 1], row of
    ring.flatten(0, 2) that holds each hypothesis's input, oldest first. Both None when K is 1.
    Returns [slots, beams, channels]. Nothing is reordered: beams are followed through `index`.
    """
    if has_torch_function((x, taps)):
        exported: Tensor = handle_torch_function(dynamic_conv_step, (x, taps), x, taps, ring, index)
        return exported
    heads, width = taps.shape[-2:]
    newest = x.unflatten(2, (heads, x.shape[2] // heads))  # [slots, beams, heads, R]
    y: Tensor = taps[..., width - 1 :] * newest
    if ring is not None and index is not None:
        past = ring.flatten(0, 2)[index].unflatten(
            3, (heads, newest.shape[3])
        )  # [slots, beams, K-1, heads, R]
        y = y + torch.matmul(taps[..., None, : width - 1], past.transpose(2, 3)).squeeze(-2)
    return y.flatten(2)


def add_norm(x: Tensor, added: Tensor, gain: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """Layer norm, over the last axis, of x + added (a residual connection)."""
    if has_torch_function((x, added)):
        exported: Tensor = handle_torch_function(add_norm, (x, added), x, added, gain, bias, epsilon)
        return exported
    return add_norm_plainly(x, added, gain, bias, epsilon)


def add_norm_plainly(x: Tensor, added: Tensor, gain: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """`add_norm` of operators that a graph has, for those who export it without a kernel of its own."""
    return F.layer_norm(x + added, gain.shape, gain, bias, epsilon)


def attend(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Multi-head attention of some queries over a memory that they share.

    q: [batch, queries, dim], scaled. keys: [batch, heads, dim / heads, source]. values: [batch, heads,
    source, dim / heads]. mask: [batch, source], 0 or -inf. dropout: of the weights, in training. Returns the
    context [batch, queries, dim] and the weights, mean over heads, [batch, queries, source].
    """
    if has_torch_function((q, keys, values, mask)):
        exported: tuple[Tensor, Tensor] = handle_torch_function(
            attend, (q, keys, values, mask), q, keys, values, mask, dropout
        )
        return exported
    return attend_plainly(q, keys, values, mask, dropout)


def attend_plainly(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """`attend` of operators that a graph has, for those who export it without a kernel of its own."""
    heads, width = keys.shape[1], keys.shape[2]
    logits = torch.matmul(q.unflatten(2, (heads, width)).transpose(1, 2), keys) + mask[:, None, None, :]
    weights = F.softmax(logits, dim=-1)  # [batch, heads, queries, source]
    used = F.dropout(weights, dropout) if dropout else weights
    return torch.matmul(used, values).transpose(1, 2).flatten(2), weights.mean(1)
