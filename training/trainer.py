"""The training loop: resumable, on CPU or CUDA, with bf16 autocast."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from engine.bundle.bundle import Bundle
from engine.bundle.folder import replacing_file
from engine.models import build as build_model
from engine.models.adaptive import AdaptiveSoftmax
from engine.models.lightconv_lm import LightConvLM
from engine.models.model import Dropout, Model, ProjectionModel
from training import curve, data
from training.loss import adaptive_cross_entropy, linear_cross_entropy
from training.prepare import Synthesis, prepare
from training.recipe import Recipe, Train
from training.start import adopt_vocabulary, copy_weights

Batch = tuple[NDArray[np.int64], ...]  # see `data.collate`
TIMED_PIECES: Final = 20  # a run with a time limit is planned again after each of these pieces
FIRST_PIECE_UPDATES: Final = 20  # updates of the first piece, which measures the speed
DISPLAY_UPDATES: Final = 20  # updates between two texts of the progress bar


def rate(train: Train, update: int) -> float:
    """Return the learning rate of an update (from 0): linear warm-up, then cosine or inverse square root."""
    if update < train.warmup:
        return train.learning_rate * (update + 1) / train.warmup
    if train.schedule == "inverse_sqrt":
        return train.learning_rate * math.sqrt(train.warmup / (update + 1))
    progress = min(1.0, (update - train.warmup) / max(1, train.updates - train.warmup))
    low = train.final_rate * train.learning_rate
    return low + (train.learning_rate - low) * 0.5 * (1 + math.cos(math.pi * progress))


def plan_updates(recipe: Recipe, updates: int, left: float) -> Recipe:
    """Return the recipe with as many updates as there is time for, and a warm-up of at most a tenth of them.

    recipe: recipe with the largest number of updates and the longest warm-up.
    updates: number of updates so far.
    left: number of updates that the remaining time allows.
    """
    last = max(updates, min(recipe.train.updates, updates + int(left)))
    warmup = max(1, min(recipe.train.warmup, last // 10))
    train = replace(
        recipe.train, updates=last, warmup=warmup, save_every=last + 1
    )  # each piece ends with a checkpoint
    return replace(recipe, train=train)


@dataclass(slots=True)
class Sums:
    """Sums since the last checkpoint."""

    nats: float = 0.0
    tokens: int = 0
    seconds: float = 0.0

    @property
    def loss(self) -> float:
        return self.nats / max(1, self.tokens)

    def add(self, nats: float, tokens: int, seconds: float) -> None:
        """Add one update.

        nats: summed loss.
        tokens: number of target tokens.
        seconds: duration of the update.
        """
        self.nats, self.tokens, self.seconds = self.nats + nats, self.tokens + tokens, self.seconds + seconds

    def texts(self) -> dict[str, str]:
        """Return the texts of the progress bar."""
        return {"nll": f"{self.loss:.3f}", "tokens_s": f"{self.tokens / max(1e-9, self.seconds):.0f}"}


class TrainingStopped(Exception):
    """The run was stopped, after it saved a checkpoint."""


def build(recipe: Recipe) -> Model:
    """Return the recipe's model with its dropout, not yet initialised."""
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
    """One run of a recipe. `folder` holds vocabulary and checkpoints, from which a killed run resumes.

    A new run has the weights and vocabulary of the bundle `start`, or the vocabulary of the teacher of
    `synthesis`, if there is one.
    """

    def __init__(
        self,
        recipe: Recipe,
        corpora: Path,
        folder: Path,
        device: str,
        start: Bundle | None = None,
        synthesis: Synthesis | None = None,
    ) -> None:
        self.recipe, self.folder, self.device = recipe, folder, torch.device(device)
        folder.mkdir(parents=True, exist_ok=True)
        vocabulary = folder / "vocabulary.model"
        known = start or (synthesis.teacher if synthesis else None)
        if known is not None and not vocabulary.exists():
            adopt_vocabulary(known, recipe.vocabulary.characters, vocabulary)
        self.train, self.valid, *self.further_valid = prepare(recipe, corpora, folder, synthesis)
        self.model = build(recipe)
        self.model.initialise(recipe.train.seed)
        if start is not None:
            copy_weights(self.model, start, vocabulary)
        # for `average`, which may mix the first weights in
        self.started = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self.model.to(self.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            betas=recipe.train.betas,
            eps=1e-8,
            weight_decay=recipe.train.weight_decay,
            fused=True,
        )
        self.update = self.batch = self.tokens = 0
        self.sums = Sums()
        self._stopping = False
        self._saving = 0.0  # seconds of the last measurement and checkpoint
        self._stream: Iterator[tuple[int, Batch]] | None = None
        self._resume()

    def fit(self, seconds: float | None = None) -> Path:
        """Train to the recipe's last update, and return the file of averaged weights.

        seconds: time limit, or None. The schedule is planned again after every piece of the run, by its
            speed so far, so that the learning rate reaches its end with the time.
        """
        if seconds is None:
            self.train_to(self.recipe.train.updates)
            return self.average()
        whole, end, piece = self.recipe, time.monotonic() + seconds, FIRST_PIECE_UPDATES
        while self.update < self.recipe.train.updates:
            began, before = time.monotonic(), self.update
            self.train_to(min(before + piece, self.recipe.train.updates))
            now = time.monotonic()
            pace = (now - began - self._saving) / (self.update - before)
            pieces = min(TIMED_PIECES, (self.recipe.train.updates - self.update) // piece)
            # keep time for the later checkpoints, at most half of the rest
            left = end - now - min(pieces * self._saving, (end - now) / 2)
            self.recipe = plan_updates(whole, self.update, left / pace)
            piece = max(FIRST_PIECE_UPDATES, self.recipe.train.updates // TIMED_PIECES)
        return self.average()

    def stop(self, *_: object) -> None:
        """Stop the run after the current update: it saves a checkpoint and raises TrainingStopped.

        A signal handler: ignores its arguments."""
        self._stopping = True

    def train_to(self, last: int) -> None:
        """Train up to the update `last` of the recipe's schedule, and save a checkpoint there."""
        train = self.recipe.train
        # the pieces of a run with a time limit share one stream
        stream = self._stream = self._stream or self._batches()
        bar = tqdm(total=last, initial=self.update, unit="update", mininterval=5.0)
        self.model.train()
        while self.update < last:
            for group in self.optimizer.param_groups:
                group["lr"] = rate(train, self.update)
            chunks = [next(stream) for _ in range(train.accumulate)]
            began = time.monotonic()
            loss, tokens = self._step([chunk for _, chunk in chunks])
            self.sums.add(loss, tokens, time.monotonic() - began)
            self.tokens += tokens
            self.update += 1
            bar.update()
            if self.update % DISPLAY_UPDATES == 0:
                bar.set_postfix(epoch=chunks[-1][0], **self.sums.texts())
            if self._stopping or self.update % train.save_every == 0 or self.update == last:
                began = time.monotonic()
                tqdm.write(f"update {self.update}: {self._measure()}")
                self._save()
                self._saving = time.monotonic() - began
            if self._stopping:
                bar.close()
                raise TrainingStopped(f"stopped at update {self.update}; run it again to resume")
        bar.close()

    def _step(self, chunks: list[Batch]) -> tuple[float, int]:
        """Make one update, and return the sum of its losses (nats) and the number of target tokens."""
        loss = 0.0
        tokens = sum(int((target != self.model.config.pad).sum()) for _, _, target in chunks)
        for chunk in chunks:
            smoothed, nll = self._loss(*(torch.from_numpy(x).to(self.device) for x in chunk))
            (smoothed / tokens).backward()
            loss += nll.item()
        self.batch += len(chunks)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.train.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss, tokens

    def _measure(self) -> str:
        """Add a point to the run's curve, and return its description."""
        corpus = self.recipe.corpus
        valid = {corpus.folder: self.validate()}
        for name, pairs in zip(corpus.beside, self.further_valid, strict=True):
            valid[name] = self.validate(pairs)
        curve.append(self.folder, curve.Point(self.update, self.tokens, self.sums.loss, valid))
        self.sums = Sums()
        return ", ".join(f"{name} {loss:.4f}" for name, loss in valid.items()) + " nats a token"

    def _batches(self) -> Iterator[tuple[int, Batch]]:
        """Yield the epoch number and a batch, without end; the first ones may be of the copying task."""
        train, config = self.recipe.train, self.model.config
        fading = train.copy_updates * train.accumulate
        choice = np.random.default_rng(train.seed).random(fading)
        is_copy = choice * fading > np.arange(fading)  # the probability falls linearly
        # a resumed run skips the batches of each task that it has used
        copy_count = int(is_copy[: self.batch].sum())
        copies = data.copying_task(self.train, train.seed) if self.batch < fading else self.train
        real = data.epochs(self.train, train.batch_tokens, train.seed, self.batch - copy_count)
        copy = data.epochs(copies, train.batch_tokens, train.seed, copy_count)
        for batch in itertools.count(self.batch):
            from_copies = batch < fading and is_copy[batch]
            epoch, index = next(copy if from_copies else real)
            yield epoch, data.collate(copies if from_copies else self.train, index, config.pad, config.eos)

    @torch.no_grad()
    def validate(self, pairs: data.Pairs | None = None) -> float:
        """Return the mean negative log-likelihood (nats per token) of `pairs`, or of the validation set."""
        pairs = pairs or self.valid
        self.model.eval()
        total, tokens = 0.0, 0
        for index in data.batches(pairs, self.recipe.train.batch_tokens, 0):
            chunk = data.collate(pairs, index, self.model.config.pad, self.model.config.eos)
            _, nll = self._loss(*(torch.from_numpy(x).to(self.device) for x in chunk))
            total += nll.item()
            tokens += int((chunk[2] != self.model.config.pad).sum())
        self.model.train()
        return total / tokens

    def average(self) -> Path:
        """Write the mean of the newest checkpoints' weights (fp32) to `averaged.pt`, and return its path.

        The run's first weights have the share `start_share` in it (Wortsman et al. 2022, "Robust fine-tuning
        of zero-shot models").
        """
        newest, share = self._checkpoints()[-self.recipe.train.average :], self.recipe.train.start_share
        total = {name: share * tensor.double().cpu() for name, tensor in self.started.items()}
        for path in newest:
            for name, tensor in torch.load(path, map_location="cpu", weights_only=True)["model"].items():
                total[name] += (1 - share) * tensor.double() / len(newest)
        out = self.folder / "averaged.pt"
        _save_atomically({name: tensor.float() for name, tensor in total.items()}, out)
        return out

    def _loss(self, source: Tensor, previous: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss to minimise and the negative log-likelihood (nats), summed over the target tokens.

        source: token ids [batch, length].
        previous: input of the decoder [batch, length].
        target: expected token ids [batch, length].
        """
        model, train = self.model, self.recipe.train
        real = (source != model.config.pad).float()
        mask = torch.zeros_like(real).masked_fill(real == 0, float("-inf"))
        real_targets = target.flatten() != model.config.pad
        labels = target.flatten()[real_targets]
        with torch.autocast(self.device.type, torch.bfloat16):
            positions = torch.arange(source.shape[1], device=source.device)
            memory = model.encode(source, positions, real)
            features, _ = model.decode(previous, memory, mask)
            flat = features.flatten(0, 1).to(torch.bfloat16)[real_targets]
            softmax = model.decoder.adaptive_softmax if isinstance(model, LightConvLM) else None
            if isinstance(softmax, AdaptiveSoftmax):
                loss = adaptive_cross_entropy(softmax, flat, labels)
                return loss, loss.detach()
        assert isinstance(model, ProjectionModel)  # a recipe describes one model, never an ensemble
        return linear_cross_entropy(flat, *model.output, labels, smoothing=train.smoothing)

    def _checkpoints(self) -> list[Path]:
        paths = [p for p in self.folder.glob("checkpoint-*.pt") if re.fullmatch(r"checkpoint-\d+", p.stem)]
        return sorted(paths, key=lambda p: int(p.stem.split("-")[1]))

    def _save(self) -> None:
        """Write a checkpoint and delete the older ones that no average needs."""
        state: dict[str, Any] = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "update": self.update,
            "batch": self.batch,
            "tokens": self.tokens,
            "random": torch.get_rng_state(),
        }
        if self.device.type == "cuda":  # dropout uses the device's own generator
            state["random_cuda"] = torch.cuda.get_rng_state(self.device)
        _save_atomically(state, self.folder / f"checkpoint-{self.update}.pt")
        for old in self._checkpoints()[: -self.recipe.train.average]:
            old.unlink()

    def _resume(self) -> None:
        """Continue from the newest checkpoint, if there is one."""
        checkpoints = self._checkpoints()
        if checkpoints:
            state = torch.load(checkpoints[-1], map_location=self.device, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.update, self.batch, self.tokens = state["update"], state["batch"], state.get("tokens", 0)
            torch.set_rng_state(state["random"].cpu())
            if self.device.type == "cuda" and "random_cuda" in state:
                torch.cuda.set_rng_state(state["random_cuda"].cpu(), self.device)


def _save_atomically(value: Any, path: Path) -> None:
    with replacing_file(path) as partial:
        torch.save(value, partial)
