"""Scores of a text by one pass of the torch model, as an oracle."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.bundle.bundle import open_bundle
from engine.models import load
from engine.text.tokenizers.tokenizer import open_tokenizer

EOS = 2


@torch.no_grad()
def teacher_forced(path: Path, text: str, source: str | None) -> list[float]:
    """Return the log-probability of each token of a text, by one full pass of the torch model."""
    bundle = open_bundle(path)
    tokenizer, net = open_tokenizer(bundle), load(bundle.config, bundle.weights())
    target = [*tokenizer.encode_target(text), EOS]
    read = [EOS] if source is None else [*tokenizer.encode(source), EOS]
    scores = net(torch.tensor([read]), torch.tensor([[EOS, *target[:-1]]]))[0]
    return scores.gather(1, torch.tensor(target)[:, None])[:, 0].tolist()
