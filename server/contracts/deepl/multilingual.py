"""Glossaries of several pairs of languages, DeepL's version 3: an index of glossaries of version 2.

Glossaries of version 2 never change: a change makes another, and replaces the index.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, TypeVar

from engine.api import InvalidRequest, TooLarge
from server.contracts.deepl.glossaries import MAX_GLOSSARIES, Glossaries, Glossary, check_count, check_name
from server.errors import Refusal
from server.files.known_records import KnownRecords
from server.files.shared_records import Records

MAX_INDEXES: Final = 16_384  # of all owners: as many as parts have room
OWNER_SUFFIX: Final = "/v3"  # of glossaries that are parts: version 2 lists them for nobody
T = TypeVar("T")
Pair = tuple[str, str]  # DeepL's codes of source and target, without variants, in lower case
Dictionaries = Mapping[Pair, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class MultilingualGlossary:
    """The index of a glossary.

    owner: who made it.
    name: as the owner has it.
    parts: ids of glossaries by "source:target".
    sharer: name of the visitor whose share of the store its parts take; "": the owner's.
    id: by which requests name it.
    created: a time of ISO 8601.
    """

    owner: str
    name: str
    parts: Mapping[str, str]
    sharer: str = ""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat())


Whole = tuple[MultilingualGlossary, list[Glossary]]  # with the dictionaries of all its pairs


class MultilingualGlossaries:
    """By their ids; each owner sees only their own. All is for a thread, as disks may be slow."""

    def __init__(self, records: Records, glossaries: Glossaries) -> None:
        """Keep indexes in records, and the parts among glossaries of version 2."""
        self._known = KnownRecords(records, lambda record: MultilingualGlossary(**record), asdict)
        self._glossaries = glossaries

    def of(self, owner: str) -> list[Whole]:
        """List an owner's glossaries, the oldest first."""
        with self._known.held() as kept:
            own = sorted((i for i in kept if i.owner == owner), key=lambda index: index.created)
            return [self._whole(index) for index in own]

    def find(self, owner: str, id: str) -> MultilingualGlossary:
        """Find an owner's glossary. Raises Refusal when the owner has none of that id."""
        index = self.get(owner, id)
        if index is None:
            raise Refusal("unknown_glossary", "Glossary not found.")
        return index

    def get(self, owner: str, id: str) -> MultilingualGlossary | None:
        """Return an owner's glossary, where there is one of that id."""
        index = self._known.find(id, anew=True)
        return index if index is not None and index.owner == owner else None

    def whole(self, owner: str, id: str) -> Whole:
        """Return an owner's glossary with its dictionaries. Raises what `find` raises."""
        return self._read(owner, id, self._whole)

    def part(self, owner: str, id: str, pair: Pair) -> Glossary:
        """Return a dictionary of a glossary.

        owner: who made the glossary.
        id: the glossary's.
        pair: the dictionary's languages.

        Raises Refusal when there is none.
        """
        return self._read(owner, id, lambda index: self._part(index, pair))

    def add(self, index: MultilingualGlossary, dictionaries: Dictionaries) -> Whole:
        """Keep a new glossary.

        index: without parts.
        dictionaries: entries by pair of languages.

        Raises InvalidRequest and TooLarge when there is no room.
        """
        with self._known.held() as kept:
            if sum(other.sharer == index.sharer for other in kept) >= MAX_GLOSSARIES:
                raise InvalidRequest(
                    f"there are {MAX_GLOSSARIES} glossaries, as many as this server keeps: delete one"
                )
            if len(kept) >= MAX_INDEXES:
                raise TooLarge(f"this server keeps {MAX_INDEXES} glossaries of all: delete some")
            return self._put(index, dictionaries)

    def change(
        self, owner: str, id: str, dictionaries: Dictionaries, name: str | None = None, *, merge: bool
    ) -> Whole:
        """Change an owner's glossary as it is by then: of two changes at once neither is lost.

        owner: who made it.
        id: the glossary's.
        dictionaries: entries by pair of languages.
        name: the new one; None: it keeps its own.
        merge: whether a dictionary that there is keeps its entries of other sources; else it is replaced.

        Raises what `find` raises, InvalidRequest and TooLarge when there is no room; then all is as it was.
        """
        with self._known.held():
            index = self.find(owner, id)
            if merge:
                dictionaries = {
                    pair: {**self._part(index, pair).entries, **entries}
                    if ":".join(pair) in index.parts
                    else entries
                    for pair, entries in dictionaries.items()
                }
            return self._put(index if name is None else replace(index, name=name), dictionaries)

    def drop_part(self, owner: str, id: str, pair: Pair) -> None:
        """Drop a dictionary of a glossary. Raises what `part` raises.

        owner: who made the glossary.
        id: the glossary's.
        pair: the dictionary's languages.
        """
        with self._known.held():
            index, key = self.find(owner, id), ":".join(pair)
            part = self._part(index, pair)
            rest = {name: id for name, id in index.parts.items() if name != key}
            self._known.put(index.id, replace(index, parts=rest))
            self._glossaries.drop(part.owner, part.id)

    def drop(self, owner: str, id: str) -> None:
        """Drop an owner's glossary. Raises what `find` raises."""
        with self._known.held():
            index = self.find(owner, id)
            self._known.drop(id)
            self._drop(owner + OWNER_SUFFIX, index.parts)

    def _read(self, owner: str, id: str, read: Callable[[MultilingualGlossary], T]) -> T:
        """What is read of a glossary's dictionaries: anew where somebody replaces them meanwhile."""
        index = self.find(owner, id)
        while True:
            try:
                return read(index)
            except Refusal:
                before, index = index, self.find(owner, id)
                if index == before:
                    raise

    def _whole(self, index: MultilingualGlossary) -> Whole:
        parts = [self._glossaries.find(index.owner + OWNER_SUFFIX, id) for id in index.parts.values()]
        return index, parts

    def _part(self, index: MultilingualGlossary, pair: Pair) -> Glossary:
        id = index.parts.get(":".join(pair))
        if id is None:
            raise Refusal("unknown_glossary", f"Glossary has no dictionary for {' to '.join(pair)}.")
        return self._glossaries.find(index.owner + OWNER_SUFFIX, id)

    def _put(self, index: MultilingualGlossary, dictionaries: Dictionaries) -> Whole:
        check_name(index.name)
        owner, fresh = index.owner + OWNER_SUFFIX, dict[str, str]()
        try:
            for pair, entries in dictionaries.items():
                check_count(entries)
                part = Glossary(owner, index.name, *pair, entries, index.sharer)
                self._glossaries.add(part)
                fresh[":".join(pair)] = part.id
            changed = replace(index, parts={**index.parts, **fresh})
            self._known.put(index.id, changed)
        except BaseException:
            self._drop(owner, fresh)
            raise
        self._drop(owner, {pair: id for pair, id in index.parts.items() if pair in fresh})
        return self._whole(changed)

    def _drop(self, owner: str, parts: Mapping[str, str]) -> None:
        for id in parts.values():
            self._glossaries.drop(owner, id)
