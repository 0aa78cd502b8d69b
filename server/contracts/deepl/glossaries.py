"""Glossaries of DeepL's versions 2 and 3 in one store.

A glossary has a dictionary for each pair of languages. Version 2 makes glossaries of one pair, which never
change. Each version lists only its own glossaries; a translation may name glossaries of both.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from engine.api import InvalidRequest, Service, TooLarge
from server.contracts.deepl.entries import MAX_ENTRIES, check_count
from server.contracts.deepl.languages import base_of
from server.errors import Refusal
from server.files.known_records import KnownRecords
from server.files.shared_records import Records

MAX_GLOSSARIES: Final = 1_000  # glossaries of one share
MAX_NAME_CHARACTERS: Final = 1_024
MAX_STORE_BYTES: Final = 67_108_864  # estimated bytes of all glossaries
OWNER_SHARES: Final = 4  # one share holds at most 1 / OWNER_SHARES of the store
MIN_BYTES: Final = 4_096  # least size that a glossary is counted with
ENTRY_BYTES: Final = 250  # bytes that Python needs for an entry, in addition to its characters

Pair = tuple[str, str]  # DeepL's codes of source and target, without region, in lower case
Dictionaries = Mapping[Pair, Mapping[str, str]]  # translations by source phrase, by pair of languages


@dataclass(frozen=True, slots=True)
class Glossary:
    """A named set of dictionaries.

    owner: name of the only visitor who may use the glossary.
    name: name that the owner chose.
    dictionaries: translations by source phrase, by pair of languages.
    sharer: name of the visitor whose share of the store is used; "": the owner.
    version: version of DeepL's API that made the glossary: 2 or 3.
    id: random name, used by requests.
    created: time of its creation.
    size: estimated bytes in memory.
    """

    owner: str
    name: str
    dictionaries: Dictionaries
    sharer: str = ""
    version: int = 2
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    size: int = field(init=False)

    def __post_init__(self) -> None:
        entries = [entry for entries in self.dictionaries.values() for entry in entries.items()]
        phrases = (self.name, *(phrase for entry in entries for phrase in entry))
        size = sum(len(phrase.encode()) + ENTRY_BYTES for phrase in phrases)
        object.__setattr__(self, "size", max(MIN_BYTES, size))

    @property
    def share(self) -> str:
        """Name of the visitor whose share of the store the glossary takes."""
        return self.sharer or self.owner

    def entries(self, pair: Pair) -> Mapping[str, str]:
        """Return the dictionary of a pair. Raises InvalidRequest or Refusal when there is none."""
        if pair not in self.dictionaries and self.version == 2:
            # a glossary of version 2 has exactly one pair
            own = " to ".join(code.upper() for code in next(iter(self.dictionaries)))
            raise InvalidRequest(f"Value for 'glossary_id' not supported: the glossary is for {own}.")
        if pair not in self.dictionaries:
            raise Refusal("unknown_glossary", f"Glossary has no dictionary for {' to '.join(pair)}.")
        return self.dictionaries[pair]

    def with_dictionaries(self, changed: Dictionaries, *, merge: bool) -> Glossary:
        """Return the glossary with other dictionaries.

        changed: new dictionaries; those of other pairs stay.
        merge: whether an existing dictionary of the same pair keeps its entries of other source phrases.

        Raises InvalidRequest when a dictionary gets too many entries.
        """
        old = self.dictionaries if merge else {}
        changed = {pair: {**old.get(pair, {}), **entries} for pair, entries in changed.items()}
        for entries in changed.values():
            check_count(entries)
        return replace(self, dictionaries={**self.dictionaries, **changed})

    def without(self, pair: Pair) -> Glossary:
        """Return the glossary without the dictionary of a pair. Raises Refusal when there is none."""
        self.entries(pair)
        rest = {other: entries for other, entries in self.dictionaries.items() if other != pair}
        return replace(self, dictionaries=rest)


def tsv_of(entries: Mapping[str, str]) -> str:
    """Return entries as lines of two columns with a tab between."""
    return "\n".join(f"{source}\t{target}" for source, target in entries.items())


class Glossaries:
    """Glossaries by id; owners can use only their own. Methods read the disk: call them in a thread."""

    def __init__(self, records: Records) -> None:
        """records: stored glossaries, shared with other processes if they are in a folder."""
        self._known = KnownRecords(records, _from_record, _to_record)

    def add(self, glossary: Glossary) -> None:
        """Store a glossary.

        Raises InvalidRequest when its share has too many glossaries, TooLarge when the store has no room.
        """
        with self._known.locked() as stored:
            self._store_within_limits(glossary, stored)

    def of(self, owner: str, version: int = 2) -> list[Glossary]:
        """Return an owner's glossaries of one version, the oldest first."""
        with self._known.locked() as stored:
            own = [glossary for glossary in stored if (glossary.owner, glossary.version) == (owner, version)]
        return sorted(own, key=lambda glossary: glossary.created)

    def find(self, owner: str, id: str, version: int | None = None) -> Glossary:
        """Return an owner's glossary.

        owner: name of the visitor who asks.
        id: id of the glossary.
        version: version that the glossary must be of; None: any.

        Raises Refusal when the owner has no such glossary.
        """
        glossary = self._known.find(id)
        if glossary is None or glossary.owner != owner or version not in (None, glossary.version):
            raise Refusal("unknown_glossary", "Glossary not found.")
        return glossary

    def change(self, owner: str, id: str, change: Callable[[Glossary], Glossary]) -> Glossary:
        """Replace an owner's glossary of version 3, and return the new one. Concurrent changes take turns.

        owner: name of the visitor who asks.
        id: id of the glossary.
        change: function that returns the new glossary for the current one.

        Raises what `find`, `add` and `change` raise; then the stored glossary is as it was.
        """
        with self._known.locked() as stored:
            changed = change(self.find(owner, id, 3))
            self._store_within_limits(changed, [other for other in stored if other.id != id])
            return changed

    def drop(self, owner: str, id: str, version: int) -> None:
        """Remove an owner's glossary.

        owner: name of the visitor who asks.
        id: id of the glossary.
        version: version that the glossary must be of.

        Raises Refusal when the owner has no such glossary.
        """
        with self._known.locked():
            self.find(owner, id, version)
            self._known.drop(id)

    def adopt(self, folder: Path) -> None:
        """Replace the records of version 3 that older releases left by records of this release.

        folder: folder of the old indexes. An index names its parts: stored glossaries of one pair each.
        """
        indexes = Records(folder)
        with self._known.locked() as stored:
            by_id = {glossary.id: glossary for glossary in stored}
            for id in indexes.ids():
                index = indexes.get(id)
                if index is None:
                    continue
                parts = [by_id[part] for part in index.pop("parts").values() if part in by_id]
                if id not in by_id:
                    dictionaries = {p: entries for part in parts for p, entries in part.dictionaries.items()}
                    index["created"] = datetime.fromisoformat(index["created"])
                    self._known.put(id, Glossary(dictionaries=dictionaries, version=3, **index))
                for part in parts:
                    self._known.drop(part.id)
                indexes.drop(id)

    def _store_within_limits(self, glossary: Glossary, others: Sequence[Glossary]) -> None:
        """Store a glossary. Raises InvalidRequest or TooLarge when its owner or the server has too many.

        glossary: new or changed glossary.
        others: stored glossaries without it.
        """
        if len(glossary.name) > MAX_NAME_CHARACTERS:
            raise InvalidRequest(f"Parameter 'name' is longer than {MAX_NAME_CHARACTERS} characters.")
        own = [other for other in others if other.share == glossary.share]
        if len(own) >= MAX_GLOSSARIES:
            raise InvalidRequest(
                f"there are {MAX_GLOSSARIES} glossaries, as many as this server keeps: delete one"
            )
        for stored, room in ((own, MAX_STORE_BYTES // OWNER_SHARES), (others, MAX_STORE_BYTES)):
            if sum(other.size for other in stored) + glossary.size > room:
                raise TooLarge(
                    f"this server keeps {room} bytes of glossaries: delete some, or send a smaller one"
                )
        self._known.put(glossary.id, glossary)


def _from_record(record: dict[str, Any]) -> Glossary:
    """Return the glossary of a record; older releases wrote one pair, as `source`, `target` and `entries`."""
    fields = record | {"created": datetime.fromisoformat(record["created"])}
    if "entries" in fields:
        fields["dictionaries"] = {(fields.pop("source"), fields.pop("target")): fields.pop("entries")}
    else:
        fields["dictionaries"] = {(s, t): entries for s, t, entries in fields["dictionaries"]}
    return Glossary(**fields)


def _to_record(glossary: Glossary) -> dict[str, Any]:
    """Return the JSON record of a glossary."""
    return {
        "owner": glossary.owner,
        "name": glossary.name,
        "dictionaries": [(*pair, dict(entries)) for pair, entries in glossary.dictionaries.items()],
        "sharer": glossary.sharer,
        "version": glossary.version,
        "id": glossary.id,
        "created": glossary.created.isoformat(),
    }


def pairs_of(service: Service) -> list[Pair]:
    """Return the pairs of languages with a model that has placeholder symbols, which glossaries need."""
    pairs: dict[Pair, None] = {}
    for language in service.languages():
        for target in language.targets:
            if service.pick("translate", language.code, target).keeps_phrases:
                pairs[base_of(language.code), base_of(target)] = None
    return list(pairs)


def merge_entries(glossaries: Sequence[Glossary], source: str | None, target: str) -> dict[str, str]:
    """Merge the entries that several glossaries have for a request's languages.

    glossaries: glossaries in the order of the request; the first that has a phrase wins.
    source: our code of the texts' language; None: the language is to be detected.
    target: our code of the language to translate into.

    Raises InvalidRequest or Refusal when a glossary is for other languages, or there are too many entries.
    """
    entries: dict[str, str] = {}
    for glossary in glossaries:
        if source is None:
            raise InvalidRequest("Parameter 'source_lang' must be specified when a glossary is used.")
        entries = {**glossary.entries((base_of(source), base_of(target))), **entries}
        if len(entries) > MAX_ENTRIES:
            raise InvalidRequest(
                f"Value for 'glossary_ids' not supported: at most {MAX_ENTRIES} entries together."
            )
    return entries
