"""Glossaries as DeepL has them: made once, never changed, named in requests."""

from __future__ import annotations

import csv
import io
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Final, cast

from engine.api import InvalidRequest, Service, Slices, TooLarge
from server.contracts.deepl.languages import base_of
from server.errors import Refusal
from server.files.known_records import KnownRecords
from server.files.shared_records import Records

MAX_GLOSSARIES: Final = 1_000  # of one owner
MAX_ENTRIES: Final = 50_000  # of one glossary, and of all that a request names
MAX_NAME_CHARACTERS: Final = 1_024
OWNER_SHARES: Final = 4  # an owner has at most one of so many parts of the store
MIN_BYTES: Final = 4_096  # that a glossary counts as
MAX_PHRASE_CHARACTERS: Final = 1_024  # of a phrase
MAX_STORE_BYTES: Final = 67_108_864  # of all glossaries together, about
GRAM_CHARACTERS: Final = 8  # by which an entry is looked for first
SLICE_ENTRIES: Final = 100  # that are read at once
SLICE_CHARACTERS: Final = 10_000  # at which keys are looked for at once
MANY_PHRASES: Final = 500  # of one length, which are quicker looked for all at once than each by itself
MAX_LOOKUP_SECONDS: Final = 5.0  # of a processor, for which a request's entries are looked for
ENTRY_BYTES: Final = 250  # that Python takes for an entry or a glossary, beside its characters


@dataclass(frozen=True, slots=True)
class Glossary:
    """Phrases with their translations.

    owner: name of the visitor who alone may use it.
    name: what its owner calls it.
    source, target: DeepL's codes without variants, in lower case.
    entries: source phrases with their translations.
    sharer: name of the visitor whose share of the store it takes; "": the owner's.
    id: what requests name it by.
    created: when it was made.
    size: bytes in memory, about.
    """

    owner: str
    name: str
    source: str
    target: str
    entries: Mapping[str, str]
    sharer: str = ""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    size: int = field(init=False)

    def __post_init__(self) -> None:
        texts = (self.name, *self.entries, *self.entries.values())
        size = sum(len(text.encode()) + ENTRY_BYTES for text in texts)
        object.__setattr__(self, "size", max(MIN_BYTES, size))

    @property
    def share(self) -> str:
        """Whose share of the store it takes."""
        return self.sharer or self.owner

    def tsv(self) -> str:
        return "\n".join(f"{source}\t{target}" for source, target in self.entries.items())


