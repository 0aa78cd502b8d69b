"""Access control before any route: API keys, tokens of the operator, and rate limits.

A path is open, needs a token of the operator (/metrics, /docs), or needs an API key if keys are configured.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, Final
from urllib.parse import parse_qsl

from limits import RateLimitItem
from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.api import InvalidRequest
from server.callers.keys import Key, KeyRing, digest_of, keys_from_tokens
from server.callers.quotas import MEMORY, Count, Quotas, rates_of
from server.contract import Contract, RequestNames, longest_match, path_of, request_names
from server.errors import Refusal
from server.http.hosts import check_origin
from server.http.parameters import FORM_OVERHEAD, body_of, parameters
from server.observing.context import set_owner
from server.settings import ServerSettings

FAILURES_A_MINUTE: Final = rates_of(30)  # requests without a valid key, of one address
EVERYBODY: Final = "all"  # name of every visitor if there are no limits
UNLIMITED_CHARACTERS: Final = 1_000_000_000_000  # characters: DeepL's own number for no limit


@dataclass(eq=False, slots=True)
class Visitor:
    """The sender of a request.

    name: id of the visitor's key, or the visitor's address; never the key's token.
    rates: limits on requests.
    characters: limit of characters in 30 days; -1: no limit.
    charged: characters charged for this request, refunded if it fails.
    """

    name: str
    rates: tuple[RateLimitItem, ...]
    characters: int
    charged: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Number of characters that a visitor has sent in the current 30 days, and its limit."""

    count: int
    limit: int


class Access:
    """The rules of access: which key a visitor has, and its limits."""

    def __init__(self, settings: ServerSettings) -> None:
        """Raises ConfigError when keys can't be read, or the storage of counts can't be opened."""
        self.settings = settings
        self.quotas = Quotas(settings.limit_storage)
        self._failures = Quotas(MEMORY)
        keys = keys_from_tokens(token.get_secret_value() for token in settings.api_keys)
        self._ring = KeyRing(keys, settings.api_key_file) if keys or settings.api_key_file else None
        self._rates = rates_of(settings.req_limit, settings.hourly_req_limit, settings.daily_req_limit)
        # web pages of these origins need no key
        self._free = re.compile(settings.require_api_key_origin) if settings.require_api_key_origin else None

    def count_with(self, count: Count) -> None:
        """Count requests and characters in another process, so that limits hold for all front ends."""
        self.quotas = Quotas(self.settings.limit_storage, count)
        self._failures = Quotas(MEMORY, count)

    @property
    def keys(self) -> bool:
        """Whether the server has keys. Without keys, a key that a client sends is ignored."""
        return self._ring is not None

    def needs_key(self, origin: str) -> bool:
        """Return whether a request needs a key, by the origin of its web page."""
        if self._ring is None or self.settings.anonymous:
            return False
        return self._free is None or not self._free.fullmatch(origin)

    def visitor(self, token: str | None, origin: str, address: str) -> Visitor:
        """Return the visitor that a request is counted for.

        token: API key of the request; None: none.
        origin: origin of the web page that sent the request; "": none.
        address: IP address of the client.

        Raises Refusal: key_required, invalid_key.
        """
        if self._ring is not None and token:
            key = self._ring.find(token)
            if key is None:
                raise Refusal("invalid_key", "Invalid API key")
            return self._holder(key)
        if self.needs_key(origin):
            link = self.settings.get_api_key_link
            where = f"Visit {link}" if link else "Please contact the server operator"
            raise Refusal("key_required", f"{where} to get an API key", {"WWW-Authenticate": "Bearer"})
        limited = self._rates or self.settings.char_quota != -1
        name = f"address:{block_of(address)}" if limited else EVERYBODY
        return Visitor(name, self._rates, self.settings.char_quota)

    def knows(self, token: str | None) -> bool:
        """Return whether `token` is a valid key."""
        return self._ring is not None and token is not None and self._ring.find(token) is not None

    async def check_failures(self, address: str) -> None:
        """Raise Refusal (slowdown) when too many requests of an address had no valid key."""
        seconds = await self._failures.wait(block_of(address), FAILURES_A_MINUTE)
        if seconds:
            message = "Slowdown: too many requests without a valid API key"
            raise Refusal("slowdown", message, {"Retry-After": str(seconds)})

    async def note_failure(self, address: str) -> None:
        """Count a request without a valid key."""
        await self._failures.count_request(block_of(address), FAILURES_A_MINUTE)

    def _holder(self, key: Key) -> Visitor:
        """Return the visitor of a key, with the key's own limits or the server's."""
        rates = self._rates if key.requests is None else rates_of(key.requests)
        characters = self.settings.char_quota if key.characters is None else key.characters
        return Visitor(f"key:{key.id}", rates, characters)


