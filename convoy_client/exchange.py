"""One request with its retries, as steps that the synchronous and the asynchronous client carry out.

A server has no state between requests, so every request may be sent again.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final, Generic, TypeVar

import httpx

from convoy_client.errors import ApiError, BadAnswer, ClientError, Unreachable

T = TypeVar("T")

RETRIED_STATUSES: Final = frozenset({429, 503})
# seconds after the deadline in which the error message of the server may arrive
GRACE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[T]):
    """A request, and the meaning of its answer.

    method, path: HTTP method and path.
    read: converts the response; may raise BadAnswer.
    body: JSON of the request, or with `file` the fields of a form.
    file: name and content of a file.
    accepts: error statuses that are valid answers.
    """

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    body: Mapping[str, Any] | None = None
    file: tuple[str, bytes] | None = None
    accepts: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits of a request.

    timeout: seconds for an answer, with all retries.
    retries: number of tries after the first.
    backoff: seconds before the first retry; doubles with each retry.
    max_backoff: limit of the doubled seconds.
    """

    timeout: float = 60.0
    retries: int = 4
    backoff: float = 0.25
    max_backoff: float = 30.0


@dataclass(frozen=True, slots=True)
class Send:
    """A step: send the request, with a timeout in seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """A step: wait some seconds."""

    seconds: float


Outcome = httpx.Response | httpx.TransportError | None


def exchange(
    policy: RetryPolicy, accepts: frozenset[int] = frozenset()
) -> Generator[Send | Pause, Outcome, httpx.Response]:
    """Yield steps until a response is good, and return this response. After each Send, the caller passes the
    response or the error to the generator's method `send`.

    policy: limits of the request.
    accepts: error statuses that are good responses.

    Overload and lost connections are retried, not before the server's Retry-After. Raises ApiError and
    Unreachable.
    """
    until = time.monotonic() + policy.timeout
    for tried in range(policy.retries + 1):
        outcome = yield Send(until - time.monotonic())
        assert outcome is not None
        if isinstance(outcome, httpx.Response) and (outcome.is_success or outcome.status_code in accepts):
            return outcome
        error, retry = _error_of(outcome)
        wait = _wait(policy, tried, error)
        if not retry or tried == policy.retries or time.monotonic() + wait >= until:
            raise error from (outcome if isinstance(outcome, Exception) else None)
        yield Pause(wait)
    raise AssertionError("the last try returns or raises")


def request_of(client: httpx.Client | httpx.AsyncClient, call: ApiCall[Any], send: Send) -> httpx.Request:
    """Return the HTTP request of a call; a POST has a header with the timeout.

    client: httpx client with the base URL and headers.
    call: method, path and body.
    send: step with the seconds that are left for the answer.
    """
    seconds = max(send.seconds, 0.001)
    sent: dict[str, Any] = {}
    if call.file is not None:
        sent = {"data": dict(call.body or {}), "files": {"file": call.file}}
    elif call.body is not None:
        # escaped, because half of a surrogate pair has no UTF-8 form; the server refuses it
        sent = {"content": json.dumps(call.body).encode(), "headers": {"content-type": "application/json"}}
    request = client.build_request(call.method, call.path, timeout=seconds + GRACE_SECONDS, **sent)
    if call.method == "POST":
        request.headers["X-Request-Timeout"] = f"{seconds:.3f}"
    return request


def json_of(response: httpx.Response) -> Any:
    """Return the JSON of a response. Raises BadAnswer."""
    try:
        return json.loads(response.content)
    except ValueError:
        raise BadAnswer(f"{response.url} did not answer with JSON: is it a Convoy server?") from None


def _error_of(outcome: httpx.Response | httpx.TransportError) -> tuple[ClientError, bool]:
    """Return the error for a failed response or a lost connection, and whether to retry. A late answer is
    not retried: no time is left."""
    if isinstance(outcome, httpx.TransportError):
        late = isinstance(outcome, httpx.TimeoutException)
        reason, address = str(outcome) or type(outcome).__name__, outcome.request.url
        lack = "no answer in time from" if late else "no connection to"
        return Unreachable(f"{lack} {address.scheme}://{address.netloc.decode()}: {reason}"), not late
    if outcome.is_redirect:
        where = outcome.headers.get("location", "another address")
        return ApiError(f"the server has moved to {where}", outcome.status_code), False
    reason = _message(outcome) or outcome.reason_phrase
    error = ApiError(reason, outcome.status_code, _retry_after(outcome.headers))
    return error, outcome.status_code in RETRIED_STATUSES


def _message(response: httpx.Response) -> str:
    """Return the message of a failed response, "" if it has none."""
    try:
        data = json.loads(response.content)
    except ValueError:
        return response.text[:200].strip()
    messages = [
        data[name] for name in ("error", "message", "detail") if isinstance(data, dict) and data.get(name)
    ]
    return str(messages[0]) if messages else ""


def _retry_after(headers: httpx.Headers) -> float | None:
    """Return the seconds of Retry-After, a number or an HTTP date; dates use the clock of the server."""
    value = headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        now = parsedate_to_datetime(headers["date"]).timestamp() if "date" in headers else time.time()
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except ValueError:
        return None


def _wait(policy: RetryPolicy, tried: int, error: ClientError) -> float:
    """Return the seconds to wait; up to half is random, so that clients do not retry at the same time."""
    share = random.uniform(0.5, 1.0)  # nosec B311 # no secret
    backoff: float = min(policy.backoff * 2**tried, policy.max_backoff) * share
    retry_after = error.retry_after if isinstance(error, ApiError) else None
    return backoff if retry_after is None else retry_after + backoff
