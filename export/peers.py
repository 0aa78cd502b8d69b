"""Translate lines with the engine that a model comes from, to compare the answers with the bundle's.

`transformers` runs Hugging Face's folders, from text to text; `ctranslate2` runs its own, on the tokens of
the library that its users call. Both search greedily.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from engine.bundle.bundle import Bundle
from engine.errors import CheckpointError
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.library_tokens import library_tokens

CHECK_LINES: Final = (
    "The house at the end of the street is for sale.",
    "We met at 9:30 on Monday, 3 March 2025.",
    "How much does it cost?",
    "She said that she would not come back before winter.",
    "Please send the report to Anna and me by Friday.",
    "Yes!",
    "Water boils at 100 degrees; ice melts at zero.",
    "He has two brothers (both older), a cat and no car.",
    "The committee rejected the proposal by a narrow majority after a debate that lasted all night.",
    "a list, without a verb: apples, pears, plums",
)


@dataclass(frozen=True, slots=True)
class PeerAnswers:
    """Name and version of an engine, and its answer to each line."""

    engine: str
    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A model's folder, its bundle, and the folder of the merged LoRA adapter or None."""

    folder: Path
    bundle: Bundle
    adapter: Path | None = None


def ask_peer(model: CheckedModel, lines: Sequence[str], limit: int) -> PeerAnswers:
    """Translate lines with the engine that a model comes from.

    model: the model and its bundle.
    lines: the texts.
    limit: limit of the target tokens.

    Raises CheckpointError if the source has no engine, or if the engine is not installed or fails.
    """
    if (model.folder / "config.json").is_file() and not _is_ctranslate2(model.folder):
        return _run_engine(_transformers, model, lines, limit)
    if _is_ctranslate2(model.folder):
        return _run_engine(_ctranslate2, model, lines, limit)
    raise CheckpointError("its source has no engine that can be asked")


def _is_ctranslate2(folder: Path) -> bool:
    return (folder / "model.bin").is_file() or (folder / "model" / "model.bin").is_file()


def _run_engine(ask: Any, model: CheckedModel, lines: Sequence[str], limit: int) -> PeerAnswers:
    """Run an engine, and raise all its errors as CheckpointError: they must not stop the import."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answers: PeerAnswers = ask(model, lines, limit)
            return answers
    except ModuleNotFoundError as error:
        raise CheckpointError(f"{error.name} is not installed") from error
    except Exception as error:
        reason = str(error).strip().partition("\n")[0][:200]
        raise CheckpointError(f"{ask.__name__.strip('_')} fails: {type(error).__name__}: {reason}") from error


def _transformers(model: CheckedModel, lines: Sequence[str], limit: int) -> PeerAnswers:
    """Translate lines greedily by transformers, to at most `limit` tokens."""
    import torch

    transformers: Any = import_module("transformers")
    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model.folder, local_files_only=True)
    network = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        model.folder, local_files_only=True, torch_dtype=torch.float32
    )
    if model.adapter is not None:
        network = import_module("peft").PeftModel.from_pretrained(network, str(model.adapter))
    text, bundle = model.bundle.text, model.bundle
    symbols = text.get("languages") or {}
    if text.get("source_symbol") == "source" or text.get("target_symbol"):
        tokenizer.src_lang = str(symbols[bundle.source]).strip("_")
        tokenizer.tgt_lang = str(symbols[bundle.target]).strip("_")
    opening = _opening(text, symbols, bundle.target)
    forced = open_tokenizer(bundle).beginning
    own = {"forced_bos_token_id": forced[0]} if forced else {}
    if text.get("last"):  # mBART-25, whose users pass the first input of the decoder
        tokenizer.src_lang = tokenizer.convert_ids_to_tokens(text["last"][-1])
        own["decoder_start_token_id"] = bundle.config.first_token
    stacks = bundle.config.encoder, bundle.config.decoder
    # the cache of transformers has the encoder's number of layers
    can_cache = len({stack.layers for stack in stacks if stack}) == 1
    texts = []
    with torch.inference_mode():
        for line in lines:
            inputs = tokenizer(opening + line, return_tensors="pt")
            tokens = network.eval().generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                num_beams=1,
                do_sample=False,
                max_length=None,
                max_new_tokens=limit,
                use_cache=can_cache,
                **own,
            )
            texts.append(
                tokenizer.decode(tokens[0], skip_special_tokens=True, clean_up_tokenization_spaces=False)
            )
    return PeerAnswers(f"transformers {transformers.__version__}", texts)


def _opening(text: Mapping[str, Any], symbols: Mapping[str, str], target: str) -> str:
    """Return the text before each source: the symbol of the target language if needed, and the prompt."""
    named = text.get("source_symbol") == "target" or (text["kind"] == "marian" and target in symbols)
    return (f"{symbols[target]} " if named else "") + str(text.get("prompt") or "")


def _ctranslate2(model: CheckedModel, lines: Sequence[str], limit: int) -> PeerAnswers:
    """Translate lines greedily by CTranslate2, to at most `limit` tokens."""
    ctranslate2 = import_module("ctranslate2")
    folder = model.folder if (model.folder / "model.bin").is_file() else model.folder / "model"
    translator = ctranslate2.Translator(str(folder), compute_type="float32", inter_threads=1)
    library = library_tokens(folder, model.bundle)
    texts = []
    for line in lines:
        prefix = list(library.prefix)
        (answer,) = translator.translate_batch(
            [library.split(line)],
            target_prefix=[prefix] if prefix else None,
            beam_size=1,
            max_decoding_length=limit,
        )
        tokens = answer.hypotheses[0]  # without the prefix if the model has no first symbol of its own
        texts.append(library.join(tokens[len(prefix) :] if tokens[: len(prefix)] == prefix else tokens))
    return PeerAnswers(f"ctranslate2 {ctranslate2.__version__} on the tokens of {library.name}", texts)
