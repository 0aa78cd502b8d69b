"""Random decoding jobs over every option, and the comparison with the oracle."""

from functools import cache

import numpy as np

from engine.types import DecodeOptions
from tests.support.fake import EOS
from tests.support.oracle import oracle


def options(g: np.random.Generator, vocab: int, beams: int = 8, longest: int = 12) -> DecodeOptions:
    """Return random options, each set often enough to be combined with every other."""

    def maybe(chance, value, default):
        return value if g.random() < chance else default

    beam = int(g.integers(1, min(beams, vocab - 2) + 1))
    kind = g.choice(["beam", "beam", "sampling", "diverse"])
    divisors = [d for d in range(2, beam + 1) if beam % d == 0]
    plain = kind == "beam" or (kind == "diverse" and not divisors)
    limit = int(g.integers(2, longest + 1))
    limited = g.choice([0, *range(3, vocab)], size=int(g.integers(1, 4)), replace=False)
    forced = maybe(0.3, int(g.integers(1, limit)), 0)
    return DecodeOptions(
        beam_size=beam,
        n_best=int(g.integers(1, beam + 1)),
        length_penalty=float(g.choice([0.0, 0.6, 1.0, 1.4, -0.5])),
        normalize_scores=bool(g.random() < 0.8),
        length_normalization=str(g.choice(["power", "power", "wu"])),
        word_reward=maybe(0.3, float(g.uniform(-1, 1)), 0.0) if plain else 0.0,
        coverage_penalty=maybe(0.3, float(g.uniform(0, 0.5)), 0.0),
        stepwise_penalty=bool(plain and g.random() < 0.5),
        min_length=int(g.integers(0, limit)),
        min_length_a=maybe(0.2, 0.3, 0.0),
        max_length=maybe(0.7, limit, None),
        max_length_a=maybe(0.3, 0.7, 0.0),
        max_length_b=int(g.integers(2, longest + 1)),
        no_repeat_ngram_size=maybe(0.4, int(g.integers(1, 5)), 0),
        quotas=maybe(0.3, tuple((int(t), int(g.integers(0, 3))) for t in limited), ()),
        unk_penalty=float(g.choice([0.0, 0.0, 3.0, -2.0, np.inf])),
        temperature=float(g.choice([1.0, 1.0, 0.6, 1.7])),
        prefix=tuple(int(t) for t in g.choice([0, *range(4, vocab)], size=forced)),
        free_prefix=int(g.integers(0, forced + 1)),
        sampling=bool(kind == "sampling"),
        top_k=maybe(0.4, int(g.integers(1, 9)), 0),
        top_p=maybe(0.4, float(g.uniform(0.2, 0.99)), 1.0),
        seed=int(g.integers(0, 2**63 - 1)),
        diverse_groups=int(g.choice(divisors)) if kind == "diverse" and divisors else 1,
        diverse_strength=float(g.choice([0.0, 0.5, 2.0])),
        diverse_discount=float(g.choice([0.0, 0.5, 1.0])),
        alignment=bool(g.random() < 0.2),
    )


def source(g: np.random.Generator, vocab: int, longest: int = 11) -> list[int]:
    return [*g.integers(3, vocab, size=g.integers(0, longest)).tolist(), EOS]


def random_jobs(seed: int, count: int, vocab: int, beams: int) -> list[tuple[list[int], DecodeOptions]]:
    """Return random sources, each with random options."""
    g = np.random.default_rng(seed)
    return [(source(g, vocab), options(g, vocab, beams)) for _ in range(count)]


def expect(model, source, options, limit):
    @cache
    def attention(prefix):
        return model.attention(source, prefix)

    return oracle(model.logprobs(source), options, len(source), limit, attention=attention)


def same(found, wanted, model, source):
    """Raise unless a Result's hypotheses equal the oracle's: tokens exactly, scores within 1e-4."""
    assert [h.tokens for h in found] == [w.tokens for w in wanted]
    assert [h.finish for h in found] == [w.finish for w in wanted]
    for h, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(h.score, w.score, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(h.token_scores, w.token_scores, rtol=1e-4, atol=1e-5)
        if h.attention is not None:
            np.testing.assert_allclose(h.attention, model.attention(source, h.tokens), atol=1e-5)
