"""A tiny real model: a convolutional seq2seq with cross-attention in numpy, seeded, and its executor.

It keeps decoder state in the simplest way (the last inputs of each row, reordered by `parents`), so it is a
reference for rings and ancestor indices. It computes in float64 and rounds at the end, so that results do not
depend on the batch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import array_api_compat.numpy
import numpy as np

from engine.executors.device_errors import is_device_lost
from engine.search.executor import StepInput, TopK
from engine.search.stepper import PlainStepper
from engine.types import Limits

PAD, EOS, UNK = 1, 2, 3
KERNEL = 4


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


class FakeModel:
    """Weights, and functions that compute a whole prefix at once (for oracles)."""

    def __init__(self, vocab=19, dim=8, seed=0, eos_bias=0.5):
        g = np.random.default_rng(seed)
        self.vocab, self.dim = vocab, dim
        self.embed = g.normal(size=(vocab, dim))
        self.kernel = g.normal(size=(KERNEL, dim))
        self.mix = g.normal(size=(dim, vocab))
        self.bias = np.where(np.arange(vocab) == EOS, eos_bias, 0.0)

    def position(self, positions):
        return np.sin(np.asarray(positions, np.float64)[..., None] * np.arange(1, self.dim + 1))

    def attend(self, query, memory):
        """Return the weights [..., source] of queries [..., dim] over a memory [source, dim]."""
        return np.exp(log_softmax(np.einsum("...d,sd->...s", query, memory)))

    def logits(self, query, weights, memory):
        context = np.einsum("...s,sd->...d", weights, memory)
        return np.einsum("...d,dv->...v", np.tanh(query + context), self.mix) + self.bias

    def memory(self, source):
        return self.embed[np.asarray(source)]

    def whole(self, source, tokens):
        """Return the attention [source] and the log-probabilities [vocab] after the target tokens."""
        fed = np.array([EOS, *tokens])
        inputs = self.embed[fed] + self.position(np.arange(len(fed)))
        padded = np.concatenate([np.zeros((KERNEL - 1, self.dim)), inputs])
        query = (padded[-KERNEL:] * self.kernel).sum(0)
        memory = self.memory(source)
        weights = self.attend(query, memory)
        return weights, log_softmax(self.logits(query, weights, memory))

    def logprobs(self, source):
        """Return a function from a prefix to its log-probabilities, for the oracle; it caches its results."""
        known = {}

        def of(prefix: tuple[int, ...]) -> list[float]:
            if prefix not in known:
                known[prefix] = self.whole(source, prefix)[1].tolist()
            return known[prefix]

        return of

    def attention(self, source, tokens):
        """Return the attention of each step, [len(tokens) + 1, source length]."""
        return np.stack([self.whole(source, tokens[:i])[0] for i in range(len(tokens) + 1)])


def select(logits, inputs: StepInput, k: int):
    """Return the scores and ids [n, B, k] of the best tokens of logits [n, B, V], as every step does."""
    logp = log_softmax(logits / np.asarray(inputs.temperature, np.float64)[:, None, None])
    logp = np.where(np.isnan(logp), -np.inf, logp)
    logp[:, :, UNK] -= np.asarray(inputs.unk_penalty, np.float64)[:, None]
    logp[:, :, EOS] -= np.asarray(inputs.eos_penalty, np.float64)[:, None]
    ids = np.arange(logp.shape[-1])
    forced = np.asarray(inputs.forced)[:, :, None]
    banned = (np.asarray(inputs.banned)[:, :, :, None] == ids).any(2) | (ids == PAD)
    logp = np.where(np.where(forced >= 0, ids != forced, banned), -np.inf, logp).astype(np.float32)
    order = np.argsort(-logp, axis=-1, kind="stable")[:, :, :k]
    return np.take_along_axis(logp, order, -1), order


@dataclass(frozen=True)
class FakeEncoded:
    memories: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.memories)

    def ready(self) -> bool:
        return True


class FakeExecutor:
    """Implements engine.search.executor.Executor over a FakeModel, for numpy or torch searches."""

    pad, eos, start = PAD, EOS, EOS

    def __init__(self, model: FakeModel, slots=4, beams=4, target=14, source=12, namespace=None):
        self.model, self.slots, self.beams = model, slots, beams
        self.limits = Limits(beams=beams, source=source, target=target, vocab=model.vocab)
        self.namespace, self.device = namespace or array_api_compat.numpy, "cpu"
        self.memories: list[np.ndarray | None] = [None] * slots
        self.state = np.full((slots, beams, KERNEL - 1, model.dim), np.nan)

    def encode(self, sources: Sequence[Sequence[int]]) -> FakeEncoded:
        return FakeEncoded([self.model.memory(s) for s in sources])

    def is_device_lost(self, error: BaseException) -> bool:
        return is_device_lost(error)

    def place(self, encoded: FakeEncoded, i: int, slot: int, prefix: Sequence[int] = ()) -> None:
        self.memories[slot] = encoded.memories[i]
        self.state[slot] = 0.0

    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK:
        parents, tokens = np.asarray(inputs.parents), np.asarray(inputs.tokens)
        state = np.take_along_axis(self.state[:n], parents[:, :, None, None], axis=1)
        new = self.model.embed[tokens] + self.model.position(np.asarray(inputs.positions))
        window = np.concatenate([state, new[:, :, None]], axis=2)
        self.state[:n] = window[:, :, 1:]
        query = (window * self.model.kernel).sum(2)  # [n, B, dim]
        longest = max(len(m) for m in self.memories[:n])
        weights = np.zeros((n, self.beams, longest), np.float32)
        logits = np.empty((n, self.beams, self.model.vocab))
        for slot in range(n):
            memory = self.memories[slot]
            exact = self.model.attend(query[slot], memory)
            weights[slot, :, : len(memory)] = exact
            logits[slot] = self.model.logits(query[slot], exact, memory)
        scores, ids = select(logits, inputs, min(inputs.k, self.model.vocab))
        xp = self.namespace
        return TopK(xp.asarray(scores), xp.asarray(ids), xp.asarray(weights) if attention else None)

    def move(self, source: int, target: int) -> None:
        self.memories[target] = self.memories[source]
        self.state[target] = self.state[source]
        self.state[source] = math.nan  # a read of a freed slot then shows

    def stepper(self) -> PlainStepper:
        return PlainStepper(self)
