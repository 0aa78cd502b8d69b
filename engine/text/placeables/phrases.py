"""Search for many phrases at once; its time depends on the text, not on the number of phrases."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence


class Phrases:
    """Finds exact matches of many phrases; the longest phrase at a place wins."""

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
