"""Compare the separable convolutions with plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.models.separable import ConvolutionShape, SubSeparable, SuperSeparable


def looped(x: np.ndarray, weights: list[np.ndarray], dilation: int, left: int) -> np.ndarray:
    """Convolve each group in loops. x: [time, in]; weights: [K, in / g, out / g]."""
    time, width = len(x), weights[0].shape[0]
    out = []
    for t in range(time):
        row = []
        for group, weight in enumerate(weights):
            size = weight.shape[1]
            for o in range(weight.shape[2]):
                total = 0.0
                for k in range(width):
                    at = t - left + k * dilation
                    if 0 <= at < time:
                        for c in range(size):
                            total += weight[k, c, o] * x[at, group * size + c]
                row.append(total)
        out.append(row)
    return np.array(out)


CASES = st.fixed_dictionaries(
    {
        "width": st.sampled_from([1, 3, 5]),
        "dilation": st.integers(1, 3),
        "groups": st.sampled_from([1, 2, 3]),
        "time": st.integers(1, 9),
        "causal": st.booleans(),
        "seed": st.integers(0, 999),
    }
)


@given(case=CASES)
def test_a_sub_separable_convolution_equals_its_loops(case: dict[str, Any]) -> None:
    rng, groups = np.random.default_rng(case["seed"]), case["groups"]
    conv = SubSeparable(ConvolutionShape(6, 12, case["width"], case["dilation"], groups))
    parts = [rng.normal(size=(case["width"], 6 // groups, 12 // groups)) for _ in range(groups)]
    x = rng.normal(size=(case["time"], 6))
    with torch.no_grad():
        for module, part in zip(conv.parts, parts, strict=True):
            module.weight.copy_(torch.from_numpy(part.reshape(-1, 12 // groups).T))
        left = conv.kernel.reach // (1 if case["causal"] else 2)
        got = conv.whole(torch.from_numpy(x).float()[None], left)[0].numpy()
        want = looped(x, parts, case["dilation"], left)
        if groups > 1:
            want = want @ conv.mix.weight.numpy().T + conv.mix.bias.numpy()
    np.testing.assert_allclose(got, want, atol=1e-5)


@given(case=CASES)
def test_a_super_separable_convolution_equals_its_loops(case: dict[str, Any]) -> None:
    rng, groups = np.random.default_rng(case["seed"]), case["groups"]
    conv = SuperSeparable(ConvolutionShape(6, 12, case["width"], case["dilation"], -groups))
    depthwise, x = rng.normal(size=(case["width"], 6)), rng.normal(size=(case["time"], 6))
    points = [rng.normal(size=(6 // groups, 12 // groups)) for _ in range(groups)]
    with torch.no_grad():
        conv.depthwise.copy_(torch.from_numpy(depthwise))
        for module, point in zip(conv.pointwise, points, strict=True):
            module.weight.copy_(torch.from_numpy(point.T))
        left = conv.kernel.reach // (1 if case["causal"] else 2)
        got = conv.whole(torch.from_numpy(x).float()[None], left)[0].numpy()
    # section 2.2: each group has a separable convolution, equal to a full one of rank one for each channel
    size = 6 // groups
    full = [depthwise[:, g * size : (g + 1) * size, None] * point for g, point in enumerate(points)]
    np.testing.assert_allclose(got, looped(x, full, case["dilation"], left), atol=1e-5)
