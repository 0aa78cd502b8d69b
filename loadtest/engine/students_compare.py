"""Convoy beside fxtranslate (Firefox's engine as a Python package) on one and the same student file.

Students of the sizes of Firefox's models with random int8 weights, alphas and a lexical shortlist, written as
Marian's .bin. Both engines read the same text and write as many tokens: answers run into the limit of
length, fxtranslate's own. Runs alternate; what counts is the ratio, on one core:

    taskset -c 1 python loadtest/engine/students_compare.py --size tiny

`alone`: one sentence after another. `in flight`: 32 at once here, one after another there, for fxtranslate
takes one at a time. `--isa avx2` holds our operators to AVX2 (fxtranslate's name of its own instructions is
printed).

Needs fxtranslate from PyPI and the extra `torch`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import yaml
from numpy.typing import NDArray

PIECES = 4_000  # of the SentencePiece model; the shortlist names no other token
VOCABULARY = 32_000
FIRST, BEST = 50, 50  # of the shortlist
ALPHA = 127 / 8
QUANTISED = 63  # the largest weight: beyond, products of AVX2 in pairs of 16 bits saturate there
WORDS = 12  # pieces of a sentence


@dataclass(frozen=True, slots=True)
class StudentSize:
    """Widths of a student, and its layers of encoder and decoder."""

    dim: int
    ffn: int
    decoder: int
    encoder: int = 6
    heads: int = 8


STUDENT_SIZES = {
    "tiny": StudentSize(256, 1536, 2),
    "base-memory": StudentSize(384, 1536, 4),
    "base": StudentSize(512, 2048, 2),
}
Translate = Callable[[Sequence[str]], list[str]]


def write_student(folder: Path, size: StudentSize, lines: Sequence[str], seed: int = 1) -> None:
    """Write model, shortlist and vocabulary under the names that Firefox's have.

    folder: where the files go; it is there.
    size: layers and widths of the network.
    lines: text that the vocabulary is learnt from.
    seed: of the random weights.
    """
    g = np.random.default_rng(seed)
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

    whole("Wemb", (VOCABULARY, size.dim), 0.3 * size.dim**-0.5)
    floats("none_QuantMultA", np.array([[ALPHA]]))
    bias = g.normal(0, 0.1, (1, VOCABULARY))
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
    options = yaml.safe_dump(_options(size)).encode() + b"\0"
    items.append(("special:model.yml", 0x0101, (len(options),), options))
    (folder / "model.deen.intgemm.alphas.bin").write_bytes(_binary(items))
    (folder / "vocab.deen.spm").write_bytes(_pieces(lines))
    (folder / "lex.50.50.deen.s2t.bin").write_bytes(_shortlist(g))


def _options(size: StudentSize) -> dict[str, Any]:
    return {
        "type": "transformer",
        "dec-cell": "ssru",
        "transformer-decoder-autoreg": "rnn",
        "dim-emb": size.dim,
        "dim-vocabs": [VOCABULARY, VOCABULARY],
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


def _shortlist(g: np.random.Generator) -> bytes:
    ids = np.sort(g.integers(FIRST, PIECES, (PIECES, BEST)), axis=1).astype("<u4")
    offsets = np.arange(PIECES + 1, dtype="<u8") * BEST
    body = struct.pack("<4Q", FIRST, BEST, len(offsets), ids.size) + offsets.tobytes() + ids.tobytes()
    checksum, most = 0, (1 << 64) - 1
    for (word,) in struct.iter_unpack("<Q", body[: len(body) // 8 * 8]):
        checksum ^= (word + 0x9E3779B9 + ((checksum << 6) & most) + (checksum >> 2)) & most
    return struct.pack("<QQ", 0xF11A48D5013417F5, checksum) + body


def _pieces(lines: Sequence[str]) -> bytes:
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=out,
        vocab_size=PIECES,
        model_type="unigram",
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


def sentences(folder: Path, lines: Sequence[str], count: int) -> list[str]:
    """Make texts of exactly WORDS pieces, end-of-sentence apart.

    folder: of the vocabulary.
    lines: what texts are cut from.
    count: of texts.
    """
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "vocab.deen.spm"))
    texts = []
    for i in range(0, len(lines) - 4, 4):
        text = processor.decode(processor.encode(" ".join(lines[i : i + 4]))[:WORDS])
        if len(processor.encode(text)) == WORDS:
            texts.append(text)
        if len(texts) == count:
            return texts
    raise SystemExit(f"only {len(texts)} lines of {WORDS} pieces")


def convoy(folder: Path, kernels: str, precision: str, slots: int, length: int | None) -> Translate:
    """Make our lane with its text side; `slots` in flight.

    folder: of the student and its bundle.
    kernels: a backend.
    precision: int8 or fp32.
    slots: sentences in flight.
    length: of answers, else their limit.
    """
    from engine.backends import LaneSize, Placement
    from engine.bundle.bundle import open_bundle
    from engine.executors import open_executors
    from engine.schedule.lane import Lane
    from engine.text.tokenizers.tokenizer import open_tokenizer
    from engine.types import Request

    bundle = open_bundle(folder / "bundle", verify=False)
    placement = Placement(kernels, precision=precision, threads=1, lanes=(LaneSize(1, slots),))
    (executor,) = open_executors(bundle, placement)
    tokenizer, options = open_tokenizer(bundle), bundle.options
    # fxtranslate writes up to twice the source and four more
    a, b = (2.0, 4) if length is None else (0.0, length)
    options = replace(options, max_length_a=a, max_length_b=b)
    lane = Lane(executor, lambda request, outcome: request.reply(outcome))

    def translate(texts: Sequence[str]) -> list[str]:
        answers: dict[int, str] = {}

        def request(i: int, text: str) -> Request:
            def reply(outcome: Any) -> None:
                answers[i] = tokenizer.decode(outcome.hypotheses[0].tokens)

            return Request([*tokenizer.encode(text), bundle.config.eos], options, reply)

        lane.drain([request(i, text) for i, text in enumerate(texts)])
        return [answers[i] for i in range(len(texts))]

    return translate


def fxtranslate(folder: Path) -> tuple[Translate, str]:
    """Make the peer; return it, and the instructions that it found."""
    from fxtranslate import Translator

    files = [(folder / name).read_bytes() for name in ("model.deen.intgemm.alphas.bin", "vocab.deen.spm")]
    lexicon = (folder / "lex.50.50.deen.s2t.bin").read_bytes()
    engine = Translator(files[0], files[1], files[1], lexicon)
    return (lambda texts: [engine.translate(text) for text in texts]), str(engine.backend())


def measure(translate: Translate, texts: Sequence[str], *, alone: bool) -> float:
    """Measure the processor's seconds a sentence: the median of each on its own, or the mean of all together.

    translate: one of the two engines.
    texts: its work.
    alone: whether each text is a call of its own.

    Not the clock's: on a shared machine that also counts what others do.
    """
    if not alone:
        began = time.process_time()
        translate(texts)
        return (time.process_time() - began) / len(texts)
    seconds = []
    for text in texts:
        began = time.process_time()
        translate([text])
        seconds.append(time.process_time() - began)
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=sorted(STUDENT_SIZES), default="tiny")
    parser.add_argument("--runs", type=int, default=5, help="of each engine, by turns")
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--kernels", choices=("onnx-native", "onnx-pure"), default="onnx-native")
    parser.add_argument("--precision", choices=("int8", "fp32"), default="int8")
    parser.add_argument("--isa", help="of our operators: avx512vnni, avx2 or baseline; else the best")
    parser.add_argument(
        "--length", type=int, help="tokens of our answers, and no peer: for other engines' figures"
    )
    parser.add_argument("--words", type=int, default=WORDS, help="pieces of a sentence")
    parser.add_argument("--folder", type=Path, help="keep the student here, and use the one that is there")
    options = parser.parse_args()
    globals()["WORDS"] = options.words
    if options.isa:
        os.environ["CONVOY_KERNELS_ISA"] = options.isa
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        print(json.dumps(compare(options, folder), indent=2))


def compare(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure the milliseconds a sentence of both, and their ratios."""
    from export.graphs.onnx import add_graphs
    from export.importers import convert

    folder.mkdir(parents=True, exist_ok=True)
    lines = corpus(20_000)
    if not (folder / "bundle").exists():
        write_student(folder, STUDENT_SIZES[options.size], lines)
        add_graphs(convert("bergamot", folder, folder / "bundle"))
    texts = sentences(folder, lines, options.sentences)
    ours = {n: convoy(folder, options.kernels, options.precision, n, options.length) for n in (1, 32)}
    theirs, instructions = fxtranslate(folder)
    results: dict[str, list[float]] = {"alone": [], "in flight": [], "fxtranslate": []}
    for translate in (*ours.values(), theirs):
        translate(texts[:8])
    for _ in range(options.runs):
        results["alone"].append(measure(ours[1], texts, alone=True))
        if options.length is None:
            results["fxtranslate"].append(measure(theirs, texts, alone=True))
        results["in flight"].append(measure(ours[32], texts, alone=False))
    medians = {name: 1000 * statistics.median(values) for name, values in results.items() if values}
    report: dict[str, Any] = {"size": options.size, "pieces": options.words, "ms a sentence": medians}
    if options.length is None:
        same = sum(a == b for a, b in zip(ours[1](texts), theirs(texts), strict=True))
        ratio = medians["fxtranslate"]
        report |= {
            "instructions of fxtranslate": instructions,
            "answers that are the same": f"{same} of {len(texts)}",
            "ratios": {name: ratio / medians[name] for name in ("alone", "in flight")},
        }
    return report


if __name__ == "__main__":
    main()
