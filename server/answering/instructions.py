"""Instructions in prose, as chat models get them: the task, and the languages that a message names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from engine.api import KNOWN_NAMES
from server.languages import tag_of

MAX_CHARACTERS: Final = 10_000  # the rest of a longer message is not read
NAME_CHARACTERS: Final = 60
PAIR_CHARACTERS: Final = 100  # longest message that is only two languages
SUMMARY: Final = re.compile(r"\bsummar|\bzusammenfass|\brésum|总结|摘要|概括", re.IGNORECASE)
TRANSLATION: Final = re.compile(
    r"\btranslat|übersetz|\btradu|\bvertaal|翻[译譯訳]|[译譯][成为為到]|번역|\bперев[её]|\bпереклад",
    re.IGNORECASE,
)
TARGET_LABEL: Final = (
    r"(?:\b(?:target|output|destination)[ _-]?language\b(?: is\b|[:=])?|\bZielsprache\b:?|"
    r"目标语言[:：]?)\s{0,3}"
)
# what stands before the name of a target, of a target where there is nothing clearer, and of a source
TARGET: Final = re.compile(
    rf"{TARGET_LABEL}|(?:\b(?:in)?to\b|\bins\b|\bnach\b|\bal\b|\bvers\b|->|=>|→|[译譯訳翻](?:[成为為到]|至))\s{{0,3}}",
    re.IGNORECASE,
)
WEAK_TARGET: Final = re.compile(r"\b(?:in|auf|en|naar|na)\b\s{0,3}", re.IGNORECASE)
SOURCE: Final = re.compile(
    r"(?:\b(?:source|input|original)[ _-]?language\b(?: is\b|[:=])?|\b(?:Ausgangs|Quell)sprache\b:?|"
    r"源语言[:：]?|\bfrom\b|\bfollowing\b|\baus(?: dem)?\b|\bvo[nm]\b|\bdu\b|\bdel?\b|[从從将將把])\s{0,3}",
    re.IGNORECASE,
)
ONLY_TARGET: Final = re.compile(TARGET_LABEL, re.IGNORECASE)
OPENING: Final = re.compile(r"(?:[\"'“”«‘`*<\[{(]+|(?:the|das|le|het)\b|l['’])\s{0,3}", re.IGNORECASE)
WORDS: Final = re.compile(r"[\w'’-]+(?: ?[(（][\w ]+[)）])?(?:[ ][\w'’-]+(?: ?[(（][\w ]+[)）])?){0,3}")
IDEOGRAPHS: Final = re.compile(r"[\u3400-\u9fff]{1,5}(?:[(（][\u3400-\u9fff]{1,3}[)）])?")
BEFORE: Final = re.compile(
    r"(?<![\w-])([\w'’-]+(?: [\w'’-]+){0,3})(?: ?\([\w -]{1,20}\))?[\"'”’`*>\])}]{0,3}\s?$"
)
# words that are codes or names of languages too: a language only at the end of a phrase
COMMON_WORDS: Final = """
am as be et fin ha he hi ice id in is it kin la lo mac may mi my no of on or pa per polish ran run sin so ta
ti to us
"""
WORDS_TOO: Final = frozenset(COMMON_WORDS.split())
PHRASE_END: Final = re.compile(r"[\"'”’`*>\])}]*\s*(?:[.,;:!\n]|$|(?:in)?to\b)")
HYPHENATED: Final = re.compile(r"\b([^\W\d]{4,20})-(?:to-)?([^\W\d]{4,20})\b")  # "English-German"
# a message of nothing but two languages: "German to English", "de -> en"
PAIR: Final = re.compile(r"([\w ()-]{2,40}?)\s*(?:\b(?:in)?to\b|->|=>|→)\s*([\w ()-]{2,40}?)\s*[.!:]?", re.I)


@dataclass(frozen=True, slots=True)
class Instruction:
    """The task in a message.

    summarize: whether to summarize texts; otherwise they are translated.
    source, target: codes or names of languages; "": not named.
    """

    summarize: bool
    source: str = ""
    target: str = ""


def read_instruction(message: str) -> Instruction | None:
    """Return the task in a message; None when it names neither translation nor summaries.

    The first language that a message translates into is the target, whatever line it is in.
    """
    message = message.strip()[:MAX_CHARACTERS]
    pair = PAIR.fullmatch(message) if len(message) <= PAIR_CHARACTERS else None
    if pair and all(map(is_language, pair.groups())):
        return Instruction(False, *pair.groups())
    translation, summary = TRANSLATION.search(message), SUMMARY.search(message)
    if summary is not None and (translation is None or summary.start() < translation.start()):
        return Instruction(summarize=True)
    if translation is None and not _named(ONLY_TARGET, message)[0]:
        return None
    target, begin = _named(TARGET, message)
    if not target:
        target, begin = _named(WEAK_TARGET, message)
    if not target and (joined := _hyphenated(message)):
        return Instruction(False, *joined)
    source, _ = _named(SOURCE, message)
    return Instruction(False, source or (_name_before(message, begin) if target else ""), target)


def _named(prefix: re.Pattern[str], message: str) -> tuple[str, int]:
    """Return the first name of a language behind a prefix, and the position of the prefix; "": none."""
    for match in prefix.finditer(message):
        if name := _name_at(message, match.end()):
            return name, match.start()
    return "", 0


def _hyphenated(message: str) -> tuple[str, str] | None:
    """Return the first two languages that a message joins by a hyphen; None without such a pair."""
    pairs = (match.groups() for match in HYPHENATED.finditer(message))
    return next(
        ((source, target) for source, target in pairs if is_language(source) and is_language(target)), None
    )


def _name_at(message: str, begin: int) -> str:
    """Return the name or code of a language that begins at a position; "" when there is none."""
    while opening := OPENING.match(message, begin):
        begin = opening.end()
    if ideographs := IDEOGRAPHS.match(message, begin):
        text = ideographs.group()
        return next((text[:end] for end in range(len(text), 1, -1) if is_language(text[:end])), "")
    words = WORDS.match(message, begin, begin + NAME_CHARACTERS)
    text = words.group() if words else ""
    while text:
        whole = text.casefold() not in WORDS_TOO or PHRASE_END.match(message, begin + len(text))
        if whole and is_language(text):
            return text
        text = re.sub(r" ?[(（][^()（）]*[)）]$|(?:^| )[^ ]*$", "", text)
    return ""


def _name_before(message: str, end: int) -> str:
    """Return the name of a language that ends at a position, as in "German to English"; "": none."""
    found = BEFORE.search(message[max(0, end - NAME_CHARACTERS) : end])
    words = found.group(1).split(" ") if found else []
    names = (" ".join(words[first:]) for first in range(len(words)))
    return next((name for name in names if name.casefold() not in WORDS_TOO and is_language(name)), "")


def is_language(name: str) -> bool:
    """Return whether a name or code is of a language that has a name here."""
    tag = tag_of(name)
    return tag is not None and tag.language in KNOWN_NAMES