class Glossaries:
    """By their ids; each owner sees only their own. All is for a thread, as disks may be slow."""

    def __init__(self, records: Records) -> None:
        """records: those of another process too, where they lie in a shared folder."""
        self._known = KnownRecords(records, _glossary, _record)

    def add(self, glossary: Glossary) -> None:
        """Keep a glossary.

        Raises InvalidRequest when the owner has too many, TooLarge when there is no room.
        """
        check_name(glossary.name)
        with self._known.held() as kept:
            own = [other for other in kept if other.share == glossary.share]
            if len(own) >= MAX_GLOSSARIES:
                raise InvalidRequest(
                    f"there are {MAX_GLOSSARIES} glossaries, as many as this server keeps: delete one"
                )
            for others, room in ((own, MAX_STORE_BYTES // OWNER_SHARES), (kept, MAX_STORE_BYTES)):
                if sum(other.size for other in others) + glossary.size > room:
                    raise TooLarge(
                        f"this server keeps {room} bytes of glossaries: delete some, or send a smaller one"
                    )
            self._known.put(glossary.id, glossary)

    def of(self, owner: str) -> list[Glossary]:
        """List an owner's glossaries, the oldest first."""
        with self._known.held() as kept:
            own = [glossary for glossary in kept if glossary.owner == owner]
        return sorted(own, key=lambda glossary: glossary.created)

    def find(self, owner: str, id: str) -> Glossary:
        """Find an owner's glossary.

        Raises Refusal when there is none of that id, or it is somebody else's.
        """
        glossary = self._known.find(id)
        if glossary is None or glossary.owner != owner:
            raise Refusal("unknown_glossary", "Glossary not found.")
        return glossary

    def drop(self, owner: str, id: str) -> None:
        """Drop an owner's glossary. Raises what `find` raises."""
        with self._known.held():
            self.find(owner, id)
            self._known.drop(id)


def _glossary(record: dict[str, Any]) -> Glossary:
    return Glossary(**record | {"created": datetime.fromisoformat(record["created"])})


def _record(glossary: Glossary) -> dict[str, Any]:
    record = {f.name: getattr(glossary, f.name) for f in fields(glossary) if f.init}
    return record | {"entries": dict(glossary.entries), "created": glossary.created.isoformat()}


def check_name(name: str) -> None:
    """Raise InvalidRequest on a name that is too long."""
    if len(name) > MAX_NAME_CHARACTERS:
        raise InvalidRequest(f"Parameter 'name' is longer than {MAX_NAME_CHARACTERS} characters.")


def read_entries(text: str, kind: str) -> dict[str, str]:
    """Read entries of a glossary, as "tsv" or "csv". Raises InvalidRequest that names the one at fault."""
    if kind not in ("tsv", "csv"):
        raise InvalidRequest("Value for 'entries_format' not supported: it is tsv or csv.")
    entries: dict[str, str] = {}
    for number, row in _rows(text, kind):
        source, target = (part.strip() for part in row[:2])
        if not source or not target:
            raise _wrong(f"entry {number} lacks a phrase")
        if max(len(source), len(target)) > MAX_PHRASE_CHARACTERS:
            raise _wrong(f"entry {number} is longer than {MAX_PHRASE_CHARACTERS} characters")
        if any(character < " " or "\x7f" <= character < "\xa0" for character in source + target):
            raise _wrong(f"entry {number} holds a control character")
        if source in entries:
            raise _wrong(f"entry {number} has the source of one before: {source!r}")
        entries[source] = target
    if not entries:
        raise _wrong("there is none")
    check_count(entries)
    return entries


def check_count(entries: Mapping[str, str]) -> None:
    """Raise InvalidRequest on more entries than a glossary may have."""
    if len(entries) > MAX_ENTRIES:
        raise _wrong(f"there are {len(entries)}; this server takes {MAX_ENTRIES}")


def pairs_of(service: Service) -> list[tuple[str, str]]:
    """List the pairs of languages that glossaries may be for.

    Models of such a pair have symbols to keep phrases.
    """
    pairs: dict[tuple[str, str], None] = {}
    for language in service.languages():
        for target in language.targets:
            if service.pick("translate", language.code, target).keeps_phrases:
                pairs[base_of(language.code), base_of(target)] = None
    return list(pairs)


def merge_entries(glossaries: Sequence[Glossary], source: str | None, target: str) -> dict[str, str]:
    """Merge entries of glossaries for a request's languages.

    glossaries: in the order of the request; of one phrase in several the first counts.
    source: our code of the texts' language; None where it is to be detected.
    target: our code of the language to translate into.

    Raises InvalidRequest when one of them is for other languages, or there are too many entries.
    """
    entries: dict[str, str] = {}
    for glossary in glossaries:
        if source is None:
            raise InvalidRequest("Parameter 'source_lang' must be specified when a glossary is used.")
        if (glossary.source, glossary.target) != (base_of(source), base_of(target)):
            pair = f"{glossary.source.upper()} to {glossary.target.upper()}"
            raise InvalidRequest(f"Value for 'glossary_id' not supported: the glossary is for {pair}.")
        entries = {**glossary.entries, **entries}
        if len(entries) > MAX_ENTRIES:
            raise InvalidRequest(
                f"Value for 'glossary_ids' not supported: at most {MAX_ENTRIES} entries together."
            )
    return entries


def present(entries: Mapping[str, str], texts: Iterable[str]) -> Slices[dict[str, str]]:
    """Find the entries whose source stands in a text at all, however its white space is, in slices.

    entries: source phrases with their translations.
    texts: what is to be translated.

    Memory grows with the entries, not with the texts. Raises TooLarge when it takes MAX_LOOKUP_SECONDS.
    """
    if not entries:
        return {}
    search, seconds = _present(entries, texts), 0.0
    while seconds < MAX_LOOKUP_SECONDS:
        began = time.thread_time()
        try:
            next(search)
        except StopIteration as done:
            return cast(dict[str, str], done.value)
        seconds += time.thread_time() - began
        yield
    raise TooLarge(
        f"looking for a glossary's entries in these texts takes more than {seconds:.0f} seconds of a "
        "processor: send fewer or shorter texts, or name fewer entries"
    )


def _present(entries: Mapping[str, str], texts: Iterable[str]) -> Slices[dict[str, str]]:
    """The same, however long it takes. Short phrases, and those of a length that many have, are looked for
    all at once; of others the first characters are, and then the whole of each."""
    phrases: dict[str, list[str]] = {}
    for number, source in enumerate(entries):
        phrases.setdefault(_fold_space(source), []).append(source)
        if not number % SLICE_ENTRIES:
            yield
    lengths = Counter(map(len, phrases))
    keys: dict[int, set[str]] = {}
    for number, phrase in enumerate(phrases):
        key = phrase if lengths[len(phrase)] > MANY_PHRASES else phrase[:GRAM_CHARACTERS]
        keys.setdefault(len(key), set()).add(key)
        if not number % SLICE_ENTRIES:
            yield
    whole = _fold_space("\n".join(texts))
    yield
    standing = yield from _standing(keys, whole)
    matches = {source for key in standing for source in phrases.get(key, ())}
    for number, (phrase, sources) in enumerate(phrases.items()):
        if lengths[len(phrase)] <= MANY_PHRASES and phrase[:GRAM_CHARACTERS] in standing:
            if phrase in whole:
                matches.update(sources)
            yield
        elif not number % SLICE_ENTRIES:
            yield
    return {source: target for source, target in entries.items() if source in matches}


def _standing(keys: Mapping[int, set[str]], text: str) -> Slices[set[str]]:
    """Those of the keys, by their lengths, that stand in a text."""
    standing = set[str]()
    for size, some in keys.items():
        for begin in range(0, len(text), SLICE_CHARACTERS):
            places = range(begin, min(begin + SLICE_CHARACTERS, len(text)))
            standing.update(some.intersection({text[at : at + size] for at in places}))
            yield
    return standing


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
