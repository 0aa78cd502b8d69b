"""Merge LoRA adapters (Hu et al. 2022), in the format of `peft`, into the weights of their base."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.errors import CheckpointError
from export.importers.huggingface.files import read_weights
from export.importers.json_object import read_object
from export.importers.weights import Tensor

ADAPTER_FILE: Final = "adapter_config.json"
ADAPTER_WEIGHTS: Final = ("adapter_model.safetensors", "adapter_model.bin")
PREFIX: Final = "base_model.model."
MODEL: Final = "model."  # prefix of BART's weights, which files of the model without a head lack
# further settings, which do not change the merged weights
IDLE: Final = (
    *("auto_mapping", "base_model_name_or_path", "bias", "corda_config"),
    *("ensure_weight_tying", "eva_config", "exclude_modules", "inference_mode"),
    *("layers_pattern", "layers_to_transform", "loftq_config", "lora_dropout"),
    *("lora_ga_config", "megatron_core", "modules_to_save", "peft_version"),
    *("qalora_group_size", "rank_pattern", "revision", "target_modules"),
    *("task_type",),
)
READ: Final = ("alpha_pattern", "init_lora_weights", "lora_alpha", "peft_type", "r", "use_rslora")
EMBEDDING_FACTORS: Final = ("lora_embedding_A", "lora_embedding_B")
FACTORS: Final = (("lora_A", "lora_B"), EMBEDDING_FACTORS)
# initialisations that do not change the weights of the base
KEPT_BASE: Final = (None, True, False, "gaussian", "orthogonal", "eva")


def merge_adapter(tensors: Mapping[str, Tensor], adapter: Path | None) -> Mapping[str, Tensor]:
    """Return the weights of a base with an adapter merged into them; changed weights are fp32.

    Raises CheckpointError with all problems of the adapter.
    """
    if adapter is None:
        return tensors
    config = read_object(adapter / ADAPTER_FILE)
    weights = _read_adapter(adapter)
    result, problems = dict(tensors), list(_setting_problems(config))
    for module, parts in sorted(_by_module(weights).items()):
        # with wrong settings, modules are merged only to find further problems: the factor does not matter
        if problem := _merge_module(
            result, module, parts, 0.0 if problems else _scale(config, module, parts)
        ):
            problems.append(problem)
    if problems:
        some = "; ".join(problems[:8]) + ("; ..." if len(problems) > 8 else "")
        raise CheckpointError(f"{adapter}: can't be merged: {some}")
    return result


def _read_adapter(adapter: Path) -> dict[str, Tensor]:
    """Read the weights of an adapter."""
    for name in ADAPTER_WEIGHTS:
        if (adapter / name).is_file():
            return read_weights(adapter / name)
    raise CheckpointError(f"{adapter}: lacks {' or '.join(ADAPTER_WEIGHTS)}; download the whole folder")


def _setting_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings of an adapter that prevent merging it."""
    if config.get("peft_type") != "LORA":
        yield f"peft_type {config.get('peft_type')!r} is not LORA"
    if config.get("init_lora_weights") not in KEPT_BASE:
        yield f"init_lora_weights = {config['init_lora_weights']!r} changes the base's own weights"
    for name in ("r", "lora_alpha"):
        if type(config.get(name)) not in (int, float) or not 0 < config[name] < 1e6:
            yield f"{name} = {config.get(name)!r} is not a number"
    pattern = config.get("alpha_pattern") or {}
    if not isinstance(pattern, dict) or not all(_plain_alpha(*pair) for pair in pattern.items()):
        yield "alpha_pattern does not give numbers to names of modules"
    for name, value in config.items():
        if name not in (*IDLE, *READ) and value not in (None, False, {}, []):
            yield f"{name} = {value!r} is not supported"


def _plain_alpha(name: str, alpha: Any) -> bool:
    """Return whether an entry of alpha_pattern is a plain module name with a number."""
    return name.replace(".", "").replace("_", "").isalnum() and type(alpha) in (int, float)


def _by_module(weights: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Return the adapter's tensors by module, then by their name within it, such as "lora_A"."""
    modules: dict[str, dict[str, Tensor]] = {}
    for name, tensor in weights.items():
        plain = name.removeprefix(PREFIX).replace(".base_layer.", ".")
        at = plain.find(".lora_")
        module, part = (plain[:at], plain[at + 1 :]) if at >= 0 else plain.rpartition(".")[::2]
        modules.setdefault(module, {})[part.removesuffix(".weight") if at >= 0 else part] = tensor
    return modules


def _scale(config: Mapping[str, Any], module: str, parts: Mapping[str, Tensor]) -> float:
    """Return the factor of a module's product of A and B: alpha / rank, or alpha / rank ** 0.5 for rsLoRA."""
    factor = next((parts[name] for name, _ in FACTORS if name in parts), None)
    rank = 1 if factor is None else max(1, factor.shape[0])
    named = (a for key, a in (config.get("alpha_pattern") or {}).items() if f".{module}".endswith(f".{key}"))
    alpha = next(named, config["lora_alpha"])
    return float(alpha / rank**0.5 if config.get("use_rslora") else alpha / rank)


def _merge_module(
    tensors: dict[str, Tensor], module: str, parts: Mapping[str, Tensor], scale: float
) -> str | None:
    """Merge a module's part of the adapter into the weights; return the module's problem, or None.

    tensors: weights of the base; changed in place.
    module: name of the module.
    parts: tensors of the adapter by their names within the module.
    scale: factor of the product of A and B.
    """
    factors = next((names for names in FACTORS if not parts.keys().isdisjoint(names)), None)
    if factors is not None:
        name = _stored_name(tensors, f"{module}.weight")
        if name is None:
            return f"{module}.weight is changed, which the base's file does not hold by itself"
        change = _product(module, parts, factors, tensors[name].shape)
        if isinstance(change, str):
            return change
        tensors[name] = tensors[name].astype(np.float32) + np.float32(scale) * change
    whole = {kind: tensor for kind, tensor in parts.items() if kind in ("weight", "bias")}
    for kind, tensor in whole.items():  # modules that were trained without factors
        name = f"{module}.{kind}"
        tensors[_stored_name(tensors, name) or name] = tensor
    rest = set(parts) - set(whole) - set(factors or ())
    return f"{module}.{min(rest)} is not understood" if rest else None


def _product(
    module: str, parts: Mapping[str, Tensor], factors: tuple[str, str], shape: Sequence[int]
) -> Tensor | str:
    """Return the product of a module's factors in the shape of the weight, or the problem of the factors."""
    a, b = (parts.get(name) for name in factors)
    if a is None or b is None or a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[1]:
        return f"{module} does not hold two factors of one rank"
    change = b.astype(np.float32) @ a.astype(np.float32)
    change = change.T if factors == EMBEDDING_FACTORS else change
    if change.shape != shape:
        return f"{module} has the shape {tuple(change.shape)}, the base {tuple(shape)}"
    return change


def _stored_name(tensors: Mapping[str, Tensor], name: str) -> str | None:
    """Return the name of a weight in the base's file, or None."""
    return next((each for each in (name, name.removeprefix(MODEL)) if each in tensors), None)
