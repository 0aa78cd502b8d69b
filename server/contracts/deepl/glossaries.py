"""Glossaries as DeepL has them: made once, never changed, named in requests."""

from __future__ import annotations

import csv
import io
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Final

from engine.api import InvalidRequest, Service, Slices, TooLarge
from server.contracts.deepl.languages import base_of
from server.errors import Refusal
from server.shared_records import Records
from server.translation import keeps_phrases

MOST: Final = 1_000  # glossaries of one owner
ENTRIES: Final = 50_000  # of one glossary
LONGEST: Final = 1_024  # characters of a phrase
ROOM: Final = 67_108_864  # bytes of all glossaries together, about
GRAM: Final = 4  # characters by which an entry is looked for first
SLICE: Final = 100  # entries looked for at once
OVERHEAD: Final = 250  # bytes that Python takes for an entry or a glossary, beside its characters


@dataclass(frozen=True, slots=True)
class Glossary:
    """source, target: DeepL's codes without variants, in lower case.
    size: bytes, about.
    """

    owner: str
    name: str
    source: str
    target: str
    entries: Mapping[str, str]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    size: int = field(init=False)

    def __post_init__(self) -> None:
        texts = (self.name, *self.entries, *self.entries.values())
        object.__setattr__(self, "size", sum(len(text.encode()) + OVERHEAD for text in texts))

    def tsv(self) -> str:
        return "\n".join(f"{source}\t{target}" for source, target in self.entries.items())


class Glossaries:
    """By their ids; each owner sees only their own. What records hold is read once, as it never changes."""

    def __init__(self, records: Records) -> None:
        """records: those of another process too, where they lie in a shared folder."""
        self._records = records
        self._kept: dict[str, Glossary] = {}

    def add(self, glossary: Glossary) -> None:
        """Keep a glossary.

        Raises InvalidRequest when the owner has too many, TooLarge when there is no room.
        """
        if len(self.of(glossary.owner)) >= MOST:
            raise InvalidRequest(f"there are {MOST} glossaries, as many as this server keeps: delete one")
        if sum(other.size for other in self._kept.values()) + glossary.size > ROOM:
            raise TooLarge(
                f"this server keeps {ROOM} bytes of glossaries: delete some, or send a smaller one"
            )
        self._records.put(glossary.id, _record(glossary))
        self._kept[glossary.id] = glossary

    def of(self, owner: str) -> list[Glossary]:
        for id in {*self._records.ids(), *self._kept}:
            self._load(id)
        own = [glossary for glossary in self._kept.values() if glossary.owner == owner]
        return sorted(own, key=lambda glossary: glossary.created)

    def find(self, owner: str, id: str) -> Glossary:
        """Find an owner's glossary.

        Raises Refusal when there is none of that id, or it is somebody else's.
        """
        glossary = self._load(id)
        if glossary is None or glossary.owner != owner:
            raise Refusal("unknown_glossary", "Glossary not found.")
        return glossary

    def drop(self, owner: str, id: str) -> None:
        """Drop an owner's glossary. Raises what `find` raises."""
        self.find(owner, id)
        self._records.drop(id)
        del self._kept[id]

    def _load(self, id: str) -> Glossary | None:
        if not self._records.has(id):
            self._kept.pop(id, None)
            return None
        if id not in self._kept and (record := self._records.get(id)) is not None:
            self._kept[id] = Glossary(**record | {"created": datetime.fromisoformat(record["created"])})
        return self._kept.get(id)


def _record(glossary: Glossary) -> dict[str, Any]:
    record = {f.name: getattr(glossary, f.name) for f in fields(glossary) if f.init}
    return record | {"entries": dict(glossary.entries), "created": glossary.created.isoformat()}


def read_entries(text: str, kind: str) -> dict[str, str]:
    """Read entries of a glossary, as "tsv" or "csv". Raises InvalidRequest that names the one at fault."""
    if kind not in ("tsv", "csv"):
        raise InvalidRequest("Value for 'entries_format' not supported: it is tsv or csv.")
    entries: dict[str, str] = {}
    for number, row in _rows(text, kind):
        source, target = (part.strip() for part in row[:2])
        if not source or not target:
            raise _wrong(f"entry {number} lacks a phrase")
        if max(len(source), len(target)) > LONGEST:
            raise _wrong(f"entry {number} is longer than {LONGEST} characters")
        if any(character < " " or "\x7f" <= character < "\xa0" for character in source + target):
            raise _wrong(f"entry {number} holds a control character")
        if source in entries:
            raise _wrong(f"entry {number} has the source of one before: {source!r}")
        entries[source] = target
    if not entries:
        raise _wrong("there is none")
    if len(entries) > ENTRIES:
        raise _wrong(f"there are {len(entries)}; this server takes {ENTRIES}")
    return entries


def pairs_of(service: Service) -> list[tuple[str, str]]:
    """List the pairs of languages that glossaries may be for.

    They are those whose models have symbols to keep phrases.
    """
    pairs: dict[tuple[str, str], None] = {}
    for language in service.languages():
        for target in language.targets:
            if keeps_phrases(service, service.pick("translate", language.code, target)):
                pairs[base_of(language.code), base_of(target)] = None
    return list(pairs)


def merge_entries(glossaries: Sequence[Glossary], source: str | None, target: str) -> dict[str, str]:
    """Merge entries of glossaries for a request's languages; of one phrase in several the first counts.

    Raises InvalidRequest when one of them is for other languages.
    """
    entries: dict[str, str] = {}
    for glossary in glossaries:
        if source is None:
            raise InvalidRequest("Parameter 'source_lang' must be specified when a glossary is used.")
        if (glossary.source, glossary.target) != (base_of(source), base_of(target)):
            pair = f"{glossary.source.upper()} to {glossary.target.upper()}"
            raise InvalidRequest(f"Value for 'glossary_id' not supported: the glossary is for {pair}.")
        entries = {**glossary.entries, **entries}
    return entries


def present(entries: Mapping[str, str], texts: Iterable[str]) -> Slices[dict[str, str]]:
    """Find the entries, in slices, whose source stands in a text at all, however its white space is.

    Looking for few is faster than for many.
    """
    whole = _fold_space("\n".join(texts)) if entries else ""
    yield
    beginnings: set[str] = set()
    for size in {min(len(_fold_space(source)), GRAM) for source in entries}:
        beginnings.update(whole[at : at + size] for at in range(len(whole)))
        yield
    matches = {}
    for number, (source, target) in enumerate(entries.items()):
        folded = _fold_space(source)
        if folded[:GRAM] in beginnings and folded in whole:  # most are told by their beginning
            matches[source] = target
        if not number % SLICE:
            yield
    return matches


def _fold_space(text: str) -> str:
    return " ".join(text.split())


def _rows(text: str, kind: str) -> Iterator[tuple[int, Sequence[str]]]:
    """Entries with their numbers, counted from 1; blank lines are none."""
    if kind == "tsv":
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                row = line.strip().split("\t")
                if len(row) != 2:
                    raise _wrong(f"entry {number} is not two phrases with a tab between")
                yield number, row
        return
    try:
        for number, row in enumerate(csv.reader(io.StringIO(text, newline=""), strict=True), 1):
            if any(row):
                if len(row) not in (2, 4):  # the languages may follow
                    raise _wrong(f"entry {number} has {len(row)} columns: source,target")
                yield number, row
    except csv.Error as error:
        raise _wrong(str(error)) from None


def _wrong(what: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid glossary entries provided: {what}.")
