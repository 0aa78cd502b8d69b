"""Options, requests and results, as frozen data without tensors."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, NamedTuple

from engine.errors import ConvoyError, InvalidRequest

CANDIDATES: Final = 64  # best tokens of each row that sampling draws from; largest top_k
QUOTAS: Final = 64  # largest number of token quotas of a request
MAX_SENTENCE_TOKENS: Final = 256  # default of bundles; a longer source would occupy a slot for long

DOUBTFUL: Final = "doubtful"  # `Hypothesis.finish` of an upstream's answer with faults

NO_LANGUAGE_MODEL: Final = (
    "lm_weight needs a language model beside the model, and this one has none: leave it out, or import the "
    "model again with convoy convert fairseq --lm BUNDLE"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one engine.

    beams: widest beam.
    source: longest source in tokens, end-of-sentence included.
    target: longest target in tokens, end-of-sentence excluded.
    vocab: size of the target vocabulary.
    attention: whether the model reads a source; a language model does not.
    shortlisted: whether targets consist of the tokens of a shortlist for each source.
    language_model: whether the model is fused with a language model.
    """

    beams: int
    source: int
    target: int
    vocab: int
    attention: bool = True
    shortlisted: bool = False
    language_model: bool = False


@dataclass(frozen=True, slots=True)
class OptionBounds:
    """Values that a decoding option may have for any model.

    schema: keywords of JSON Schema.
    rule: end of the message "NAME must ..." for other values. Empty: a rule of `DecodeOptions` refuses them.
    """

    schema: Mapping[str, Any]
    rule: str = ""

    def allow(self, value: Any) -> bool:
        """Return whether the schema allows a value. Infinite and undefined numbers are refused."""
        if "enum" in self.schema:
            return value in self.schema["enum"]
        low, high = self.schema.get("minimum", -math.inf), self.schema.get("maximum", math.inf)
        above = self.schema.get("exclusiveMinimum", -math.inf)
        return bool(low <= value <= high and above < value < math.inf)


def _between(low: int, high: int, shown: str = "") -> OptionBounds:
    return OptionBounds({"minimum": low, "maximum": high}, f"be between {low} and {shown or high}")


def _one_of(*names: str) -> OptionBounds:
    return OptionBounds({"enum": [*names]}, f"be {' or '.join(map(repr, names))}")


# the largest value depends on the model or on another option
_AT_LEAST_ONE: Final = OptionBounds({"minimum": 1})
_NOT_NEGATIVE: Final = OptionBounds({"minimum": 0}, "not be negative")
_FINITE: Final = OptionBounds({"minimum": 0}, "be a finite number, not negative")
_POSITIVE: Final = OptionBounds({"exclusiveMinimum": 0}, "be a positive, finite number")
_SHARE: Final = OptionBounds({"exclusiveMinimum": 0, "maximum": 1}, "be above 0 and at most 1")


def option(default: Any, sentence: str, **metadata: Any) -> Any:
    """Make a field of an options class.

    default: value of an option that the caller leaves out, or a function that makes it.
    sentence: description of the option in --help and in /openapi.json.
    metadata: further properties of the option, by name.
    """
    metadata |= {"help": sentence}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


class KeptHash:
    """A base class that keeps the hash of an object used as a key many times."""

    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, slots=True)
