"""Errors over HTTP: the server's own refusals, the one table of statuses, and error responses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from engine.api import ConvoyError, InvalidRequest, Overloaded, Unavailable
from server.contract import Contract, Fault

INTERNAL: Final = "internal error: see the server's log"
# HTTP status by error code; a contract may have other statuses
STATUSES: Final[Mapping[str, int]] = {
    "invalid_request": 400,
    "key_required": 400,
    "unsupported_parameter": 400,
    "unauthorized": 401,
    "disabled": 403,
    "foreign_origin": 403,
    "invalid_key": 403,
    "quota": 403,  # not 429: clients should not try again
    "unknown_model": 404,
    "unknown_glossary": 404,
    "not_found": 404,
    "slow_body": 408,
    "conflict": 409,
    "too_large": 413,
    "long_path": 414,
    "wrong_host": 421,
    "overloaded": 429,
    "slowdown": 429,
    "cancelled": 499,  # never received: the client has disconnected
    "internal": 500,
    "executor_failed": 500,
    "bundle": 500,
    "config": 500,
    "checkpoint": 500,
    "stopping": 503,
    "not_ready": 503,
    "unavailable": 503,
    "model_unavailable": 503,
    "device_lost": 503,
    "would_be_late": 503,
    "deadline_exceeded": 504,
    "storage_full": 507,
}


class InvalidParameter(InvalidRequest):
    """A request with an invalid parameter, whose name is `parameter`."""

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class Refusal(ConvoyError):
    """A refusal by the server, before any model runs. `code` is a key of STATUSES."""

    def __init__(
        self, code: str, message: str, headers: Mapping[str, str] | None = None, parameter: str = ""
    ) -> None:
        """parameter: name of the request's invalid parameter."""
        super().__init__(message)
        assert code in STATUSES, code
        self.code, self.headers, self.parameter = code, headers, parameter


def reason_of(fault: Mapping[str, Any]) -> str:
    """Return the message of a validation error, without pydantic's prefix before messages of ours.

    fault: entry of `ValidationError.errors()`.
    """
    return str(fault["msg"]).removeprefix("Value error, ")


def error_response(error: ConvoyError, contract: Contract) -> JSONResponse:
    """Return the response for an error, in the shape of a contract.

    Overloaded and Unavailable have a Retry-After header in whole seconds, if the time is known.
    """
    headers = error.headers if isinstance(error, Refusal) else None
    if isinstance(error, Overloaded | Unavailable) and error.retry_after is not None:
        headers = {"Retry-After": str(math.ceil(error.retry_after))}
    fault = fault_of(error, contract)
    return JSONResponse(contract.error_body(fault), fault.status, headers)


def fault_of(error: ConvoyError, contract: Contract) -> Fault:
    """Return the content of the response for an error, with the contract's own status if it has one."""
    status = contract.statuses.get(error.code, STATUSES[error.code])
    parameter = error.parameter if isinstance(error, InvalidParameter | Refusal) else ""
    return Fault(str(error), status, error.code, parameter)


def http_response(error: HTTPException, request: str, contract: Contract) -> JSONResponse:
    """Return the response for an unknown path or method.

    error: error that the framework raised.
    request: method and path of the request, for the message.
    contract: contract that the path belongs to.
    """
    fault = Fault(f"{error.detail}: {request}; /docs shows what is answered", error.status_code)
    return JSONResponse(contract.error_body(fault), fault.status, error.headers)
