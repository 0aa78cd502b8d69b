"""Words that a model has not learnt: names, and rare words that it would garble (Luong et al. 2015,
"Addressing the rare word problem").

A word with a capital within an English sentence is a name, unless the training data translates it. Elsewhere
a capital is no sign of a name, and a word is unknown if the training data lacks its stem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from os.path import commonprefix
from typing import Final, NamedTuple

from engine.text.form import has_small_letters_around, is_label
from engine.text.given_names import GIVEN_NAMES, MAX_CAPITALS_SHARE, NOT_NAMES, PARTICLES
from engine.text.known_words import KnownWords
from engine.text.languages import rules_of
from engine.text.languages.rules import ENGLISH_CLITIC, CapitalNouns

MIN_COMMON_SHARE: Final = 0.8  # common beginning of a word and its translation, as a share of the word
MAX_ENDING_LETTERS: Final = 3  # that the translation has more than the word
ANSWER_WORD: Final = re.compile(r"[^\W\d_]+")
WITHIN_SENTENCE: Final = re.compile(  # before a word
    rf"(?:['’]{ENGLISH_CLITIC})? |(?:[^\n]{{0,20}}[^.\n])?, "
)
SENTENCE_ENDS: Final = frozenset(".!?:\n")
DIGIT: Final = re.compile(r"\d")  # addresses and tables have digits, headings rarely
INITIALS_BEFORE: Final = re.compile(  # G. W. Leibniz  L'Oréal
    r"(?<![\w.])(?:[^\W\d_a-zß-öø-ÿ]\. ){1,4}\Z|(?<=[\w,:(] )[LD]['’]\Z"
)
CONTINUATION: Final = re.compile(  # Alois H.  Miele G 7110 SC
    r" [^\W\d_a-zß-öø-ÿ]\.(?! ?[^\W\d_a-zß-öø-ÿ])| [A-Z]{1,3} \d{2,5}(?!\w)(?: [A-Z]{1,3}(?!\w))?"
)
MIN_SMALL_LETTERS: Final = 4  # of an unlearnt word in small letters
LATIN: Final = re.compile(".{3,}(?:us|um|is|ae|ii|ides|ensis)")  # Boletus edulis
MAX_NAME_WORDS: Final = 8
MAX_ACRONYM_LETTERS: Final = 4
MIN_QUOTED: Final = 2  # words of a quoted name
MIN_GERMAN_QUOTED: Final = 3  # fewer may be a noun with its adjective
OPENING: Final = re.compile("(?:[\"“„«‚‘']|«[ \u00a0\u202f])\\Z")
CLOSING: Final = re.compile("[ #\\d().!?]{0,9}(?:[\"“”»‘’']|[ \u00a0\u202f]»)")
BETWEEN_NAMES: Final = frozenset({" ", " & "})
BETWEEN_QUOTED: Final = frozenset({" ", " (", ") ", ": ", ", "})
NAME_AFTER: Final = re.compile(  # Cow™  34' in a match
    r"[™®]| \d{1,3}(?:\+\d{1,2})?['′’](?!\w)"
)
CLOSING_WORDS: Final = re.compile(r"\n[^\n,]{1,40},\s{1,8}\Z")  # before a signature
MAX_CLOSING: Final = 60  # characters before a signature
MAX_PLAIN_GAP: Final = len("'ll ")  # longer gaps have a number: the 5th, Green Street
MAX_SIGNATURE_WORDS: Final = 3
POSSESSIVE: Final = frozenset({"'s ", "’s "})
CLITIC: Final = re.compile(rf"(?<=\w['’]){ENGLISH_CLITIC}")
MAX_INITIALS: Final = 12  # characters before a name


class UnknownWord(NamedTuple):
    """A word, or adjacent words, of a text.

    begin, end: characters of the text.
    name: whether it is a name. Another word may have a similar word in the answer.
    """

    begin: int
    end: int
    name: bool


def find_unknown_words(text: str, known: KnownWords) -> Iterator[UnknownWord]:
    """Find the unknown words of a text, in order."""
    words = _UnknownWordFinder(text, known)
    last = 0
    for number, (first, _) in enumerate(words.spans):
        end, name = words.unknown_until(number) if first >= last else (number, False)
        if end > number:
            last = words.spans[end - 1][1]
            initials = INITIALS_BEFORE.search(text[max(0, first - MAX_INITIALS) : first])
            if continuation := CONTINUATION.match(text, last):
                last = continuation.end()
            yield UnknownWord(first - len(initials[0] if initials else ""), last, name)


def has_similar_word(answer: str, word: str) -> bool:
    """Return whether a word, or one with the same beginning, is in an answer: Feminismus, feminism."""
    small, least, most = word.lower(), MIN_COMMON_SHARE * len(word), len(word) + MAX_ENDING_LETTERS
    others = (match[0].lower() for match in ANSWER_WORD.finditer(answer))
    copied = re.search(rf"(?<!\w){re.escape(word)}", answer) is not None
    return copied or any(
        len(other) <= most and len(commonprefix([small, other])) >= least for other in others
    )


class _UnknownWordFinder:
    """Words of a text; methods take the number of a word."""

    def __init__(self, text: str, known: KnownWords) -> None:
        self.text, self.known, self.rules = text, known, rules_of(known.language)
        self.not_names = NOT_NAMES | self.rules.own_title_words
        if self.rules.nouns:
            self.not_names |= self.rules.nouns.pronouns
        matches = list(re.finditer(rf"(?<![\w@#])(?:{self.rules.word})(?![\w@#])", text))
        self.spans = [match.span() for match in matches if not CLITIC.match(text, match.start())]
        self.words = [text[begin:end] for begin, end in self.spans]
        self.gaps = ["", *(text[a[1] : b[0]] for a, b in pairwise(self.spans)), ""]
        self.kept = {
            number for number, word in enumerate(self.words) if word.isupper() and self._keeps(number)
        }
        capitals = sum(word[0].isupper() for word in self.words[1:])
        self.heading = capitals > MAX_CAPITALS_SHARE * (len(matches) - 1) and not DIGIT.search(text)

    def unknown_until(self, number: int) -> tuple[int, bool]:
        """Return the end of the unknown words from a word on, and whether they are a name."""
        if number in self.kept:
            return self._end_of_capitals(number), True
        if self._is_initial(number) and self._is_species(number + 1):
            return number + 2, True
        if (end := self._foreign_title_end(number)) > number:
            return end, True
        if not self._has_capital(number):
            return number, False
        end = self._run_end(number)
        if self._is_quoted_name(number, end) or self._is_signature(number, end):
            return end, True
        if self.rules.nouns:
            return self._german_end(number, end, self.rules.nouns), False
        if self.words[end : end + 1] == ["plc"]:  # Next plc
            return end + 1, True
        if NAME_AFTER.match(self.text, self.spans[end - 1][1]) and not self._is_translated(number, end):
            return end, True
        named = self._is_name(number, end) if self._is_inside(number) else self._begins_with_name(number, end)
        return (self._with_small_word(end), True) if named else (self._end_of_unlearnt(number, end), False)

    def _keeps(self, number: int) -> bool:
        """Return whether a word in capitals is an acronym, or a name in a text in capitals."""
        word, before = self.words[number], self.words[number - 1] if self.gaps[number] == " " else ""
        if not self._shouts(number):
            label = is_label(self.text, *self.spans[number], self.known.language)
            in_name = self._precedes_article(number) or self._is_article_of_capitals(number)
            return label or in_name or self.known.keeps(word, before)
        capital = word.capitalize()
        known = any(map(self.known.translates, (word, capital))) or self.known.knows_in_capitals(word)
        return len(word) > 1 and (capital in GIVEN_NAMES or not known)

    def _is_article_of_capitals(self, number: int) -> bool:
        """Return whether a word is the article of a name in capitals: LE MISTRAL."""
        article = self.words[number]
        if article.lower() not in self.rules.small_words or self.gaps[number + 1] != " ":
            return False
        name = self.words[number + 1]
        return name.isupper() and self.known.keeps(name, article)

    def _precedes_article(self, number: int) -> bool:
        """Return whether an acronym precedes an article with a capital: AS Les Chamois."""
        after = self.words[number + 1] if self.gaps[number + 1] == " " else ""
        return self._is_acronym(number) and after.istitle() and after.lower() in self.rules.small_words

    def _shouts(self, number: int) -> bool:
        """Return whether the line around a word has no small letters."""
        return not has_small_letters_around(self.text, *self.spans[number])

    def _end_of_capitals(self, first: int) -> int:
        """Return the end of acronyms and names in capitals, and of words between them: VW Golf GTI."""
        end = number = first
        while number < len(self.words) and (number == first or self.gaps[number] == " "):
            if number in self.kept or (self._has_capital(number) and self._may_end_name(number)):
                end = number + 1
            elif not (
                self.words[number].lower() in PARTICLES if self._shouts(first) else self._has_capital(number)
            ):
                break
            number += 1
        return end

    def _may_end_name(self, number: int) -> bool:
        """Return whether a word after an acronym is unlearnt, a number or the name of a club: BBC One."""
        numerals = self.rules.number_words
        numeral = numerals is not None and self.words[number].lower() in numerals.parts
        club = self.words[number - 1] in self.rules.place_words  # SC Delphin
        return numeral or club or self._is_unlearnt(self.words[number])

    def _run_end(self, first: int) -> int:
        """Return the end of adjacent words with capitals, in French with particles between: Gare de Lyon."""
        end = number = first
        last = min(len(self.words), first + MAX_NAME_WORDS)
        while number < last and (number == first or self._may_continue(first, number)):
            if self._has_capital(number) or (number > first and self._is_acronym(number)):
                end = number + 1
            elif not (self.words[number] in self.rules.name_particles or self._is_initial(number)):
                break
            number += 1
        return end

    def _may_continue(self, first: int, number: int) -> bool:
        """Return whether a word may belong to the run before it: Red Lion, King's Arms, “World's End”."""
        if self.gaps[number] not in POSSESSIVE:
            return self.gaps[number] in BETWEEN_NAMES
        translated = any(map(self.known.translates, (self.words[first], self.words[number])))  # Tom's French
        learnt = self.known.knows(self.words[number]) and not translated
        return self._is_opened(first) or (learnt and self._is_inside(first))

    def _is_opened(self, number: int) -> bool:
        """Return whether a quotation begins with a word."""
        begin = self.spans[number][0]
        return OPENING.search(self.text, max(0, begin - 2), begin) is not None

    def _is_quoted(self, first: int, end: int) -> bool:
        """Return whether marks of a quotation enclose the words of a run."""
        return self._is_opened(first) and CLOSING.match(self.text, self.spans[end - 1][1]) is not None

    def _is_name(self, first: int, end: int) -> bool:
        """Return whether a run within a sentence is a name."""
        words, known = self.words[first:end], self.known
        if len(words) > 1 and self.gaps[first + 1] in POSSESSIVE:
            return True
        capitals = [word for word in words if not word.islower()]
        if len(words) > 1 and words[0].lower() in self.rules.small_words:  # The Old Ship
            del capitals[0]
        elif len(words) > 1 and known.precedes_names(words[0]):
            return False  # a title
        unsure = self.words[first - 1] in self.rules.small_words or len(self.gaps[first]) > MAX_PLAIN_GAP
        if unsure and (len(words) == 1 or known.translates(words[-1])):  # the White House
            return any(map(self._is_unlearnt, words))
        return not all(map(known.translates, capitals))

    def _begins_with_name(self, first: int, end: int) -> bool:
        """Return whether a run at the beginning of a sentence is a name of several words: Red Lion FC.

        The first word may be another one, as in "Tonight Hiromi Uehara". So the words after it must have an
        ordinary word with a capital, which only a name has there.
        """
        start, *words = self.words[first:end]
        if self.heading or self.known.precedes_names(start) or start.lower() in self.rules.small_words:
            return False
        begin, after = self.spans[first][0], self.spans[end - 1][1]
        cell = "\t" in self.text[max(0, begin - 1) : begin] + self.text[after : after + 1]  # White Hart RFC
        unlearnt = [word for word in words if self._is_unlearnt(word)]
        learnt = [w for w in words if w[0].isupper() and (w not in unlearnt or (cell and w.isupper()))]
        return bool(learnt and unlearnt) and not any(map(self.known.translates, words))

    def _is_quoted_name(self, first: int, end: int) -> bool:
        """Return whether a run is a whole quotation, and no label that training translates: “Red Lion”."""
        quoted = self._is_quoted(first, end)
        least = MIN_GERMAN_QUOTED if self.rules.nouns else MIN_QUOTED
        if quoted and self._is_between_names(first, end):
            return True
        if not quoted or end - first < least or (first == 0 and end == len(self.words)):
            return False
        possessive = any(gap in POSSESSIVE for gap in self.gaps[first + 1 : end])
        return possessive or not self._is_translated(first, end)

    def _foreign_title_end(self, first: int) -> int:
        """Return the end of a quotation of mostly unlearnt words, as in another language: “Ave verum”."""
        if not self._is_opened(first):
            return first
        end = first + 1
        while end < len(self.words) and self.gaps[end] in BETWEEN_QUOTED and end - first < MAX_NAME_WORDS:
            end += 1
        unlearnt = sum(map(self._is_unlearnt, self.words[first:end]))
        return end if unlearnt > max(1, (end - first) // 2) and self._is_quoted(first, end) else first

    def _is_translated(self, first: int, end: int) -> bool:
        """Return whether training translated each word of a run."""
        return all(map(self.known.translates, self.words[first:end]))

    def _is_between_names(self, first: int, end: int) -> bool:
        """Return whether a quotation is a nickname: Dwayne “The Rock” Johnson."""
        marks = len(self.gaps[first]) == len(self.gaps[end]) == len(' "')
        inside = marks and first > 0 and end < len(self.words) and not self.rules.nouns
        return inside and self._has_capital(first - 1) and self._has_capital(end)

    def _is_signature(self, first: int, end: int) -> bool:
        """Return whether a run is the line after the end of a letter: Yours, April King."""
        begin, after = self.spans[first][0], self.spans[end - 1][1]
        alone = "\n" in self.gaps[first] and self.text[after : after + 1] in ("", "\n")
        short = 1 < end - first <= MAX_SIGNATURE_WORDS
        named = alone and short and self.words[first].lower() not in self.rules.small_words
        return named and CLOSING_WORDS.search(self.text, max(0, begin - MAX_CLOSING), begin) is not None

    def _german_end(self, first: int, end: int, nouns: CapitalNouns) -> int:
        """Return the end of a run that begins with an unlearnt word, or with a place.

        German nouns are rarely side by side, so the whole run is a name: Borussia Dortmund. A compound noun
        of known words begins another phrase, except after a given name.
        """
        word = self.words[first]
        if self._is_quoted(first, first + 1) and not self.known.has_stem_of(word):  # a boat: „Windsbraut“
            return first + 1
        if not (self._is_unlearnt(word) or self._is_place(first)) or self._is_beside_noun(first, end, nouns):
            return first
        if word not in GIVEN_NAMES:
            others = (n for n in range(first + 1, end) if self.known.is_long_compound(self.words[n]))
            end = next(others, end)
        if end == first + 1 and self._is_german_noun(first, nouns):
            return first
        return self._with_species(first, end)

    def _is_beside_noun(self, number: int, end: int, nouns: CapitalNouns) -> bool:
        """Return whether a word belongs to a noun after it: Annas Hund, die Bonner Straßen."""
        word, noun = self.words[number], self.words[number + 1] if end == number + 2 else ""
        if not noun or re.fullmatch(nouns.streets, noun) or self._is_unlearnt(noun) or word in GIVEN_NAMES:
            return False
        if word.endswith("s") and word[:-1] in GIVEN_NAMES:
            return True
        begins = self.spans[number][0] == 0 or SENTENCE_ENDS.intersection(self.gaps[number])
        return bool((begins or self._follows_article(number, nouns)) and re.fullmatch(nouns.inflected, word))

    def _is_german_noun(self, number: int, nouns: CapitalNouns) -> bool:
        """Return whether a word is no name: by the word before or after it, its ending or its last part."""
        word = self.words[number]
        if not word[1:].islower() or word in GIVEN_NAMES:
            return False
        verb = self.gaps[number + 1] == " " and self.words[number + 1] in nouns.pronouns
        interjection = number == 0 and len(word) < MIN_SMALL_LETTERS and self.gaps[1][:1] in (",", "!")
        ending = re.fullmatch(nouns.endings, word.lower())
        ordinary = verb or interjection or ending or self._follows_article(number, nouns)
        return bool(ordinary) or (self.known.ends_with_known(word) and not self._is_place(number))

    def _follows_article(self, number: int, nouns: CapitalNouns) -> bool:
        before = self.words[number - 1] if number and self.gaps[number] == " " else ""
        return re.fullmatch(nouns.determiners, before) is not None

    def _end_of_unlearnt(self, first: int, end: int) -> int:
        """Return the end of the unlearnt words at the beginning of a run."""
        number = first
        while number < end and (self._is_unlearnt(self.words[number]) or self._continues_name(first, number)):
            number += 1
        return self._with_species(first, number) if number > first else number

    def _continues_name(self, first: int, number: int) -> bool:
        """Return whether an ordinary word has its capital because a name before it goes on: Nguyễn Văn An."""
        return number > first and not self.heading and not self.known.translates(self.words[number])

    def _with_species(self, first: int, end: int) -> int:
        """Return the end of unlearnt words, with a small one after them in brackets or in Latin."""
        latin = end < len(self.words) and LATIN.fullmatch(self.words[end])
        return self._with_small_word(end) if latin or self.gaps[first].endswith("(") else end

    def _is_acronym(self, number: int) -> bool:
        """Return whether a word in capitals may be a part of a name: Red Lion FC."""
        word = self.words[number]
        return 1 < len(word) <= MAX_ACRONYM_LETTERS and word.isupper() and not self.rules.nouns

    def _is_initial(self, number: int) -> bool:
        """Return whether a word is a capital without a dot, which may be within a name: Ó Néill."""
        return len(self.words[number]) == 1 and self.words[number].isupper()

    def _is_species(self, number: int) -> bool:
        """Return whether an unlearnt word in small letters follows an initial: E. coli."""
        small = self.gaps[number] == ". " and self.words[number].islower() and not self.rules.nouns
        return (
            small and len(self.words[number]) >= MIN_SMALL_LETTERS and self._is_unlearnt(self.words[number])
        )

    def _is_place(self, number: int) -> bool:
        """Return whether a word ends like the name of a place and follows no article."""
        nouns = self.rules.nouns
        article = nouns is not None and self._follows_article(number, nouns)
        return not article and self.known.may_be_place(self.words[number])

    def _with_small_word(self, end: int) -> int:
        """Return the end of a name with an unlearnt word in small letters after it: Arion vulgaris."""
        follows = end < len(self.words) and self.gaps[end] == " " and not self.words[end][0].isupper()
        return end + (
            follows and len(self.words[end]) >= MIN_SMALL_LETTERS and self._is_unlearnt(self.words[end])
        )

    def _is_unlearnt(self, word: str) -> bool:
        """Return whether the training data neither translates a word nor has its stem."""
        known, parts = self.known, word.split("-")
        if known.translates(word):
            return False
        if self.rules.nouns:  # the last part of a German compound names the thing
            return not known.knows(parts[-1]) or (len(parts) > 1 and parts[0] in GIVEN_NAMES)
        capitals = sum(part[:1].isupper() for part in parts)
        given = word in GIVEN_NAMES and f"{word.lower()}." not in self.rules.long_forms
        return capitals > 1 or given or not any(map(known.knows, parts))

    def _has_capital(self, number: int) -> bool:
        word = self.words[number]
        return word[0].isupper() and not word.isupper() and word not in self.not_names

    def _is_inside(self, number: int) -> bool:
        """Return whether a capital of the word is a sign of a name: not at the beginning of a sentence."""
        inside = WITHIN_SENTENCE.fullmatch(self.gaps[number]) or self._introduces_name(number)
        return bool(inside) and not (self.rules.nouns or self.heading)

    def _introduces_name(self, number: int) -> bool:
        """Return whether a word is an article after a colon and before two words with capitals."""
        article = self.gaps[number] == ": " and self.words[number].lower() in self.rules.small_words
        return article and self._run_end(number) > number + 2
