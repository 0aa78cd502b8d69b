"""Descriptions of adaptive softmax and adaptive input, of language models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.bundle.stacks import StackConfig


@dataclass(frozen=True, slots=True)
class Bands:
    """A vocabulary sorted by frequency, cut into bands; each is `factor` times narrower than the one before.

    cutoffs: the id at which each band after the first ranges.
    """

    cutoffs: tuple[int, ...]
    factor: float = 4.0

    def ranges(self, vocab: int) -> list[tuple[int, int]]:
        """List the first id of each band, and the one after its last."""
        edges = (0, *self.cutoffs, vocab)
        return list(zip(edges, edges[1:], strict=False))

    def width(self, dim: int, band: int) -> int:
        """Compute the width of a band's rows, where those of the first are `dim` wide."""
        return int(dim // self.factor**band)

    def problems(self, vocab: int, dim: int) -> Iterator[str]:
        edges = (0, *self.cutoffs, vocab)
        if len(edges) < 3 or any(a >= b for a, b in zip(edges, edges[1:], strict=False)):
            yield f"cutoffs {self.cutoffs} must rise, between 0 and the {vocab} tokens, one at least"
        elif not 0 < self.factor < float("inf") or self.width(dim, len(self.cutoffs)) < 1:
            yield f"factor {self.factor} leaves the last band no width"


@dataclass(frozen=True, slots=True)
class AdaptiveConfig:
    """Adaptive softmax (Grave et al. 2017) and adaptive input (Baevski and Auli 2019); docs/reference.md 3.

    softmax, input: None is an ordinary table.
    tie_weights: the rows of a token are the same on both sides.
    tie_projections: so are the projections of the bands after the first.
    """

    softmax: Bands | None = None
    input: Bands | None = None
    tie_weights: bool = False
    tie_projections: bool = False

    def problems(self, vocab: int, stack: StackConfig) -> Iterator[str]:
        """Yield the faults of these settings.

        vocab: of both sides.
        stack: the decoder.
        """
        for name, bands, dim in (
            ("softmax", self.softmax, stack.feature_dim),
            ("input", self.input, stack.token_dim),
        ):
            if bands is not None:
                yield from (f"adaptive {name}: {problem}" for problem in bands.problems(vocab, dim))
        if self.softmax is self.input is None:
            yield "adaptive needs bands of softmax or input"
        if self.tie_weights and (self.softmax is None or self.softmax != self.input):
            yield "tie_weights needs the same bands for input and softmax"
        if self.tie_weights and not stack.token_dim == stack.embed_dim == stack.feature_dim:
            yield "tie_weights needs input_dim == embed_dim == output_dim"
        if self.tie_projections and not self.tie_weights:
            yield "tie_projections needs tie_weights"
