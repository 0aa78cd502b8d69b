"""Values in bounded memory, of which the least recently used are evicted."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key, each with a size. Safe to use from any thread."""

    def __init__(self, limit: int) -> None:
        """limit: size of all values together."""
        self._limit, self._size = limit, 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return a value, which becomes the most recently used one; None when there is none."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: K, value: V, size: int) -> None:
        """Store a value in the place of the old one, unless it is larger than the limit.

        key: key of the value.
        value: value to store.
        size: size of the value.
        """
        with self._lock:
            self._remove(key)
            if size > self._limit:
                return
            self._values[key] = value, size
            self._size += size
            while self._size > self._limit:
                self._size -= self._values.popitem(last=False)[1][1]

    def remove(self, key: K) -> None:
        """Remove a value, if there is one."""
        with self._lock:
            self._remove(key)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._size = 0

    def size(self) -> int:
        """Return the size of all values."""
        return self._size

    def _remove(self, key: K) -> None:
        if key in self._values:
            self._size -= self._values.pop(key)[1]
