"""The last steps of an import, run on the finished bundle before it is renamed into its place.

Each step returns the files that it adds to the bundle (`engine.bundle.bundle.Stage`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine.api import (
    DEFAULT_PLACEHOLDERS,
    PlaceholderChoice,
    Placement,
    TextOptions,
    TextResult,
    offline_service,
    processors,
)
from engine.errors import CheckpointError, ConvoyError
from engine.text.tokenizers.placeholder_words import PLACEHOLDERS_FILE
from engine.text.tokenizers.tokenizer import open_tokenizer
from export import peers

if TYPE_CHECKING:
    from engine.bundle.bundle import Bundle, Content

PROOF_TEXT: Final = "A 1."  # every tokenizer can cut it
PROOF_TOKENS: Final = 4
CHECKED_TOKENS: Final = 32  # length limit of a compared answer, unless the model's minimum is higher
CARD: Final = "README.md"
WORD_PIECES: Final = "word-pieces"  # kind of BERT's tokenizer
NOTHING_COPIED: Final = (
    "the model copies no word of its vocabulary reliably: glossaries and ignore are refused"
)

Report = Callable[[str], None]


def add_graphs(bundle: Bundle) -> Mapping[str, Content]:
    """Return the ONNX graphs that a server on the CPU needs."""
    from export.graphs.onnx import graph_files

    return graph_files(bundle)


def prove_answer(bundle: Bundle) -> Mapping[str, Content]:
    """Translate one short text with the bundle's default options; adds no files.

    Raises CheckpointError when the model can't answer.
    """
    if not bundle.config.reads_source:
        return {}
    decode = {"max_length_a": 0.0, "max_length_b": max(PROOF_TOKENS, bundle.options.min_length)}
    try:
        with offline_service(bundle.path, decode=decode) as service:
            options = TextOptions(decode, protect=True, follow_form=True)
            list(service.run_many(bundle.name, [PROOF_TEXT], options))
    except ConvoyError as error:
        reason = str(error).replace(str(bundle.path), bundle.name)
        raise CheckpointError(f"{bundle.name}: the model can't answer with its settings: {reason}") from error
    return {}


def add_placeholders(report: Report, bundle: Bundle) -> Mapping[str, Content]:
    """Choose words as placeholders and return their file, or no file if the model copies no word.

    report: receives one line about the choice.
    bundle: the new bundle, with its graphs.
    """
    if bundle.task != "translate":
        return {}
    try:
        choice = choose_placeholders(bundle)
    except ConvoyError as error:
        report(f"{bundle.name}: no placeholders: {error}")
        return {}
    if choice is None:
        report(f"{bundle.name}: its vocabulary has placeholder symbols of its own")
        return {}
    if not choice.words:
        report(f"{bundle.name}: no placeholders: {NOTHING_COPIED}")
        return {}
    words = [f"{w.word} {share:.0%}" for w, share in zip(choice.words, choice.shares, strict=True)]
    listed = ", ".join(words)
    report(f"{bundle.name}: placeholders, and how often the model copies each by itself: {listed}")
    return choice.files


def choose_placeholders(
    bundle: Bundle, sentences: Sequence[str] = (), count: int = DEFAULT_PLACEHOLDERS
) -> PlaceholderChoice | None:
    """Choose placeholders of a translating model.

    bundle: the model, with its graphs.
    sentences: text of its source language; without any, words of its vocabulary are tried.
    count: number of placeholders.

    Returns the words and how often each was copied; no words if none was; None if the vocabulary has
    placeholder symbols.
    """
    with offline_service(bundle.path, decode={"beam_size": 1}) as service:
        (info,) = service.models()
        if info.placeholders and PLACEHOLDERS_FILE not in bundle.files():
            return None
        return service.choose_placeholders(info.name, bundle.config.source_vocab, sentences, count)


def check_with_peer(
    report: Report, folder: Path, adapter: Path | None, bundle: Bundle
) -> Mapping[str, Content]:
    """Compare a bundle's answers with those of the engine that the model comes from.

    report: receives the result, one line.
    folder: folder of the imported model.
    adapter: folder of the LoRA adapter that was merged, or None.
    bundle: the new bundle, with its graphs.

    Returns the model card with a line about the result. An error of the other engine does not stop the
    import: the card says that the model was not checked.
    """
    # largest number of tokens of a compared answer
    limit = min(max(CHECKED_TOKENS, bundle.options.min_length + 8), bundle.config.max_target - 3)
    lines = [_shorten(bundle, line) for line in peers.CHECK_LINES]
    try:
        peer = peers.ask_peer(peers.CheckedModel(folder, bundle, adapter), lines, limit + 2)
    except CheckpointError as error:
        result = f"Not checked: {error}"
    else:
        ours = _answers(bundle, lines, limit)
        spaced = bundle.text["kind"] != WORD_PIECES
        agreed = sum(_agree(*pair, spaced=spaced) for pair in zip(ours, peer.texts, strict=True))
        result = f"Checked: {agreed} of {len(lines)} answers are those of {peer.engine}, of a beam of 1"
    report(f"{bundle.name}: {result}")
    return {CARD: bundle.file(CARD).read_bytes() + f"- {result}\n".encode()}


def _shorten(bundle: Bundle, line: str) -> str:
    """Return the words of a line up to the longest source that the model reads."""
    tokenizer, words = open_tokenizer(bundle), line.split()
    while words and len(tokenizer.encode(" ".join(words))) >= bundle.config.max_source:
        words.pop()
    return " ".join(words)


def _answers(bundle: Bundle, lines: Sequence[str], limit: int) -> list[TextResult]:
    """Return the bundle's greedy answers of at most `limit` tokens."""
    placement = Placement(threads=processors(), shortlist=False)
    decode = {"beam_size": 1, "max_length_a": 0.0, "max_length_b": limit}
    with offline_service(bundle.path, placement, decode) as service:
        return list(service.run_many(bundle.name, lines, TextOptions(decode, raw=True)))


def _agree(ours: TextResult, theirs: str, *, spaced: bool = True) -> bool:
    """Return whether two answers are equal.

    ours: answer of the bundle; if it reached the limit, it may be a prefix that ends inside a character.
    theirs: answer of the other engine.
    spaced: whether spaces count; BERT's library writes a space on both sides of each Han character.
    """
    mine, other = (text.strip() if spaced else "".join(text.split()) for text in (ours.text, theirs))
    return other.startswith(mine.rstrip("\ufffd")) if ours.finish == "length" else other == mine
