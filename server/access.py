"""Who may send a request, and how much: the one door that every request passes before any route.

A path is open (it costs nothing and tells nothing), guarded by a token of its own (/metrics, /docs), or, as
every other, takes a key where keys are configured. Refusing takes no route and no model.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import parse_qsl

from limits import RateLimitItem
from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.api import ConvoyError
from server.errors import path_of
from server.intake import parameters
from server.keys import Key, KeyRing, digest_of, given_keys
from server.metrics import Metrics
from server.quotas import Quotas, rates_of
from server.refused import Refused
from server.settings import Settings

OPEN: Final = frozenset(
    {
        "/",
        "/favicon.ico",
        "/frontend/settings",
        "/health",
        "/health/ready",
        "/languages",
        "/models",
        "/v2",
        "/version",
    }
)
OPEN_FOLDERS: Final = ("/static/", "/static-offline-docs/", "/download_file/", "/v2/health/", "/v2/models/")
DOCS: Final = frozenset({"/docs", "/docs/oauth2-redirect", "/openapi.json", "/spec"})
# what only the operator may: orders to models
ORDER: Final = re.compile(r"/models/[^/]+/(re|un)?load|/v2/repository/models/[^/]+/(un)?load")
FIELDS: Final = ("api_key", "auth_key")  # LibreTranslate's name of a key in a query or body, and DeepL's
SCHEMES: Final = frozenset({"bearer", "deepl-auth-key"})
EVERYBODY: Final = "all"  # shares one counter where nobody is limited
FRAME: Final = 65_536  # bytes of a form beside its file
UNLIMITED: Final = 1_000_000_000_000  # characters: DeepL's own number for no limit


@dataclass(eq=False, slots=True)
class Visitor:
    """Who sends a request: by the id of a key or by an address, never by a key itself.

    characters: in 30 days; -1 is no limit. charged: those of this request, given back if it fails.
    """

    name: str
    rates: tuple[RateLimitItem, ...]
    characters: int
    charged: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Characters of the current 30 days, and how many may be sent in them."""

    count: int
    limit: int


class Access:
    """What the settings say of access. Raises ConfigError when they can't be followed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.quotas = Quotas(settings.limit_storage)
        given = given_keys(token.get_secret_value() for token in settings.api_keys)
        self._ring = KeyRing(given, settings.api_key_file) if given or settings.api_key_file else None
        self._rates = rates_of(settings.req_limit, settings.hourly_req_limit, settings.daily_req_limit)
        self._free = re.compile(settings.require_api_key_origin) if settings.require_api_key_origin else None

    @property
    def keys(self) -> bool:
        """Whether there are keys at all; where there are none, what clients send as one is ignored."""
        return self._ring is not None

    def required(self, origin: str) -> bool:
        """Whether a request from a web page of this origin needs a key."""
        if self._ring is None or self.settings.anonymous:
            return False
        return self._free is None or not self._free.match(origin)

    def visitor(self, token: str | None, origin: str, address: str) -> Visitor:
        """Raises Refused: key_required, invalid_key."""
        if self._ring is not None and token:
            key = self._ring.find(token)
            if key is None:
                raise Refused("invalid_key", "Invalid API key")
            return self._holder(key)
        if self.required(origin):
            link = self.settings.get_api_key_link
            where = f"Visit {link}" if link else "Please contact the server operator"
            raise Refused("key_required", f"{where} to get an API key", {"WWW-Authenticate": "Bearer"})
        limited = self._rates or self.settings.char_quota != -1
        name = f"address:{block_of(address)}" if limited else EVERYBODY
        return Visitor(name, self._rates, self.settings.char_quota)

    def _holder(self, key: Key) -> Visitor:
        rates = self._rates if key.requests is None else rates_of(key.requests)
        characters = self.settings.char_quota if key.characters is None else key.characters
        return Visitor(f"key:{key.id}", rates, characters)

    def guard(self, path: str) -> SecretStr | None:
        """The token that a path needs of its own."""
        if path == "/metrics":
            return self.settings.metrics_auth_token
        if ORDER.fullmatch(path):
            return self.settings.admin_token
        return self.settings.docs_auth_token if path in DOCS else None


class Door:
    """The middleware. Leaves the visitor in the request's state, for `charge` and `usage`."""

    def __init__(self, app: ASGIApp, access: Access, metrics: Metrics) -> None:
        self._app, self._access, self._metrics = app, access, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = path_of(scope)
        try:
            if path == "/metrics" or path in DOCS or ORDER.fullmatch(path):
                _check_guard(self._access.guard(path), Headers(scope=scope).get("authorization", ""))
            elif not _is_open(scope["method"], path):
                await self._enter(scope, receive, send)
                return
        except Refused as refused:
            self._metrics.rejections.labels(refused.code).inc()
            await refused.response(path)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a visitor on; give back what a request that fails was charged."""
        access, headers = self._access, Headers(scope=scope)
        token = _token_of_head(scope, headers)
        if access.keys and token is None:
            limit = max(access.settings.body_limit, access.settings.file_limit + FRAME)
            token, receive = await _token_of_body(scope, receive, limit)
        address = scope["client"][0] if scope.get("client") else ""
        visitor = access.visitor(token, headers.get("origin", ""), address)
        if visitor.rates and (found := await access.quotas.exceeded(visitor.name, visitor.rates)):
            rate, seconds = found
            raise Refused("slowdown", f"Slowdown: {rate}", {"Retry-After": str(seconds)})
        scope.setdefault("state", {})["visitor"] = visitor
        status = 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, answer)
        finally:
            if status >= 400 and visitor.charged:
                with suppress(Refused):  # Redis went meanwhile; it is logged
                    await access.quotas.add(visitor.name, -visitor.charged)


async def charge(request: Request, texts: Iterable[str]) -> int:
    """Count the characters of texts that a model is to read, before it does; returns their number.

    Raises Refused when they exceed the visitor's quota. A request that fails later is not charged.
    """
    visitor, access = _visitor_of(request)
    characters = sum(map(len, texts))
    visitor.charged += characters
    count = await access.quotas.add(visitor.name, characters)
    if visitor.characters != -1 and count > visitor.characters:
        raise Refused("quota", f"Quota exceeded: {visitor.characters} characters per 30 days")
    return characters


async def usage(request: Request) -> Usage:
    """What the sender of a request has used."""
    visitor, access = _visitor_of(request)
    limit = visitor.characters if visitor.characters != -1 else UNLIMITED
    return Usage(await access.quotas.count(visitor.name), limit)


async def on_refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)
    request.app.state.house.metrics.rejections.labels(error.code).inc()
    return error.response(path_of(request.scope))


def owner_of(request: Request) -> str:
    """Whose the things are that a request makes and names: a key's, else as requests are counted."""
    return _visitor_of(request)[0].name


