"""Exceptions of the client."""

from __future__ import annotations


class ClientError(Exception):
    """Base class of all errors; the message describes the error."""


class UnreadOption(UserWarning):
    """An option that the server ignored; most are misspelt."""


class Unreachable(ClientError):
    """There was no answer: no connection, a broken connection, or a timeout."""


class BadAnswer(ClientError):
    """The answer is not the answer of a Convoy server."""


class ApiError(ClientError):
    """The server refused the request, or failed.

    message: error message of the server.
    status: HTTP status.
    retry_after: seconds to wait before a retry, if the server named them.
    """

    def __init__(self, message: str, status: int, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message, self.status, self.retry_after = message, status, retry_after
