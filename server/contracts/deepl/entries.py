"""Entries of glossaries: how they are read from tables, and which of them occur in a text."""

from __future__ import annotations

import csv
import io
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from engine.api import InvalidRequest, Slices, TooLarge, forms_of
from server.recent import Recent

MAX_ENTRIES: Final = 50_000  # entries of one dictionary, and of all glossaries that a request names
MAX_PHRASE_CHARACTERS: Final = 1_024
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
MAX_LOOKUP_SECONDS: Final = 5.0  # processor seconds that a request's entries may be looked up for
GRAM_CHARACTERS: Final = 8  # characters of the prefix that a long entry is first looked up by
SLICE_ENTRIES: Final = 100  # entries that are prepared in one slice
SLICE_CHARACTERS: Final = 10_000  # characters of a text that are searched in one slice
# entries of one length above which they are looked up together, by their whole text
MANY_PHRASES: Final = 500


def read_entries(text: str, kind: str) -> Slices[dict[str, str]]:
    """Parse a table of entries, in slices. Raises InvalidRequest that names the first bad entry.

    text: table, an entry on each line.
    kind: format of the table, "tsv" or "csv".
    """
    if kind not in ("tsv", "csv"):
        raise InvalidRequest("Value for 'entries_format' not supported: it is tsv or csv.")
    entries: dict[str, str] = {}
    for row_number, (number, row) in enumerate(_rows(text, kind)):
        if not row_number % SLICE_ENTRIES:
            yield
        if not row:
            continue
        source, target = (part.strip() for part in row[:2])
        if not source or not target:
            raise _invalid_entries(f"entry {number} lacks a phrase")
        if max(len(source), len(target)) > MAX_PHRASE_CHARACTERS:
            raise _invalid_entries(f"entry {number} is longer than {MAX_PHRASE_CHARACTERS} characters")
        if CONTROL.search(source) or CONTROL.search(target):
            raise _invalid_entries(f"entry {number} holds a control character")
        if source in entries:
            raise _invalid_entries(f"entry {number} has the source of one before: {source!r}")
        entries[source] = target
    if not entries:
        raise _invalid_entries("there is none")
    check_count(entries)
    return entries


def check_count(entries: Mapping[str, str]) -> None:
    """Raise InvalidRequest when a dictionary has too many entries."""
    if len(entries) > MAX_ENTRIES:
        raise _invalid_entries(f"there are {len(entries)}; this server takes {MAX_ENTRIES}")


def present_entries(entries: Mapping[str, str], texts: Iterable[str]) -> Slices[dict[str, str]]:
    """Return the entries of which a form occurs in a text, in slices. White space is not compared.

    entries: translations by source phrase.
    texts: texts to be translated.

    Memory grows with the entries, not with the texts. Raises TooLarge after MAX_LOOKUP_SECONDS.
    """
    if not entries:
        return {}
    search, seconds = _present_entries(entries, texts), 0.0
    while seconds < MAX_LOOKUP_SECONDS:
        start = time.thread_time()
        try:
            next(search)
        except StopIteration as stop:
            return cast(dict[str, str], stop.value)
        # only processor time of this thread counts, so a busy machine refuses nothing
        seconds += time.thread_time() - start
        yield
    raise TooLarge(
        f"looking for a glossary's entries in these texts takes more than {seconds:.0f} seconds of a "
        "processor: send fewer or shorter texts, or name fewer entries"
    )


def _present_entries(entries: Mapping[str, str], texts: Iterable[str]) -> Slices[dict[str, str]]:
    """Do the work of `present_entries`, without its time limit."""
    sources = tuple(entries)
    index = INDEXES.get(sources)
    if index is None:
        index = yield from _index_of(sources)
        INDEXES.put(sources, index, len(sources))
    whole = _fold_space("\n".join(texts))
    yield
    found = yield from _find_keys(index.keys, whole)
    matches = set[int]()
    for number, phrase in enumerate(phrase for key in found for phrase in index.phrases[key]):
        # a key may be a whole phrase, or the beginning of phrases
        if phrase in found or phrase in whole:
            matches.update(index.numbers[phrase])
        if not number % SLICE_ENTRIES:
            yield
    return {sources[number]: entries[sources[number]] for number in sorted(matches)}


@dataclass(frozen=True, slots=True)
class Index:
    """Forms of entries, to find the entries of a text.

    keys: keys by their length: whole forms of a common length, and the first characters of other forms.
    phrases: forms by key.
    numbers: numbers of the entries of each form.
    """

    keys: Mapping[int, set[str]]
    phrases: Mapping[str, Sequence[str]]
    numbers: Mapping[str, Sequence[int]]


def _index_of(sources: Sequence[str]) -> Slices[Index]:
    """Make the index of entries, in slices."""
    numbers: dict[str, list[int]] = {}
    for number, source in enumerate(sources):
        for form in forms_of(source):
            numbers.setdefault(_fold_space(form), []).append(number)
        if not number % SLICE_ENTRIES:
            yield
    lengths = Counter(map(len, numbers))
    keys, phrases = dict[int, set[str]](), dict[str, list[str]]()
    for number, phrase in enumerate(numbers):
        key = phrase if lengths[len(phrase)] > MANY_PHRASES else phrase[:GRAM_CHARACTERS]
        keys.setdefault(len(key), set()).add(key)
        phrases.setdefault(key, []).append(phrase)
        if not number % SLICE_ENTRIES:
            yield
    return Index(keys, phrases, numbers)


# indexes of the glossaries that were used last, by their entries; about 1 kB for each entry
INDEXES: Final = Recent[tuple[str, ...], Index](MAX_ENTRIES)


def _find_keys(keys: Mapping[int, set[str]], text: str) -> Slices[set[str]]:
    """Return the keys that occur in a text.

    keys: keys by their length in characters.
    text: text to search.
    """
    found = set[str]()
    for size, keys_of_size in keys.items():
        for begin in range(0, len(text), SLICE_CHARACTERS):
            places = range(begin, min(begin + SLICE_CHARACTERS, len(text)))
            # all substrings of the length of these keys
            found.update(keys_of_size.intersection({text[at : at + size] for at in places}))
            yield
    return found


def _fold_space(text: str) -> str:
    return " ".join(text.split())


def _rows(text: str, kind: str) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the number of each line, from 1, and its columns; none of a blank line."""
    if kind == "tsv":
        for number, line in enumerate(text.split("\n"), 1):
            row = line.strip().split("\t") if line.strip() else []
            if len(row) not in (0, 2):
                raise _invalid_entries(f"entry {number} is not two phrases with a tab between")
            yield number, row
        return
    try:
        for number, row in enumerate(csv.reader(io.StringIO(text, newline=""), strict=True), 1):
            if any(row) and len(row) not in (2, 4):  # two more columns may name the languages
                raise _invalid_entries(f"entry {number} has {len(row)} columns: source,target")
            yield number, row if any(row) else []
    except csv.Error as error:
        raise _invalid_entries(str(error)) from None


def _invalid_entries(what: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid glossary entries provided: {what}.")
