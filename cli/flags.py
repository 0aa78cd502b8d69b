"""Command-line flags made from the fields of a dataclass, so that a new option needs no second place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from typing import Annotated, Any, Final, get_type_hints

import typer

from engine.types import DecodeOptions

Command = Callable[..., None]

TYPES: Final[dict[str, type]] = {
    "int": int,
    "int | None": int,
    "float": float,
    "bool": bool,
    "str": str,
}
HELP: Final = {
    "beam_size": "Hypotheses kept at each step.",
    "n_best": "Hypotheses returned for each line.",
    "length_penalty": "Scores divide by length ** penalty.",
    "normalize_scores": "Divide scores by the length at all.",
    "length_normalization": "power: length ** penalty; wu: ((5 + length) / 6) ** penalty.",
    "beam_rule": "fairseq: 2 x beam-size candidates a step; marian: each answer found narrows the beam.",
    "word_reward": "Added to the score for each target token: longer targets; negative: shorter ones.",
    "coverage_penalty": "Weight of source words that got little attention (Wu et al. 2016); 0: off.",
    "stepwise_penalty": "Candidates of each step compete by coverage too, not at the end only.",
    "min_length": "Shortest target: this plus min-length-a x source tokens.",
    "min_length_a": "See --min-length.",
    "max_length": "Longest target in tokens.",
    "max_length_a": "Longest target also: this x source tokens + max-length-b.",
    "max_length_b": "See --max-length-a.",
    "no_repeat_ngram_size": "Never repeat n tokens in a row; 0: off.",
    "unk_penalty": "Subtracted from the log-probability of the unknown token.",
    "temperature": "Divides the logits.",
    "sampling": "Draw independent samples instead of beam search.",
    "top_k": "Sampling: only the k best tokens; 0: off.",
    "top_p": "Sampling: the smallest set of best tokens with this much probability.",
    "seed": "Sampling: same seed, same answer.",
    "diverse_groups": "Diverse beam search: number of groups; 1: off.",
    "diverse_strength": "Diverse beam search: penalty on tokens that an earlier group chose.",
    "diverse_discount": "Diverse beam search: weight of what groups shared in earlier steps.",
    "alignment": "With --json: the cross-attention of each hypothesis.",
}
# token ids mean nothing on a command line
LEFT_OUT: Final = frozenset({"prefix"})


def decode_flags(command: Command) -> Command:
    """Give `command`, which takes `**decode`, one flag for each field of DecodeOptions.

    A flag that is not given arrives as None: the bundle's own default holds.
    """
    made = {}
    for field in fields(DecodeOptions):
        if field.name in LEFT_OUT:
            continue
        option = typer.Option(help=HELP.get(field.name), show_default=False)
        made[field.name] = Annotated[TYPES[str(field.type)] | None, option]
    return extend(command, made)


def extend(command: Command, flags: Mapping[str, Any]) -> Command:
    """`command` with keyword parameters in place of `**rest`: name to annotation, each None by default."""
    hints = get_type_hints(command, include_extras=True)
    own = [
        p.replace(annotation=hints[p.name])
        for p in inspect.signature(command).parameters.values()
        if p.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in flags.items()
    ]

    @wraps(command)
    def extended(**values: Any) -> None:
        command(**values)

    extended.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    return extended


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that were given."""
    return {name: value for name, value in values.items() if value is not None}
