"""Selection of the best tokens as functions of torch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from engine.kernels.launches import WARP, Call, Kernel, ceil_div, load_form
from engine.kernels.products import Products

# as in select.cu and ranked.cuh
SELECT_ROOM: Final = 1024
SELECT_COLUMNS: Final = 256  # threads that select in a row
MAX_BLOCK_THREADS: Final = 1024
MAX_RANKED: Final = 512  # candidates of all parts of a row
MAX_VOCAB_PARTS: Final = WARP  # parts of a vocabulary
MAX_MERGED_BYTES: Final = 48 * 1024  # shared memory of `end_step` for merging parts


class PartialSelection(NamedTuple):
    """Candidates of each part of the vocabulary, before they are merged into one list for each row.

    scores: float32 [rows, parts, k], logits after penalties in descending order, padded with -inf.
    ids: int64 [rows, parts, k].
    normalisers: float32 [rows, parts, 2], maximum of the logits of a part and sum of their exponentials.
    logits: [slots, beams, vocab].
    forced: int64 [slots, beams], the only possible token of each row, or -1.
    penalties: float32 [slots], of the unknown token and of end-of-sentence.
    unk: id of the unknown token, or -1.
    eos: id of end-of-sentence.
    """

    scores: Tensor
    ids: Tensor
    normalisers: Tensor
    logits: Tensor
    forced: Tensor
    penalties: tuple[Tensor, Tensor]
    unk: int
    eos: int


def merged_bytes(beams: int, parts: int, k: int) -> int:
    """Return the bytes of the candidates of a slot and of the merged list.

    beams: number of beams of the slot.
    parts: number of parts of the vocabulary.
    k: number of candidates of each part of a row.
    """
    return beams * k * (8 * parts + 12)


class Selection(Products):
    """Kernels that select the best tokens of each row from logits."""

    def select(
        self, logits: Tensor, rules: Sequence[Tensor], unk: int | None, eos: int, k: int
    ) -> tuple[Tensor, Tensor]:
        """Compute `engine.models.select` from logits instead of log-probabilities.

        logits: [slots, beams, vocab].
        rules: `SelectionRules` with float32 penalties.
        unk: id of the unknown token, or None.
        eos: id of end-of-sentence.
        k: number of candidates of each row.

        Returns scores in float32, and ids, which are 0 if the score is -inf.
        """
        partial = self.scan(logits, rules, unk, eos, k)
        return self.merge(partial) if isinstance(partial, PartialSelection) else partial

    def scan(
        self, logits: Tensor, rules: Sequence[Tensor], unk: int | None, eos: int, k: int
    ) -> tuple[Tensor, Tensor] | PartialSelection:
        """Compute `select`, or, for few rows, a partial selection that the kernel `end_step` completes.

        logits, rules, unk, eos, k: arguments of `select`.
        """
        forced, banned, *penalties = rules
        slots, beams, vocab = logits.shape
        threads = max(SELECT_COLUMNS, ceil_div(k, WARP) * WARP)
        if threads > MAX_BLOCK_THREADS:
            raise ValueError(f"{k} candidates of a row; the kernel selects at most {MAX_BLOCK_THREADS}")
        kernel, rows = Kernel("select.cu", "select_best", *load_form(vocab, logits)), slots * beams
        # enough parts of a row to occupy all multiprocessors
        parts = max(
            1, min(MAX_VOCAB_PARTS, MAX_RANKED // k, self.processors // rows, vocab // SELECT_COLUMNS)
        )
        shared = 8 * (threads + SELECT_ROOM) + 4 * k + 4 * ceil_div(vocab, 32)
        shape = (slots, beams, k) if parts == 1 else (rows, parts, k)
        scores = logits.new_empty(shape, dtype=torch.float32)
        ids = torch.empty_like(scores, dtype=torch.int64)
        normalisers = None if parts == 1 else logits.new_empty((rows, parts, 2), dtype=torch.float32)
        unknown = -1 if unk is None else unk
        scalars = beams, vocab, banned.shape[2], unknown, eos, k
        arguments = logits, forced, banned, *penalties, *scalars, scores, ids, normalisers
        self.run(Call(kernel, (rows, parts, 1), (threads, 1, 1), shared, arguments))
        if normalisers is None:
            return scores, ids
        partial = PartialSelection(
            scores, ids, normalisers, logits, forced, (penalties[0], penalties[1]), unknown, eos
        )
        return partial if merged_bytes(beams, parts, k) <= MAX_MERGED_BYTES else self.merge(partial)

    def merge(self, partial: PartialSelection) -> tuple[Tensor, Tensor]:
        """Merge the parts of a partial selection into the result of `select`."""
        (rows, parts, k), (slots, beams, vocab) = partial.scores.shape, partial.logits.shape
        scores = partial.scores.new_empty((slots, beams, k))
        ids = torch.empty_like(scores, dtype=torch.int64)
        kernel = Kernel("select.cu", "merge_best", *load_form(vocab, partial.logits))
        lists = partial.scores, partial.ids, partial.normalisers
        scalars = beams, vocab, partial.unk, partial.eos, k, parts
        arguments = partial.logits, partial.forced, *partial.penalties, *lists, *scalars, scores, ids
        self.run(Call(kernel, (rows, 1, 1), (SELECT_COLUMNS, 1, 1), 8 * parts * k, arguments))
        return scores, ids
