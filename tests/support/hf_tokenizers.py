"""Small tokenizers of Hugging Face's families, saved by `transformers`; nothing is downloaded."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from tests.support.marian_models import sentences

transformers = pytest.importorskip("transformers", reason="the oracle is transformers (extra dev)")
FAIRSEQ_PIECES = "sentencepiece.bpe.model"


@cache
def pieces(bos: int, eos: int, unk: int, pad: int, symbols: tuple[str, ...] = ()) -> bytes:
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences(400, 5)),
        model_writer=out,
        vocab_size=70,
        hard_vocab_limit=False,
        character_coverage=1.0,
        bos_id=bos,
        eos_id=eos,
        unk_id=unk,
        pad_id=pad,
        user_defined_symbols=list(symbols),
        minloglevel=2,
    )
    return out.getvalue()


def spiece(
    path: Path,
    kind: str,
    *ids: int,
    name: str = "spiece.model",
    symbols: tuple[str, ...] = (),
    listed: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    """Return the tokenizer that `transformers` makes of a folder with a SentencePiece model.

    path: folder to write.
    kind: class of the tokenizer.
    ids: ids of beginning, end, unknown and padding.
    name: name of the model file.
    symbols: additional symbols of the model.
    listed: additional symbols of tokenizer_config.json.
    options: options of the tokenizer.
    """
    path.mkdir(parents=True, exist_ok=True)
    (path / name).write_bytes(pieces(*ids, symbols=symbols))
    said = {"tokenizer_class": kind} | ({"additional_special_tokens": listed} if listed else {})
    (path / "tokenizer_config.json").write_text(json.dumps(said))
    return getattr(transformers, kind).from_pretrained(path, **options)


def bart_tokenizer(path: Path) -> Any:
    """Write a byte-level BPE whose merges are the most frequent pairs, one after the other."""
    from engine.text.tokenizers.byte_bpe import CHARACTERS, WORDS

    words = [["".join(CHARACTERS[b]) for b in w.encode()] for s in sentences(80, 9) for w in WORDS.findall(s)]
    merges: list[tuple[str, str]] = []
    for _ in range(40):
        counts: dict[tuple[str, str], int] = {}
        for word in words:
            for pair in zip(word, word[1:], strict=False):
                counts[pair] = counts.get(pair, 0) + 1
        best = max(counts, key=lambda pair: (counts[pair], pair))
        merges.append(best)
        for i, word in enumerate(words):
            joined, at = [], 0
            while at < len(word):
                here = tuple(word[at : at + 2]) == best
                joined.append("".join(word[at : at + 2]) if here else word[at])
                at += 2 if here else 1
            words[i] = joined
    symbols = ["<s>", "<pad>", "</s>", "<unk>", *CHARACTERS.values(), *map("".join, merges), "<mask>"]
    path.mkdir(parents=True, exist_ok=True)
    (path / "vocab.json").write_text(json.dumps({s: i for i, s in enumerate(dict.fromkeys(symbols))}))
    (path / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    return transformers.BartTokenizer.from_pretrained(path)


def roberta_tokenizer(path: Path) -> Any:
    """Write CodeT5's tokenizer: BART's files with the padding before the beginning."""
    bart_tokenizer(path)
    symbols = json.loads((path / "vocab.json").read_text())
    order = ["<pad>", "<s>", "</s>", "<unk>", *list(symbols)[4:]]
    (path / "vocab.json").write_text(json.dumps({s: i for i, s in enumerate(order)}))
    return transformers.RobertaTokenizer.from_pretrained(path)


def blenderbot_tokenizer(path: Path) -> Any:
    roberta_tokenizer(path)
    (path / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": True}))
    return transformers.BlenderbotTokenizer.from_pretrained(path)


def bartpho_tokenizer(path: Path) -> Any:
    """Write a SentencePiece model, and the list of the pieces that the model keeps."""
    path.mkdir(parents=True, exist_ok=True)
    (path / FAIRSEQ_PIECES).write_bytes(pieces(1, 2, 0, -1))
    processor = sentencepiece.SentencePieceProcessor(model_proto=pieces(1, 2, 0, -1))
    own = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size()) if i % 9]
    (path / "dict.txt").write_text("".join(f"{piece} 1\n" for piece in reversed(own)))
    return transformers.BartphoTokenizer.from_pretrained(path)


def m2m_tokenizer(path: Path) -> Any:
    path.mkdir(parents=True, exist_ok=True)
    (path / FAIRSEQ_PIECES).write_bytes(pieces(1, 2, 0, -1))
    processor = sentencepiece.SentencePieceProcessor(model_proto=pieces(1, 2, 0, -1))
    own = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]
    symbols = ["<s>", "<pad>", "</s>", "<unk>", *reversed(own)]  # the order differs from SentencePiece's
    (path / "vocab.json").write_text(json.dumps({s: i for i, s in enumerate(symbols)}))
    return transformers.M2M100Tokenizer.from_pretrained(path)


def fsmt_tokenizer(path: Path) -> Any:
    """Write merges learnt by subword-nmt, and two vocabularies in different orders, like converted models."""
    from subword_nmt.learn_bpe import learn_bpe

    out = io.StringIO()
    learn_bpe(io.StringIO("\n".join(sentences(200, 9))), out, 40)
    rules = out.getvalue().splitlines()[1:]
    letters = sorted({letter for line in sentences(200, 9) for letter in line if not letter.isspace()})
    made = [*letters, *(f"{letter}</w>" for letter in letters), *(rule.replace(" ", "") for rule in rules)]
    path.mkdir(parents=True, exist_ok=True)
    for name, symbols in (("vocab-src.json", made), ("vocab-tgt.json", made[::-1][:-2])):
        own = dict.fromkeys(["<s>", "<pad>", "</s>", "<unk>", *symbols])
        (path / name).write_text(json.dumps({symbol: i for i, symbol in enumerate(own)}))
    (path / "merges.txt").write_text("".join(f"{rule} {100 - i}\n" for i, rule in enumerate(rules)))
    (path / "tokenizer_config.json").write_text(json.dumps({"langs": ["en", "de"], "do_lower_case": False}))
    return transformers.FSMTTokenizer.from_pretrained(path)


HAN = "\u5317\u4eac\u662f\u9996\u90fd"


def bert_tokenizer(path: Path) -> Any:
    """Write BERT's pieces: letters, the ends and the beginnings of words, Han characters, punctuation."""
    path.mkdir(parents=True, exist_ok=True)
    words = {word for line in sentences(120, 9) for word in line.split()}
    letters = sorted({c for word in words for c in word if c.isalpha()} | set("abcdetuxyz0123456789"))
    syllables = sorted({word[at : at + 2] for word in words for at in (0, 2) if word[at : at + 2].isalpha()})
    pieces = [*letters, *(f"##{c}" for c in letters), *syllables, *(f"##{s}" for s in syllables)]
    symbols = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *HAN, *"!?.,:;&$'\"-()", *pieces])
    (path / "vocab.txt").write_text("".join(f"{symbol}\n" for symbol in symbols), encoding="utf-8")
    return transformers.BertTokenizer(str(path / "vocab.txt"))
