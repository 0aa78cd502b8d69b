"""Kinds of models in Hugging Face's layout: model types and classes, read or refused with a reason."""

from __future__ import annotations

from typing import Final

from engine.errors import CheckpointError
from export.importers.huggingface.files import ModelFolder

# model_type to the beginning of the names of its classes
KINDS: Final = {
    "bart": "Bart",
    "blenderbot": "Blenderbot",
    "mbart": "MBart",
    "pegasus": "Pegasus",
    "m2m_100": "M2M100",
    "fsmt": "FSMT",
    "t5": "T5",
    "mt5": "MT5",
    "umt5": "UMT5",
}
WRITER: Final = "ForConditionalGeneration"
# endings of the classes whose weights are read; a model without a head shares its table with the output
ENDINGS: Final = (WRITER, "WithLMHeadModel", "Model")
# kinds with the same weights; `transformers` follows the model type, whatever class a folder names
ALIKE: Final = (("t5", "mt5"), ("bart", "mbart"))
# why a model type is refused
REFUSED: Final = {
    "led": "its encoder attends to windows of the source (Longformer)",
    "longt5": "its encoder attends to windows and summaries of the source",
    "pegasus_x": "its encoder attends to blocks of the source",
    "bigbird_pegasus": "its encoder attends to random blocks of the source",
    "prophetnet": "its decoder predicts several tokens at once",
    "xlm-prophetnet": "its decoder predicts several tokens at once",
    "nllb-moe": "each token chooses experts; take a dense model, such as nllb-200-distilled-1.3B",
    "switch_transformers": "each token chooses experts; take a dense model, such as t5-base",
    "blenderbot-small": "its tokenizer is not supported; take a model of the type blenderbot",
    "t5gemma": "its stacks are Gemma's, with rotary positions",
    "t5gemma2": "its stacks are Gemma's, with rotary positions",
    "IndicTrans": "its code and its rewriting of scripts come with the model; take NLLB-200, which has the "
    "same languages",
    "encoder-decoder": "its encoder and decoder are models of other kinds",
    "mvp": "its layers have trained prompts",
    "plbart": "its sources end with their language, in another order than mBART's",
}


def model_type(folder: ModelFolder) -> str:
    """Return the model type of config.json. Raises CheckpointError if it or its class is not supported."""
    kind, named = folder.config.get("model_type"), folder.config.get("architectures") or []
    if kind in KINDS:
        alike = next((kinds for kinds in ALIKE if kind in kinds), (kind,))
        names = {KINDS[each] + ending for each in alike for ending in ENDINGS}
        if isinstance(named, list) and all(name in names for name in named):
            return str(kind)
        raise CheckpointError(
            f"{folder.path}: its class {named!r} is not one that writes texts with this model type, such as "
            f"{class_name(str(kind))}"
        )
    if kind is None:
        where = "the folder is CTranslate2's: use convoy convert ctranslate2"
        where = where if folder.has("model.bin") else "name it there, as the original model does"
        raise CheckpointError(f"{folder.path}: config.json names no model_type; {where}")
    reason = REFUSED.get(str(kind))
    raise CheckpointError(
        f"{folder.path}: the model type {kind!r} ({named}) is not supported"
        f"{f', because {reason}' if reason else ''}; supported are marian, {', '.join(sorted(KINDS))}"
    )


def class_name(kind: str) -> str:
    """Return the class that `transformers` loads for a supported model type."""
    return KINDS[kind] + WRITER
