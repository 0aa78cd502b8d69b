"""English."""

from __future__ import annotations

from typing import Final

from engine.text.languages.rules import (
    ENGLISH_NUMERALS,
    ENGLISH_QUOTATION,
    NUMBER,
    TIME_ZONE,
    Abbreviation,
    ClockTimes,
    Dates,
    LanguageRules,
    NumberWords,
    Ordinals,
    last_words,
    words,
)

TITLES: Final = {
    "mr": ("Mr.", "Mr"),
    "ms": ("Ms.", "Ms"),
    "mrs": ("Mrs.", "Mrs"),
    "miss": ("Miss",),
    "dr": ("Dr.", "Dr"),
    "prof": ("Prof.", "Professor"),
    "dear mr": ("Dear Mr.", "Dear Mr"),
    "dear ms": ("Dear Ms.", "Dear Ms"),
    "dear mrs": ("Dear Mrs.", "Dear Mrs"),
    "dear dr": ("Dear Dr.", "Dear Dr"),
    "dear prof": ("Dear Prof.", "Dear Professor"),
}
NUMBER_WORDS: Final = NumberWords(
    "zero 0 oh 0 one 1 first 1 once 1 single 1 two 2 second 2 twice 2 both 2 pair 2 couple 2 double 2 "
    "three 3 third 3 thrice 3 triple 3 four 4 five 5 fif 5 six 6 seven 7 eight 8 eigh 8 nine 9 nin 9 "
    "ten 10 eleven 11 twelve 12 twelf 12 dozen 12 thirteen 13 fourteen 14 fortnight 14 fifteen 15 "
    "sixteen 16 seventeen 17 eighteen 18 nineteen 19 twenty 20 twent 20 thirty 30 thirt 30 forty 40 "
    "fort 40 fifty 50 fift 50 sixty 60 sixt 60 seventy 70 sevent 70 eighty 80 ninety 90 ninet 90 "
    "hundred 100 thousand 1000 million 1000000 billion 1000000000 trillion 1000000000000",
    joiner="and|point|a",
    ending="th|ths|ieth|ieths|ies|s|fold|some",
    half="half|halves",
    quarter="quarter",
    clock="o['’]clock|noon|midday|midnight|morning|afternoon|evening|night|tonight|[ap]\\.?m\\.?|past|minutes?",
    signs=("three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "teen", "ty")
    + ("hundred", "thousand"),
    ordinals=("first", "second", "third"),
    idioms="fort|cloud nine|all fours|saves nine|nine times out of ten|catch-twenty-two",
)
DAY: Final = r"\d{1,2}(?:st|nd|rd|th)?"
SHORT_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sept?", "Oct", "Nov", "Dec")
SHORT_MONTH: Final = "|".join(SHORT_MONTHS)
SHORT_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
YEAR: Final = r"\d{4}(?!\w)"
TIME: Final = r"(?:1[0-2]|0?[1-9])(?:[:.][0-5]\d)?"
LONG_FORMS: Final = {
    "appt.": "appointment",
    "approx.": "approximately",
    "apt.": "apartment",
    "dept.": "department",
    "ext.": "extension",
    "excl.": "without",
    "incl.": "including",
    "pls": "please",
    "rm.": "room",
    "sq. ft.": "square feet",
    "thx": "thanks",
    "u": "you",
    "vs.": "against",
    "w/": "with",
    "w/o": "without",
}
RULES: Final = LanguageRules(
    numerals=ENGLISH_NUMERALS,
    quotation_marks=ENGLISH_QUOTATION,
    first_words=words(
        "hello hi hey thanks thank you please good morning evening night day bye goodbye yes no how",
        "are what who where when why the a an and i he she it we they is not my your house dog cat",
        "world with of to for welcome help love sorry upload login log out sign in save cancel open",
        "file settings search maybe next back problem time water bread come here later delete share",
        "found forgot password home today tomorrow see all right well done",
    ),
    small_words=words("the a an one of to please"),
    empty_words=words(
        "the a an of to it there that am is are was were be been being do does did have has had having will",
        "would i'm you're he's she's it's we're they're i've you've we've they've i'll you'll i'd you'd",
    ),
    conjunction="and",
    short_words=words("my so no we he me do is"),
    capital_letters=words("i"),
    articles=("Th[eaio]", "Our", "Your", "An"),
    hyphenated=("and", "the", "for", "old", "year", "hour", "out"),
    company_words=("Company",),
    titles=TITLES,
    abbreviations={
        "and others": Abbreviation("et al.", r"et al\."),
        "for example": Abbreviation("e.g.", r"e\.g\."),
        "that is": Abbreviation("i.e.", r"i\.e\."),
        "before Christ": Abbreviation("BC", r"B\.C\."),
        "after Christ": Abbreviation("AD", r"A\.D\."),
        "tablespoon": Abbreviation("tbsp", r"tbsp\b\.?"),
        "teaspoon": Abbreviation("tsp", r"tsp\b\.?"),
        "number": Abbreviation("No.", rf"(?:No|no(?!\. \d+ [a-z]+s\b))\.{NUMBER}"),
        "page": Abbreviation("p.", rf"pp?\.{NUMBER}"),
        "chapter": Abbreviation("ch.", rf"[Cc]h\.{NUMBER}"),
        "figure": Abbreviation("fig.", rf"[Ff]ig\.{NUMBER}"),
        "volume": Abbreviation("vol.", rf"[Vv]ol\.{NUMBER}"),
    },
    long_forms=LONG_FORMS,
    dates=Dates(
        ("January", "February", "March", "April", "May", "June")
        + ("July", "August", "September", "October", "November", "December"),
        # models translate long months without a year, except May, and after a short weekday
        rf"(?<!\w)(?:(?:{{}}) {DAY},? {YEAR}|{DAY} (?:{{}}),? {YEAR}"
        rf"|(?<=(?:{'|'.join(SHORT_DAYS)}) )(?:(?:{{}}) {DAY}|{DAY} (?:{{}}))(?!\w)"
        # in a log a time follows
        rf"|(?:{SHORT_MONTH})(?:(?<!May)\.)? {DAY}(?!\w| \d\d:\d\d:)|{DAY} (?:{SHORT_MONTH})(?!\w))",
        "{} {}",
        short_months=SHORT_MONTHS,
        day=DAY,
        short_days=SHORT_DAYS,
        until="to",
        since="from",
    ),
    clock_times=ClockTimes(
        ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
        "at ",
        {30: ("", "half past {}", 0), 15: ("a ", "quarter past {}", 0), 45: ("a ", "quarter to {}", 1)}
        | {25: ("", "twenty-five past {}", 0), 35: ("", "twenty-five to {}", 1)},
        others=((30, "{}[- ]thirty", 0), (45, "{}[- ]forty-five", 0), (15, "{}[- ]fifteen", 0)),
        signs=("half past", "quarter ", "thirty", "forty-five", "fifteen", "twenty-five"),
        # no part of a range; the dot may end the sentence
        digits=(
            r"(?<![\w.,:/–-])(?<![–-] )(?P<hour>1[0-2]|0?[1-9])(?:[:.](?P<minutes>[0-5]\d))?"
            r"(?: ?(?:a|(?P<p>p))\.m"
            r"(?:\.(?= \S|[,;:])|(?=\. ?(?:\Z|[\n\"”»)]))|(?!\.))"
            r"|(?:a|(?P<p2>p))m| (?P<p3>p)m|(?<=[:.]\d\d) am| am(?! ?[\w'’])| am(?= (?:and|or|to|until) )"
            rf"| ?(?:A|(?P<p4>P))M)(?!\w)(?! ?[–-] ?\d| (?!{TIME_ZONE})[A-Z]{{2,4}}(?!\w))"
        ),
        in_digits=("{}:00", "{}:{}"),
        first=rf"{TIME}(?: ?[ap]\.?m\.?)?",
        last=rf"{TIME} ?[ap](?:m|\.m(?:\.(?= \S|[,;:)]))?)",
    ),
    ordinals=Ordinals(
        r"(?<![\w.,/–-])\d{1,3}(?:st|nd|rd|th)(?! (?:of )?[A-Z])",  # no day: 7th June
        ((r"(?:.*[^1])?1", "{}st"), (r"(?:.*[^1])?2", "{}nd"), (r"(?:.*[^1])?3", "{}rd"), (".*", "{}th")),
    ),
    endings=r"ings?|ed|ers?|ly|ies|es?|s|y",
    number_words=NUMBER_WORDS,
    numbered_words=("art", "paras?", "op", "ref", "sec"),
    # "Professor" is an ordinary noun too; "Sir" and "Lady" have no counterpart in other languages
    title_words=last_words(TITLES.values()) - {"Professor"} | {"Sir", "Lady"},
    before_labels="[Pp]ress|[Hh]old(?: down)?|[Pp]ush|[Rr]eply|[Tt]ext|[Tt]ype|[Ee]nter|[Ss]end"
    "|[Rr]eply [A-Z]{2,9} (?:[\\w ]{1,15} )?or",
    after_labels="button|key|switch",
    stressed_words=words("all any both every here it me not now only same that this wrong right us you"),
    given_names=words("Sam"),
)
