"""Paths of two contracts: the body of a request decides which contract answers it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.api import InvalidRequest
from server.contract import Claim, path_of
from server.http.parameters import body_of, parse_json


class ClaimsMiddleware:
    """Rewrites the path of requests that another contract claims, before routes are matched."""

    def __init__(self, app: ASGIApp, claims: Sequence[Claim], body_limit: int) -> None:
        self._app, self._claims, self._limit = app, claims, body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; its path becomes the claim's route if the body has the claim's field."""
        path = path_of(scope) if scope["type"] == "http" else ""
        claims = [claim for claim in self._claims if claim.path == path]
        if not claims or scope["method"] != "POST" or b"json" not in _content_type(scope):
            await self._app(scope, receive, send)
            return
        raw = await body_of(Request(scope, receive), self._limit)
        values: dict[str, Any] = {}
        with suppress(InvalidRequest):  # the route raises the same error
            values = parse_json(raw)
        claim = next((claim for claim in claims if claim.field in values and "q" not in values), None)
        if claim:
            scope["path"] = scope["path"].removesuffix(path) + claim.route
            scope["raw_path"] = scope["path"].encode()
        whole: list[Message] = [{"type": "http.request", "body": raw, "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, replay, send)


def _content_type(scope: Scope) -> bytes:
    """Return the content type of a request, in lower case."""
    return next((value for name, value in scope["headers"] if name == b"content-type"), b"").lower()