class DecodeOptions(KeptHash):
    """How one source is decoded. Defaults are fairseq's; a bundle's generation_config.json overrides them.

    Lengths count target tokens without end-of-sentence; S is the source's own length with it. The longest
    target is min(max_length_a * S + max_length_b, max_length, the model's limit), the shortest
    min_length_a * S + min_length. Under Marian's beam rule the longest is rounded up, and a target that
    reaches it ends without a score of end-of-sentence. Scores divide by length ** length_penalty, the length
    INCLUDING end-of-sentence, unless `normalize_scores` is off; see `engine.search.penalties`.
    """

    beam_size: int = option(5, "Hypotheses kept at each step.", bounds=_AT_LEAST_ONE)
    n_best: int = option(1, "Hypotheses returned for each text.")
    length_penalty: float = option(1.0, "Scores divide by length ** penalty.")
    normalize_scores: bool = option(True, "Divide scores by the length at all.")
    length_normalization: str = option(
        "power", "power: length ** penalty; wu: ((5 + length) / 6) ** penalty.", bounds=_one_of("power", "wu")
    )
    # larger values would drown the log-probabilities, which are summed in single precision
    word_reward: float = option(
        0.0,
        "Added to the score for each target token: longer targets; negative: shorter ones.",
        bounds=_between(-100, 100),
    )
    coverage_penalty: float = option(
        0.0, "Weight of source words that got little attention (Wu et al. 2016); 0: off.", bounds=_FINITE
    )
    beam_rule: str = option(
        "fairseq",
        "fairseq: 2 x beam_size candidates a step; marian: each answer found narrows the beam.",
        bounds=_one_of("fairseq", "marian"),
    )
    stepwise_penalty: bool = option(
        False, "Candidates of each step compete by coverage too, not at the end only."
    )
    min_length: int = option(
        1, "Shortest target: this plus min_length_a x source tokens.", bounds=_NOT_NEGATIVE
    )
    min_length_a: float = option(0.0, "Shortest target: tokens per source token.", bounds=_FINITE)
    max_length: int | None = option(None, "Longest target in tokens.", bounds=_AT_LEAST_ONE)
    max_length_a: float = option(
        0.0, "Longest target also: this x source tokens + max_length_b.", bounds=_FINITE
    )
    max_length_b: int = option(200, "Longest target: tokens added to max_length_a.", bounds=_NOT_NEGATIVE)
    no_repeat_ngram_size: int = option(0, "Never repeat n tokens in a row; 0: off.", bounds=_between(0, 32))
    unk_penalty: float = option(0.0, "Subtracted from the log-probability of the unknown token.")
    lm_weight: float = option(
        0.0,
        "Weight of the bundle's language model, if it has one; 0: off.",
        bounds=_between(0, 100),
    )
    temperature: float = option(1.0, "Divides the logits.", bounds=_POSITIVE)
    # first tokens of every hypothesis
    prefix: tuple[int, ...] = ()
    # number of first tokens of the prefix without a score, such as the token of a language
    free_prefix: int = 0
    # tokens with the largest number of times that each may occur, prefix included
    quotas: tuple[tuple[int, int], ...] = ()
    sampling: bool = option(False, "Draw independent samples instead of beam search.")
    top_k: int = option(0, "Sampling: only the k best tokens; 0: off.", bounds=_between(0, CANDIDATES))
    top_p: float = option(
        1.0, "Sampling: the smallest set of best tokens with this much probability.", bounds=_SHARE
    )
    seed: int = option(
        0,
        "Sampling: same seed, same answer, whatever else is in flight.",
        bounds=_between(0, 2**63 - 1, "2**63 - 1"),
    )
    diverse_groups: int = option(1, "Diverse beam search: number of groups; 1: off.", bounds=_AT_LEAST_ONE)
    diverse_strength: float = option(
        0.5, "Diverse beam search: penalty on tokens that an earlier group chose.", bounds=_FINITE
    )
    diverse_discount: float = option(
        1.0, "Diverse beam search: weight of what groups shared in earlier steps.", bounds=_between(0, 1)
    )
    alignment: bool = option(False, "The cross-attention of each hypothesis, in JSON.")

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash(_OPTIONS_OF(self)))
            return self._hash

    @property
    def attends(self) -> bool:
        """Whether decoding needs the cross-attention of each step."""
        return self.alignment or self.coverage_penalty > 0

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn at random, so that equal requests may have different answers."""
        return self.sampling

    @property
    def _is_plain_beam_search(self) -> bool:
        return not self.draws and self.diverse_groups == 1

    def check(self, limits: Limits) -> None:
        """Raise InvalidRequest that names every wrong option."""
        faults = [text for wrong, text in self._faults(limits) if wrong]
        if faults:
            raise InvalidRequest("; ".join(faults))

    def lengths(self, source: int, limits: Limits) -> tuple[int, int]:
        """Return the shortest and the longest target of a source.

        source: number of source tokens, end-of-sentence included.
        limits: limits of the engine.
        """
        # capped before rounding, because the product may be infinite
        longest = min(self.max_length_a * source + min(self.max_length_b, limits.target), limits.target)
        longest = math.ceil(longest) if self.beam_rule == "marian" else int(longest)
        if self.max_length is not None:
            longest = min(longest, self.max_length)
        return int(min(self.min_length_a * source + self.min_length, longest)), longest

    def _faults(self, limits: Limits) -> list[tuple[bool, str]]:
        """Return (whether it applies, message) of each possible error."""
        bounded = [
            (not bounds.allow(value), f"{name} must {bounds.rule}")
            for name, bounds in _BOUNDS.items()
            if bounds.rule and (value := getattr(self, name)) is not None
        ]
        return [
            *bounded,
            *self._score_faults(limits),
            *self._length_faults(limits),
            *self._choice_faults(limits),
        ]

    def _score_faults(self, limits: Limits) -> list[tuple[bool, str]]:
        beams = min(limits.beams, limits.vocab - 1)
        return [
            (not 1 <= self.beam_size <= beams, f"beam_size must be between 1 and {beams}"),
            (not 1 <= self.n_best <= max(1, self.beam_size), "n_best must be between 1 and beam_size"),
            (not math.isfinite(self.length_penalty), "length_penalty must be a finite number"),
            (
                self.beam_rule == "marian" and not self._is_plain_beam_search,
                "beam_rule 'marian' needs beam search without sampling or diverse_groups",
            ),
            (
                (self.stepwise_penalty or self.word_reward != 0) and not self._is_plain_beam_search,
                "stepwise_penalty and word_reward need beam search without sampling or diverse_groups",
            ),
            (
                self.attends and not limits.attention,
                "alignment and coverage_penalty need a source to attend to",
            ),
        ]

    def _length_faults(self, limits: Limits) -> list[tuple[bool, str]]:
        return [
            (
                self.max_length is not None and not 1 <= self.max_length <= limits.target,
                f"max_length must be between 1 and {limits.target}, the model's limit",
            ),
            (
                self.max_length is not None and self.min_length > self.max_length,
                "min_length must not exceed max_length",
            ),
            (
                self.min_length > limits.target,
                f"min_length must be at most {limits.target}, the model's limit",
            ),
        ]

    def _choice_faults(self, limits: Limits) -> list[tuple[bool, str]]:
        return [
            (
                len(self.quotas) > QUOTAS or any(not 0 <= t < limits.vocab or n < 0 for t, n in self.quotas),
                f"quotas must be at most {QUOTAS} tokens of the target vocabulary, each with a count",
            ),
            (not self.unk_penalty > -math.inf, "unk_penalty must be a number above minus infinity"),
            (self.lm_weight > 0 and not limits.language_model, NO_LANGUAGE_MODEL),
            (
                any(not 0 <= t < limits.vocab for t in self.prefix),
                "prefix holds a token outside the target vocabulary",
            ),
            (
                len(self.prefix) > (self.max_length or limits.target),
                "prefix must not be longer than the longest target",
            ),
            (
                not 0 <= self.free_prefix <= len(self.prefix),
                "free_prefix must be between 0 and the length of the prefix",
            ),
            (
                self.diverse_groups < 1 or self.beam_size % max(1, self.diverse_groups) != 0,
                "diverse_groups must divide beam_size",
            ),
            (self.sampling and self.diverse_groups > 1, "sampling and diverse_groups exclude each other"),
        ]


_OPTIONS_OF: Final = attrgetter(*(option.name for option in fields(DecodeOptions)))
# help text of each option that flags and the HTTP schema have
OPTION_HELP: Final[Mapping[str, str]] = {
    option.name: option.metadata["help"] for option in fields(DecodeOptions) if "help" in option.metadata
}
_BOUNDS: Final[Mapping[str, OptionBounds]] = {
    option.name: option.metadata["bounds"] for option in fields(DecodeOptions) if "bounds" in option.metadata
}
# JSON Schema keywords of each option that has bounds for any model
OPTION_BOUNDS: Final[Mapping[str, Mapping[str, Any]]] = {name: each.schema for name, each in _BOUNDS.items()}


class Hypothesis(NamedTuple):
    """One finished target.

    tokens: target tokens without end-of-sentence.
    token_scores: natural-log probability of each token and of end-of-sentence.
    finish: "stop" if the model ended the target, "length" if the limit did, DOUBTFUL for a faulty one.
    attention: float32 numpy array [len(tokens) + 1, source length with end-of-sentence], rows sum to 1; None
        unless requested.
    """

    tokens: list[int]
    score: float
    token_scores: list[float]
    finish: str
    attention: Any = None


class Timings(NamedTuple):
    """Seconds in the queue, of the encoding (of the whole batch) and of the decoding; number of steps."""

    queue: float
    encode: float
    decode: float
    steps: int

    def __add__(self, other: Timings) -> Timings:  # type: ignore[override]
        """Return the timings of two requests in sequence."""
        return Timings(
            self.queue + other.queue,
            self.encode + other.encode,
            self.decode + other.decode,
            self.steps + other.steps,
        )


NO_TIME: Final = Timings(0.0, 0.0, 0.0, 0)


class Result(NamedTuple):
    """The n_best hypotheses, best first; fewer if the search found fewer."""

    hypotheses: list[Hypothesis]
    timings: Timings


Outcome = Result | ConvoyError


class DecodeJob(NamedTuple):
    """A source with end-of-sentence, and its decoding options."""

    source: list[int]
    options: DecodeOptions


@dataclass(eq=False, slots=True)
class Request:
    """One source in flight. The engine sets the fields after `cancelled`.

    source: source tokens with end-of-sentence. A language model's source is end-of-sentence alone; the text
        that it continues is the `prefix` of the options.
    options: decoding options.
    reply: function that the engine's thread calls once, unless the request was cancelled; must not raise or
        block.
    deadline: time.monotonic() after which the request fails.
    progress: function that the engine's thread calls after a step if the certain beginning of the best
        hypothesis has become longer, with its tokens. None: it is not computed.
    arrived: time.monotonic() at the creation of the request.
    admitted: time.monotonic() at the start of the encoding.
    encode_seconds: duration of the encoding of the batch.
    cancelled: whether the caller has cancelled the request, from any thread.
    expected_steps: expected number of decoding steps.
    decided: whether the options alone determine the number of steps.
    promised: whether the request was accepted because it would be in time.
    ticket: number of the group in the queue.
    """

    source: list[int]
    options: DecodeOptions
    reply: Callable[[Outcome], None]
    deadline: float = math.inf
    progress: Callable[[list[int]], None] | None = None
    arrived: float = field(default_factory=time.monotonic)
    admitted: float = 0.0
    encode_seconds: float = 0.0
    cancelled: bool = False
    expected_steps: float = 0.0
    decided: bool = False
    promised: bool = False
    ticket: int = -1
