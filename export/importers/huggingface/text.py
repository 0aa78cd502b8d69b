"""Read the text side of Hugging Face's families: tokenizer files, special ids, symbols of languages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from engine.errors import BundleError, CheckpointError
from engine.text.tokenizers.added import AddedToken
from engine.text.tokenizers.byte_bpe import read_merges
from engine.text.tokenizers.fairseq import FairseqSettings
from engine.text.tokenizers.mapped_pieces import PieceSettings, read_ids
from engine.text.tokenizers.pieces import load_processor, read_processor
from engine.text.tokenizers.utf8_bytes import BytesSettings
from export.importers.huggingface.family import TextPart
from export.importers.huggingface.files import (
    TOKENIZER_FILE,
    TOKENIZER_JSON,
    ModelFolder,
    added_tokens,
    listed_tokens,
)
from export.importers.huggingface.language_codes import M2M_100, language_symbols
from export.importers.huggingface.tokenizer_json import byte_bpe, sentencepiece_model

FAIRSEQ: Final = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
PEGASUS_OFFSET: Final = 103
MAX_OFFSET: Final = 10_000
MODEL: Final = "sentencepiece.model"
VOCABULARY, MERGES = "vocab.json", "merges.txt"
FSMT_VOCABULARIES: Final = ("vocab-src.json", "vocab-tgt.json")
WORD_END: Final = "</w>"  # fastBPE's mark
MASK: Final = "<mask>"  # many models have no row for it
SENTINELS: Final = 100  # default number of T5's symbols "<extra_id_0>", "<extra_id_1>" ...


def bart_text(folder: ModelFolder) -> TextPart:
    """Read a text side with byte-level BPE. Raises CheckpointError that names a missing or damaged file."""
    files: dict[str, bytes | Path]
    spaced = folder.tokenizer.get("add_prefix_space")
    if folder.has(TOKENIZER_JSON) and not (folder.has(VOCABULARY) and folder.has(MERGES)):
        ids, rules, own = byte_bpe(folder.path / TOKENIZER_JSON)
        spaced = own if spaced is None else spaced
        lines = "".join(f"{left} {right}\n" for left, right in rules)
        files = {VOCABULARY: json.dumps(ids, ensure_ascii=False).encode(), MERGES: lines.encode()}
    else:
        folder.need(VOCABULARY, MERGES)
        ids, merges = _ids(folder.path / VOCABULARY), folder.path / MERGES
        _read_or_refuse(lambda: read_merges(merges))
        files = {VOCABULARY: folder.path / VOCABULARY, MERGES: merges}
    bos, forced = folder.config.get("bos_token_id"), folder.rules.get("forced_bos_token_id")
    if type(forced) is int and forced not in ids.values():
        raise CheckpointError(f"{folder.path}: forced_bos_token_id = {forced} is not a token of {VOCABULARY}")
    settings: dict[str, Any] = {
        "kind": "byte-bpe",
        "vocabulary": VOCABULARY,
        "merges": MERGES,
        "first": [bos] if type(bos) is int else [],
        "beginning": [forced] if type(forced) is int else [],
    }
    if spaced:
        settings["prefix_space"] = True
    mask = {MASK: AddedToken(ids[MASK], lstrip=True, shown=False)} if MASK in ids else {}
    if added := spelled_tokens(folder, mask | added_tokens(folder), _token(folder, ids, "<unk>")):
        settings["added"] = {symbol: asdict(token) for symbol, token in added.items()}
    return TextPart(settings, files, _token(folder, ids, "<unk>"))


def mbart_text(folder: ModelFolder) -> TextPart:
    """Read the text side of mBART-50: fairseq's ids, a language before the source and before the target."""
    named = folder.tokenizer.get("tokenizer_class") or folder.config.get("tokenizer_class")
    kind = named or "MBartTokenizer"  # default of `transformers` for the model type
    if kind not in ("MBart50Tokenizer", "MBart50TokenizerFast"):
        raise CheckpointError(
            f"{folder.path}: has the tokenizer {kind}, which ends sources with their language; only "
            "mBART-50's order is supported. If it is one, say so: tokenizer_class in tokenizer_config.json"
        )
    return _fairseq_pieces(folder)


