"""Read text sides with byte-level BPE: BART, Blenderbot, CodeT5."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from engine.errors import CheckpointError
from engine.text.tokenizers.added import AddedToken
from engine.text.tokenizers.byte_bpe import read_merges
from export.importers.huggingface.family import TextPart
from export.importers.huggingface.files import TOKENIZER_JSON, ModelFolder, added_tokens
from export.importers.huggingface.text_parts import (
    MASK,
    MERGES,
    VOCABULARY,
    read_or_refuse,
    read_vocabulary,
    spelled_tokens,
    token_of,
)
from export.importers.huggingface.tokenizer_json import byte_bpe

BEGIN: Final = "<s>"


def byte_text(folder: ModelFolder, begin: str | None = None, prompt: str = "") -> TextPart:
    """Read a text side with byte-level BPE. Raises CheckpointError that names a missing or damaged file.

    folder: folder of the model.
    begin: symbol that a source begins with; None: none.
    prompt: text before each source.
    """
    files: dict[str, bytes | Path]
    spaced = folder.tokenizer.get("add_prefix_space")
    if folder.has(TOKENIZER_JSON) and not (folder.has(VOCABULARY) and folder.has(MERGES)):
        ids, rules, own = byte_bpe(folder.path / TOKENIZER_JSON)
        spaced = own if spaced is None else spaced
        lines = "".join(f"{left} {right}\n" for left, right in rules)
        files = {VOCABULARY: json.dumps(ids, ensure_ascii=False).encode(), MERGES: lines.encode()}
    else:
        folder.need(VOCABULARY, MERGES)
        ids, merges = read_vocabulary(folder.path / VOCABULARY), folder.path / MERGES
        read_or_refuse(lambda: read_merges(merges))
        files = {VOCABULARY: folder.path / VOCABULARY, MERGES: merges}
    forced = folder.rules.get("forced_bos_token_id")
    if type(forced) is int and forced not in ids.values():
        raise CheckpointError(f"{folder.path}: forced_bos_token_id = {forced} is not a token of {VOCABULARY}")
    settings: dict[str, Any] = {
        "kind": "byte-bpe",
        "vocabulary": VOCABULARY,
        "merges": MERGES,
        "first": [] if begin is None else [token_of(folder, ids, begin)],
        "beginning": [forced] if type(forced) is int else [],
    }
    if spaced:
        settings["prefix_space"] = True
    if prompt:
        settings["prompt"] = prompt
    mask = {MASK: AddedToken(ids[MASK], lstrip=True, shown=False)} if MASK in ids else {}
    if added := spelled_tokens(folder, mask | added_tokens(folder), token_of(folder, ids, "<unk>")):
        settings["added"] = {symbol: asdict(token) for symbol, token in added.items()}
    return TextPart(settings, files, token_of(folder, ids, "<unk>"))
