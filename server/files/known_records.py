"""Records of a folder that several processes share, as objects in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from server.files.journal import Journal
from server.files.shared_records import Records, storage_full

T = TypeVar("T")


class KnownRecords(Generic[T]):
    """A cache of records as objects, by id. A record is read again only after another process changed it."""

    def __init__(
        self, records: Records, read: Callable[[dict[str, Any]], T], write: Callable[[T], dict[str, Any]]
    ) -> None:
        """Start with an empty cache.

        records: stored records, shared with other processes if they are in a folder.
        read: function that makes an object of a record.
        write: function that makes a record of an object.
        """
        self._records, self._read, self._write = records, read, write
        self._journal = Journal(records.folder) if records.folder else None
        self._cached: dict[str, tuple[tuple[int, ...], T]] = {}  # the record's version, and its object
        self._changed = set[str]()  # ids of records that another process has changed since they were read
        self._cache_lock = threading.Lock()  # guards the cache while one record is read
        self._write_lock = threading.Lock()  # held by the thread that has locked all records

    def find(self, id: str) -> T | None:
        """Return the object of a record as it is now; None when there is no such record."""
        with self._cache_lock:
            version = self._records.version(id)
            if id in self._cached and self._cached[id][0] == version:
                return self._cached[id][1]
            self._cached.pop(id, None)
            record = None if version is None else self._records.get(id)
            if version is None or record is None:
                return None
            self._cached[id] = version, self._read(record)
            return self._cached[id][1]

    @contextmanager
    def locked(self) -> Iterator[list[T]]:
        """Lock all records: no other thread or process changes one. May block, so call it in a thread.

        Yields the objects of all records. Raises Refusal when the folder can't be written.
        """
        with self._write_lock, self._changes() as ids:
            self._changed.update(ids)
            while self._changed:
                id = self._changed.pop()
                with self._cache_lock:
                    self._cached.pop(id, None)
                self.find(id)
            with self._cache_lock:
                objects = [cached for _, cached in self._cached.values()]
            yield objects

    def put(self, id: str, changed: T) -> None:
        """Store an object, in place of an older one. Needs the lock; raises what `locked` raises."""
        self._record_change(id)
        self._records.put(id, self._write(changed))
        with self._cache_lock:
            # a file that is gone already has no version, and () never equals a file's version
            self._cached[id] = self._records.version(id) or (), changed

    def drop(self, id: str) -> None:
        """Remove a record. Needs the lock."""
        self._record_change(id)
        self._records.drop(id)
        with self._cache_lock:
            self._cached.pop(id, None)

    def _record_change(self, id: str) -> None:
        if self._journal is not None:
            self._journal.record(id)

    @contextmanager
    def _changes(self) -> Iterator[Collection[str]]:
        """Lock the folder, and yield the ids of records that may have changed since the last lock."""
        if self._journal is None:
            yield ()
            return
        try:
            self._records.make_folder()
            with self._journal.locked() as changed:
                # any record may be new, changed or removed
                yield [*self._records.ids(), *list(self._cached)] if changed is None else changed
        except OSError as error:
            raise storage_full(error) from error
