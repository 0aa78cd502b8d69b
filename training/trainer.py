"""The training loop: resumable, bf16 or fp32, CPU or CUDA."""

from __future__ import annotations

import itertools
import math
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from engine.models import build as build_model
from engine.models.adaptive import AdaptiveSoftmax
from engine.models.lightconv_lm import LightConvLM
from engine.models.model import Dropout, Model, Projected
from training import data
from training.loss import adaptive_cross_entropy, linear_cross_entropy
from training.recipe import Recipe, Train


def rate(train: Train, update: int) -> float:
    """Learning rate of one update, counted from 0: linear warm-up, then cosine or inverse square root."""
    if update < train.warmup:
        return train.learning_rate * (update + 1) / train.warmup
    if train.schedule == "inverse_sqrt":
        return train.learning_rate * math.sqrt(train.warmup / (update + 1))
    progress = min(1.0, (update - train.warmup) / max(1, train.updates - train.warmup))
    low = train.final_rate * train.learning_rate
    return low + (train.learning_rate - low) * 0.5 * (1 + math.cos(math.pi * progress))


def build(recipe: Recipe) -> Model:
    train = recipe.train
    dropout = Dropout(
        residual=train.dropout,
        inputs=train.input_dropout,
        relu=train.relu_dropout,
        weight=train.weight_dropout,
        attention=train.attention_dropout,
        symbols=train.symbol_dropout,
    )
    return build_model(recipe.config(), dropout)


