"""Label-smoothed cross-entropy fused with the output projection, and the loss of an adaptive softmax."""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.models.adaptive import AdaptiveSoftmax

CHUNK_ROWS: Final = 256  # 256 x 8,000 logits fit into the caches of a small CPU
GPU_CHUNK_ROWS: Final = 8192  # enough work for each kernel, in 0.3 GB of logits


class _LinearCrossEntropy(torch.autograd.Function):
    """Computes loss and gradient together, in chunks, without a tensor of [rows, vocab]."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        smoothing: float,
    ) -> tuple[Tensor, Tensor]:
        """Return summed smoothed loss and negative log-likelihood; compute all gradients in the same pass."""
        vocab = weight.shape[0]
        w = weight.to(features.dtype)
        grad_features = torch.empty_like(features)
        grad_weight = torch.zeros_like(weight, dtype=torch.float32)
        grad_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        loss = nll = features.new_zeros((), dtype=torch.float32)
        rows = CHUNK_ROWS if features.device.type == "cpu" else GPU_CHUNK_ROWS
        for begin in range(0, features.shape[0], rows):
            f, t = features[begin : begin + rows], target[begin : begin + rows, None]
            logits = (f @ w.T).float()
            if bias is not None:
                logits += bias
            # in place: torch's softmax would need a second chunk of memory, and is slower
            top = logits.amax(-1, keepdim=True)
            likely = logits.gather(1, t).sum()
            mean = logits.mean(-1).sum()
            grad = logits.sub_(top).exp_()
            total = grad.sum(-1, keepdim=True)
            norm = total.log().sum() + top.sum()  # summed log-sum-exp of the rows
            nll = nll + norm - likely
            loss = loss + norm - (1 - smoothing) * likely - smoothing * mean
            grad.div_(total).sub_(smoothing / vocab)  # gradient of the logits
            grad.scatter_add_(1, t, grad.new_full(t.shape, smoothing - 1.0))
            if grad_bias is not None:
                grad_bias += grad.sum(0)
            g = grad.to(features.dtype)
            grad_features[begin : begin + rows] = g @ w
            grad_weight += g.T @ f
        ctx.save_for_backward(grad_features, grad_weight, grad_bias)
        return loss, nll.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        # `forward` saved the gradients of the loss; `grad` is the gradient with respect to the loss
        features, weight, bias = ctx.saved_tensors
        gradients = features * grad.to(features.dtype), weight * grad, None if bias is None else bias * grad
        return *gradients, None, None  # none for target and smoothing


def linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    smoothing: float,
) -> tuple[Tensor, Tensor]:
    """Return the sums of the label-smoothed loss and of the plain negative log-likelihood (nats).

    features: decoder output [rows, dim], without padding.
    weight: output projection [vocab, dim].
    bias: bias [vocab] of the projection, or None.
    target: token ids, int [rows].
    smoothing: probability mass that is spread over the whole vocabulary, like in fairseq's
        "label_smoothed_cross_entropy".
    """
    losses: tuple[Tensor, Tensor] = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        features, weight, bias, target, smoothing
    )
    return losses


def adaptive_cross_entropy(softmax: AdaptiveSoftmax, features: Tensor, target: Tensor) -> Tensor:
    """Return the sum of the negative log-likelihood (nats) under an adaptive softmax (Grave et al. 2017).

    A tail reads only the rows of targets in its band; labels are not smoothed, like in fairseq.

    softmax: the model's output layer.
    features: decoder output [rows, dim].
    target: token ids, int [rows].
    """
    (_, first), *rest = softmax.edges  # begin and end of the head's tokens, and of each band
    in_bands = [(target >= begin) & (target < end) for begin, end in rest]
    head = target  # the head has the first tokens, then one class for each band
    for band, in_band in enumerate(in_bands):
        head = torch.where(in_band, first + band, head)
    loss = F.cross_entropy(softmax.head(features).float(), head, reduction="sum")
    for tail, in_band, (begin, _) in zip(softmax.tail, in_bands, rest, strict=True):
        if in_band.any():
            logits = tail(features[in_band]).float()
            loss = loss + F.cross_entropy(logits, target[in_band] - begin, reduction="sum")
    return loss
