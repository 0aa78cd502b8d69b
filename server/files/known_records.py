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
    """What records say, by their ids. Only what another process has changed is read anew: to list them costs
    no look at the disk for each."""

    def __init__(
        self, records: Records, read: Callable[[dict[str, Any]], T], write: Callable[[T], dict[str, Any]]
    ) -> None:
        """Know what records say.

        records: those of other processes too, where they lie in a shared folder.
        read: makes an object of a record.
        write: makes a record of an object.
        """
        self._records, self._read, self._write = records, read, write
        self._journal = Journal(records.folder) if records.folder else None
        self._known: dict[str, T] = {}
        self._unread = set[str]()  # ids that another process has changed
        self._looking = threading.Lock()  # guards what is known, for as long as one record is read
        self._turn = threading.Lock()  # of the thread that holds all records

    def find(self, id: str, *, anew: bool = False) -> T | None:
        """Return what a record says, where there is one by now.

        id: the record's.
        anew: whether it is read though it is known, as it may have been replaced.
        """
        with self._looking:
            if not anew and id in self._known and self._records.has(id):
                return self._known[id]
            self._known.pop(id, None)
            record = self._records.get(id)
            if record is not None:
                self._known[id] = self._read(record)
            return self._known.get(id)

    @contextmanager
    def held(self) -> Iterator[list[T]]:
        """Hold all records: nobody else changes one meanwhile. For a thread, as others may hold them.

        Yields what each of them says. Raises Refusal where the folder can't be written.
        """
        with self._turn, self._changed() as ids:
            self._unread.update(ids)
            while self._unread:
                self.find(self._unread.pop(), anew=True)
            with self._looking:
                every = list(self._known.values())
            yield every

    def put(self, id: str, changed: T) -> None:
        """Keep an object in the place of an older one. For who holds the records; raises as `held` does."""
        self._note(id)
        self._records.put(id, self._write(changed))
        with self._looking:
            self._known[id] = changed

    def drop(self, id: str) -> None:
        """Drop a record. For who holds the records."""
        self._note(id)
        self._records.drop(id)
        with self._looking:
            self._known.pop(id, None)

    def _note(self, id: str) -> None:
        if self._journal is not None:
            self._journal.note(id)

    @contextmanager
    def _changed(self) -> Iterator[Collection[str]]:
        """Ids of what may be another than it was."""
        if self._journal is None:
            yield ()
            return
        try:
            self._records.make_folder()
            with self._journal.held() as news:
                yield [*self._records.ids(), *list(self._known)] if news is None else news
        except OSError as error:
            raise storage_full(error) from error
