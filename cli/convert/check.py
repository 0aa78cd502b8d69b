"""`--check`: the engine that a model comes from answers ten lines, and so does the bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from engine.errors import CheckpointError

if TYPE_CHECKING:
    from engine.api import TextResult
    from engine.bundle.bundle import Bundle, Content

CHECKED_TOKENS: Final = 32  # of an answer, where the model's shortest is not longer
CARD: Final = "README.md"


def check(folder: Path, adapter: Path | None, bundle: Bundle) -> Mapping[str, Content]:
    """Compare a bundle's answers with those of the engine that it comes from; say on its card what came out.

    folder: the model's own.
    adapter: folder of a LoRA adapter that was merged, or None.
    bundle: with its graphs.

    Returns the new card. An engine that can't be asked keeps nobody from having the bundle.
    """
    from export.peers import CHECK_LINES, CheckedModel, ask_peer

    most = min(max(CHECKED_TOKENS, bundle.options.min_length + 8), bundle.config.max_target - 3)
    lines = [_fitting(bundle, line) for line in CHECK_LINES]
    try:
        peer = ask_peer(CheckedModel(folder, bundle, adapter), lines, most + 2)
    except CheckpointError as error:
        line = f"Not checked: {error}"
    else:
        ours = _answers(bundle, lines, most)
        agreed = sum(_agree(*pair) for pair in zip(ours, peer.texts, strict=True))
        line = f"Checked: {agreed} of {len(lines)} answers are those of {peer.engine}, of a beam of 1"
    typer.echo(f"{bundle.name}: {line}")
    return {CARD: bundle.file(CARD).read_bytes() + f"- {line}\n".encode()}


def _fitting(bundle: Bundle, line: str) -> str:
    """As many words of a line as the model can read."""
    from engine.text.tokenizers.tokenizer import open_tokenizer

    tokenizer, words = open_tokenizer(bundle), line.split()
    while words and len(tokenizer.encode(" ".join(words))) >= bundle.config.max_source:
        words.pop()
    return " ".join(words)


def _answers(bundle: Bundle, lines: Sequence[str], most: int) -> list[TextResult]:
    from cli import texts
    from cli.choices import AnswerFlags, ModelChoice

    flags = AnswerFlags({"beam_size": 1, "max_length_a": 0.0, "max_length_b": most}, raw=True)
    with texts.open_service(ModelChoice(bundle.path, shortlist=False), flags) as service:
        return list(service.run_many(bundle.name, lines, flags.options()))


def _agree(ours: TextResult, theirs: str) -> bool:
    """Whether two answers are the same, as far as ours goes where it came to its longest."""
    mine, other = ours.text.strip(), theirs.strip()
    return other.startswith(mine) if ours.finish == "length" else other == mine
