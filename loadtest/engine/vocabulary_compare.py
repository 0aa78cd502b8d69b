"""Convoy beside CTranslate2 with NLLB-200's vocabulary: 256,206 tokens, with and without a shortlist.

M2M-100's kind, 1024 wide, feed-forward 4096, with random weights, saved by `transformers` and converted by
either engine. Every sentence is translated to exactly as many tokens as it has. A run is the whole
translation: encoder, decoding steps and search. The shortlist is that of a target language with `--listed`
tokens. What counts are ratios; all share the machine.

    python -m loadtest.engine.vocabulary_compare --layers 12,12 --listed 10000

Needs ctranslate2, transformers and sentencepiece from PyPI, the extra `torch`, and room for the model four
times over in --folder.
"""

from __future__ import annotations

import argparse
import io
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.engine.cpu_compare import ENDINGS, Translate, Workload, compare, sources
from loadtest.engine.processor import processor

VOCABULARY = 256_206
LANGUAGES = ("eng_Latn", "deu_Latn")
DRAWN = 600  # the pieces that sources are drawn from: those that a small text yields


def make_folder(folder: Path, layers: tuple[int, int]) -> None:
    """Save a model and its tokenizer as Hugging Face has NLLB-200."""
    import sentencepiece
    import torch
    import transformers

    words = np.random.default_rng(1).choice(list("abdegiklmnoprstuv"), (20_000, 5))
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(" ".join(map("".join, words[i : i + 8])) for i in range(0, len(words), 8)),
        model_writer=model,
        vocab_size=DRAWN,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    folder.mkdir(parents=True)
    (folder / "sentencepiece.bpe.model").write_bytes(model.getvalue())
    tokenizer = transformers.NllbTokenizer(str(folder / "sentencepiece.bpe.model"))
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.M2M100Config(  # type: ignore[no-untyped-call]
        vocab_size=VOCABULARY,
        encoder_layers=layers[0],
        decoder_layers=layers[1],
        decoder_start_token_id=2,
        scale_embedding=True,
    )
    transformers.M2M100ForConditionalGeneration(config).save_pretrained(folder, max_shard_size="1GB")


def convoy(bundle: Path, listed: int) -> Translate:
    """Make our lane over a bundle.

    listed: tokens of the language's list; 0: no shortlist.
    """
    from engine.backends import LaneSize, Placement
    from engine.bundle.bundle import open_bundle
    from engine.executors import open_executors
    from engine.schedule.lane import Lane
    from engine.text.tokenizer import open_tokenizer
    from engine.types import Request, Result

    opened = open_bundle(bundle, verify=False)
    begin = open_tokenizer(opened).beginning
    lanes: dict[tuple[str, int, int], Lane] = {}

    def translate(work: Workload) -> float:
        key = (work.precision, work.threads, work.beam)
        if key not in lanes:
            lanes.clear()  # one model of this size at a time
            placement = Placement(
                "onnx", "cpu", work.precision, work.threads, (LaneSize(work.beam, 32),), listed > 0
            )
            (executor,) = open_executors(opened, placement)
            lanes[key] = Lane(executor, lambda request, out: request.reply(out))
        exact: dict[str, Any] = {
            "min_length": work.length,
            "max_length": work.length,
            "max_length_b": work.length,
        }
        options = replace(opened.options, beam_size=work.beam, prefix=begin, free_prefix=len(begin), **exact)
        answers: list[Any] = []
        batch = [[4, *source, opened.config.eos] for source in sources(work, DRAWN)]
        requests = [Request(source, options, answers.append) for source in batch]
        began = time.perf_counter()
        lanes[key].drain(requests)
        seconds = time.perf_counter() - began
        assert all(isinstance(a, Result) and len(a.hypotheses[0].tokens) == work.length for a in answers)
        return seconds

    return translate


def add_shortlist(bundle: Path, listed: int) -> None:
    """Add the list of a language: so many tokens, drawn at random."""
    from engine.bundle.bundle import add_files, open_bundle
    from engine.bundle.shortlist import SHORTLIST
    from engine.text.tokenizer import open_tokenizer
    from export.graphs.onnx import shortlisted_graphs
    from training.shortlist import LanguageToken, with_language

    opened = open_bundle(bundle, verify=False)
    (token,) = open_tokenizer(opened).beginning
    drawn = np.random.default_rng(3).choice(np.arange(4, VOCABULARY), listed, replace=False)
    lists = with_language(
        None, opened.config, np.sort(drawn).astype(np.int32), LanguageToken(token, by_source=False)
    )
    add_files(bundle, {SHORTLIST: lists.dump(), **shortlisted_graphs(opened.config)})


