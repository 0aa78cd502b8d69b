"""Read the text side of Hugging Face's families: tokenizer files, special ids, symbols of languages."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Final

from engine.errors import CheckpointError
from engine.text.tokenizers.added import AddedToken
from engine.text.tokenizers.byte_bpe import read_merges
from engine.text.tokenizers.fairseq import FairseqSettings
from engine.text.tokenizers.utf8_bytes import BytesSettings
from export.importers.huggingface.byte_text import BEGIN, byte_text
from export.importers.huggingface.family import TextPart
from export.importers.huggingface.files import TOKENIZER_FILE, ModelFolder, added_tokens
from export.importers.huggingface.language_codes import M2M_100, WMT_21, language_symbols
from export.importers.huggingface.mbart_text import barthez_text
from export.importers.huggingface.text_parts import (
    FAIRSEQ,
    FAIRSEQ_MODEL,
    MERGES,
    VOCABULARY,
    all_added_tokens,
    fairseq_pieces,
    mapped_pieces,
    pieces_model,
    processor_of,
    read_or_refuse,
    read_vocabulary,
    spelled_tokens,
    token_of,
)
from export.importers.huggingface.word_text import BERT, word_text

PEGASUS_OFFSET: Final = 103
MAX_OFFSET: Final = 10_000
FSMT_VOCABULARIES: Final = ("vocab-src.json", "vocab-tgt.json")
WORD_END: Final = "</w>"  # fastBPE's mark
SENTINELS: Final = 100  # default number of T5's symbols "<extra_id_0>", "<extra_id_1>" ...
# classes of byte-level BPE after `<s>`; the last one is read where its tokenizer.json fits
BART_TOKENIZERS: Final = ("BartTokenizer", "RobertaTokenizer", "PreTrainedTokenizer")
M2M_LANGUAGES: Final = {"m2m100": M2M_100, "wmt21": WMT_21}


def bart_text(folder: ModelFolder) -> TextPart:
    """Read the text side of BART: byte-level BPE, BARThez's pieces, or BERT's."""
    kind = folder.tokenizer_class() or "BartTokenizer"
    if kind == "BarthezTokenizer":
        return barthez_text(folder)
    if kind == BERT:
        return word_text(folder)
    if kind in BART_TOKENIZERS:
        return byte_text(folder, BEGIN)
    raise CheckpointError(
        f"{folder.path}: has the tokenizer {kind}; models of the type bart are supported with "
        f"{', '.join(BART_TOKENIZERS)}, {BERT} and BarthezTokenizer"
    )


def nllb_text(folder: ModelFolder) -> TextPart:
    """Read the text side of M2M-100, SMaLL-100 or NLLB-200; only NLLB-200 has no vocabulary file."""
    if not folder.has(VOCABULARY):
        return fairseq_pieces(folder)
    ids = read_vocabulary(folder.file(VOCABULARY))
    named = folder.tokenizer.get("language_codes", "m2m100")
    languages = [f"__{code}__" for code in M2M_LANGUAGES.get(str(named), ())]
    added = {s: t for s, t in all_added_tokens(folder, len(ids), languages).items() if s not in ids}
    special = {symbol: each.token for symbol, each in added.items()}
    small = str(folder.tokenizer.get("tokenizer_class", "")).startswith("SMALL100")
    return mapped_pieces(
        folder,
        folder.file(FAIRSEQ_MODEL, "spm.model"),
        special | {s: i for s, i in ids.items() if s in FAIRSEQ},
        token_of(folder, ids, "<unk>"),
        added=added,
        vocabulary=ids,
        source_symbol="target" if small else "source",
        target_symbol=not small,
    )


def fsmt_text(folder: ModelFolder) -> TextPart:
    """Read the text side of FSMT (fairseq's models): two vocabularies, fastBPE's merges, Moses."""
    folder.need(*FSMT_VOCABULARIES, MERGES)
    pair = folder.tokenizer.get("langs") or folder.config.get("langs")
    if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(code, str) for code in pair):
        raise CheckpointError(f"{folder.path}: langs = {pair!r} are not two languages")
    files: dict[str, bytes | Path] = {}
    for name, side in zip(FSMT_VOCABULARIES, ("src", "tgt"), strict=True):
        ids = read_vocabulary(folder.path / name)
        symbols = sorted(ids, key=lambda symbol: ids[symbol])
        if [ids[s] for s in symbols] != list(range(len(ids))) or symbols[: len(FAIRSEQ)] != list(FAIRSEQ):
            raise CheckpointError(
                f"{folder.path / name}: is not fairseq's symbols from 0 on; download it again"
            )
        cut = (
            s.removesuffix(WORD_END) + ("" if s.endswith(WORD_END) else "@@") for s in symbols[len(FAIRSEQ) :]
        )
        files[f"dict.{side}.txt"] = "".join(f"{symbol} 1\n" for symbol in cut).encode()
    rules = read_or_refuse(lambda: read_merges(folder.path / MERGES, counted=True))
    files["bpecodes"] = ("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in rules)).encode()
    settings = FairseqSettings(
        source_dictionary="dict.src.txt",
        target_dictionary="dict.tgt.txt",
        bpe="bpecodes",
        source_language=pair[0],
        target_language=pair[1],
        normalize=pair[0],
        lowercase=folder.tokenizer.get("do_lower_case") is True,
        plain_punctuation=True,
    )
    return TextPart(
        {"kind": "fairseq", **asdict(settings)}, files, FAIRSEQ["<unk>"], languages=(pair[0], pair[1])
    )


def pegasus_text(folder: ModelFolder) -> TextPart:
    """Read the text side of PEGASUS: SentencePiece's ids plus 103; `<n>` is the end of a line."""
    model, whole = pieces_model(folder, "spiece.model")
    offset = 0 if whole else folder.tokenizer.get("offset", PEGASUS_OFFSET)
    if type(offset) is not int or not 0 <= offset <= MAX_OFFSET:
        raise CheckpointError(
            f"{folder.path / TOKENIZER_FILE}: offset = {offset!r} is not a valid number of ids"
        )
    unk = processor_of(model).unk_id() + offset
    special = {"<pad>": folder.config["pad_token_id"], "</s>": folder.config["eos_token_id"]}
    return mapped_pieces(
        folder, model, special, unk, added=added_tokens(folder), offset=offset, newline="<n>"
    )


def t5_text(folder: ModelFolder, prompt: str) -> TextPart:
    """Read the text side of T5: SentencePiece's ids, bytes, byte-level BPE, or BERT's pieces.

    MADLAD-400 writes a symbol of the target language before the source.

    folder: folder of the model.
    prompt: text that is written before each source.
    """
    if folder.tokenizer_class() == "RobertaTokenizer":  # CodeT5
        return byte_text(folder, BEGIN, prompt)
    if folder.tokenizer_class() == BERT:
        return word_text(folder, prompt)
    if not folder.has("spiece.model") and "ByT5" in str(folder.tokenizer.get("tokenizer_class")):
        added = spelled_tokens(folder, added_tokens(folder), unk=2)
        return TextPart({"kind": "bytes"} | asdict(BytesSettings(3, prompt, added)), {}, unk=2)
    model, whole = pieces_model(folder, "spiece.model")
    processor = processor_of(model)
    symbols = {processor.id_to_piece(i): i for i in range(processor.get_piece_size())}
    languages = {s: symbols[s] for s in language_symbols(symbols).values() if s.startswith("<2")}
    return mapped_pieces(
        folder,
        model,
        languages,
        processor.unk_id(),
        added=({} if whole else _sentinels(folder, len(symbols))) | added_tokens(folder),
        source_symbol="target" if languages else "none",
        written=bool(languages) and not whole,  # tokenizer.json cuts such symbols out of a text
        prompt=prompt,
    )


def _sentinels(folder: ModelFolder, pieces: int) -> dict[str, AddedToken]:
    """Return the symbols that T5's tokenizer always adds; the last one has the first id."""
    count = folder.tokenizer.get("extra_ids", SENTINELS)
    count = count if type(count) is int and 0 <= count <= MAX_OFFSET else 0
    tokens = {f"<extra_id_{i}>": AddedToken(pieces + count - 1 - i, shown=False) for i in range(count)}
    rows = folder.config.get("vocab_size")
    return {symbol: each for symbol, each in tokens.items() if type(rows) is int and each.token < rows}
