"""Map decoding settings of `transformers` (GenerationConfig of 4.57 and 5.23) to ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from engine.errors import CheckpointError
from export.importers.huggingface.files import ModelFolder

CARRIED: Final = (
    *("num_beams", "length_penalty", "max_length", "max_new_tokens", "min_length", "min_new_tokens"),
    *("no_repeat_ngram_size", "early_stopping", "bad_words_ids", "renormalize_logits"),
    *("decoder_start_token_id", "forced_bos_token_id", "pad_token_id", "bos_token_id", "eos_token_id"),
)
# settings that do not change the best answer: further outputs, caches, speed
TECHNICAL: Final = (
    *("use_cache", "cache_implementation", "cache_config", "return_legacy_cache", "max_cache_len"),
    *("output_attentions", "output_hidden_states", "output_scores", "output_logits", "use_mtp"),
    *("return_dict_in_generate", "low_memory", "compile_config", "disable_compile", "prefill_chunk_size"),
    *("num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold"),
    *("prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit", "is_assistant"),
    *("assistant_lookbehind", "target_lookbehind", "assistant_ensemble_weight", "speculation_type"),
    *("continuous_batching_config", "remove_invalid_values", "trust_remote_code"),
    *("transformers_version", "_from_model_config", "_commit_hash"),
)
# further settings, with the values that have no effect; SAMPLING's have one only with `do_sample`
HARMLESS: Final[dict[str, tuple[Any, ...]]] = {
    "do_sample": (False,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0, 0.0),
    "num_return_sequences": (1,),
    "repetition_penalty": (1, 1.0),
    "encoder_repetition_penalty": (1, 1.0),
    "encoder_no_repeat_ngram_size": (0,),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "exponential_decay_length_penalty": (),
    "stop_strings": ([],),
    "max_time": (),
    "penalty_alpha": (0, 0.0),
    "dola_layers": (),
    "token_healing": (False,),
}
SAMPLING: Final = (
    *("temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff"),
)
# settings that change every answer, with the values that have no effect
REFUSED_SETTINGS: Final[dict[str, tuple[Any, ...]]] = {
    "sequence_bias": ({}, []),
    "force_words_ids": ([],),
    "constraints": ([],),
    "forced_decoder_ids": ([],),
    "guidance_scale": (1, 1.0),
    "watermarking_config": (),
}


def check_generation(folder: ModelFolder) -> None:
    """Raise CheckpointError with every setting that should be a number, or that changes every answer."""
    problems = [*_number_problems(folder.rules), *_refused_settings(folder.rules)]
    if problems:
        raise CheckpointError(f"{folder.path}: its decoding settings: {'; '.join(problems)}")


def generation(
    rules: Mapping[str, Any], longest: int, own: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the decoding defaults, and the settings that have no counterpart.

    Lengths of `transformers` count the first token and end-of-sentence; ours count neither.

    rules: decoding settings, some of config.json in older models.
    longest: limit of the target tokens of the model.
    own: content of generation_config.json, where every name is a decoding setting.
    """
    if type(rules.get("max_new_tokens")) is int:
        longest = min(longest, rules["max_new_tokens"] - 1)
    elif type(rules.get("max_length")) is int:
        longest = min(longest, rules["max_length"] - 2)
    longest = max(1, longest)
    shortest = max(0, int(_number(rules, "min_length", 0)) - 1, int(_number(rules, "min_new_tokens", 0)))
    options = {
        "beam_size": int(_number(rules, "num_beams", 1)),
        "length_penalty": float(_number(rules, "length_penalty", 1.0)),
        "max_length_b": longest,
        "min_length": min(shortest, longest),
        "no_repeat_ngram_size": int(_number(rules, "no_repeat_ngram_size", 0)),
    }
    return options, tuple(_leftovers(rules, own or {}))


def _leftovers(rules: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings that have no counterpart here."""
    harmless = {name: (None, *values) for name, values in HARMLESS.items()}
    for name, values in harmless.items():
        if rules.get(name) not in values:
            yield f"{name} = {rules[name]!r}"
    if rules.get("bad_words_ids"):
        yield f"bad_words_ids = {rules['bad_words_ids']!r}"
    if rules.get("do_sample"):
        yield from (f"{name} = {rules[name]!r}" for name in SAMPLING if rules.get(name) is not None)
    forced_end = rules.get("forced_eos_token_id")
    if forced_end not in (None, rules.get("eos_token_id")):
        yield f"forced_eos_token_id = {forced_end!r}"
    if rules.get("early_stopping", False) is not True:  # docs/import.md describes our search
        yield f"early_stopping = {rules.get('early_stopping', False)!r}"
    known = {*CARRIED, *TECHNICAL, *HARMLESS, *SAMPLING, *REFUSED_SETTINGS, "forced_eos_token_id"}
    for name in sorted(set(own) - known):
        if own[name] not in (None, False):
            yield f"{name} = {own[name]!r}"


def _number_problems(rules: Mapping[str, Any]) -> Iterator[str]:
    """Yield the decoding settings that should be numbers and are not."""
    for name in CARRIED[:7]:
        value = rules.get(name)
        kinds: tuple[type, ...] = (int, float) if name == "length_penalty" else (int,)
        if value is not None and type(value) not in kinds:
            yield f"{name} = {value!r} is not a number"


def _refused_settings(rules: Mapping[str, Any]) -> Iterator[str]:
    """Yield the decoding settings that would change answers and have no counterpart here."""
    for name, harmless in REFUSED_SETTINGS.items():
        if rules.get(name) not in (None, *harmless):
            yield f"{name} = {rules[name]!r} has no counterpart here, and answers would differ"
    ends = rules.get("eos_token_id")
    if isinstance(ends, list) and len(ends) != 1:
        yield f"eos_token_id = {ends!r}: only one end-of-sentence token is supported"


def _number(rules: Mapping[str, Any], name: str, usual: float) -> float:
    """Return a setting that is a number, otherwise `usual`."""
    value = rules.get(name, usual)
    return value if type(value) in (int, float) else usual
