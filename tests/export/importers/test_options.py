"""Models that fairseq ran, one for each supported option (tests/golden/README.md)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.models import load
from export.importers import convert
from tests.support.golden_fixtures import SELECTION, right_padded

FOLDERS = sorted((SELECTION / "options").iterdir())


@pytest.mark.parametrize("path", FOLDERS, ids=lambda path: path.name)
@torch.no_grad()
def test_model_with_this_option_computes_the_same_as_fairseq(path, tmp_path):
    bundle = convert("fairseq", path, tmp_path / "out")
    model = load(bundle.config, bundle.weights())
    with np.load(path / "ref.npz") as reference:
        source, previous, wanted, attended = (reference[name] for name in ("x", "prev", "lp", "attn"))
    tokens = torch.from_numpy(right_padded(source))
    real = (tokens != 1).float()
    mask = torch.zeros_like(real).masked_fill(real == 0, float("-inf"))
    memory = model.encode(tokens, torch.arange(tokens.shape[1]), real)
    features, attention = model.decode(torch.from_numpy(previous), memory, mask)
    written = previous != 1
    ours = model.log_probs(features).numpy()
    np.testing.assert_allclose(ours[written], wanted[written], rtol=0, atol=1e-5)
    for row, read in enumerate(source != 1):
        mine = attention[row, written[row], : read.sum()].numpy()
        np.testing.assert_allclose(mine, attended[row, written[row]][:, read], rtol=0, atol=1e-5)
