"""Configuration of adaptive softmax and adaptive input for language models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.bundle.stacks import StackConfig


@dataclass(frozen=True, slots=True)
class Bands:
    """A vocabulary sorted by frequency, cut into bands; each is `factor` times narrower than the one before.

    cutoffs: first id of each band after the first.
    factor: ratio of the widths of two neighbouring bands.
    """

    cutoffs: tuple[int, ...]
    factor: float = 4.0

    def ranges(self, vocab: int) -> list[tuple[int, int]]:
        """Return the first id of each band, and the first id after the band."""
        edges = (0, *self.cutoffs, vocab)
        return list(zip(edges, edges[1:], strict=False))

    def width(self, dim: int, band: int) -> int:
        """Return the width of a band's rows if the first band has width `dim`."""
        return int(dim // self.factor**band)

    def problems(self, vocab: int, dim: int) -> Iterator[str]:
        """Yield the errors of the bands of a vocabulary with a first band of width `dim`."""
        edges = (0, *self.cutoffs, vocab)
        if len(edges) < 3 or any(a >= b for a, b in zip(edges, edges[1:], strict=False)):
            yield f"cutoffs {self.cutoffs} must be ascending ids between 1 and {vocab - 1}, and at least one"
        elif not 0 < self.factor < float("inf") or self.width(dim, len(self.cutoffs)) < 1:
            yield f"factor {self.factor} gives the last band width 0; use a smaller one"


@dataclass(frozen=True, slots=True)
class AdaptiveConfig:
    """Adaptive softmax (Grave et al. 2017) and adaptive input (Baevski and Auli 2019); docs/reference.md 3.

    softmax, input: bands of the softmax and of the input; None: an ordinary table.
    tie_weights: softmax and input share the rows of each token.
    tie_projections: softmax and input share the projections of the bands after the first.
    """

    softmax: Bands | None = None
    input: Bands | None = None
    tie_weights: bool = False
    tie_projections: bool = False

    def problems(self, vocab: int, stack: StackConfig) -> Iterator[str]:
        """Yield the errors of these settings.

        vocab: size of the vocabulary.
        stack: configuration of the decoder.
        """
        for name, bands, dim in (
            ("softmax", self.softmax, stack.feature_dim),
            ("input", self.input, stack.token_dim),
        ):
            if bands is not None:
                yield from (f"adaptive {name}: {problem}" for problem in bands.problems(vocab, dim))
        if self.softmax is self.input is None:
            yield "adaptive needs bands for softmax or input"
        if self.tie_weights and (self.softmax is None or self.softmax != self.input):
            yield "tie_weights needs the same bands for input and softmax"
        if self.tie_weights and not stack.token_dim == stack.embed_dim == stack.feature_dim:
            yield "tie_weights needs input_dim == embed_dim == output_dim"
        if self.tie_projections and not self.tie_weights:
            yield "tie_projections needs tie_weights"
