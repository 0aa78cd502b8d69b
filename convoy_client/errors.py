"""What can go wrong, as exceptions."""

from __future__ import annotations


class ClientError(Exception):
    """Base class; the message says what is wrong."""


class UnreadOption(UserWarning):
    """An option that the server did not read; most are misspelt."""


class Unreachable(ClientError):
    """No answer came: no connection, a connection that broke, or the timeout."""


class BadAnswer(ClientError):
    """The answer is none of a Convoy server."""


class ApiError(ClientError):
    """The server refused or failed.

    status: of HTTP.
    retry_after: seconds, where the server gave them.
    """

    def __init__(self, message: str, status: int, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message, self.status, self.retry_after = message, status, retry_after
