"""Words that a model has not learnt: names, and rare words that it would garble (Luong et al. 2015,
"Addressing the rare word problem").

A word with a capital within an English sentence is a name, unless the training data translates it. Elsewhere
a capital is no sign of a name, and a word is unknown if the training data lacks its stem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from itertools import pairwise
from typing import Final, NamedTuple

from engine.text.form import has_small_letters_around, is_label
from engine.text.given_names import GIVEN_NAMES, MAX_CAPITALS_SHARE, PARTICLES, name_words
from engine.text.known_words import KnownWords
from engine.text.languages import rules_of
from engine.text.languages.rules import ENGLISH_CLITIC

WITHIN_SENTENCE: Final = re.compile(rf"(?:['’]{ENGLISH_CLITIC})? |(?:[^\n]{{0,20}}[^.\n])?, ")
SENTENCE_ENDS: Final = frozenset(".!?:\n")
DIGIT: Final = re.compile(r"\d")  # addresses and tables have digits, headings rarely
INITIALS_BEFORE: Final = re.compile(  # G. W. Leibniz  L'Oréal
    r"(?<![\w.])(?:[^\W\d_a-zß-öø-ÿ]\. ){1,4}\Z|(?<=[\w,:(] )[LD]['’]\Z"
)
CONTINUATION: Final = re.compile(  # Alois H.  Miele G 7110 SC  Next plc
    r" [^\W\d_a-zß-öø-ÿ]\.(?! ?[^\W\d_a-zß-öø-ÿ])| [A-Z]{1,3} \d{2,5}(?!\w)(?: [A-Z]{1,3}(?!\w))?| plc\b"
)
MIN_SMALL_LETTERS: Final = 4  # of an unlearnt word in small letters
LATIN: Final = re.compile(".{3,}(?:us|um|is|ae|ii|ides|ensis)")  # Boletus edulis
MAX_NAME_WORDS: Final = 8
MAX_ACRONYM_LETTERS: Final = 4
CONSONANTS: Final = re.compile("[b-df-hj-np-tv-xzßç]{2,6}")  # an abbreviation: mdr
OPENING: Final = re.compile("(?:[\"“„«‚‘']|«[ \u00a0\u202f])\\Z")
CLOSING: Final = re.compile("[ #\\d().!?]{0,9}(?:[\"“”»‘’']|[ \u00a0\u202f]»)")
BETWEEN_NAMES: Final = frozenset({" ", " & "})
BETWEEN_QUOTED: Final = frozenset({" ", " (", ") ", ": ", ", "})
NAME_AFTER: Final = re.compile(r"[™®]| plc\b| \d{1,3}(?:\+\d{1,2})?['′’](?!\w)")  # Cow™  34' in a match
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
    finder = _UnknownNounFinder if rules_of(known.language).nouns else _UnknownWordFinder
    return finder(text, known).find()


class _UnknownWordFinder:
    """Finds the unknown words of a text; methods take the number of a word."""

    min_quoted = 2  # words of a quoted name

    def __init__(self, text: str, known: KnownWords) -> None:
        self.text, self.known, self.rules = text, known, rules_of(known.language)
        self.titles, self.not_names, self.particles = name_words(known.language)
        matches = list(re.finditer(rf"(?<![\w@#])(?:{self.rules.word})(?![\w@#])", text))
        self.spans = [match.span() for match in matches if not CLITIC.match(text, match.start())]
        self.words = [text[begin:end] for begin, end in self.spans]
        self.gaps = ["", *(text[a[1] : b[0]] for a, b in pairwise(self.spans)), ""]
        # the word before and after each word, if only a space is between
        self.before = [word * (gap == " ") for word, gap in zip(["", *self.words], self.gaps, strict=False)]
        self.after = [w * (gap == " ") for w, gap in zip((*self.words[1:], ""), self.gaps[1:], strict=False)]
        self.kept = {n for n, word in enumerate(self.words) if word.isupper() and self._keeps(n)}
        capitals = sum(word[0].isupper() for word in self.words[1:])
        self.heading = capitals > MAX_CAPITALS_SHARE * (len(matches) - 1) and not DIGIT.search(text)

    def find(self) -> Iterator[UnknownWord]:
        """Yield the unknown words in order."""
        last = 0
        for number, (first, _) in enumerate(self.spans):
            end, name = self._unknown_until(number) if first >= last else (number, False)
            if end > number:
                last = self.spans[end - 1][1]
                initials = INITIALS_BEFORE.search(self.text[max(0, first - MAX_INITIALS) : first])
                if initials and not self._follows_title(number):
                    first -= len(initials[0])
                if continuation := CONTINUATION.match(self.text, last):
                    last = continuation.end()
                yield UnknownWord(first, last, name)

    def _unknown_until(self, number: int) -> tuple[int, bool]:
        """Return the end of the unknown words from a word on, and whether they are a name."""
        if (end := self._certain_end(number)) > number:
            return end, True
        if not self._has_capital(number):
            return number, False
        end = self._run_end(number, self.particles)
        if self._is_quoted_name(number, end) or self._is_signature(number, end):
            return end, True
        end, name = self._unknown_part(number, end)
        small = self.words[end] if end > number and self.gaps[end] == " " else ""
        follows = name or self.gaps[number].endswith("(") or LATIN.fullmatch(small)  # Arion vulgaris
        return end + bool(small and follows and self._is_species(end)), name

    def _certain_end(self, number: int) -> int:
        """Return the end of a name that marks, capitals or the word before show, or `number`."""
        if number in self.kept:
            return self._end_of_capitals(number)
        initial = self._is_initial(number) and self.gaps[number + 1] == ". " and not self.rules.nouns
        if self._is_abbreviation(number) or (initial and self._is_species(number + 1)):
            return number + 1 + initial
        titled = self._run_end(number, PARTICLES) if self._follows_title(number) else number
        return max(self._foreign_title_end(number), titled)

    def _unknown_part(self, first: int, end: int) -> tuple[int, bool]:
        """Return the end of the unknown words at the beginning of a run, and whether they are a name."""
        named = self._is_name(first, end) if self._is_inside(first) else self._begins_with_name(first, end)
        after = NAME_AFTER.match(self.text, self.spans[end - 1][1])
        if after and (after[0] == " plc" or not self._is_translated(first, end)):
            return end, True
        return (end, True) if named else (self._end_of_unlearnt(first, end), False)

    def _follows_title(self, number: int) -> bool:
        """Return whether a word follows a title: Mrs May, M. Blanc."""
        return number > 0 and self.words[number - 1] in self.titles and self.gaps[number] in (" ", ". ")

    def _is_abbreviation(self, number: int) -> bool:
        """Return whether an unlearnt word consists of consonants, and is no unit as in "15-lb line": mdr."""
        word, unit = self.words[number], self.gaps[number].endswith("-")
        return CONSONANTS.fullmatch(word) is not None and not unit and self._is_unlearnt(word)

    def _keeps(self, number: int) -> bool:
        """Return whether a word in capitals is an acronym, or belongs to a name."""
        word, after, known = self.words[number], self.after[number], self.known
        if not has_small_letters_around(self.text, *self.spans[number]):
            capital = word.capitalize()
            learnt = known.translates(word) or known.translates(capital) or known.knows_in_capitals(word)
            return len(word) > 1 and (capital in GIVEN_NAMES or not learnt)
        small_words, begins = self.rules.small_words, word in self.rules.place_words
        if after.istitle() and (begins or (self._is_acronym(number) and after.lower() in small_words)):
            return True  # SC Delphin, AS Les Chamois
        if word.lower() in small_words and after.isupper() and known.keeps(after, word):
            return True  # LE MISTRAL
        label = is_label(self.text, *self.spans[number], known.language)
        return label or known.keeps(word, self.before[number])

    def _end_of_capitals(self, first: int) -> int:
        """Return the end of acronyms and names in capitals, and of words between them: VW Golf GTI."""
        end = number = first + 1
        shouts = not has_small_letters_around(self.text, *self.spans[first])
        while number < len(self.words) and self.gaps[number] == " ":
            if number in self.kept or (self._has_capital(number) and self._may_end_name(number)):
                end = number + 1
            elif not (self.words[number].lower() in PARTICLES if shouts else self._has_capital(number)):
                break
            number += 1
        return end

    def _may_end_name(self, number: int) -> bool:
        """Return whether a word after an acronym is unlearnt, a number or the name of a club: BBC One."""
        numerals = self.rules.number_words
        numeral = numerals is not None and self.words[number].lower() in numerals.parts
        club = self.words[number - 1] in self.rules.place_words  # SC Delphin
        return numeral or club or self._is_unlearnt(self.words[number])

    def _run_end(self, first: int, particles: Set[str]) -> int:
        """Return the end of adjacent words with capitals and of particles between them: Gare de Lyon."""
        end = number = first
        last = min(len(self.words), first + MAX_NAME_WORDS)
        while number < last and (number == first or self._may_continue(first, number)):
            if self._has_capital(number) or (number > first and self._is_acronym(number)):
                end = number + 1
            elif not (self.words[number] in particles or self._is_initial(number)):
                break
            number += 1
        return end

    def _may_continue(self, first: int, number: int) -> bool:
        """Return whether a word may belong to the run before it: Red Lion, King's Arms, “World's End”."""
        if self.gaps[number] not in POSSESSIVE:
            return self.gaps[number] in BETWEEN_NAMES
        known, owner, word = self.known, self.words[first], self.words[number]
        # Tom's French, but King's Cross
        other = known.translates(owner) or (known.translates(word) and not known.precedes_names(owner))
        return self._is_opened(first) or (known.knows(word) and not other and self._is_inside(first))

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
        if self.heading:
            return False
        start, *words = self.words[first:end]
        if " & " in self.gaps[first + 1 : end]:  # Dawn & Cliff
            return not any(map(self.known.translates, self.words[first:end]))
        if self.known.precedes_names(start) or start.lower() in self.rules.small_words:
            return False
        begin, after = self.spans[first][0], self.spans[end - 1][1]
        cell = "\t" in self.text[max(0, begin - 1) : begin] + self.text[after : after + 1]  # White Hart RFC
        unlearnt = [word for word in words if self._is_unlearnt(word)]
        learnt = [w for w in words if w[0].isupper() and (w not in unlearnt or (cell and w.isupper()))]
        named = unlearnt and (learnt or start in GIVEN_NAMES) and not any(map(self.known.translates, words))
        return bool(named)

    def _is_quoted_name(self, first: int, end: int) -> bool:
        """Return whether a run is a whole quotation, and no label that training translates: “Red Lion”."""
        quoted = len(self.words) > end - first >= self.min_quoted and self._is_quoted(first, end)
        possessive = any(gap in POSSESSIVE for gap in self.gaps[first + 1 : end])
        named = quoted and (possessive or not self._is_translated(first, end))
        return named or self._is_nickname(first, end)

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

    def _is_nickname(self, first: int, end: int) -> bool:
        """Return whether a quotation is between two names: Dwayne “The Rock” Johnson."""
        if not (first > 0 and end < len(self.words) and self._is_quoted(first, end)):
            return False
        marks = len(self.gaps[first]) == len(self.gaps[end]) == len(' "')
        named = self._has_capital(first - 1) and self._has_capital(end)
        return marks and named and (not self.rules.nouns or self._is_unlearnt(self.words[first - 1]))

    def _is_signature(self, first: int, end: int) -> bool:
        """Return whether a run is the line after the end of a letter: Yours, April King."""
        begin, after = self.spans[first][0], self.spans[end - 1][1]
        alone = "\n" in self.gaps[first] and self.text[after : after + 1] in ("", "\n")
        short = 1 < end - first <= MAX_SIGNATURE_WORDS
        if not (alone and short) or self.words[first].lower() in self.rules.small_words:
            return False
        return CLOSING_WORDS.search(self.text, max(0, begin - MAX_CLOSING), begin) is not None

    def _end_of_unlearnt(self, first: int, end: int) -> int:
        """Return the end of the unlearnt words at the beginning of a run."""
        number = first
        while number < end and (
            self._is_unlearnt(word := self.words[number])
            # an ordinary word has its capital because the name goes on: Nguyễn Văn An
            or (number > first and not (self.heading or self.known.translates(word)))
        ):
            number += 1
        return number

    def _is_acronym(self, number: int) -> bool:
        """Return whether a word in capitals may be a part of a name: Red Lion FC."""
        word = self.words[number]
        return 1 < len(word) <= MAX_ACRONYM_LETTERS and word.isupper() and not self.rules.nouns

    def _is_initial(self, number: int) -> bool:
        """Return whether a word is a capital without a dot, which may be within a name: Ó Néill."""
        return len(self.words[number]) == 1 and self.words[number].isupper()

    def _is_species(self, number: int) -> bool:
        """Return whether a word may be the second one in the name of a species: E. coli."""
        word = self.words[number]
        return word.islower() and len(word) >= MIN_SMALL_LETTERS and self._is_unlearnt(word)

    def _is_unlearnt(self, word: str) -> bool:
        """Return whether the training data neither translates a word nor has its stem."""
        known, parts = self.known, word.split("-")
        if known.translates(word):
            return False
        capitals = sum(part[:1].isupper() for part in parts)
        given = word in GIVEN_NAMES and f"{word.lower()}." not in self.rules.long_forms
        return capitals > 1 or given or not any(map(known.knows, parts))

    def _has_capital(self, number: int) -> bool:
        word = self.words[number]
        return word[0].isupper() and not word.isupper() and word not in self.not_names

    def _is_inside(self, number: int) -> bool:
        """Return whether a capital is a sign of a name: within a sentence or after a colon (The Old Ship)."""
        if self.rules.nouns or self.heading:
            return False
        gap, small = self.gaps[number], self.words[number].lower() in self.rules.small_words
        introduced = gap == ": " and small and self._run_end(number, self.particles) > number + 2
        return introduced or WITHIN_SENTENCE.fullmatch(gap) is not None


class _UnknownNounFinder(_UnknownWordFinder):
    """Finds the unknown words of a text in a language that writes nouns with capitals."""

    min_quoted = 3  # fewer may be a noun with its adjective

    def __init__(self, text: str, known: KnownWords) -> None:
        assert (nouns := rules_of(known.language).nouns)
        self.nouns = nouns
        super().__init__(text, known)

    def _unknown_part(self, first: int, end: int) -> tuple[int, bool]:
        """Return the end of the unknown words at the beginning of a run, which may be no name.

        Nouns are rarely side by side, so a run that begins with a name or an unlearnt word is one phrase:
        Borussia Dortmund. A compound of known words begins another one, except after a given name.
        """
        word = self.words[first]
        if self._is_quoted(first, first + 1) and not self.known.has_stem_of(word):  # a boat: „Windsbraut“
            return first + 1, False
        if not self._begins_name(first, end) or self._is_beside_noun(first, end):
            return first, False
        if word not in GIVEN_NAMES:
            others = (n for n in range(first + 1, end) if self.known.is_long_compound(self.words[n]))
            end = next(others, end)
        noun = end == first + 1 and self._is_noun(first)
        return first if noun else end, False

    def _begins_name(self, first: int, end: int) -> bool:
        """Return whether a run begins with an unlearnt word, a place or a word that only names have there."""
        word, known = self.words[first], self.known
        place = not self._follows_article(first) and known.may_be_place(word)
        bare = self.before[first] in self.nouns.name_prepositions and not known.precedes_names(word)
        hyphened = bare and "-" in word and not any(map(known.has_stem_of, word.split("-")))
        if place or hyphened or self._is_unlearnt(word) or self._is_nickname(first - 1, first):
            return True
        if end == first + 1:
            return False
        after, given = self.words[first + 1], word in GIVEN_NAMES
        if word in self.rules.place_words or (given and after in self.rules.surnames):
            return True
        return (bare or given) and self._is_unlearnt(after)

    def _is_beside_noun(self, number: int, end: int) -> bool:
        """Return whether a word belongs to a noun after it: Annas Hund, die Bonner Straßen."""
        word, noun = self.words[number], self.words[number + 1] if end == number + 2 else ""
        street = re.fullmatch(self.nouns.streets, noun)
        if not noun or street or self._is_unlearnt(noun) or word in GIVEN_NAMES:
            return False
        if word.endswith("s") and word[:-1] in GIVEN_NAMES:
            return True
        begins = self.spans[number][0] == 0 or SENTENCE_ENDS.intersection(self.gaps[number])
        inflected = re.fullmatch(self.nouns.inflected, word)
        return bool((begins or self._follows_article(number)) and inflected)

    def _is_noun(self, number: int) -> bool:
        """Return whether a word is no name: by the word before or after it, its ending or its last part."""
        word = self.words[number]
        if not word[1:].islower() or word in GIVEN_NAMES or re.fullmatch(self.nouns.waters, word):
            return False
        verb = self.after[number] in self.nouns.pronouns
        interjection = number == 0 and len(word) < MIN_SMALL_LETTERS and self.gaps[1][:1] in (",", "!")
        ending = re.fullmatch(self.nouns.endings, word.lower())
        ordinary = verb or interjection or ending or self._follows_article(number)
        return bool(ordinary) or (self.known.ends_with_known(word) and not self.known.may_be_place(word))

    def _follows_article(self, number: int) -> bool:
        return re.fullmatch(self.nouns.determiners, self.before[number]) is not None

    def _is_unlearnt(self, word: str) -> bool:
        """Return whether the training data lacks the last part of a compound, which names the thing."""
        parts = word.split("-")
        learnt = self.known.knows(parts[-1]) and not (len(parts) > 1 and parts[0] in GIVEN_NAMES)
        return not (learnt or self.known.translates(word))
