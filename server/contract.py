"""What the clients of one kind expect of the server, as a value: routes, the shape of errors, open paths.

A path that ends with "*" stands for all that begin with it, others for themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fastapi import APIRouter
from starlette.types import Scope


@dataclass(frozen=True, slots=True)
class Contract:
    """A family of routes.

    routers: its routes.
    paths: whose errors have its shape; the longest path among all contracts decides.
    error_keys: under which names an error's body holds the message.
    statuses: by an error's code, where it is not the status of `errors.STATUSES`.
    open_paths: what GET and HEAD may read without a key: it costs nothing and tells nothing.
    operator_paths: patterns of paths that need a token of their own, with the setting that holds it.
    """

    routers: tuple[APIRouter, ...]
    paths: tuple[str, ...]
    error_keys: tuple[str, ...] = ("error",)
    statuses: Mapping[str, int] = field(default_factory=dict)
    open_paths: tuple[str, ...] = ()
    operator_paths: Mapping[str, str] = field(default_factory=dict)


def longest_match(paths: Iterable[str], path: str) -> int:
    """Count the characters of the longest of `paths` that stands for `path`; -1 when none does."""
    matches = (p for p in paths if path == p or (p.endswith("*") and path.startswith(p[:-1])))
    return max(map(len, matches), default=-1)


def path_of(scope: Scope) -> str:
    """Return the path without the prefix that the server is mounted under."""
    path, prefix = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(prefix) :] if prefix and path.startswith(prefix + "/") else path
