"""Split texts for CTranslate2 by the libraries that its users call, independently of our tokenizers."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from shutil import copyfile
from typing import Any, Final

from engine.bundle.bundle import Bundle
from engine.errors import CheckpointError

TOKENIZER_CONFIG: Final = "tokenizer_config.json"
FAIRSEQ_MODEL, T5_MODEL = "sentencepiece.bpe.model", "spiece.model"
# by the kind of text of a bundle, or the form of its language symbols: class of `transformers`, and names in
# its folders of the bundle's files
CLASSES: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "__": ("M2M100Tokenizer", {"sentencepiece.model": FAIRSEQ_MODEL, "vocab.json": "vocab.json"}),
    "Latn": ("NllbTokenizer", {"sentencepiece.model": FAIRSEQ_MODEL}),
    "XX": ("MBart50Tokenizer", {"sentencepiece.model": FAIRSEQ_MODEL}),
    "last": ("MBartTokenizer", {"sentencepiece.model": FAIRSEQ_MODEL}),
    "first": ("BarthezTokenizer", {"sentencepiece.model": FAIRSEQ_MODEL}),  # BARTpho has the same pieces
    "newline": ("PegasusTokenizer", {"sentencepiece.model": T5_MODEL}),
    "mapped-pieces": ("T5Tokenizer", {"sentencepiece.model": T5_MODEL}),
    "marian": ("MarianTokenizer", {n: n for n in ("source.spm", "target.spm", "vocab.json")}),
    "byte-bpe": ("BartTokenizer", {n: n for n in ("vocab.json", "merges.txt")}),
    "word-pieces": ("BertTokenizer", {"vocab.txt": "vocab.txt"}),
    "bytes": ("ByT5Tokenizer", {}),
}


@dataclass(frozen=True, slots=True)
class LibraryTokens:
    """Functions of a library.

    name: name of the library.
    split: returns the tokens of a source that the library passes to CTranslate2.
    join: returns the text of the tokens of an answer.
    prefix: tokens that a target begins with.
    """

    name: str
    split: Callable[[str], list[str]]
    join: Callable[[Sequence[str]], str]
    prefix: Sequence[str] = ()


def library_tokens(folder: Path, bundle: Bundle) -> LibraryTokens:
    """Return the functions of the library that users of a model call.

    folder: folder of the model.
    bundle: bundle of the model.

    Raises CheckpointError if the library is not known, ModuleNotFoundError if it is not installed.
    """
    text = bundle.text
    if text["kind"] != "symbols" or (folder / TOKENIZER_CONFIG).is_file():
        return _transformers_tokens(folder, bundle)
    prefix = [text["prefix"]] if text.get("prefix") else []
    if text.get("source_pieces"):
        sentencepiece = import_module("sentencepiece")
        before, after = (
            sentencepiece.SentencePieceProcessor(model_file=str(bundle.file(text[f"{side}_pieces"])))
            for side in ("source", "target")
        )
        return LibraryTokens(
            "sentencepiece",
            lambda line: list(before.encode(line, out_type=str)),
            lambda tokens: str(after.decode_pieces(list(tokens))),
            prefix,
        )
    if text.get("bpe"):
        return _codes(bundle, prefix)
    if text.get("characters"):
        return LibraryTokens("characters", list, "".join, prefix)
    return LibraryTokens("words", str.split, " ".join, prefix)


def _codes(bundle: Bundle, prefix: Sequence[str]) -> LibraryTokens:
    """Return Moses' rules and the codes of subword-nmt, as Argos Translate applies them."""
    moses, text = import_module("sacremoses"), bundle.text
    with bundle.file(text["bpe"]).open(encoding="utf-8") as lines:
        codes = import_module("subword_nmt.apply_bpe").BPE(lines)
    before = moses.MosesTokenizer(lang=text["source_language"])
    after = moses.MosesDetokenizer(lang=text["target_language"])
    clean = moses.MosesPunctNormalizer(lang=text["normalize"]).normalize if text["normalize"] else str

    def split(line: str) -> list[str]:
        words = before.tokenize(clean(line), return_str=True, escape=text["escape"])
        return str(codes.process_line(words)).split()

    def join(tokens: Sequence[str]) -> str:
        return str(after.detokenize(" ".join(tokens).replace("@@ ", "").removesuffix("@@").split()))

    return LibraryTokens("sacremoses and subword-nmt", split, join, prefix)


