"""Lines of more code than prose, such as logs, stack traces and shell sessions.

A model can't read a line of placeholders. The phrases of such a line become borders, so that only its prose
is translated, part by part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from engine.text.placeables.grammar import EMOJI_STAND_IN
from engine.text.placeables.masked_text import MaskedText, Phrase

WORD: Final = re.compile(r"(?<![^\s\"'„“(\[])[^\W\d_]{2,}(?![^\s\"'”“)\].,:;!?])")
MIN_CODE_PHRASES: Final = 3  # fewer are part of a sentence
MANY_PHRASES: Final = 4  # numbers count too, if there are twice as many phrases as words


def cut_dense_lines(masked: MaskedText) -> MaskedText:
    """Make the phrases of each line borders if the line has more code than words."""
    if not any(map(_is_code, masked.phrases)) or len(masked.phrases) < MIN_CODE_PHRASES:
        return masked
    lines, first = list[str](), 0
    phrases = list[Phrase]()
    for line in masked.text.splitlines(keepends=True):
        own = masked.phrases[first : first + masked.count(line)]
        first += len(own)
        if _is_dense(own, len(WORD.findall(line))):
            body = line.rstrip()
            parts = list(_joined(body.split(masked.mark), own))
            lines += [part if isinstance(part, str) else masked.mark for part in parts]
            lines.append(line[len(body) :])
            phrases += [part for part in parts if isinstance(part, Phrase)]
        else:
            lines.append(line)
            phrases += own
    return MaskedText("".join(lines), masked.mark, tuple(phrases))


def _is_dense(phrases: Sequence[Phrase], words: int) -> bool:
    """Return whether a line with these phrases and this number of words is code."""
    if any(phrase.requested for phrase in phrases):
        return False
    code, numbers = sum(map(_is_code, phrases)), sum(p.trusted and not p.name for p in phrases)
    many = code > 0 and code + numbers >= max(MANY_PHRASES, 3 * words)
    return many or code >= max(MIN_CODE_PHRASES, 2 * words)


def _is_code(phrase: Phrase) -> bool:
    """Return whether a phrase is no number, name, picture, border or phrase of the caller."""
    treated = phrase.trusted or phrase.name or phrase.border or phrase.requested
    return not treated and phrase.stand_in != EMOJI_STAND_IN


def _joined(texts: Sequence[str], phrases: Sequence[Phrase]) -> Iterator[str | Phrase]:
    """Yield the parts of a line: its prose, and each run of phrases and lone words as one border.

    texts: text before, between and after the phrases.
    """
    code = ""  # text of the border that is not yet complete
    for number, text in enumerate(texts):
        if _is_prose(text):
            if code:
                yield _border(code)
            yield text
            code = ""
        else:
            code += text
        if number == len(phrases):
            break
        phrase = phrases[number]
        if _is_code(phrase) or phrase.border or not _is_prose(texts[number + 1]):
            code += phrase.source
            continue
        if code:
            yield _border(code)
            code = ""
        yield phrase
    if code:
        yield _border(code) if code.strip() else code


def _is_prose(text: str) -> bool:
    """Return whether a text has two words, or one that begins with a capital."""
    words = WORD.findall(text)
    return len(words) > 1 or any(word[0].isupper() for word in words)


def _border(code: str) -> Phrase:
    return Phrase(code, code, requested=False, border=True)