class Trainer:
    """One run of one recipe. `folder` holds vocabulary and checkpoints; a killed run goes on from there."""

    def __init__(self, recipe: Recipe, corpora: Path, folder: Path, device: str) -> None:
        self.recipe, self.folder, self.device = recipe, folder, torch.device(device)
        folder.mkdir(parents=True, exist_ok=True)
        self.train, self.valid = self._prepare(corpora / recipe.corpus.folder)
        self.model = build(recipe)
        self.model.initialise(recipe.train.seed)
        self.model.to(self.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            betas=recipe.train.betas,
            eps=1e-8,
            weight_decay=recipe.train.weight_decay,
            fused=True,
        )
        self.update = self.batch = 0
        self._stream: Iterator[tuple[int, tuple[NDArray[np.int64], ...]]] | None = None
        self._resume()

    def fit(self) -> Path:
        """Train to the recipe's last update. Returns the file of averaged weights."""
        self.train_to(self.recipe.train.updates)
        return self.average()

    def train_to(self, last: int) -> None:
        """Train up to an update of the recipe's schedule, and save a checkpoint there."""
        train = self.recipe.train
        stream = self._stream = self._stream or self._batches()
        bar = tqdm(total=last, initial=self.update, unit="update", mininterval=5.0)
        loss = tokens = 0.0
        since = time.monotonic()
        self.model.train()
        while self.update < last:
            for group in self.optimizer.param_groups:
                group["lr"] = rate(train, self.update)
            chunks = [next(stream) for _ in range(train.accumulate)]
            self.batch += train.accumulate
            count = sum(int((chunk[2] != self.model.config.pad).sum()) for _, chunk in chunks)
            for _, chunk in chunks:
                smoothed, nll = self._loss(*(torch.from_numpy(x).to(self.device) for x in chunk))
                (smoothed / count).backward()
                loss += nll.item()
            tokens += count
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), train.clip)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.update += 1
            bar.update()
            if self.update % 50 == 0:
                speed = tokens / (time.monotonic() - since)
                bar.set_postfix(epoch=chunks[-1][0], nll=f"{loss / tokens:.3f}", tokens_s=f"{speed:.0f}")
                loss = tokens = 0.0
                since = time.monotonic()
            if self.update % train.save_every == 0 or self.update == last:
                tqdm.write(f"update {self.update}: validation nll {self.validate():.4f} a token")
                self._save()
        bar.close()

    def _batches(self) -> Iterator[tuple[int, tuple[NDArray[np.int64], ...]]]:
        """Endless collated batches with the epoch's number, from `self.batch` on."""
        train, config = self.recipe.train, self.model.config
        fading = train.copy_updates * train.accumulate
        choice = np.random.default_rng(train.seed).random(fading)
        is_copy = choice * fading > np.arange(fading)  # ever fewer of them
        done = int(is_copy[: self.batch].sum())
        copies = data.copying(self.train, train.seed) if self.batch < fading else self.train
        real = data.epochs(self.train, train.batch_tokens, train.seed, self.batch - done)
        copy = data.epochs(copies, train.batch_tokens, train.seed, done)
        for batch in itertools.count(self.batch):
            from_copies = batch < fading and is_copy[batch]
            epoch, index = next(copy if from_copies else real)
            yield epoch, data.collate(copies if from_copies else self.train, index, config.pad, config.eos)

    @torch.no_grad()
    def validate(self) -> float:
        """Mean negative log-likelihood (nats a token) of the validation pairs."""
        self.model.eval()
        total, tokens = 0.0, 0
        for index in data.batches(self.valid, self.recipe.train.batch_tokens, 0):
            chunk = data.collate(self.valid, index, self.model.config.pad, self.model.config.eos)
            _, nll = self._loss(*(torch.from_numpy(x).to(self.device) for x in chunk))
            total += nll.item()
            tokens += int((chunk[2] != self.model.config.pad).sum())
        self.model.train()
        return total / tokens

    def average(self) -> Path:
        """Average the newest checkpoints' weights (fp32) into `averaged.pt`."""
        newest = self._checkpoints()[-self.recipe.train.average :]
        total: dict[str, Tensor] = {}
        for path in newest:
            for name, tensor in torch.load(path, map_location="cpu", weights_only=True)["model"].items():
                total[name] = total.get(name, 0.0) + tensor.double() / len(newest)
        out = self.folder / "averaged.pt"
        _save_atomically({name: tensor.float() for name, tensor in total.items()}, out)
        return out

    def _loss(self, source: Tensor, previous: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        model, train = self.model, self.recipe.train
        real = (source != model.config.pad).float()
        mask = torch.zeros_like(real).masked_fill(real == 0, float("-inf"))
        keep = target.flatten() != model.config.pad
        wanted = target.flatten()[keep]
        with torch.autocast(self.device.type, torch.bfloat16):
            positions = torch.arange(source.shape[1], device=source.device)
            memory = model.encode(source, positions, real)
            features, _ = model.decode(previous, memory, mask)
            flat = features.flatten(0, 1).to(torch.bfloat16)[keep]
            softmax = model.decoder.adaptive_softmax if isinstance(model, LightConvLM) else None
            if isinstance(softmax, AdaptiveSoftmax):
                loss = adaptive_cross_entropy(softmax, flat, wanted)
                return loss, loss.detach()
        assert isinstance(model, Projected)  # a recipe describes one model, never an ensemble
        return linear_cross_entropy(
            flat, *model.output, wanted, smoothing=train.smoothing, pad=model.config.pad
        )

    def _prepare(self, folder: Path) -> tuple[data.Pairs, data.Pairs]:
        recipe, corpus = self.recipe, self.recipe.corpus
        reads = recipe.config().reads_source  # a language model learns targets only
        columns = corpus.source_column if reads else corpus.target_column, corpus.target_column
        train = data.read_pairs(folder / "train.tsv.gz", *columns)
        if reads:
            train = data.with_placeholders(train, corpus.placeholder_share, recipe.train.seed)
        prefix = self.folder / "vocabulary"
        if not prefix.with_suffix(".model").exists():
            data.train_vocabulary(recipe, train, prefix)
        valid = data.read_pairs(folder / "valid.tsv.gz", *columns)
        model = prefix.with_suffix(".model")
        return data.encode(model, train, recipe), data.encode(model, valid, recipe)

    def _checkpoints(self) -> list[Path]:
        found = [p for p in self.folder.glob("checkpoint-*.pt") if re.fullmatch(r"checkpoint-\d+", p.stem)]
        return sorted(found, key=lambda p: int(p.stem.split("-")[1]))

    def _save(self) -> None:
        state: dict[str, Any] = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "update": self.update,
            "batch": self.batch,
            "random": torch.get_rng_state(),
        }
        _save_atomically(state, self.folder / f"checkpoint-{self.update}.pt")
        for old in self._checkpoints()[: -self.recipe.train.average]:
            old.unlink()

    def _resume(self) -> None:
        found = self._checkpoints()
        if found:
            state = torch.load(found[-1], map_location=self.device, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.update, self.batch = state["update"], state["batch"]
            torch.set_rng_state(state["random"].cpu())


def _save_atomically(value: Any, path: Path) -> None:
    partial = path.with_suffix(".partial")
    torch.save(value, partial)
    os.replace(partial, path)