def _transformers_tokens(folder: Path, bundle: Bundle) -> LibraryTokens:
    """Return the tokenizer of `transformers` for the folder, or for the family of the bundle's files."""
    transformers: Any = import_module("transformers")
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory(prefix="convoy-tokenizer-") as place:
        _write_tokenizer(folder, bundle, Path(place))
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, local_files_only=True)
    opening, prefix = _languages(bundle, tokenizer)
    if not prefix and _read(folder / "config.json").get("decoder_start_token", "") is None:
        prefix = [_symbol(bundle, bundle.config.first_token)]

    def split(line: str) -> list[str]:
        return list(tokenizer.convert_ids_to_tokens(tokenizer.encode(opening + line)))

    def join(tokens: Sequence[str]) -> str:
        ids = tokenizer.convert_tokens_to_ids(list(tokens))
        return str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    return LibraryTokens(type(tokenizer).__name__, split, join, prefix)


def _write_tokenizer(folder: Path, bundle: Bundle, place: Path) -> None:
    """Write the files of the tokenizer: those of the folder, and those of the bundle that it lacks."""
    for path in folder.iterdir():
        if path.is_file() and path.name not in ("model.bin", "config.json"):
            copyfile(path, place / path.name)
    kind = _tokenizer_kind(bundle)
    if kind not in CLASSES:
        return
    name, files = CLASSES[kind]
    for ours, theirs in files.items():
        if not (place / theirs).exists():
            copyfile(bundle.file(ours), place / theirs)
    if name == "MarianTokenizer":  # needs the padding, which the converter leaves out
        ids = json.loads((place / "vocab.json").read_text("utf-8"))
        (place / "vocab.json").write_text(json.dumps({"<pad>": len(ids)} | ids), "utf-8")
    if not (place / TOKENIZER_CONFIG).exists():
        (place / TOKENIZER_CONFIG).write_text(json.dumps({"tokenizer_class": name}))


def _tokenizer_kind(bundle: Bundle) -> str:
    """Return the key of CLASSES for a bundle, or another string if there is none."""
    text, symbols = bundle.text, list((bundle.text.get("languages") or {}).values())
    forms = [
        form for form in ("__", "Latn", "XX") if any(s.startswith(form) or s.endswith(form) for s in symbols)
    ]
    named = [name for name in ("last", "newline", "first") if text.get(name)]
    named = named if text["kind"] == "mapped-pieces" else []
    return str((named or forms or [text["kind"]])[0])


def _languages(bundle: Bundle, tokenizer: Any) -> tuple[str, list[str]]:
    """Return the text before each source and the tokens that a target begins with.

    bundle: bundle of the model.
    tokenizer: tokenizer of `transformers`, whose languages are set.
    """
    text = bundle.text
    symbols, opening = text.get("languages") or {}, str(text.get("prompt") or "")
    target = symbols.get(bundle.target)
    if text.get("source_symbol") == "source" and target:
        tokenizer.src_lang, tokenizer.tgt_lang = (
            str(symbols[code]).strip("_") for code in (bundle.source, bundle.target)
        )
        return opening, [target]
    if text.get("last"):  # mBART-25
        tokenizer.src_lang = _symbol(bundle, text["last"][-1])
        return opening, []
    if target and target.startswith("__"):  # SMaLL-100: M2M-100's tokenizer with the target as its source
        tokenizer.src_lang = target.strip("_")
        return opening, []
    if target:
        opening = f"{target} {opening}"
    if hasattr(tokenizer, "lang_code_to_id") and not symbols:
        raise CheckpointError(f"{type(tokenizer).__name__} needs languages, and the bundle has none")
    return opening, []


def _symbol(bundle: Bundle, token: int) -> str:
    """Return the symbol of an id of a model with a vocabulary file."""
    ids = _read(bundle.file(str(bundle.text["vocabulary"])))
    return next(symbol for symbol, each in ids.items() if each == token)


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return content
