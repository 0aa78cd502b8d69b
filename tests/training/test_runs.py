"""Runs that resume, stop, have a time limit or start from a bundle."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.training.numbers import recipe_with
from training import curve
from training.recipe import Recipe
from training.trainer import FIRST_PIECE_UPDATES, Trainer, TrainingStopped, rate


def test_killed_run_resumes_and_gives_the_weights_of_an_uninterrupted_run(
    recipe: Recipe, corpora: Path, tmp_path: Path
) -> None:
    whole = Trainer(recipe_with(tmp_path, updates=12, save_every=6), corpora, tmp_path / "a", "cpu")
    averaged = whole.fit()
    stopped = Trainer(recipe_with(tmp_path, updates=12, save_every=6), corpora, tmp_path / "b", "cpu")
    run_until(stopped, 8)  # killed after its checkpoint at 6
    resumed = Trainer(recipe_with(tmp_path, updates=12, save_every=6), corpora, tmp_path / "b", "cpu")
    assert resumed.update == 6
    weights = torch.load(resumed.fit(), weights_only=True)
    for name, tensor in torch.load(averaged, weights_only=True).items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-4, atol=1e-5)


def test_checkpoint_stores_and_restores_the_generator_of_a_gpu(
    recipe: Recipe, corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout uses it: without its state a resumed run would be a different one."""
    state, calls = torch.arange(16, dtype=torch.uint8), []
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: (calls.append(device), state)[1])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda *given: calls.append(given))
    trainer = Trainer(recipe_with(tmp_path, updates=2, save_every=2), corpora, tmp_path / "run", "cpu")
    trainer.train_to(1)
    trainer.device = torch.device("cuda:1")
    trainer._save()
    with monkeypatch.context() as loading:  # the test has only tensors of the CPU
        load = torch.load
        loading.setattr(torch, "load", lambda path, **more: load(path, **more | {"map_location": "cpu"}))
        trainer._resume()
    assert calls[0] == torch.device("cuda:1")
    (restored, device) = calls[1]
    assert torch.equal(restored, state)
    assert device == torch.device("cuda:1")


def test_stopped_run_saves_a_checkpoint_and_resumes(recipe: Recipe, corpora: Path, tmp_path: Path) -> None:
    trainer = Trainer(recipe_with(tmp_path, updates=12, save_every=100), corpora, tmp_path / "run", "cpu")
    trainer.train_to(3)
    trainer.stop()
    with pytest.raises(TrainingStopped, match="update 4; run it again"):
        trainer.fit()
    resumed = Trainer(recipe_with(tmp_path, updates=12, save_every=100), corpora, tmp_path / "run", "cpu")
    assert (resumed.update, resumed.tokens) == (4, trainer.tokens)
    resumed.fit()
    points = curve.read(tmp_path / "run")
    assert [point.update for point in points] == [3, 4, 12]
    assert points[0].tokens < points[1].tokens < points[2].tokens
    assert points[2].valid["numbers"] < points[0].valid["numbers"]


def test_run_with_a_time_limit_reaches_its_planned_last_update(corpora: Path, tmp_path: Path) -> None:
    trainer = Trainer(recipe_with(tmp_path, updates=10**6), corpora, tmp_path / "run", "cpu")
    assert trainer.fit(seconds=2.0).is_file()
    train = trainer.recipe.train
    assert FIRST_PIECE_UPDATES <= trainer.update == train.updates < 10**6
    assert rate(train, train.updates) == pytest.approx(train.final_rate * train.learning_rate)
    assert curve.read(tmp_path / "run")[-1].update == trainer.update


def run_until(trainer: Trainer, update: int) -> None:
    class Killed(Exception):
        pass

    step = trainer.optimizer.step

    def stop(*args: object) -> None:
        if trainer.update == update:
            raise Killed
        step(*args)

    trainer.optimizer.step = stop
    with pytest.raises(Killed):
        trainer.fit()
