"""Phrases of the caller: the forms that an entry of a glossary finds, and the search for many phrases."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from engine.text.form import capitalised

EXACT: Final = "="  # before a phrase that is found only as it is written
FORM: Final = "|"  # between the forms of a phrase: station|stations


class Phrases:
    """Finds exact matches of many phrases, in time that depends on the text alone; the longest phrase at a
    place wins."""

    def __init__(self, phrases: Collection[str], *, spaced: bool) -> None:
        """Index phrases by their first characters.

        phrases: phrases to find, not empty.
        spaced: whether a phrase that begins or ends with a letter or digit matches only whole words.
        """
        self._phrases, self._spaced = frozenset(phrases), spaced
        lengths: dict[str, set[int]] = {}
        for phrase in self._phrases:
            lengths.setdefault(phrase[:2], set()).add(len(phrase))
        # lengths of the phrases with the same first two characters, longest first
        self._lengths = {beginning: sorted(sizes, reverse=True) for beginning, sizes in lengths.items()}
        first = "".join(re.escape(character) for character in sorted({p[0] for p in self._phrases}))
        self._beginning = re.compile(f"[{first}]") if first else None

    def may_find(self, text: str) -> bool:
        """Return quickly whether a text may contain a phrase."""
        return self._beginning is not None and self._beginning.search(text) is not None

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield begin and end of each phrase in order; if two overlap, only the first."""
        position = 0
        while self._beginning and (match := self._beginning.search(text, position)):
            begin = match.start()
            end = self._end(text, begin)
            if end is not None:
                yield begin, end
            position = end or begin + 1

    def _end(self, text: str, begin: int) -> int | None:
        """Return the end of the longest phrase at `begin`, or None."""
        if self._spaced and begin and text[begin].isalnum() and _inside(text[begin - 1]):
            return None
        for beginning in dict.fromkeys((text[begin : begin + 2], text[begin])):
            for length in self._lengths.get(beginning, ()):
                end = begin + length
                if (
                    end <= len(text)
                    and text[begin:end] in self._phrases
                    and not self._continues_word(text, end)
                ):
                    return end
        return None

    def _continues_word(self, text: str, end: int) -> bool:
        """Return whether a word continues at `end`."""
        return self._spaced and end < len(text) and text[end - 1].isalnum() and _inside(text[end])


def _inside(character: str) -> bool:
    return character.isalnum() or character == "_"


def merge_ranges(sources: Sequence[Iterator[tuple[int, int]]]) -> Iterator[tuple[int, int]]:
    """Merge ordered iterators of ranges, dropping overlaps: the first begin wins, then the first iterator."""
    heads = [next(source, None) for source in sources]
    position = 0
    while True:
        for i, head in enumerate(heads):
            while head and head[0] < position:
                head = next(sources[i], None)
            heads[i] = head
        ready = [(head[0], i) for i, head in enumerate(heads) if head]
        if not ready:
            return
        first = heads[min(ready)[1]]
        assert first
        yield first
        position = first[1]


def targets_of(ignore: Sequence[str], glossary: Mapping[str, str]) -> dict[str, str | None]:
    """Return the translation of each phrase to find; None for a phrase that stays unchanged.

    ignore: phrases that stay unchanged.
    glossary: translations by entry. A form in other capitals gives way to a phrase that is written so.
    """
    if not (ignore or glossary):
        return {}
    written, cased = dict[str, str](), dict[str, str]()
    for entry, target in glossary.items():
        for form in _written_forms(entry):
            written[form] = target
            if form is entry or not _is_exact(entry):
                cased[form] = target
    other: dict[str, str | None] = {form.upper(): target.upper() for form, target in reversed(cased.items())}
    other |= {capitalised(form): capitalised(target) for form, target in reversed(cased.items())}
    return other | dict.fromkeys(ignore) | written


def forms_of(entry: str) -> Iterator[str]:
    """Yield every form that an entry finds: as it is written, with a capital, and in capitals."""
    for form in _written_forms(entry):
        yield form
        if not _is_exact(entry):
            yield capitalised(form)
            yield form.upper()


def _written_forms(entry: str) -> list[str]:
    """Return the forms of an entry as they are written."""
    if EXACT not in entry and FORM not in entry:  # nearly always
        return [entry]
    if _is_exact(entry):
        return [entry.removeprefix(EXACT)]
    forms = [form.strip() for form in entry.split(FORM)]
    return forms if len(forms) > 1 and all(forms) else [entry]


def _is_exact(entry: str) -> bool:
    return entry.startswith(EXACT) and bool(entry.removeprefix(EXACT).strip())
