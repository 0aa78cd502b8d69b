"""Write student models of random weights as Firefox ships them: Marian's .bin, shortlist and vocabulary."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import yaml
from numpy.typing import NDArray

VOCABULARY = 128  # tokens of a model with one vocabulary
WITH_BYTES = 448  # tokens of each of two vocabularies, 256 of them bytes
FIRST, BEST = 50, 50  # tokens that the shortlist always holds, and tokens that it adds for a source token
ALPHA = 127 / 8
QUANTISED = 63  # largest int8 weight: beyond it AVX2's sums of two 16-bit products saturate


@dataclass(frozen=True, slots=True)
class StudentSize:
    """Widths of a student and its numbers of layers."""

    dim: int
    ffn: int
    decoder: int
    encoder: int = 6
    heads: int = 8


def write_student(
    folder: Path, size: StudentSize, lines: Sequence[str], seed: int = 1, target_lines: Sequence[str] = ()
) -> None:
    """Write model, shortlist and vocabulary under the file names that Firefox uses.

    folder: existing folder for the files.
    size: layers and widths of the network.
    lines: text that the vocabulary is learnt from.
    seed: seed of the random weights.
    target_lines: text for a vocabulary of the target; empty: the two sides share one. Two vocabularies have
        pieces for bytes and share a table of embeddings, as in Firefox's base model from English to Chinese.
    """
    g = np.random.default_rng(seed)
    vocabulary = WITH_BYTES if target_lines else VOCABULARY
    items: list[tuple[str, int, tuple[int, ...], bytes]] = []

    def floats(name: str, array: NDArray[Any]) -> None:
        items.append((name, 0x0404, array.shape, array.astype("<f4").tobytes()))

    def whole(name: str, shape: tuple[int, int], spread: float) -> None:
        weight = g.normal(0, spread, shape)
        multiplier = QUANTISED / np.abs(weight).max()
        stored = np.rint(weight * multiplier).astype(np.int8)
        data = (stored if name == "Wemb" else stored.T).tobytes() + struct.pack("<f", multiplier)
        items.append((name, 0x4101, shape, data + bytes(-len(data) % 256)))
        floats(f"{name}_QuantMultA", np.array([[ALPHA]]))

    def dense(prefix: str, suffix: str, inner: int, outer: int, *, biased: bool = True) -> None:
        whole(f"{prefix}_W{suffix}", (inner, outer), inner**-0.5)
        if biased:
            floats(f"{prefix}_b{suffix}", g.normal(0, 0.1, (1, outer)))

    def norm(prefix: str) -> None:
        floats(f"{prefix}_ln_scale", g.normal(1, 0.1, (1, size.dim)))
        floats(f"{prefix}_ln_bias", g.normal(0, 0.1, (1, size.dim)))

    whole("Wemb", (vocabulary, size.dim), 0.3 * size.dim**-0.5)
    floats("none_QuantMultA", np.array([[ALPHA]]))
    bias = g.normal(0, 0.1, (1, vocabulary))
    bias[0, 0] = -100.0  # no answer ends by itself
    floats("decoder_ff_logit_out_b", bias)
    for side, layers, attention in (("encoder", size.encoder, "self"), ("decoder", size.decoder, "context")):
        for i in range(1, layers + 1):
            here = f"{side}_l{i}"
            for letter in "qkvo":
                dense(f"{here}_{attention}", letter, size.dim, size.dim)
            norm(f"{here}_{attention}_Wo")
            dense(f"{here}_ffn", "1", size.dim, size.ffn)
            dense(f"{here}_ffn", "2", size.ffn, size.dim)
            norm(f"{here}_ffn_ffn")
            if side == "decoder":
                dense(f"{here}_rnn", "", size.dim, size.dim, biased=False)
                dense(f"{here}_rnn", "f", size.dim, size.dim)
                norm(f"{here}_rnn_ffn")
    options = yaml.safe_dump(_options(size, vocabulary)).encode() + b"\0"
    items.append(("special:model.yml", 0x0101, (len(options),), options))
    (folder / "model.deen.intgemm.alphas.bin").write_bytes(_binary(items))
    vocabularies = {"srcvocab": lines, "trgvocab": target_lines} if target_lines else {"vocab": lines}
    for kind, texts in vocabularies.items():
        (folder / f"{kind}.deen.spm").write_bytes(_pieces(texts, vocabulary))
    (folder / "lex.50.50.deen.s2t.bin").write_bytes(_shortlist(g, vocabulary))


def _options(size: StudentSize, vocabulary: int) -> dict[str, Any]:
    return {
        "type": "transformer",
        "dec-cell": "ssru",
        "transformer-decoder-autoreg": "rnn",
        "dim-emb": size.dim,
        "dim-vocabs": [vocabulary, vocabulary],
        "enc-depth": size.encoder,
        "dec-depth": size.decoder,
        "transformer-dim-ffn": size.ffn,
        "transformer-heads": size.heads,
        "transformer-ffn-activation": "relu",
        "transformer-preprocess": "",
        "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "d",
        "tied-embeddings-all": True,
    }


def _binary(items: list[tuple[str, int, tuple[int, ...], bytes]]) -> bytes:
    out = struct.pack("<QQ", 1, len(items))
    out += b"".join(struct.pack("<4Q", len(n) + 1, t, len(s), len(d)) for n, t, s, d in items)
    out += b"".join(name.encode() + b"\0" for name, *_ in items)
    out += b"".join(struct.pack(f"<{len(s)}i", *s) for _, _, s, _ in items)
    gap = ((len(out) + 8) // 256 + 1) * 256 - len(out) - 8
    return out + struct.pack("<Q", gap) + bytes(gap) + b"".join(data for *_, data in items)


def _shortlist(g: np.random.Generator, vocabulary: int) -> bytes:
    ids = np.sort(g.integers(FIRST, vocabulary, (vocabulary, BEST)), axis=1).astype("<u4")
    offsets = np.arange(vocabulary + 1, dtype="<u8") * BEST
    body = struct.pack("<4Q", FIRST, BEST, len(offsets), ids.size) + offsets.tobytes() + ids.tobytes()
    checksum, most = 0, (1 << 64) - 1
    for (word,) in struct.iter_unpack("<Q", body[: len(body) // 8 * 8]):
        checksum ^= (word + 0x9E3779B9 + ((checksum << 6) & most) + (checksum >> 2)) & most
    return struct.pack("<QQ", 0xF11A48D5013417F5, checksum) + body


def _pieces(lines: Sequence[str], vocabulary: int) -> bytes:
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=out,
        vocab_size=vocabulary,
        model_type="unigram",
        byte_fallback=vocabulary == WITH_BYTES,
        eos_id=0,
        unk_id=1,
        bos_id=-1,
        pad_id=-1,
        minloglevel=2,
    )
    return out.getvalue()


def corpus(count: int) -> list[str]:
    """Make lines of invented words, some far more frequent than others."""
    g = np.random.default_rng(2)
    letters = np.array(list("aeioubdfgklmnprstvz"))
    words = ["".join(g.choice(letters, g.integers(2, 9))) for _ in range(6_000)]
    ranks = 1 / np.arange(1, len(words) + 1)
    return [" ".join(g.choice(words, 9, p=ranks / ranks.sum())) for _ in range(count)]


def han_corpus(count: int) -> list[str]:
    """Make lines of Han characters without spaces, some far more frequent than others."""
    g = np.random.default_rng(3)
    characters = np.array([chr(code) for code in range(0x4E00, 0x4E00 + 100)])
    shares = 1 / np.arange(1, len(characters) + 1)
    return ["".join(g.choice(characters, 12, p=shares / shares.sum())) + "。" for _ in range(count)]
