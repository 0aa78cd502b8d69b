"""`convoy convert hf`: a folder of Hugging Face to a bundle.

The kind is read from config.json: Marian, BART, mBART-50, PEGASUS, M2M-100, NLLB-200, T5 and its relatives.
What is refused and where the search differs: docs/import.md.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch

from engine.bundle.bundle import Bundle, Description
from engine.errors import CheckpointError
from engine.text.codes import short
from export.importers import hf_bart, hf_t5, hf_text, marian
from export.importers.hf_files import ModelFolder, ProblemList, open_folder, read_tensors
from export.importers.hf_model import Overrides, TextPart, generation
from export.importers.imported import ImportedModel, check_folders, write
from export.importers.maps import fitted_later
from export.importers.marian_model import Settings as MarianSettings

TASKS: Final = ("translate", "summarize")
# model_type: the class that is served
CLASSES: Final = {
    "bart": "BartForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
    "pegasus": "PegasusForConditionalGeneration",
    "m2m_100": "M2M100ForConditionalGeneration",
    "t5": "T5ForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
}
TEXTS: Final = {
    "bart": hf_text.bart_text,
    "mbart": hf_text.mbart_text,
    "pegasus": hf_text.pegasus_text,
    "m2m_100": hf_text.nllb_text,
}


def convert(path: Path, out: Path, wish: Overrides | None = None, *, overwrite: bool = False) -> Bundle:
    """Import the model of a folder as the bundle `out`.

    Raises CheckpointError that names what is missing, unsupported or does not fit; BundleError when `out`
    exists. Nothing is written before everything was checked.
    """
    check_folders(path, out, overwrite=overwrite)
    folder, wish = open_folder(path), wish or Overrides()
    if folder.config.get("model_type") == "marian":
        return _marian(folder, out, wish, overwrite=overwrite)
    kind = _kind(folder)
    task, rules = _task(folder, kind, wish)
    family = hf_t5 if kind in ("t5", "mt5") else hf_bart
    prompt = str(rules.get("prefix") or "") if wish.prompt is None else wish.prompt
    wrong = ProblemList(folder.path)
    wrong.of(lambda: family.check(folder))
    text = wrong.of(lambda: TEXTS[kind](folder) if kind in TEXTS else hf_text.t5_text(folder, prompt))
    spoken = wrong.of(lambda: None if text is None else _languages(folder, task, text, wish))
    tensors = wrong.of(lambda: read_tensors(folder))
    wrong.check()
    assert text is not None
    assert spoken is not None
    assert tensors is not None
    source, target = spoken
    half = all(w.dtype == torch.float16 for w in tensors.values() if w.is_floating_point())
    config, named, problems = family.model_weights(folder, tensors, text)
    config = replace(config, quantization="rows" if wish.int8 else "none")
    weights, problems = fitted_later(named, config, problems)
    if problems:
        raise CheckpointError(f"{folder.path}: its weights do not fit its options: {'; '.join(problems)}")
    defaults, leftovers = generation({**folder.rules, **rules}, config.max_target - 1)
    description = Description(
        name=wish.name or out.resolve().name,
        task=task,
        source=source,
        target=target,
        config=config,
        text={**text.settings, "sources": sorted(text.codes)} if text.codes else text.settings,
        generation=defaults,
    )
    notes = (
        f"Languages: {', '.join(sorted(text.codes) or sorted({source, target}))}",
        f"Settings of the search that have no counterpart here: {', '.join(leftovers) or 'none'}",
        "Licence and training data: those of the model's own page",
    )
    origin = f"`convoy convert hf` ({CLASSES[kind]})"
    half = half if wish.half is None else wish.half
    return write(
        ImportedModel(origin, description, weights, text.files, half, notes), out, overwrite=overwrite
    )


def _marian(folder: ModelFolder, out: Path, wish: Overrides, *, overwrite: bool) -> Bundle:
    if wish.prompt or wish.task not in (None, "translate"):
        raise CheckpointError(f"{folder.path}: is a model of Marian, which translates without a prompt")
    if wish.int8:
        raise CheckpointError(f"{folder.path}: is a model of Marian, small enough for fp16: leave out --int8")
    settings = MarianSettings(wish.name, wish.source, wish.target, None, wish.half)
    return marian.convert(folder.path, out, settings, overwrite=overwrite)


def _kind(folder: ModelFolder) -> str:
    kind = folder.config.get("model_type")
    built = folder.config.get("architectures") or [CLASSES.get(str(kind))]
    if kind not in CLASSES or built != [CLASSES[kind]]:
        served = ", ".join(sorted(CLASSES.values()))
        raise CheckpointError(
            f"{folder.path}: is a model of the type {kind!r} ({built}); served are MarianMTModel, {served}"
        )
    return str(kind)


def _task(folder: ModelFolder, kind: str, wish: Overrides) -> tuple[str, dict[str, Any]]:
    """The task, and what config.json sets for it."""
    usual = {"bart": "summarize", "pegasus": "summarize", "mbart": "translate", "m2m_100": "translate"}
    task = wish.task or usual.get(kind) or ("summarize" if folder.for_task("summarization") else "translate")
    if task not in TASKS:
        raise CheckpointError(f"task {task!r} is none of {', '.join(TASKS)}")
    if task == "summarize":
        return task, dict(folder.for_task("summarization"))
    pair = f"translation_{wish.source or 'en'}_to_{wish.target}"
    return task, dict(folder.for_task(pair))


def _languages(folder: ModelFolder, task: str, text: TextPart, wish: Overrides) -> tuple[str, str]:
    """Codes of the usual source and target. Raises CheckpointError when nobody names them."""
    source = wish.source or "en"
    target = wish.target or (source if task == "summarize" else None)
    codes = {short(code): code for code in text.codes}
    if target is None or (codes and not {short(source), short(target)} <= set(codes)):
        some = f": {', '.join(sorted(codes)[:20])}{', ...' if len(codes) > 20 else ''}" if codes else ""
        raise CheckpointError(f"{folder.path}: name the usual languages with --source and --target{some}")
    return codes.get(short(source), source), codes.get(short(target), target)
