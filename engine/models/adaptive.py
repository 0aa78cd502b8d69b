"""Adaptive softmax and adaptive input: wide rows for frequent tokens, narrow ones for rare tokens.

Grave et al. 2017 and Baevski and Auli 2019, as fairseq computes them (docs/reference.md 3); parameter
names are fairseq's. Ids are sorted by frequency and divided into bands (`engine.bundle.adaptive.Bands`).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.bundle.adaptive import Bands


class Rows(nn.Module):
    """The table [size, width] of one band.

    pad: row that is initialised to zeros, or None.
    """

    def __init__(self, size: int, width: int, pad: int | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, width))
        self.pad = pad

    def initialise(self) -> None:
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5)
        if self.pad is not None:
            with torch.no_grad():
                self.weight[self.pad].zero_()


class AdaptiveInput(nn.Module):
    """Token embeddings of each band, projected to one width."""

    def __init__(self, bands: Bands, vocab: int, widths: tuple[int, int], pad: int) -> None:
        """bands: bands of the vocabulary.
        vocab: size of the vocabulary.
        widths: width of the rows of the first band, and width of the output.
        pad: id of padding.
        """
        super().__init__()
        first, width = widths
        self.edges = bands.ranges(vocab)
        parts = []
        for band, (begin, end) in enumerate(self.edges):
            narrow = bands.width(first, band)
            rows = Rows(end - begin, narrow, pad if begin == 0 and pad < end else None)
            parts.append(nn.Sequential(rows, nn.Linear(narrow, width, bias=False)))
        self.embeddings = nn.ModuleList(parts)

    def rows(self, band: int) -> Any:
        """Return the table [size, narrow] of a band, a parameter."""
        return self.embeddings[band][0].weight  # type: ignore[index]

    def projection(self, band: int) -> Any:
        """Return the projection [width, narrow] of a band, a parameter."""
        return self.embeddings[band][1].weight  # type: ignore[index]

    def forward(self, tokens: Tensor) -> Tensor:
        """Return embeddings [..., width] of tokens, int [...].

        Each band embeds all tokens and the result of the right band is selected, so that no shape depends on
        values.
        """
        embedded: Tensor | None = None
        for band, (begin, end) in enumerate(self.edges):
            # a token of another band reads some valid row, and its embedding is not selected
            local = (tokens - begin).clamp(min=0).clamp_max(end - begin - 1)
            x = F.linear(F.embedding(local, self.rows(band)), self.projection(band))
            embedded = x if embedded is None else torch.where((tokens >= begin)[..., None], x, embedded)
        assert embedded is not None
        return embedded


class TiedLinear(nn.Module):
    """A linear layer that shares a weight with the adaptive input."""

    def __init__(self, weight: nn.Parameter, *, transposed: bool = False) -> None:
        super().__init__()
        self.weight, self.transposed = weight, transposed

    def forward(self, x: Tensor) -> Tensor:
        return torch.matmul(x, self.weight) if self.transposed else F.linear(x, self.weight)


class TiedHead(nn.Module):
    """Logits of the tokens of the first band, from their embeddings, and one logit for each further band."""

    def __init__(self, rows: nn.Parameter, dim: int, bands: int) -> None:
        super().__init__()
        self.word_proj = TiedLinear(rows)
        self.class_proj = nn.Linear(dim, bands, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.word_proj(x), self.class_proj(x)], -1)


class AdaptiveSoftmax(nn.Module):
    """Log-probabilities of the whole vocabulary: a head for the tokens of the first band and one class for
    each further band, and a tail for the tokens of each further band."""

    def __init__(
        self,
        bands: Bands,
        vocab: int,
        dim: int,
        tied: AdaptiveInput | None = None,
        *,
        tie_projections: bool = False,
    ) -> None:
        """bands: bands of the vocabulary.
        vocab: size of the vocabulary.
        dim: width of the features.
        tied: adaptive input that shares its rows, or None.
        tie_projections: share the transposed projections of `tied` too.
        """
        super().__init__()
        self.edges = bands.ranges(vocab)
        # the first band begins at id 0, so its end is its number of tokens
        (_, self.first), *rest = self.edges
        self.head: nn.Module
        if tied is None:
            self.head = nn.Linear(dim, self.first + len(rest), bias=False)
        else:
            self.head = TiedHead(tied.rows(0), dim, len(rest))
        self.tail = nn.ModuleList()
        for band, (begin, end) in enumerate(rest, 1):
            width = bands.width(dim, band)
            inner: nn.Module = nn.Linear(dim, width, bias=False)
            if tied is not None and tie_projections:
                inner = TiedLinear(tied.projection(band), transposed=True)
            outer = nn.Linear(width, end - begin, bias=False) if tied is None else TiedLinear(tied.rows(band))
            self.tail.append(nn.Sequential(inner, nn.Identity(), outer))  # fairseq has a dropout between

    def forward(self, features: Tensor) -> Tensor:
        """Compute log-probabilities [..., vocab] of features [..., dim]."""
        head = F.log_softmax(self.head(features), dim=-1)
        parts = [head[..., : self.first]]
        for band, tail in enumerate(self.tail):
            prior = head[..., self.first + band : self.first + band + 1]
            parts.append(F.log_softmax(tail(features), dim=-1) + prior)
        return torch.cat(parts, -1)