def ctranslate2(folder: Path, models: Path) -> Translate:
    """Make the peer, by its own converter."""
    import ctranslate2 as ct2
    import transformers

    words = transformers.AutoTokenizer.from_pretrained(folder)  # type: ignore[no-untyped-call]
    translators: dict[tuple[str, int], Any] = {}

    def translate(work: Workload) -> float:
        key = (work.precision, work.threads)
        if key not in translators:
            translators.clear()
            out, kind = models / work.precision, ENDINGS[work.precision]
            if not out.exists():
                ct2.converters.TransformersConverter(str(folder)).convert(str(out), quantization=kind)
            translators[key] = ct2.Translator(
                str(out), device="cpu", compute_type=kind, inter_threads=1, intra_threads=work.threads
            )
        batch = [
            [LANGUAGES[0], *words.convert_ids_to_tokens(source), "</s>"] for source in sources(work, DRAWN)
        ]
        # the language counts as a token of the answer, as it does in ours
        limits = {"min_decoding_length": work.length, "max_decoding_length": work.length}
        prefix = [[LANGUAGES[1]]] * len(batch)
        began = time.perf_counter()
        results = translators[key].translate_batch(
            batch, target_prefix=prefix, beam_size=work.beam, max_batch_size=0, **limits
        )
        seconds = time.perf_counter() - began
        assert all(len(f.hypotheses[0]) in (work.length, work.length + 1) for f in results)
        return seconds

    return translate


def row(work: Workload, timings: dict[str, list[float]]) -> str:
    """Return a line of the table: medians, what the shortlist is worth, and the peer's time by ours."""
    peer, whole, listed = (statistics.median(timings[name]) for name in ("ctranslate2", "whole", "listed"))
    each = [a / b for a, b in zip(timings["ctranslate2"], timings["listed"], strict=True)]
    cells = [work.precision, work.threads, work.beam, work.sentences]
    cells += [f"{s * 1e3:.0f}" for s in (peer, whole, listed)]
    cells += [f"{peer / whole:.2f}", f"{peer / listed:.2f}", f"{min(each):.2f}, {max(each):.2f}"]
    return "| " + " | ".join(map(str, cells)) + " |"


def _make_once(path: Path, make: Callable[[], Any]) -> Path:
    if not path.exists():
        make()
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="for the models; used again when there")
    parser.add_argument("--layers", default="12,12", help="of encoder and decoder")
    parser.add_argument("--listed", type=int, default=10_000)
    parser.add_argument("--threads", default="1", help="comma separated")
    parser.add_argument("--precisions", default="int8")
    parser.add_argument("--sentences", default="1,8")
    parser.add_argument("--beams", default="4,1")
    parser.add_argument("--length", type=int, default=25)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    layers = tuple(map(int, options.layers.split(",")))

    from export.graphs.onnx import add_graphs
    from export.importers.hf import convert
    from export.importers.hf_model import Overrides

    folder = _make_once(
        options.folder / "hf", lambda: make_folder(options.folder / "hf", (layers[0], layers[1]))
    )
    wish = Overrides(source="en", target="de", int8=True)
    bundle = _make_once(
        options.folder / "bundle", lambda: add_graphs(convert(folder, options.folder / "bundle", wish))
    )
    add_shortlist(bundle, options.listed)
    print(f"{processor()['cpu']}, {processor()['isa']}; {layers} layers, {options.listed:,} listed tokens")
    print(f"{options.length} tokens each way, medians of {options.runs} runs in ms")
    head = "precision, threads, beam, sentences, CTranslate2, whole, listed, ratio, of listed, least and most"
    print("| " + head.replace(", ", " | ") + " |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    contenders = {
        "ctranslate2": ctranslate2(folder, options.folder / "ctranslate2"),
        "whole": convoy(bundle, 0),
        "listed": convoy(bundle, options.listed),
    }
    for precision in options.precisions.split(","):
        for threads in map(int, options.threads.split(",")):
            for beam in map(int, options.beams.split(",")):
                for count in map(int, options.sentences.split(",")):
                    work = Workload(precision, threads, count, beam, options.length)
                    print(row(work, compare(contenders, work, options.runs)), flush=True)


if __name__ == "__main__":
    main()
