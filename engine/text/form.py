"""Capitals and final marks of sentences and their translations.

The rules are LibreTranslate's post-editing, with three exceptions: no word is lowered in a language that
writes nouns with capitals, "I" stays, and a mark is written in the script of the target.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from engine.text.languages import rules_of

# kind of each mark that may end a sentence
LINE_CHARACTERS: Final = 200  # searched on both sides of a word for small letters
KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(".。．।", "."),
    **dict.fromkeys("?？؟\u037e", "?"),
    **dict.fromkeys("!！", "!"),
    "…": "…",
}
MARKS: Final = "".join(KINDS)
QUOTES: Final = '"“”«»'
CLOSING: Final = MARKS + QUOTES + "\u00a0\u202f "
INITIAL: Final = re.compile(r"(?<![\w'’])\w")
WORD: Final = re.compile(r"\w+")
BEFORE_LABEL: Final = 40  # characters searched before a label
CODE_AFTER: Final = re.compile(r" \d{2,9}-\d")  # (CAS 106-97-8)
CLITIC: Final = re.compile(r"(?<=\w['’])\w{1,2}\b")  # as in "we'll"
MIN_CAPITALS: Final = 6  # letters; fewer may be an abbreviation: USA
MIN_TITLE_WORDS: Final = 3


def small_words(language: str) -> frozenset[str]:
    """Return the articles and other small words of a language, or no words if it has no rules."""
    return rules_of(language).small_words


def is_all_capitals(text: str) -> bool:
    """Return whether a sentence is all in capitals and longer than an abbreviation."""
    letters = text.replace("ß", "")  # it has no capital on keyboards
    return letters.isupper() and sum(character.isupper() for character in letters) >= MIN_CAPITALS


def to_sentence_case(text: str, language: str, count: Callable[[str], int]) -> str:
    """Write a sentence in capitals in small letters; names and German nouns keep their first capital.

    text: sentence in capitals.
    language: code of its language.
    count: returns the number of tokens of a word. A word that takes fewer tokens with a first capital gets
        one, since the vocabulary learned it with a capital.
    """
    rules = rules_of(language)
    capital_letters = rules.capital_letters

    def spellings(lowered: str) -> set[str]:
        """Return a word and its spelling with a sharp s: SCHLIESSEN is schliessen or schließen."""
        return {lowered, lowered.replace("ss", "ß")} if rules.capital_sharp_s else {lowered}

    def recase(match: re.Match[str]) -> str:
        """Return the word in small letters, or with the capital that it needs."""
        lowered = min(sorted(spellings(match[0].lower())), key=count)
        capital = capitalised(lowered)
        if len(lowered) == 1:
            return capital if lowered in capital_letters else lowered
        return capital if count(capital) < count(lowered) else lowered

    cased = CLITIC.sub(lambda match: match[0].lower(), WORD.sub(recase, text))
    first = next((i for i, character in enumerate(cased) if character.isalpha()), 0)
    return _with_capital(cased, first)


def has_small_letters_around(text: str, begin: int, end: int) -> bool:
    """Return whether the line around a word has small letters; other lines are titles or lists of names.

    text: any text.
    begin, end: position of a word. At most LINE_CHARACTERS on both sides are searched.
    """
    before = text[max(0, begin - LINE_CHARACTERS) : begin].rpartition("\n")[2]
    after = text[end : end + LINE_CHARACTERS].partition("\n")[0]
    return any(character.islower() for character in before + after)


def is_label(text: str, begin: int, end: int, language: str) -> bool:
    """Return whether a word in capitals is a key, a command or another label, and not stressed: hold RESET.

    text: sentence in small letters.
    begin, end: position of the word.
    language: code of the language.
    """
    rules, word = rules_of(language), text[begin:end].lower()
    if word in rules.stressed_words or word in rules.small_words or word in rules.empty_words:
        return False
    before, after = text[max(0, begin - BEFORE_LABEL) : begin], text[end : end + BEFORE_LABEL]
    if before.endswith("(") and CODE_AFTER.match(after):
        return True
    words_before, words_after = _around_labels(language)
    return words_before.search(before) is not None or words_after.match(after) is not None


@cache
def _around_labels(language: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of the words before and after a label."""
    rules = rules_of(language)
    return (
        re.compile(rf"\b(?:{rules.before_labels}) [\"“„«]?\Z"),
        re.compile(rf"[\"”“»]? (?:{rules.after_labels})\b"),
    )


def capitalised(word: str) -> str:
    """Return a word with a capital first letter and its other letters unchanged."""
    return word[:1].upper() + word[1:]