class PathRules:
    """The paths of all contracts that need no key, that need a token of the operator, or of stored things."""

    def __init__(self, contracts: Sequence[Contract]) -> None:
        self._open = [path for contract in contracts for path in contract.open_paths]
        self._stored = [path for contract in contracts for path in contract.stored_paths]
        self._tokens = [
            (re.compile(pattern), setting)
            for contract in contracts
            for pattern, setting in contract.operator_paths.items()
        ]

    def is_open(self, method: str, path: str) -> bool:
        """Return whether a request needs no key."""
        return method in ("GET", "HEAD") and longest_match(self._open, path) >= 0

    def is_stored(self, path: str) -> bool:
        """Return whether a path is one of stored things, such as glossaries."""
        return longest_match(self._stored, path) >= 0

    def token_setting(self, path: str) -> str | None:
        """Return the name of the setting that holds the token of a path; None when it needs no token."""
        return next((setting for pattern, setting in self._tokens if pattern.fullmatch(path)), None)


class AccessMiddleware:
    """Passes permitted requests on, with their visitor in the request's state.

    Raises Refusal for other requests; the middleware around this one answers them.
    """

    def __init__(self, app: ASGIApp, access: Access, contracts: Sequence[Contract]) -> None:
        self._app, self._access = app, access
        self._rules, self._names = PathRules(contracts), request_names(contracts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the operator's token or the client's key, and pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = path_of(scope)
        if not self._access.keys and self._rules.is_stored(path):
            check_origin(Headers(scope=scope), self._access.settings)
        setting = self._rules.token_setting(path)
        if setting is not None:
            token = getattr(self._access.settings, setting)
            _check_token(token, Headers(scope=scope).get("authorization", ""))
        elif not self._rules.is_open(scope["method"], path):
            await self._enter(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request that needs a key; refund its charge if it fails."""
        access, headers = self._access, Headers(scope=scope)
        token = _token_of_head(scope, headers, self._names)
        address = scope["client"][0] if scope.get("client") else ""
        if access.keys and not access.knows(token):
            await access.check_failures(address)  # before the body is read
        if access.keys and token is None:
            limit = max(access.settings.body_limit, access.settings.file_limit + FORM_OVERHEAD)
            token, receive = await _token_of_body(scope, receive, limit, self._names.key_fields)
        try:
            visitor = access.visitor(token, headers.get("origin", ""), address)
        except Refusal:
            await access.note_failure(address)
            raise
        if visitor.rates and (excess := await access.quotas.count_request(visitor.name, visitor.rates)):
            rate, seconds = excess
            raise Refusal("slowdown", f"Slowdown: {rate}", {"Retry-After": str(seconds)})
        scope.setdefault("state", {})["visitor"] = visitor
        set_owner(_share_of(visitor, address))
        status = 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, answer)
        finally:
            if status >= 400:
                await _refund(access, visitor)


async def charge(request: Request, texts: Iterable[str], prefix: str = "") -> int:
    """Charge the visitor for the characters of texts; return their number.

    request: request of the client.
    texts: texts that a model is to read.
    prefix: beginning of each answer, read with each text.

    Raises Refusal when they exceed the visitor's quota. A request that fails later is refunded.
    """
    visitor, access = _visitor_of(request)
    characters = sum(len(text) + len(prefix) for text in texts)
    visitor.charged += characters
    # a limit of -1 is no limit
    if await _add_characters(access, visitor, characters) > visitor.characters != -1:
        raise Refusal("quota", f"Quota exceeded: {visitor.characters} characters per 30 days")
    return characters


async def refund_texts(request: Request, texts: Iterable[str], prefix: str = "") -> None:
    """Refund the charge for some texts of a request.

    request: request of the client.
    texts: texts that are not answered.
    prefix: beginning of each answer, which was charged with each text.
    """
    visitor, access = _visitor_of(request)
    characters = sum(len(text) + len(prefix) for text in texts)
    visitor.charged -= characters
    await _add_characters(access, visitor, -characters)


async def refund(request: Request) -> None:
    """Refund the whole charge of a request that has failed, even with a successful status."""
    visitor, access = _visitor_of(request)
    await _refund(access, visitor)


async def _refund(access: Access, visitor: Visitor) -> None:
    """Take the whole charge of a request back."""
    characters, visitor.charged = visitor.charged, 0
    if characters:
        with suppress(Refusal):  # Redis does not answer, which is logged
            await _add_characters(access, visitor, -characters)


async def _add_characters(access: Access, visitor: Visitor, characters: int) -> int:
    """Count characters of a visitor; return the new count, or 0 for a visitor without a limit."""
    if visitor.characters != -1:
        return await access.quotas.add(visitor.name, characters)
    await access.quotas.add_later(visitor.name, characters)
    return 0


async def usage(request: Request) -> Usage:
    """Return what the sender of a request has used."""
    visitor, access = _visitor_of(request)
    limit = visitor.characters if visitor.characters != -1 else UNLIMITED_CHARACTERS
    return Usage(await access.quotas.count(visitor.name), limit)


def owner_of(request: Request) -> str:
    """Return the name of the visitor who owns what this request creates; EVERYBODY without limits and key."""
    return _visitor_of(request)[0].name


def share_of(request: Request) -> str:
    """Return the name that shares of memory and disk are counted for: the id of a key, or an address."""
    return _share_of(_visitor_of(request)[0], request.client.host if request.client else "")


def _share_of(visitor: Visitor, address: str) -> str:
    return visitor.name if visitor.name != EVERYBODY else f"address:{block_of(address)}"


def block_of(address: str) -> str:
    """Return the address block of one visitor: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        host = ip_address(address.partition("%")[0])
    except ValueError:  # a Unix socket, or a proxy that hides addresses
        return address or "unknown"
    if isinstance(host, IPv6Address):
        return str(host.ipv4_mapped or ip_network((host, 64), strict=False).network_address)
    return str(host)


def _visitor_of(request: Request) -> tuple[Visitor, Access]:
    visitor, access = request.state.visitor, request.app.state.access
    assert isinstance(visitor, Visitor)
    assert isinstance(access, Access)
    return visitor, access


def _check_token(token: SecretStr | None, authorization: str) -> None:
    """Raise Refusal unless a header holds the token: as Bearer, or as the password of Basic, for browsers."""
    if token is None:
        return
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            credentials = base64.b64decode(credentials, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            credentials = ""
    # comparing digests takes the same time for every length
    if not hmac.compare_digest(digest_of(credentials.strip()), digest_of(token.get_secret_value())):
        challenge = {"WWW-Authenticate": 'Basic realm="Convoy", charset="UTF-8"'}
        message = "this needs the operator's token: send it as Authorization: Bearer TOKEN"
        raise Refusal("unauthorized", message, challenge)


def _token_of_head(scope: Scope, headers: Headers, names: RequestNames) -> str | None:
    """Return the key in the headers or the query string; None when there is none."""
    scheme, _, credentials = headers.get("authorization", "").strip().partition(" ")
    if scheme.lower() in names.key_schemes and credentials.strip():
        return credentials.strip()
    # clients of MTranServer send a key without a scheme
    bare_key = scheme if scheme and not credentials and scheme.lower() not in names.key_schemes else None
    if credentials := headers.get("x-api-key", "").strip():
        return credentials
    # most query strings have no key, and are not parsed
    if not any(f"{name}=".encode() in scope["query_string"] for name in names.query_key_fields):
        return bare_key
    query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    return next((query[name] for name in names.query_key_fields if query.get(name)), bare_key)


async def _token_of_body(
    scope: Scope, receive: Receive, limit: int, names: Sequence[str]
) -> tuple[str | None, Receive]:
    """Return the key in a body, and a `receive` that returns the body again. Raises what `body_of` raises.

    scope: scope of the request.
    receive: stream of the body.
    limit: greatest number of bytes.
    names: names that a key may have in the body.

    A body without such a name is not parsed, and an invalid body is left to its route.
    """
    raw = await body_of(Request(scope, receive), limit)
    messages: list[Message] = [{"type": "http.request", "body": raw, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    async def whole_body() -> Message:
        return {"type": "http.request", "body": raw, "more_body": False}

    values: dict[str, Any] = {}
    if any(name.encode() in raw for name in names):
        with suppress(InvalidRequest):
            values = await parameters(Request(scope, whole_body), limit)
    return next((str(values[name]) for name in names if values.get(name)), None), replay
