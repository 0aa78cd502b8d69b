"""Small Marian models: SentencePiece models, vocabularies, and folders in Hugging Face's layout.

`transformers` makes random or briefly trained weights, and is the oracle; nothing is downloaded.
"""

from __future__ import annotations

import io
import json
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch

transformers = pytest.importorskip("transformers", reason="the oracle is transformers (extra dev)")

# syllables of a toy language
SYLLABLES = ["ba", "de", "gi", "ko", "lu", "ma", "ne", "pi", "ro", "su", "ta", "ve"]
PIECES = 60  # size of each SentencePiece model


@dataclass(frozen=True)
class Folder:
    """A Hugging Face folder, and its model and tokenizer."""

    path: Path
    model: Any
    tokenizer: Any


def sentences(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(200)]
    return [" ".join(draw.choices(words, k=draw.randint(2, 9))) + draw.choice(".?!") for _ in range(count)]


def train_pieces(lines: list[str], size: int = PIECES) -> bytes:
    """Return a SentencePiece model with OPUS-MT's ids: end-of-sentence 0, unknown 1, no beginning."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=out,
        vocab_size=size,
        hard_vocab_limit=False,
        character_coverage=1.0,
        bos_id=-1,
        eos_id=0,
        unk_id=1,
        pad_id=-1,
        minloglevel=2,
    )
    return out.getvalue()


@cache
def pieces(side: str) -> bytes:
    lines = sentences(600, 3)
    return train_pieces(lines if side == "source" else [line.upper() for line in lines])


def symbols(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def vocabulary(models: list[bytes], languages: tuple[str, ...] = ()) -> dict[str, int]:
    """Return OPUS-MT's ids: end, unknown, all pieces of the models, languages, and padding last."""
    known = dict.fromkeys(symbol for model in models for symbol in symbols(model))
    ordered = ["</s>", "<unk>", *(s for s in known if s not in ("</s>", "<unk>"))]
    ordered += [f">>{code}<<" for code in languages] + ["<pad>"]
    return {symbol: i for i, symbol in enumerate(ordered)}


OPTIONS: dict[str, dict[str, Any]] = {
    "post-norm swish": {},
    "relu": {"activation_function": "relu", "scale_embedding": False},
    "gelu deep decoder": {"activation_function": "gelu", "decoder_layers": 3},
    "one encoder layer": {"encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 24},
    "odd heads": {"d_model": 36, "encoder_attention_heads": 3, "decoder_attention_heads": 6},
    "no bias, trained": {"final_logits_bias": False, "steps": 60},
    "trained": {"steps": 60, "scale_embedding": True},
    "separate output": {"tie_word_embeddings": False},
    "separate vocabularies, trained": {"steps": 60, "share_encoder_decoder_embeddings": False},
    "all separate": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    "several languages": {"languages": ("deu", "fra", "nld")},
}


def _train(model: Any, models: dict[str, bytes], ids: dict[str, dict[str, int]], steps: int) -> None:
    """Train a model briefly to copy in capitals: its answers have all lengths and close scores."""
    split = {side: sentencepiece.SentencePieceProcessor(model_proto=m) for side, m in models.items()}

    def batch(lines: list[str], side: str) -> torch.Tensor:
        rows = [[*(ids[side].get(p, 1) for p in split[side].encode(x, out_type=str)), 0] for x in lines]
        return torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(row[:40]) for row in rows], batch_first=True, padding_value=-100
        )

    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        lines = [" ".join(line.split()[:3]) for line in sentences(16, step)]
        source = batch(lines, "source")
        real = (source >= 0).long()
        labels = batch([line.upper() for line in lines], "target")
        loss = model(input_ids=source.clamp(min=0), attention_mask=real, labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def make(path: Path, name: str, seed: int = 1, **more: Any) -> Folder:
    """Write a folder with random weights, saved by `transformers`."""
    options = {**OPTIONS[name], **more}
    languages = options.pop("languages", ())
    biased, pickled = options.pop("final_logits_bias", True), options.pop("pickled", False)
    steps = options.pop("steps", 0)
    generation, half = options.pop("generation", {}), options.pop("half", False)
    separate = not options.get("share_encoder_decoder_embeddings", True)
    path.mkdir(parents=True)
    models = options.pop("pieces", None) or {side: pieces(side) for side in ("source", "target")}
    for side, model in models.items():
        (path / f"{side}.spm").write_bytes(model)
    if separate:
        ids = {side: vocabulary([model]) for side, model in models.items()}
    else:
        both = vocabulary(list(models.values()), languages)
        ids = {"source": both, "target": both}
    (path / "vocab.json").write_text(json.dumps(ids["source"]))
    if separate:
        (path / "target_vocab.json").write_text(json.dumps(ids["target"]))
    pad = max(len(vocabulary) for vocabulary in ids.values()) - 1
    config = transformers.MarianConfig(
        **{
            "vocab_size": pad + 1,
            "decoder_vocab_size": pad + 1,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 40,
            "max_position_embeddings": 64,
            "activation_function": "swish",
            "scale_embedding": True,
            "pad_token_id": pad,
            "decoder_start_token_id": pad,
            "eos_token_id": 0,
            "forced_eos_token_id": 0,
            "init_std": 0.2,
            **options,
        }
    )
    torch.manual_seed(seed)
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for (
            key,
            weight,
        ) in model.named_parameters():  # norms and biases get values other than the initial ones
            if not key.endswith(("embed_positions.weight", "shared.weight", "embed_tokens.weight")):
                weight.add_(torch.randn(weight.shape) * 0.1)
        if biased:
            model.final_logits_bias.normal_()
            model.final_logits_bias[0, 0] = 4.0  # makes answers end
    if steps:
        _train(model, models, ids, steps)
    if half:
        model = model.half().float()
    model.generation_config = transformers.GenerationConfig(
        **{
            "num_beams": 4,
            "max_length": 64,
            "eos_token_id": 0,
            "pad_token_id": pad,
            "decoder_start_token_id": pad,
            "forced_eos_token_id": 0,
            "bad_words_ids": [[pad]],
            "renormalize_logits": True,
            "early_stopping": True,
            **generation,
        }
    )
    (model.half() if half else model).save_pretrained(path, safe_serialization=not pickled)
    tokenizer = {"source_lang": "eng", "target_lang": languages[0] if languages else "nld"}
    tokenizer["tokenizer_class"], tokenizer["separate_vocabs"] = "MarianTokenizer", separate
    (path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return Folder(path, model.float(), transformers.MarianTokenizer.from_pretrained(path))
