"""Faults of a language model's answer, and their repair: chatter, placeholders, numbers, length, language."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from engine.text.detect import surely_other
from engine.text.numbers import foreign_numbers
from engine.text.tokenizers.characters import SYMBOL, SourceText

THOUGHTS_END: Final = "</think>"
FENCE: Final = "```"
# an opening line or words of a chat around an answer
CHATTER: Final = re.compile(
    r"(?:sure|certainly|of course|okay|here (?:is|are|'s)|here’s|as an ai|i(?:'m| am) (?:sorry|unable)|"
    r"i can(?:'|no)t|the translation|translation\s?:|translated text|note\s?:|gerne|natürlich|hier ist|"
    r"übersetzung\s?:|bien sûr|voici|traduction\s?:|claro|aquí (?:está|tienes)|"
    r"traducción\s?:|以下是|好的|翻译[::])",
    re.IGNORECASE,
)
CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # no document can hold some of them
QUOTES: Final = {'"': '"', "“": "”", "„": "“", "«": "»", "'": "'"}
# the longest answer has this many times the characters of its source, and some more for short texts
LONGEST_SHARE: Final = 6
LONGEST_PLUS: Final = 60
SHORTEST_SHARE: Final = 8  # largest ratio of the lengths of source and answer
SHORT_SOURCE: Final = 40  # characters; an answer to a shorter source may have any length
MIN_LETTERS: Final = 24  # the language of answers with fewer letters is not checked


def bare(answer: str, source: str) -> str:
    """Return an answer without thoughts, code fence, quotation marks and control characters.

    answer: answer of a model.
    source: text that it translates.
    """
    answer = CONTROL.sub("", answer.rpartition(THOUGHTS_END)[2]).strip()
    if FENCE not in source and answer.startswith(FENCE) and answer.endswith(FENCE) and "\n" in answer:
        answer = answer.removesuffix(FENCE).partition("\n")[2].strip()
    if source[:1] not in QUOTES and answer[:1] in QUOTES and len(answer) > 2:
        inner = answer[1:-1]
        if answer.endswith(QUOTES[answer[0]]) and not set(inner) & {answer[0], answer[-1]}:
            answer = inner.strip()
    return answer


def faults_of(source: SourceText, answer: str) -> list[str]:
    """Return the faults of an answer, in words of metrics; none for a good answer.

    source: text with its languages, placeholders and terms.
    answer: result of `bare`.
    """
    if not answer.strip():
        return ["empty"]
    if len(answer) > longest_answer(source.text):  # the other checks take the time of a longer text
        return ["length"]
    faults = list[str]()
    if Counter(SYMBOL.findall(answer)) != Counter(SYMBOL.findall(source.text)):
        faults.append("placeholders")
    read, written = (SYMBOL.sub(" ", text) for text in (source.text, answer))
    if _chats(read, written):
        faults.append("chatter")
    if _has_wrong_numbers(source, read, written):
        faults.append("numbers")
    if len(read) > SHORT_SOURCE and len(written) * SHORTEST_SHARE < len(read):
        faults.append("length")
    if _is_foreign(source, written):
        faults.append("language")
    return faults


def longest_answer(source: str) -> int:
    """Return the largest number of characters of an answer to a text."""
    return LONGEST_SHARE * len(source) + LONGEST_PLUS


def _has_wrong_numbers(source: SourceText, read: str, written: str) -> bool:
    """Return whether an answer lacks a number of its source, or has another; terms may have any."""
    for phrase, target in source.hints.items():
        read, written = read.replace(phrase, " "), written.replace(target, " ")
    return bool(
        foreign_numbers(written, read, (source.target, source.source))
        or foreign_numbers(read, written, (source.source, source.target))
    )


def _chats(source: str, answer: str) -> bool:
    """Return whether an answer has the opening of a chat, or more lines than the source."""
    lines = [sum(bool(line.strip()) for line in text.splitlines()) for text in (source, answer)]
    opens = CHATTER.match(answer.lstrip()) and not CHATTER.match(source.lstrip())
    # "Sure." may be the translation of one word; an opening is longer or ends in a colon
    return lines[1] > lines[0] or bool(opens and (":" in answer) > (":" in source))


def _is_foreign(source: SourceText, answer: str) -> bool:
    """Return whether an answer is surely not in its language."""
    if sum(map(str.isalpha, answer)) < MIN_LETTERS:
        return False
    return surely_other(answer, source.target, (source.source, source.target)) is not None


def mended(source: str, answer: str) -> str:
    """Return an answer with each placeholder of the source once, and no other placeholder.

    A lost placeholder is inserted between two words, as far into the answer as it is into the source.

    source, answer: texts with placeholders.
    """
    needed, kept = SYMBOL.findall(source), list[str]()
    seen = set[str]()
    for number, part in enumerate(SYMBOL.split(answer)):
        if number % 2 and (part in seen or part not in needed):
            continue
        seen |= {part} if number % 2 else set()
        kept.append(part)
    text = "".join(kept)
    for symbol in dict.fromkeys(needed):
        if symbol not in seen:
            at = round(len(text) * source.index(symbol) / max(1, len(source)))
            at = text.find(" ", at) if " " in text[at:] else len(text)
            text = f"{text[:at]} {symbol}{text[at:]}"
    return text.strip()
