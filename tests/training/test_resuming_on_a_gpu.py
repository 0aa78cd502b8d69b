"""A killed run resumes with the state of the GPU's generator, which draws the dropout.

The module imports little: a machine with a GPU may lack the packages of a server."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.training.numbers import TINY, write_numbers
from training.recipe import load
from training.trainer import Trainer


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU, or a torch without CUDA")
def test_killed_run_draws_the_same_numbers_as_an_uninterrupted_run(tmp_path: Path) -> None:
    write_numbers(tmp_path, {"train": 400, "valid": 20})
    (tmp_path / "recipe.toml").write_text(TINY.replace("dropout = 0.0", "dropout = 0.3", 1), "utf-8")
    recipe = load(tmp_path / "recipe.toml", "cuda", {"updates": "4", "save_every": "2", "warmup": "2"})
    Trainer(recipe, tmp_path, tmp_path / "whole", "cuda").train_to(4)
    Trainer(recipe, tmp_path, tmp_path / "killed", "cuda").train_to(2)
    torch.rand(7, device="cuda")  # another program's draw
    Trainer(recipe, tmp_path, tmp_path / "killed", "cuda").train_to(4)
    one, other = (
        torch.load(tmp_path / name / "checkpoint-4.pt", map_location="cpu", weights_only=True)
        for name in ("whole", "killed")
    )
    assert torch.equal(one["random_cuda"], other["random_cuda"])
    for name, tensor in one["model"].items():
        torch.testing.assert_close(other["model"][name], tensor, rtol=1e-3, atol=1e-4)