def block_of(address: str) -> str:
    """What counts as one visitor: an IPv4 address, or the /64 that one IPv6 subscriber has at least."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:  # a Unix socket, or a proxy that hides addresses
        return address or "unknown"
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or ip_network((found, 64), strict=False).network_address)
    return str(found)


def _is_open(method: str, path: str) -> bool:
    return method in ("GET", "HEAD") and (path in OPEN or path.startswith(OPEN_FOLDERS))


def _visitor_of(request: Request) -> tuple[Visitor, Access]:
    visitor, access = request.state.visitor, request.app.state.access
    assert isinstance(visitor, Visitor)
    assert isinstance(access, Access)
    return visitor, access


def _check_guard(token: SecretStr | None, authorization: str) -> None:
    """Compare with the token: as Bearer, or as the password of Basic, which browsers ask for."""
    if token is None:
        return
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            given = ""
    # digests, so that not even the length takes time to tell
    if not hmac.compare_digest(digest_of(given.strip()), digest_of(token.get_secret_value())):
        challenge = 'Basic realm="Convoy", charset="UTF-8"'
        raise Refused("unauthorized", "this page needs the operator's token", {"WWW-Authenticate": challenge})


def _token_of_head(scope: Scope, headers: Headers) -> str | None:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() in SCHEMES and given.strip():
        return given.strip()
    if given := headers.get("x-api-key", "").strip():
        return given
    if b"_key=" not in scope["query_string"]:
        return None
    query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    return next((query[name] for name in FIELDS if query.get(name)), None)


async def _token_of_body(scope: Scope, receive: Receive, limit: int) -> tuple[str | None, Receive]:
    """The key in the body, and a stream that gives the body again; a route will say what is wrong with it."""
    taken: list[Message] = []

    async def record() -> Message:
        taken.append(await receive())
        return taken[-1]

    async def replay() -> Message:
        return taken.pop(0) if taken else await receive()

    try:
        values = await parameters(Request(scope, record), limit)
    except ConvoyError:
        values = {}
    return next((str(values[name]) for name in FIELDS if values.get(name)), None), replay
