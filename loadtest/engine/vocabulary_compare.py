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
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.engine.cpu_compare import (
    SLOTS,
    Translate,
    Workload,
    add_work,
    save,
    table,
    timed_lanes,
    translators_of,
)

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
    from engine.search.executor import Executor
    from engine.text.tokenizers.tokenizer import open_tokenizer

    opened = open_bundle(bundle, verify=False)
    begin = open_tokenizer(opened).beginning
    options = replace(opened.options, prefix=begin, free_prefix=len(begin))

    def open_executor(work: Workload) -> Executor:
        lanes = (LaneSize(work.beam, SLOTS),)
        place = Placement("onnx", "cpu", work.precision, work.threads, lanes, listed > 0)
        return open_executors(opened, place)[0]

    return timed_lanes(open_executor, options, DRAWN, lambda source: [4, *source, opened.config.eos])


def add_shortlist(bundle: Path, listed: int) -> None:
    """Add the list of a language: so many tokens, drawn at random."""
    from engine.bundle.bundle import add_files, open_bundle
    from engine.bundle.shortlist import SHORTLIST
    from engine.text.tokenizers.tokenizer import open_tokenizer
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

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)  # type: ignore[no-untyped-call]

    def folder_of(precision: str) -> Path:
        out = models / precision
        if not out.exists():
            ct2.converters.TransformersConverter(str(folder)).convert(str(out), quantization=precision)
        return out

    def words_of(source: list[int]) -> list[str]:
        return [LANGUAGES[0], *tokenizer.convert_ids_to_tokens(source), "</s>"]

    return translators_of(folder_of, words_of, DRAWN, (LANGUAGES[1],))


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
    add_work(parser)
    parser.set_defaults(threads="1", precisions="int8", sentences="1,8", runs=3)
    options = parser.parse_args()
    layers = tuple(map(int, options.layers.split(",")))

    from export.graphs.onnx import add_graphs
    from export.importers import convert
    from export.importers.settings import HuggingFaceImport

    folder = _make_once(
        options.folder / "hf", lambda: make_folder(options.folder / "hf", (layers[0], layers[1]))
    )
    settings = HuggingFaceImport(source="en", target="de", int8=True)
    bundle = _make_once(
        options.folder / "bundle",
        lambda: add_graphs(convert("hf", folder, options.folder / "bundle", settings)),
    )
    add_shortlist(bundle, options.listed)
    print(f"{layers} layers, {options.listed:,} listed tokens; on", end=" ")
    contenders = {
        "ctranslate2": ctranslate2(folder, options.folder / "ctranslate2"),
        "whole": convoy(bundle, 0),
        "listed": convoy(bundle, options.listed),
    }
    rows = table(contenders, options)
    if options.json:
        save(options.json, "nllb", rows)


if __name__ == "__main__":
    main()
