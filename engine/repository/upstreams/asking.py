"""The checked answer of an upstream to one text: asked for again after failures and after faults."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.errors import ExecutorFailed, Unavailable
from engine.repository.upstreams.breaker import Breaker
from engine.repository.upstreams.checks import CHATTER, bare, faults_of, longest_answer, mended
from engine.repository.upstreams.client import ChatClient, Completion, UpstreamError
from engine.repository.upstreams.prompts import Messages, messages_of
from engine.repository.upstreams.settings import Upstream
from engine.repository.upstreams.spending import Reservation, Spending
from engine.schedule.stats import UpstreamStats
from engine.text.tokenizers.characters import SourceText, target_tokens
from engine.types import DOUBTFUL, DecodeOptions, Hypothesis

TRIES: Final = 3  # largest number of requests until the upstream gives any answer
RETRY_SECONDS: Final = 0.5
SHARE_OF_DEADLINE: Final = 0.7  # a local model has the rest of the time
HELD_CHARACTERS: Final = 48  # a stream begins when it can be no opening of a chat
DRAFT_SHARE: Final = 256  # a stream passes an answer on when it has grown by a character and this share
TOKENS_PLUS: Final = 256  # longest answer in tokens: this and one for each character of the source
OK: Final = "ok"
ERROR: Final = "error"
TOKENS_OF_PRICE: Final = 1e6
LIMITS: Final = ("max_tokens", "max_completion_tokens")  # fields of a body that limit an answer
TOKENS_OF_MESSAGE: Final = 32  # most tokens that a chat template adds to a message


@dataclass(slots=True)
class AnswerCounts:
    """Numbers of answers by outcome ("ok", "error", or a fault), and of tokens, since the start."""

    outcomes: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    answer_tokens: int = 0


class Asker:
    """Asks one upstream. For one event loop.

    usage: counters.
    breaker: pauses after failures.
    """

    def __init__(self, upstream: Upstream) -> None:
        self.usage, self.breaker = AnswerCounts(), Breaker()
        self._spending = Spending(upstream.price_per_day)
        self._upstream, self._client = upstream, ChatClient(upstream)

    async def close(self) -> None:
        await self._client.close()

    def check(self, deadline: float) -> None:
        """Raise Unavailable during a pause, unless a request without a deadline waits for its end."""
        if (pause := self.breaker.pause) and not self._is_patient(deadline):
            name = self._upstream.name
            raise Unavailable(f"the upstream {name!r} pauses after failures", retry_after=math.ceil(pause))

    def _is_patient(self, deadline: float) -> bool:
        """Return whether a request is of a file or a corpus, and the upstream may answer again soon."""
        return deadline == math.inf and self.breaker.may_recover

    def stats(self) -> UpstreamStats:
        """Return the counters for metrics."""
        usage = self.usage
        price = self._price(usage.prompt_tokens, usage.answer_tokens)
        outcomes = tuple(sorted(usage.outcomes.items()))
        return UpstreamStats(
            outcomes, usage.prompt_tokens, usage.answer_tokens, price, self.breaker.pause > 0
        )

    async def answer(
        self,
        source: SourceText,
        options: DecodeOptions,
        deadline: float,
        progress: Callable[[list[int]], None] | None = None,
    ) -> Hypothesis:
        """Return the answer to a text, with each placeholder once; a doubtful one has faults.

        source: text with its languages, placeholders and terms.
        options: decoding options.
        deadline: time.monotonic() of the request's end.
        progress: receiver of the tokens of a growing answer, which is then never replaced.

        Raises Unavailable, and ExecutorFailed if the upstream refuses this text.
        """
        now, answers = time.monotonic(), list[tuple[int, str]]()
        until = now + SHARE_OF_DEADLINE * (deadline - now)
        for strict in (False, True):
            draft = _Draft(source, progress) if progress and not strict else None
            try:
                completion = await self._complete(source, options, until, draft, strict=strict)
            except (Unavailable, ExecutorFailed):
                if not answers:
                    raise
                break
            text = bare(completion.text, source.text)
            faults = faults_of(source, text) + ["cut"] * completion.cut
            self.usage.outcomes.update(faults or [OK])
            answers.append((len(faults), text))
            if not faults or (draft and draft.sent):
                break
        count, text = min(answers, key=lambda one: one[0])
        text = text[: longest_answer(source.text)] or source.text
        tokens = target_tokens(mended(source.text, text))
        return Hypothesis(tokens, 0.0, [], DOUBTFUL if count else "stop")

    async def _complete(
        self,
        source: SourceText,
        options: DecodeOptions,
        until: float,
        draft: _Draft | None,
        *,
        strict: bool,
    ) -> Completion:
        """Return any answer; ask again after failures that may pass.

        Raises Unavailable with the cause, and ExecutorFailed if the upstream refuses this text.
        """
        messages = messages_of(self._upstream.family, source, strict=strict)
        fields, tries = _fields(source, options), 0
        highest = self._highest_price(messages, fields)
        while True:
            self.check(until)
            await asyncio.sleep(self.breaker.pause)
            reservation = self._reserve(highest)
            seconds = min(until - time.monotonic(), self._upstream.timeout)
            try:
                async with asyncio.timeout(seconds):
                    completion = await self._client.complete(messages, fields, draft)
            except TimeoutError:
                error = UpstreamError("it did not answer in time", retry=until == math.inf)
            except UpstreamError as failure:
                error = failure
            else:
                self.breaker.succeed()
                self._count(completion, reservation)
                return completion
            self.usage.outcomes[ERROR] += 1
            tries += 1
            wait = RETRY_SECONDS * tries if error.wait is None else error.wait
            ends = not error.retry or (draft and draft.sent) or time.monotonic() + wait >= until
            if not ends and tries < TRIES:
                await asyncio.sleep(wait)
                continue
            self.breaker.fail(error.wait)
            if ends or not self._is_patient(until):
                break
            tries = 0
        message = f"the upstream {self._upstream.name!r} gave no answer: {error}"
        if error.of_text:
            raise ExecutorFailed(message)
        raise Unavailable(message, retry_after=error.wait)

    def _price(self, prompt_tokens: int, answer_tokens: int) -> float:
        prompts, answers = self._upstream.price
        return (prompt_tokens * prompts + answer_tokens * answers) / TOKENS_OF_PRICE

    def _highest_price(self, messages: Messages, fields: Mapping[str, Any]) -> float:
        """Return the highest price of a request: a token has at least a byte of the text."""
        sizes = [len(message["content"].encode()) + TOKENS_OF_MESSAGE for message in messages]
        limits = [fields["max_tokens"], *(self._upstream.body.get(name) for name in LIMITS)]
        return self._price(sum(sizes), max(limit for limit in limits if isinstance(limit, int)))

    def _reserve(self, price: float) -> Reservation:
        """Reserve the highest price of a request. Raises Unavailable if the day's limit does not allow it."""
        if reservation := self._spending.reserve(price):
            return reservation
        message = f"the upstream {self._upstream.name!r} has reached its price_per_day"
        raise Unavailable(message, retry_after=self._spending.seconds_left)

    def _count(self, completion: Completion, reservation: Reservation) -> None:
        """Count the tokens of an answer. One without a count of tokens keeps its highest price."""
        self.usage.prompt_tokens += completion.prompt_tokens
        self.usage.answer_tokens += completion.answer_tokens
        if completion.prompt_tokens:
            price = self._price(completion.prompt_tokens, completion.answer_tokens)
            self._spending.settle(reservation, price)


class _Draft:
    """Passes the growing answer of a stream on, as soon as it can be no opening of a chat.

    sent: whether a part was passed on.
    """

    def __init__(self, source: SourceText, progress: Callable[[list[int]], None]) -> None:
        self._source, self._progress, self.sent = source, progress, False
        self._next = 0  # characters of the next answer to pass on
        self._longest = longest_answer(source.text)

    def __call__(self, text: str) -> None:
        if len(text) < self._next:
            return
        self._next = len(text) + 1 + len(text) // DRAFT_SHARE
        begun = bare(text, self._source.text)
        if begun != text.strip() or "<think>" in text or len(begun) > self._longest:
            return  # the end decides what stays
        if self.sent or (len(begun) >= HELD_CHARACTERS and not CHATTER.match(begun)):
            self.sent = True
            self._progress(target_tokens(begun))


def _fields(source: SourceText, options: DecodeOptions) -> dict[str, Any]:
    """Return the fields of a request: the longest answer, and the drawing of samples."""
    longest = len(source.text) + TOKENS_PLUS
    fields: dict[str, Any] = {"max_tokens": min(longest, options.max_length or longest)}
    if options.sampling:
        fields |= {"temperature": options.temperature, "top_p": options.top_p, "seed": options.seed}
    return fields
