"""A contract: the interface that one kind of client expects of the server, as a value.

A pattern of paths that ends with "*" matches every path with that prefix; other patterns match one path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from fastapi import APIRouter
from starlette.types import Scope

from engine.api import Service

Codes = Mapping[str, frozenset[str]]  # clients' codes of languages, by kind of field (`SERVED` in openapi.py)


@dataclass(frozen=True, slots=True)
class Fault:
    """The content of an error's body.

    message: sentence that names the problem and the remedy.
    status: HTTP status.
    code: stable name of the error; "" for an unknown path or method.
    parameter: name of the invalid parameter; "" if it is unknown.
    """

    message: str
    status: int
    code: str = ""
    parameter: str = ""


def under(*keys: str) -> Callable[[Fault], Any]:
    """Return an `error_body` that makes an object with the message under each key."""
    return lambda fault: dict.fromkeys(keys, fault.message)


@dataclass(frozen=True, slots=True)
class Claim:
    """POST requests to a path of another contract that this contract answers, recognized by their JSON.

    path: path of the other contract.
    field: name that the JSON body must have; a body with `q` is not claimed.
    route: path of this contract that answers them.
    """

    path: str
    field: str
    route: str


@dataclass(frozen=True, slots=True)
class Contract:
    """A family of routes, with the facts that the server needs about its clients.

    routers: routers of its routes.
    paths: patterns of paths whose errors have its shape; the longest match among all contracts wins.
    error_body: function that makes the JSON of an error.
    statuses: HTTP statuses by error code, if they differ from `errors.STATUSES`.
    open_paths: patterns of paths that GET and HEAD may read without a key.
    stored_paths: patterns of paths of stored things; without keys, pages of other origins may not use them.
    operator_paths: regular expressions of paths that need a token of the operator, with the token's setting.
    claims: requests to paths of other contracts that this contract answers.
    text_fields: names of body fields that hold texts; the API description limits their length.
    single_fields: names of form fields that have one value; if a form repeats one, its first value counts.
    key_fields: names of an API key in a body or query string.
    query_key_fields: names of an API key in a query string only.
    key_schemes: schemes of the header Authorization that an API key may follow, in lower case.
    codes: returns the codes of languages that its fields may name on this server.
    """

    routers: tuple[APIRouter, ...]
    paths: tuple[str, ...]
    error_body: Callable[[Fault], Any] = under("error")
    statuses: Mapping[str, int] = field(default_factory=dict)
    open_paths: tuple[str, ...] = ()
    stored_paths: tuple[str, ...] = ()
    operator_paths: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    text_fields: frozenset[str] = frozenset()
    single_fields: frozenset[str] = frozenset()
    key_fields: tuple[str, ...] = ()
    query_key_fields: tuple[str, ...] = ()
    key_schemes: frozenset[str] = frozenset()
    codes: Callable[[Service], Codes] = lambda service: {}


@dataclass(frozen=True, slots=True)
class RequestNames:
    """Names that a server accepts in requests to any of its contracts.

    single_fields: names of form fields that have one value.
    key_fields: names of an API key in a body or query string.
    query_key_fields: names of an API key in a query string, `key_fields` among them.
    key_schemes: schemes of the header Authorization that an API key may follow, in lower case.
    """

    single_fields: frozenset[str] = frozenset()
    key_fields: tuple[str, ...] = ()
    query_key_fields: tuple[str, ...] = ()
    key_schemes: frozenset[str] = frozenset()


def request_names(contracts: Sequence[Contract]) -> RequestNames:
    """Collect the names of all contracts of a server."""
    keys = tuple(dict.fromkeys(chain.from_iterable(contract.key_fields for contract in contracts)))
    in_query = chain.from_iterable(contract.query_key_fields for contract in contracts)
    return RequestNames(
        frozenset(keys).union(*(contract.single_fields for contract in contracts)),
        keys,
        tuple(dict.fromkeys((*keys, *in_query))),
        frozenset().union(*(contract.key_schemes for contract in contracts)),
    )


def longest_match(paths: Iterable[str], path: str) -> int:
    """Return the length of the longest pattern of `paths` that matches `path`; -1 when none matches."""
    matches = (p for p in paths if path == p or (p.endswith("*") and path.startswith(p[:-1])))
    return max(map(len, matches), default=-1)


def path_of(scope: Scope) -> str:
    """Return the path of a request without the prefix that the server is mounted under."""
    path, prefix = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(prefix) :] if prefix and path.startswith(prefix + "/") else path