def nllb_text(folder: ModelFolder) -> TextPart:
    """Read the text side of M2M-100, SMaLL-100 or NLLB-200; only NLLB-200 has no vocabulary file."""
    if not folder.has(VOCABULARY):
        return _fairseq_pieces(folder)
    ids = _ids(folder.file(VOCABULARY))
    added = {
        symbol: each for symbol, each in _all_added_tokens(folder, len(ids)).items() if symbol not in ids
    }
    special = {symbol: each.token for symbol, each in added.items()}
    if not language_symbols(special) and folder.tokenizer.get("language_codes", "m2m100") == "m2m100":
        special = {f"__{code}__": len(ids) + i for i, code in enumerate(M2M_100)}
    small = str(folder.tokenizer.get("tokenizer_class", "")).startswith("SMALL100")
    return _mapped_pieces(
        folder,
        folder.file("sentencepiece.bpe.model", "spm.model"),
        special | {s: i for s, i in ids.items() if s in FAIRSEQ},
        _token(folder, ids, "<unk>"),
        added=added,
        vocabulary=VOCABULARY,
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
        ids = _ids(folder.path / name)
        symbols = sorted(ids, key=lambda symbol: ids[symbol])
        if [ids[s] for s in symbols] != list(range(len(ids))) or symbols[: len(FAIRSEQ)] != list(FAIRSEQ):
            raise CheckpointError(
                f"{folder.path / name}: is not fairseq's symbols from 0 on; download it again"
            )
        cut = (
            s.removesuffix(WORD_END) + ("" if s.endswith(WORD_END) else "@@") for s in symbols[len(FAIRSEQ) :]
        )
        files[f"dict.{side}.txt"] = "".join(f"{symbol} 1\n" for symbol in cut).encode()
    rules = _read_or_refuse(lambda: read_merges(folder.path / MERGES, counted=True))
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
    model, whole = _pieces_model(folder, "spiece.model")
    offset = 0 if whole else folder.tokenizer.get("offset", PEGASUS_OFFSET)
    if type(offset) is not int or not 0 <= offset <= MAX_OFFSET:
        raise CheckpointError(
            f"{folder.path / TOKENIZER_FILE}: offset = {offset!r} is not a valid number of ids"
        )
    unk = _processor(model).unk_id() + offset
    special = {"<pad>": folder.config["pad_token_id"], "</s>": folder.config["eos_token_id"]}
    return _mapped_pieces(
        folder, model, special, unk, added=added_tokens(folder), offset=offset, newline="<n>"
    )


def t5_text(folder: ModelFolder, prompt: str) -> TextPart:
    """Read the text side of T5: SentencePiece's ids, or bytes.

    MADLAD-400 writes a symbol of the target language before the source.

    folder: folder of the model.
    prompt: text that is written before each source.
    """
    if not folder.has("spiece.model") and "ByT5" in str(folder.tokenizer.get("tokenizer_class")):
        added = spelled_tokens(folder, added_tokens(folder), unk=2)
        return TextPart({"kind": "bytes"} | asdict(BytesSettings(3, prompt, added)), {}, unk=2)
    model, whole = _pieces_model(folder, "spiece.model")
    processor = _processor(model)
    symbols = {processor.id_to_piece(i): i for i in range(processor.get_piece_size())}
    languages = {s: symbols[s] for s in language_symbols(symbols).values() if s.startswith("<2")}
    return _mapped_pieces(
        folder,
        model,
        languages,
        processor.unk_id(),
        added=({} if whole else _sentinels(folder, len(symbols))) | added_tokens(folder),
        source_symbol="target" if languages else "none",
        written=bool(languages) and not whole,  # tokenizer.json cuts such symbols out of a text
        prompt=prompt,
    )


def _fairseq_pieces(folder: ModelFolder) -> TextPart:
    """Read a SentencePiece text side with fairseq's special ids and language symbols."""
    model, whole = _pieces_model(folder, "sentencepiece.bpe.model")
    # fairseq has one symbol more than SentencePiece, "<pad>", so that ids of pieces are greater by 1
    added = _all_added_tokens(folder, _processor(model).get_piece_size() + 1)
    special = {symbol: each.token for symbol, each in added.items()}
    offset = 0 if whole else 1
    return _mapped_pieces(
        folder,
        model,
        special | FAIRSEQ,
        FAIRSEQ["<unk>"],
        added=added,
        offset=offset,
        source_symbol="source",
        target_symbol=True,
    )


def _all_added_tokens(folder: ModelFolder, first: int) -> dict[str, AddedToken]:
    """Return all added tokens; ids of those without one in the files begin with `first`."""
    listed = {symbol: AddedToken(first + i, shown=False) for i, symbol in enumerate(listed_tokens(folder))}
    return listed | added_tokens(folder)


def _sentinels(folder: ModelFolder, pieces: int) -> dict[str, AddedToken]:
    """Return the symbols that T5's tokenizer always adds; the last one has the first id."""
    count = folder.tokenizer.get("extra_ids", SENTINELS)
    count = count if type(count) is int and 0 <= count <= MAX_OFFSET else 0
    tokens = {f"<extra_id_{i}>": AddedToken(pieces + count - 1 - i, shown=False) for i in range(count)}
    rows = folder.config.get("vocab_size")
    return {symbol: each for symbol, each in tokens.items() if type(rows) is int and each.token < rows}


def spelled_tokens(folder: ModelFolder, tokens: Mapping[str, AddedToken], unk: int) -> dict[str, AddedToken]:
    """Return the added tokens that a text may contain: all except beginning, end, padding and unknown.

    folder: folder of the model.
    tokens: added tokens by their symbols.
    unk: id of the unknown symbol.

    Raises CheckpointError if the model has no row for a token.
    """
    config = folder.config
    special = {config.get(f"{name}_token_id") for name in ("bos", "pad", "eos")} | {unk}
    added = {symbol: each for symbol, each in tokens.items() if each.token not in special}
    rows = config.get("vocab_size")
    beyond = [s for s, each in added.items() if type(rows) is int and each.token >= rows and s != MASK]
    if beyond:
        raise CheckpointError(
            f"{folder.path}: its tokenizer adds {beyond[0]!r} with the id {added[beyond[0]].token}, the "
            f"model has {rows:,} rows; save it after resize_token_embeddings"
        )
    return {symbol: each for symbol, each in added.items() if type(rows) is not int or each.token < rows}


def _pieces_model(folder: ModelFolder, name: str) -> tuple[Path | bytes, bool]:
    """Return the SentencePiece model, and whether it was made of tokenizer.json, with the model's own ids."""
    if not folder.has(name) and folder.has(TOKENIZER_JSON):
        return sentencepiece_model(folder.path / TOKENIZER_JSON), True
    return folder.file(name, TOKENIZER_JSON), False


def _mapped_pieces(
    folder: ModelFolder,
    model: Path | bytes,
    special: Mapping[str, int],
    unk: int,
    added: Mapping[str, AddedToken],
    **more: Any,
) -> TextPart:
    """Return a text side of SentencePiece pieces whose ids are mapped to the model's.

    folder: folder of the model.
    model: SentencePiece model.
    special: ids of language symbols and of fairseq's special symbols, perhaps among others.
    unk: id of the unknown symbol.
    added: added tokens by their symbols.
    more: further fields of `PieceSettings`.
    """
    codes = language_symbols(special)
    names = {*codes.values(), *FAIRSEQ}
    if not codes:
        more |= {"source_symbol": "none", "target_symbol": False}
    spelled = spelled_tokens(
        folder, {symbol: each for symbol, each in added.items() if symbol not in names}, unk
    )
    symbols = {symbol: token for symbol, token in special.items() if symbol in names}
    settings = PieceSettings(model=MODEL, special=symbols, added=spelled, languages=codes, **more)
    files: dict[str, bytes | Path] = {MODEL: model}
    if settings.vocabulary is not None:
        files[VOCABULARY] = json.dumps(_ids(folder.file(VOCABULARY)), ensure_ascii=False).encode()
    return TextPart({"kind": "mapped-pieces", **asdict(settings)}, files, unk, codes)


def _token(folder: ModelFolder, ids: Mapping[str, int], symbol: str) -> int:
    """Return the id of a symbol. Raises CheckpointError if the vocabulary lacks it."""
    if symbol not in ids:
        raise CheckpointError(f"{folder.path / VOCABULARY}: lacks {symbol}; download it again")
    return ids[symbol]


def _ids(path: Path) -> dict[str, int]:
    ids: dict[str, int] = _read_or_refuse(lambda: read_ids(path))
    return ids


def _processor(model: Path | bytes) -> Any:
    if isinstance(model, bytes):
        return _read_or_refuse(lambda: load_processor(model, Path(TOKENIZER_JSON)))
    return _read_or_refuse(lambda: read_processor(model))


def _read_or_refuse(reader: Any) -> Any:
    """Return the result of a reader of bundles' files, with its BundleError as CheckpointError."""
    try:
        return reader()
    except BundleError as error:
        raise CheckpointError(str(error)) from error
