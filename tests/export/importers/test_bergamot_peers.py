"""Students with random weights give the same tokens as fxtranslate, Firefox's engine for Python."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sentencepiece

from engine.backends import Placement
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.graphs.onnx import add_graphs
from export.importers import convert
from tests.support.random_students import StudentSize, corpus, han_corpus, write_student
from tests.support.students import answers
from tests.support.thorough import THOROUGH

MODELS, EACH = (6, 84) if THOROUGH else (1, 40)


@pytest.mark.parametrize("seed, han", [*((seed, False) for seed in range(MODELS)), (0, True)])
def test_fxtranslate_gives_the_same_tokens(tmp_path, seed, han):
    """Has one vocabulary, or two, of which that of the target has Han characters."""
    fxtranslate = pytest.importorskip("fxtranslate", reason="the oracle is fxtranslate (extra dev)")
    lines = corpus(400)
    write_student(tmp_path, StudentSize(64, 128, 2), lines, seed, han_corpus(400) if han else ())
    names = ("model*", "srcvocab*", "trgvocab*", "lex*") if han else ("model*", "vocab*", "vocab*", "lex*")
    files = [next(tmp_path.glob(name)).read_bytes() for name in names]
    theirs = fxtranslate.Translator(*files)
    bundle = add_graphs(convert("bergamot", tmp_path, tmp_path / "bundle"))
    tokenizer, pieces = open_tokenizer(bundle), sentencepiece.SentencePieceProcessor(model_proto=files[2])
    texts = [" ".join(line.split()[:4]) for line in lines[:EACH]]
    # its limit is twice the source length plus four
    options = replace(bundle.options, max_length_a=2.0, max_length_b=4)
    sources = [[*tokenizer.encode(text), 0] for text in texts]
    found = answers(bundle, Placement(precision="int8"), sources, options)
    same = count = 0
    for text, (best, *_) in zip(texts, found, strict=True):
        wanted = pieces.encode(theirs.translate(text))  # it names bytes, such as <0x84>
        ours = pieces.encode("".join(tokenizer.pieces(best.tokens, target=True)).replace("▁", " ").strip())
        count += len(wanted)
        same += sum(a == b for a, b in zip(ours, wanted, strict=False))
    assert count > EACH * 20
    assert same >= 0.99 * count
