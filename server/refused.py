"""What those without access are told. The shape of the answer, as of every error, follows the route."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from server.errors import Failure, names_of

# by code: the status, and DeepL's where it has another
STATUS: Final[Mapping[str, tuple[int, int]]] = {
    "key_required": (400, 403),
    "invalid_key": (403, 403),
    "slowdown": (429, 429),
    "quota": (403, 456),  # not 429: nobody should send it again
    "unauthorized": (401, 401),
    "unknown_glossary": (404, 404),
    "unavailable": (503, 503),
}


class Refused(Exception):
    """No access. `code` is one of STATUS."""

    def __init__(self, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code, self.headers = code, headers

    def response(self, path: str) -> Failure:
        """The answer for a path."""
        return Failure(str(self), STATUS[self.code]["message" in names_of(path)], self.headers)
