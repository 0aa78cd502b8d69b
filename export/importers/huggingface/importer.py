"""`convoy convert hf`: read a folder in Hugging Face's layout.

config.json names the kind: Marian, BART, Blenderbot, mBART, PEGASUS, M2M-100, NLLB-200, FSMT, T5 and
its relatives. docs/import.md lists unsupported models and differences of the search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from engine.errors import CheckpointError
from engine.text.codes import short
from export.importers.huggingface import bart, marian, t5, text
from export.importers.huggingface.adapters import merge_adapter
from export.importers.huggingface.byte_text import byte_text
from export.importers.huggingface.family import TextPart
from export.importers.huggingface.files import ModelFolder, open_folder, read_tensors
from export.importers.huggingface.generation import check_generation, generation
from export.importers.huggingface.kinds import class_name, model_type
from export.importers.huggingface.mbart_text import mbart_text
from export.importers.importing import THEIR_PAGE, ImportedModel, ProblemList
from export.importers.settings import HuggingFaceImport, MarianImport
from export.importers.weights import all_half, fit_lazily

TASKS: Final = ("translate", "summarize")
TEXTS: Final = {
    "bart": text.bart_text,
    "blenderbot": byte_text,
    "pegasus": text.pegasus_text,
    "m2m_100": text.nllb_text,
    "fsmt": text.fsmt_text,
}


def read(folder: Path, settings: HuggingFaceImport, problems: ProblemList) -> ImportedModel:
    """Read the model of a folder.

    folder: folder in Hugging Face's layout.
    settings: settings of the user.
    problems: receives whatever is missing, unsupported or does not fit.
    """
    opened = open_folder(folder)
    if opened.config.get("model_type") == "marian":
        _check_marian(folder, settings)
        common = {name: getattr(settings, name) for name in ("name", "source", "target", "half", "adapter")}
        return marian.read(folder, MarianImport(**common), problems)
    kind = model_type(opened)
    task, rules = _task(opened, kind, settings)
    family: Any = bart if kind in bart.VARIANTS else t5
    problems.attempt(lambda: family.check(opened))
    problems.attempt(lambda: check_generation(opened))
    side = problems.attempt(lambda: _text_side(opened, kind, settings, rules))
    pair = problems.attempt(lambda: None if side is None else _languages(opened, task, side, settings))
    tensors = problems.attempt(lambda: merge_adapter(read_tensors(opened), settings.adapter))
    problems.stop()
    assert side is not None
    assert pair is not None
    assert tensors is not None
    config, named, findings = family.model_weights(opened, tensors, side)
    config = replace(config, quantization="rows" if settings.int8 else "none")
    weights, findings = fit_lazily(named, config, findings)
    problems.add_under(f"{folder}: its weights do not fit its options", findings)
    defaults, leftovers = generation({**opened.rules, **rules}, config.max_target - 1, opened.generation)
    return ImportedModel(
        origin=f"`convoy convert hf` ({class_name(kind)})",
        config=config,
        weights=weights,
        text={**side.settings, "sources": sorted(side.codes)} if side.codes else side.settings,
        files=side.files,
        task=task,
        source=pair[0],
        target=pair[1],
        half=all_half(tensors),
        generation=defaults,
        notes=(
            f"Languages: {', '.join(sorted(side.codes) or sorted(set(pair)))}",
            f"Decoding settings without a counterpart here: {', '.join(leftovers) or 'none'}",
            THEIR_PAGE,
        ),
    )


def _text_side(
    folder: ModelFolder, kind: str, settings: HuggingFaceImport, rules: Mapping[str, Any]
) -> TextPart:
    """Return the text side; the prompt of the settings, or of `rules`, is written before each source."""
    if kind in TEXTS:
        return TEXTS[kind](folder)
    if kind == "mbart":
        return mbart_text(folder, settings.source, settings.target)
    return text.t5_text(
        folder, str(rules.get("prefix") or "") if settings.prompt is None else settings.prompt
    )


def _check_marian(folder: Path, settings: HuggingFaceImport) -> None:
    if settings.prompt or settings.task not in (None, "translate"):
        raise CheckpointError(f"{folder}: is a model of Marian, which translates without a prompt")
    if settings.int8:
        raise CheckpointError(f"{folder}: is a model of Marian, small enough for fp16: leave out --int8")


def _task(folder: ModelFolder, kind: str, settings: HuggingFaceImport) -> tuple[str, dict[str, Any]]:
    """Return the task, and the settings of config.json for it."""
    usual = dict.fromkeys(("bart", "blenderbot", "pegasus"), "summarize") | dict.fromkeys(
        ("mbart", "m2m_100", "fsmt"), "translate"
    )
    task = (
        settings.task or usual.get(kind) or ("summarize" if folder.for_task("summarization") else "translate")
    )
    if task not in TASKS:
        raise CheckpointError(f"task {task!r} is none of {', '.join(TASKS)}")
    if task == "summarize":
        return task, dict(folder.for_task("summarization"))
    pair = f"translation_{settings.source or 'en'}_to_{settings.target}"
    return task, dict(folder.for_task(pair))


def _languages(
    folder: ModelFolder, task: str, side: TextPart, settings: HuggingFaceImport
) -> tuple[str, str]:
    """Return the codes of the default source and target. Raises CheckpointError if they are unknown."""
    known_languages = side.languages or ("en", None)
    source = settings.source or known_languages[0]
    target = settings.target or (source if task == "summarize" else known_languages[1])
    codes = {short(code): code for code in side.codes}
    if target is None or (codes and not {short(source), short(target)} <= set(codes)):
        some = f": {', '.join(sorted(codes)[:20])}{', ...' if len(codes) > 20 else ''}" if codes else ""
        raise CheckpointError(f"{folder.path}: name the default languages with --source and --target{some}")
    return codes.get(short(source), source), codes.get(short(target), target)