def follow(source: str, target: str, languages: tuple[str, str]) -> str:
    """Give a translation the capitals and the final marks of its source.

    source, target: sentence and translation.
    languages: codes of the two languages.
    """
    if not source.strip() or not target.strip():
        return target
    target = _follow_closing_marks(source, _follow_ampersand(source, target, languages[1]), languages[1])
    return _follow_case(source, target, languages)


def beginning(source: str, settled: str, languages: tuple[str, str]) -> str:
    """Return the beginning of the result of `follow` that later words cannot change.

    source: source sentence.
    settled: whole words at the beginning of the translation.
    languages: codes of the two languages.
    """
    if not source.strip():
        return settled
    body = settled.rstrip().rstrip(CLOSING).rstrip()
    # the answer is certain up to its first "and", which `_follow_ampersand` may replace later
    if " & " in source and (word := rules_of(languages[1]).conjunction):
        body = f"{body} ".partition(f" {word} ")[0].rstrip()
    return _follow_case(source, body, languages) if body else ""


def _follow_ampersand(source: str, target: str, into: str) -> str:
    """Write "&" as in the source where the target has a word for it."""
    word = rules_of(into).conjunction
    conjunction = f" {word} "
    if " & " not in source or "&" in target or not word or target.count(conjunction) != source.count(" & "):
        return target
    return target.replace(conjunction, " & ")


def _follow_closing_marks(source: str, target: str, into: str) -> str:
    """Give a translation the final marks of its source, in the script of the target."""
    source, body = source.rstrip(), target.rstrip()
    if _both_end_quoted(source, body):
        return _follow_closing_marks(source[:-1], body[:-1], into) + body[-1]
    source_marks, target_marks = _final_marks(source), _final_marks(body)
    bare = body[: len(body) - len(target_marks)]
    if bare[-1:].isspace() and source_marks.startswith("."):  # no language has a space before it
        bare = bare.rstrip()
        target = bare + target_marks
    if (source_marks, target_marks) == ("…", "..."):  # three dots for one mark of the source
        return bare + source_marks
    if _kinds(source_marks) == _kinds(target_marks):
        return target
    if source_marks:
        # the target has its final mark before the last character: (Yes.)
        closing = bool(bare) and not bare[-1].isalnum() and not target_marks and _kinds(bare[-2:-1]) != ""
        forms = rules_of(into).final_marks
        kinds = [KINDS[mark] for mark in source_marks]
        marks = "".join(forms.get(kind, kind).lstrip() for kind in kinds)
        gap = " " * forms.get(kinds[0], "").startswith(" ")
        return target if closing else bare.rstrip() + gap + marks
    # the last dot may belong to an abbreviation: U.S.
    abbreviated = "." in bare[-4:] or not bare
    # the source ends with a letter, a digit or a placeholder (a private-use character)
    ends_unmarked = source[-1].isalnum() or "\ue000" <= source[-1] <= "\uf8ff"
    return bare if ends_unmarked and len(target_marks) == 1 and not abbreviated else target


def _both_end_quoted(source: str, target: str) -> bool:
    """Return whether source and target end with a quotation mark, after a final mark in the source: “Go!”"""
    both = source[-1] in QUOTES and target[-1] in QUOTES and bool(target[:-1].strip())
    return both and bool(_final_marks(source[:-1].rstrip()))


def _final_marks(text: str) -> str:
    """Return the marks at the end of a text."""
    tail = text[-8:]
    return tail[len(tail.rstrip(MARKS)) :]


def _kinds(marks: str) -> str:
    """Return the kinds of final marks, with three dots as an ellipsis."""
    return "".join(KINDS.get(mark, "") for mark in marks).replace("...", "…")


def _follow_case(source: str, target: str, languages: tuple[str, str]) -> str:
    """Give a translation the case of its source: capitals, title case or the first letter."""
    if is_all_capitals(source):
        return target.upper()
    source, begin = source.lstrip(), len(target) - len(target.lstrip())
    if _is_title(source) and not any(rules_of(language).nouns for language in languages):
        return INITIAL.sub(lambda match: match[0].upper(), target)
    first = target[begin : begin + 1]
    if source[0].isupper() and first.islower():
        return _with_capital(target, begin)
    word = WORD.match(target, begin)
    lowers = word and word[0][1:].islower() and not rules_of(languages[1]).nouns
    if source[0].islower() and first.isupper() and lowers:
        return target[:begin] + first.lower() + target[begin + 1 :]
    return target


def _with_capital(text: str, at: int) -> str:
    return text[:at] + capitalised(text[at:])


def _is_title(text: str) -> bool:
    """Return whether at least `MIN_TITLE_WORDS` words all begin with capitals."""
    words = [word for word in text.split() if word[0].isalpha()]
    return len(words) >= MIN_TITLE_WORDS and all(word[0].isupper() for word in words)
