"""Answers that were given before, in bounded memory: the least recently used goes first. Off by default.

Only what would be computed again to the same answer is kept: no sampling without a seed. A key is a digest
of the text, of all options, and of the bundles' contents, so an answer of a model's old bundle is never
that of its new one. Requests in flight share nothing: each that finds no answer computes its own, so
nobody's leaving matters to anybody else.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from engine.api import NO_TIME, MarkedText, ModelInfo, ModelRoute, Slices, TextOptions, TextResult

ENTRY_BYTES: Final = 200  # of an entry beside its answer, about
STRICTLY: Final = ("utf-8", "surrogatepass")


class Cache:
    """Safe to use from any thread."""

    def __init__(self, limit: int) -> None:
        """limit: bytes, about, of all answers together."""
        self._limit, self._size = limit, 0
        self._kept: OrderedDict[bytes, tuple[TextResult, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: bytes) -> TextResult | None:
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: bytes, result: TextResult) -> None:
        """Keep an answer; one that is larger than the whole cache is not kept."""
        # nobody waits for it the next time
        result = replace(result, timings=NO_TIME)
        size = ENTRY_BYTES + size_of(result)
        with self._lock:
            if key in self._kept:
                self._size -= self._kept.pop(key)[1]
            if size > self._limit:
                return
            self._kept[key] = result, size
            self._size += size
            while self._size > self._limit:
                self._size -= self._kept.popitem(last=False)[1][1]

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._size = 0

    def size(self) -> int:
        """Return how many bytes the answers take, about."""
        return self._size


def repeatable(infos: Sequence[ModelInfo], options: TextOptions) -> bool:
    """Tell whether models answer the same again.

    Beam search does, and sampling with a seed of the request.
    """
    draws = any(replace(info.options, **options.decode).draws for info in infos)
    return not draws or "seed" in options.decode


def keys_of(
    route: ModelRoute, texts: Sequence[str | MarkedText], options: TextOptions
) -> Slices[list[bytes]]:
    """Compute for each text, in slices, a digest of all that its answer depends on.

    route: the models, each with its languages and the digest of its bundle.
    texts: what is to be answered.
    options: how it is to be answered.
    """
    shared = hashlib.blake2b(digest_size=32)
    digests = tuple(info.digest for info in route.infos)
    shared.update(repr((route.name, digests, _plain(options))).encode(*STRICTLY))
    keys = []
    for text in texts:
        own = shared.copy()
        own.update(repr(_plain(text)).encode(*STRICTLY))
        keys.append(own.digest())
        yield
    return keys


def size_of(value: Any) -> int:
    """Count the bytes of an answer in memory, about; what it shares with others counts again."""
    if is_dataclass(value):
        return sys.getsizeof(value) + sum(size_of(getattr(value, f.name)) for f in fields(value))
    if isinstance(value, list | tuple):
        return sys.getsizeof(value) + sum(map(size_of, value))
    return sys.getsizeof(value) + int(getattr(value, "nbytes", 0))


def _plain(value: Any) -> Any:
    """The same as nested tuples, of which `repr` tells all."""
    if is_dataclass(value):
        return type(value).__name__, *(_plain(getattr(value, f.name)) for f in fields(value))
    if isinstance(value, Mapping):
        return tuple((name, _plain(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return value
