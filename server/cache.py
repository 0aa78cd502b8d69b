"""A cache of answers in bounded memory, which evicts the least recently used. Off by default.

Only repeatable answers are stored: no sampling without a seed. A key is a digest of the text, all options and
the contents of the bundles, so a reloaded model never gets an answer of its old bundle. Requests in flight
share nothing: two equal requests at once are both computed, so a cancelled one does not affect the other.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from engine.api import NO_TIME, MarkedText, ModelInfo, ModelRoute, Slices, TextOptions, TextResult
from server.recent import Recent

ENTRY_BYTES: Final = 200  # estimated bytes of an entry in addition to its answer
HASHED_UTF8: Final = ("utf-8", "surrogatepass")


class Cache:
    """Safe to use from any thread."""

    def __init__(self, limit: int) -> None:
        """limit: estimated bytes of all answers."""
        self._answers = Recent[bytes, TextResult](limit)

    def get(self, key: bytes) -> TextResult | None:
        """Return a stored answer, which becomes the most recently used one; None when there is none."""
        return self._answers.get(key)

    def put(self, key: bytes, result: TextResult) -> None:
        """Store an answer that is not provisional, unless it is larger than the whole cache."""
        if result.provisional:
            self._answers.remove(key)
            return
        result = replace(result, timings=NO_TIME)  # an answer from the cache takes no time
        self._answers.put(key, result, ENTRY_BYTES + size_of(result))

    def clear(self) -> None:
        self._answers.clear()

    def size(self) -> int:
        """Return the estimated bytes of all answers."""
        return self._answers.size()


def repeatable(infos: Sequence[ModelInfo], options: TextOptions) -> bool:
    """Return whether models give the same answer again: by beam search, or by sampling with a seed."""
    samples = any(replace(info.options, **options.decode).draws for info in infos)
    return not samples or "seed" in options.decode


def keys_of(
    route: ModelRoute,
    texts: Sequence[str | MarkedText],
    options: TextOptions,
    second: ModelInfo | None = None,
) -> Slices[list[bytes]]:
    """Return for each text, in slices, a digest of everything that its answer depends on.

    route: models, with the digests of their bundles.
    texts: texts to be answered.
    options: text options of the request.
    second: model for sentences in doubt; None: there is none.
    """
    shared = hashlib.blake2b(digest_size=32)
    digests = tuple(info.digest for info in (*route.infos, *([second] if second else ())))
    shared.update(repr((route.name, digests, _plain(options))).encode(*HASHED_UTF8))
    keys = []
    for text in texts:
        text_digest = shared.copy()
        text_digest.update(repr(_plain(text)).encode(*HASHED_UTF8))
        keys.append(text_digest.digest())
        yield
    return keys


def size_of(value: Any) -> int:
    """Estimate the bytes of an answer in memory. Shared parts are counted each time."""
    if is_dataclass(value):
        return sys.getsizeof(value) + sum(size_of(getattr(value, f.name)) for f in fields(value))
    if isinstance(value, list | tuple):
        return sys.getsizeof(value) + sum(map(size_of, value))
    return sys.getsizeof(value) + int(getattr(value, "nbytes", 0))


def _plain(value: Any) -> Any:
    """Return a value as nested tuples, whose `repr` contains every part."""
    if is_dataclass(value):
        return type(value).__name__, *(_plain(getattr(value, f.name)) for f in fields(value))
    if isinstance(value, Mapping):
        return tuple((name, _plain(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return value
