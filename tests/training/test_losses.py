"""Losses and scores against torch and reference tools."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from engine.bundle.adaptive import Bands
from engine.models.adaptive import AdaptiveSoftmax
from training.loss import adaptive_cross_entropy, linear_cross_entropy
from training.scores import rouge


def test_adaptive_loss_equals_likelihood_of_adaptive_softmax() -> None:
    torch.manual_seed(0)
    bands = Bands((10, 30), 2.0)
    softmax = AdaptiveSoftmax(bands, 41, 16)
    features, target = torch.randn(200, 16), torch.randint(0, 41, (200,))
    want = -softmax(features).gather(1, target[:, None]).sum()
    torch.testing.assert_close(adaptive_cross_entropy(softmax, features, target), want, rtol=1e-5, atol=1e-3)
    few = target < 10  # no row for a tail
    want = -softmax(features[few]).gather(1, target[few][:, None]).sum()
    got = adaptive_cross_entropy(softmax, features[few], target[few])
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("biased", [False, True])
def test_fused_loss_equals_cross_entropy_of_torch_in_value_and_gradients(biased: bool) -> None:
    torch.manual_seed(0)
    features = torch.randn(1100, 16, requires_grad=True)
    weight = torch.randn(37, 16, requires_grad=True)
    target = torch.randint(0, 37, (1100,))
    bias = torch.randn(37, requires_grad=True) if biased else None
    loss, nll = linear_cross_entropy(features, weight, bias, target, smoothing=0.1)
    loss.backward()
    parameters = [features, weight, *([bias] if biased else [])]
    got = [p.grad.clone() for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    logits = F.linear(features, weight, bias)
    want = F.cross_entropy(logits, target, label_smoothing=0.1, reduction="sum")
    want.backward()
    torch.testing.assert_close(loss, want, rtol=1e-5, atol=1e-3)
    plain = F.cross_entropy(logits, target, reduction="sum")
    torch.testing.assert_close(nll, plain.detach(), rtol=1e-5, atol=1e-3)
    for ours, parameter in zip(got, parameters, strict=True):
        torch.testing.assert_close(ours, parameter.grad, rtol=1e-4, atol=1e-3)


def test_rouge_is_the_mean_f1_of_all_pairs() -> None:
    scores = rouge(["a cat sat", "dogs bark"], ["a cat sat", "nothing alike"])
    assert scores["ROUGE-1"] == pytest.approx(50.0)
    assert scores["ROUGE-2"] == pytest.approx(50.0)
