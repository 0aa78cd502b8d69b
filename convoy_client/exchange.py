"""One question and its answer, with the tries it takes: pure steps that a client of either kind carries out.

All that is asked of a server is computed from the question alone, so any of it may be sent again.
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
# beyond the deadline, in which the server may still tell that it has passed
GRACE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[T]):
    """A question: `body` goes as JSON, `file` (name, content) as a form with `body` as its fields.

    read: what the answer means; may raise BadAnswer.
    accepts: statuses that are answers too.
    """

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    body: Mapping[str, Any] | None = None
    file: tuple[str, bytes] | None = None
    accepts: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Patience:
    """timeout: seconds for an answer, all tries together.
    retries: after the first.
    backoff: seconds before the second try; doubles with each, up to `longest`.
    """

    timeout: float = 60.0
    retries: int = 4
    backoff: float = 0.25
    longest: float = 30.0


@dataclass(frozen=True, slots=True)
class Send:
    """Send the request; the answer may take so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so many seconds."""

    seconds: float


Outcome = httpx.Response | httpx.TransportError | None


def exchange(
    patience: Patience, accepts: frozenset[int] = frozenset()
) -> Generator[Send | Pause, Outcome, httpx.Response]:
    """Yield steps until there is a good answer, and return it. Answer each Send with a response or the error.

    Overload and lost connections are tried again, not before the server's Retry-After, while the timeout and
    the number of tries allow. Raises ApiError and Unreachable.
    """
    until = time.monotonic() + patience.timeout
    for tried in range(patience.retries + 1):
        outcome = yield Send(until - time.monotonic())
        assert outcome is not None
        if isinstance(outcome, httpx.Response) and (outcome.is_success or outcome.status_code in accepts):
            return outcome
        error, again = _fault(outcome)
        wait = _wait(patience, tried, error)
        if not again or tried == patience.retries or time.monotonic() + wait >= until:
            raise error from (outcome if isinstance(outcome, Exception) else None)
        yield Pause(wait)
    raise AssertionError("the last try returns or raises")


def request_of(client: httpx.Client | httpx.AsyncClient, call: ApiCall[Any], send: Send) -> httpx.Request:
    """Make the request of a call, which tells the server how long a POST may take.

    client: sends the request.
    call: what is asked of the server.
    send: how many seconds the answer may take, and whether it is a stream.
    """
    seconds = max(send.seconds, 0.001)
    sent: dict[str, Any] = {}
    if call.file is not None:
        sent = {"data": dict(call.body or {}), "files": {"file": call.file}}
    elif call.body is not None:
        # half of a surrogate pair has no UTF-8 form; the server answers what is wrong with its escape
        sent = {"content": json.dumps(call.body).encode(), "headers": {"content-type": "application/json"}}
    request = client.build_request(call.method, call.path, timeout=seconds + GRACE_SECONDS, **sent)
    if call.method == "POST":
        request.headers["X-Request-Timeout"] = f"{seconds:.3f}"
    return request


def json_of(response: httpx.Response) -> Any:
    """Read the JSON of a response. Raises BadAnswer."""
    try:
        return json.loads(response.content)
    except ValueError:
        raise BadAnswer(f"{response.url} answered something else than JSON: is it a Convoy server?") from None


def _fault(outcome: httpx.Response | httpx.TransportError) -> tuple[ClientError, bool]:
    """The error, and whether to try again."""
    if isinstance(outcome, httpx.TransportError):
        late = isinstance(outcome, httpx.TimeoutException)
        reason, address = str(outcome) or type(outcome).__name__, outcome.request.url
        lack = "no answer in time from" if late else "no connection to"
        return Unreachable(f"{lack} {address.scheme}://{address.netloc.decode()}: {reason}"), not late
    if outcome.is_redirect:
        where = outcome.headers.get("location", "elsewhere")
        return ApiError(f"the server is at another place: {where}", outcome.status_code), False
    reason = _message(outcome) or outcome.reason_phrase
    error = ApiError(reason, outcome.status_code, _retry_after(outcome.headers))
    return error, outcome.status_code in RETRIED_STATUSES


def _message(response: httpx.Response) -> str:
    try:
        data = json.loads(response.content)
    except ValueError:
        return response.text[:200].strip()
    messages = [
        data[name] for name in ("error", "message", "detail") if isinstance(data, dict) and data.get(name)
    ]
    return str(messages[0]) if messages else ""


def _retry_after(headers: httpx.Headers) -> float | None:
    """Seconds, from a number or an HTTP date. The server's clock decides, where it tells the time."""
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


def _wait(patience: Patience, tried: int, error: ClientError) -> float:
    """Half of the back-off is chance, so that many clients don't come back together."""
    share = random.uniform(0.5, 1.0)  # nosec B311 # of a pause, no secret
    backoff: float = min(patience.backoff * 2**tried, patience.longest) * share
    retry_after = error.retry_after if isinstance(error, ApiError) else None
    return backoff if retry_after is None else retry_after + backoff
