import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.known_words import KnownWords, hashes, stem
from engine.text.languages import LANGUAGES
from engine.text.placeables.counterparts import find_counterparts, find_long_forms, title_before
from engine.text.placeables.masked_text import MarkedText
from engine.text.placeables.masking import MaskRules
from engine.text.placeables.names import NameRule
from tests.support.finished import mask

DATED = sorted(language for language, rules in LANGUAGES.items() if rules.dates)


@pytest.mark.parametrize(
    ("pair", "text", "written"),
    [
        ("de-en", "Sehr geehrter Herr ", "Dear Mr. "),
        ("de-en", "Das ist Herr Dr. ", "Dr. "),
        ("de-en", "Bei Dr. med. ", "Dr. "),
        ("de-fr", "Frau ", "Mme "),
        ("en-de", "Dear Mrs. ", "Sehr geehrte Frau "),
        ("en-fr", "He saw Mr ", "M. "),
        ("fr-en", "Chère Madame ", "Dear Ms. "),
        ("de-it", "Herr ", ""),
        ("de-en", "Bauherr ", ""),
        ("de-en", "Herr  ", ""),
    ],
)
def test_title_before_a_name_gets_its_counterpart(pair, text, written):
    begin, title = title_before(text + "Xyz", len(text), tuple(pair.split("-")))
    assert title == written
    assert begin == len(text) or not text[:begin].strip() or text[begin - 1] == " "


@pytest.mark.parametrize(
    ("pair", "text", "found"),
    [
        ("en-de", "He came on May 3, 2025.", [("May 3, 2025", "3. Mai 2025")]),
        ("en-fr", "On 1 May 2025 and 1st May.", [("1 May 2025", "1er mai 2025"), ("1st May", "1er mai")]),
        ("en-fr", "You may 3 times. March 3 times.", []),
        ("fr-en", "mort le 9 novembre 1970", [("9 novembre 1970", "9 November 1970")]),
        ("de-en", "am 24. Dezember 2024", [("24. Dezember 2024", "24 December 2024")]),
        ("de-en", "z. B. hier", [("z. B.", "e.g.")]),
        ("de-fr", "d.h. morgen", [("d.h.", "c.-à-d.")]),
        ("de-en", "Zimmer Nr. 5, S. 12–15", [("Nr. 5", "No. 5"), ("S. 12–15", "p. 12–15")]),
        ("fr-en", "au n°\u00a05a", [("n°\u00a05a", "No. 5a")]),
        ("en-fr", "No. I said no. 5 times.", []),
        ("en-de", "in 44 B.C. by the AD", [("B.C.", "v. Chr.")]),
        ("de-nl", "z. B. am 3. Mai 2025", []),
        ("en-de", "Dec. 24, 2024", [("Dec. 24, 2024", "24. Dezember 2024")]),
        ("fr-en", "le 3 janv. 2025", [("3 janv. 2025", "3 January 2025")]),
        ("de-fr", "3. Okt. 2024", [("3. Okt. 2024", "3 octobre 2024")]),
        (
            "de-en",
            "Di., 14.01.2025, So 9.3.",
            [("Di., 14.01.2025", "Tue 14.01.2025"), ("So 9.3.", "Sun 9.3.")],
        ),
        ("en-de", "Sep 3 and 12 Oct.", [("Sep 3", "3. September"), ("12 Oct", "12. Oktober")]),
        ("en-de", "Sat 9 Aug", [("Sat", "Sa."), ("9 Aug", "9. August")]),
        ("en-de", "Sun 3 December", [("Sun", "So."), ("3 December", "3. Dezember")]),
        ("en-de", "Jan 12 10:33:01 web01, 5 mar, may 5 times", []),
        ("fr-en", "Paugam et al., 2011", [("et al.", "et al.")]),
        ("en-fr", "Mon to Fri, Sat 7, on Tue, 14/01/25", [("Tue, 14/01/25", "mar. 14/01/25")]),
        ("en-de", "Open Tue–Fri 9–5, Sat 10–4.", [("Tue–Fri", "Di.–Fr."), ("Sat", "Sa.")]),
        ("de-en", "Do 15 Uhr, Mo–Mi, Fr ist", [("Do", "Thu"), ("15 Uhr", "15:00"), ("Mo–Mi", "Mon–Wed")]),
        ("de-en", "Am 1. Mai, 11.–15. Mai.", [("1. Mai", "1 May"), ("11.–15. Mai", "11–15 May")]),
        ("de-fr", "vom 3. bis 7. Juni 2025", [("3. bis 7. Juni 2025", "3 à 7 juin 2025")]),
        ("en-de", "on 24, 26 & 31 December", [("24, 26 & 31 December", "24., 26. & 31. Dezember")]),
        ("fr-en", "le 1er et 2 mai", [("1er et 2 mai", "1 and 2 May")]),
        ("de-en", "im 3. Stock, 1. FC, der 1. FC", [("3.", "3rd")]),
        ("de-en", "am 11. Tag, das 22. Mal", [("11.", "11th"), ("22.", "22nd")]),
        ("en-fr", "1st, 21st, 12th-century", [("1st", "1er"), ("21st", "21e"), ("12th", "12e")]),
        ("fr-de", "au 2e étage, la 1re fois", [("2e", "2."), ("1re", "1.")]),
        (
            "de-en",
            "Nr. 7083-441/B, S. 88 f.",
            [("Nr. 7083-441/B", "No. 7083-441/B"), ("S. 88 f.", "p. 88 f.")],
        ),
        ("en-de", "claim no. HX-55/0093-Q", [("no. HX-55/0093-Q", "Nr. HX-55/0093-Q")]),
        ("de-fr", "1 TL Salz, 2 EL Öl", [("TL", "c. à c."), ("EL", "c. à s.")]),
        ("fr-en", "1 c. à s. d'huile", [("c. à s.", "tbsp")]),
        (
            "fr-en",
            "12 juill. 2022 ou 5 oct., 3 déc.",
            [("12 juill. 2022", "12 July 2022"), ("5 oct.", "5 October")],
        ),
    ],
)
def test_dates_and_abbreviations_are_found_with_their_counterparts(pair, text, found):
    places = find_counterparts(text, tuple(pair.split("-")))
    assert [(text[begin:end], written) for begin, end, written in places] == found


@pytest.mark.parametrize(
    ("language", "text", "found"),
    [
        ("de", "Ca. 5 kg, u.\u00a0a. Obst", [("Ca.", "Ungefähr"), ("u.\u00a0a.", "unter anderem")]),
        ("de", "Brot usw. Dann Wein usw.", [("usw", "und so weiter"), ("usw", "und so weiter")]),
        ("de", "Brot usw. mit", [("usw.", "und so weiter")]),
        ("de", "von Gl. 7 bzw. Gl. 8", [("Gl.", "Gleis"), ("bzw.", "oder"), ("Gl.", "Gleis")]),
        (
            "de",
            "Hr. Li, Fa. Koch, Tel.-Nr. 5",
            [("Hr.", "Herr"), ("Fa.", "Firma"), ("Tel.-Nr.", "Telefonnummer")],
        ),
        ("de", "Ich bin Max. Max. 5 Leute, max. drei", [("Max.", "Höchstens"), ("max.", "höchstens")]),
        ("de", "5 Min. Pause, 3 Std.\n", [("Min.", "Minuten"), ("Std", "Stunden")]),
        ("en", "tea w/o milk vs. tea w/ milk", [("w/o", "without"), ("vs.", "against"), ("w/", "with")]),
        ("en", "u.s, u-turn, a/u, @u, u.", [("u", "you")]),
        ("fr", "mon n° de tél. est", [("n° de", "numéro de"), ("tél.", "téléphone")]),
        ("fr", "env. 5 pers.", [("env.", "environ"), ("pers", "personnes")]),
        ("nl", "ca. 5", []),
    ],
)
def test_abbreviations_are_found_with_the_words_that_they_stand_for(language, text, found):
    assert [(text[begin:end], words) for begin, end, words in find_long_forms(text, language)] == found


def test_titles_and_abbreviations_have_the_meanings_of_english():
    english = LANGUAGES["en"]
    for rules in LANGUAGES.values():
        assert rules.titles.keys() <= english.titles.keys()
        assert rules.abbreviations.keys() <= english.abbreviations.keys()
        assert (
            not rules.dates
            or len(rules.dates.months) == len(rules.dates.short_months or rules.dates.months) == 12
        )


@given(st.sampled_from(DATED), st.integers(0, 11), st.integers(1, 28), st.integers(1000, 2999))
def test_date_written_in_another_language_and_back_is_the_same(language, month, day, year):
    dates = LANGUAGES[language].dates
    written_day = dates.first_day if day == 1 else day
    date = dates.form.format(written_day, dates.months[month]) + dates.year_form.format(year)
    for other in set(DATED) - {language}:
        ((*_, there),) = find_counterparts(date, (language, other))
        ((*_, back),) = find_counterparts(there, (other, language))
        assert back == date


def test_name_of_many_tokens_is_masked_with_its_title():
    rules = MaskRules(protect=True, names=NameRule("de", lambda word: len(word) // 2, 4, "en"))
    phrases = mask(MarkedText("Herr Dr. Kowalczyk traf Frau Li."), rules).phrases
    assert [(p.source, p.target, p.trusted) for p in phrases] == [
        ("Herr Dr. Kowalczyk", "Dr. Kowalczyk", False),
        ("Li", "Li", True),
    ]


def test_glossary_wins_over_a_date():
    rules = MaskRules(protect=True, glossary={"Mai": "Maius"}, languages=("de", "en"))
    phrases = mask(MarkedText("Am 3. Mai 2025."), rules).phrases
    assert [(p.source, p.target) for p in phrases] == [("3", "3"), ("Mai", "Maius"), ("2025", "2025")]


@pytest.mark.parametrize(
    ("pair", "text", "written"),
    [
        ("de-en", "Um fünf nach halb vier.", ["At twenty-five to four"]),
        (
            "de-en",
            "Es ist fünf vor halb acht, drei viertel neun.",
            ["twenty-five past seven", "a quarter to nine"],
        ),
        ("en-de", "It is twelve-thirty or at five forty-five.", ["halb eins", "um Viertel vor sechs"]),
        ("en-fr", "At twenty-five past nine.", ["À neuf heures vingt-cinq"]),
        ("en-de", "Twenty-two thirty, one thirty-eight, half of it.", []),
    ],
)
def test_times_in_words_keep_their_minutes(pair, text, written):
    found = find_counterparts(text, tuple(pair.split("-")), signs=False)
    assert [target for _, _, target in found] == written


@pytest.mark.parametrize(
    ("pair", "text", "written"),
    [
        ("en-fr", "From 9 a.m. to 5:30 p.m.", ["De 9 h à 17 h 30"]),
        ("en-de", "3pm-5pm, 9–5 p.m., 11 a.m. to 1:30 p.m.", ["15-17 Uhr", "9–17 Uhr", "11 bis 13:30 Uhr"]),
        (
            "en-de",
            "Open until 5 pm, from 6:30am on; 12 p.m. or 12 AM.",
            ["17 Uhr", "6:30 Uhr", "12 Uhr", "0 Uhr"],
        ),
        ("en-de", "9 - 5, 10 a.m. XYZ, 13 p.m., I am 9.", []),
        ("en-fr", "at 6 p.m. CET, about 5.40pm", ["18 h", "17 h 40"]),
        ("en-fr", "between 8 am and noon, until 1 am – more", ["8 h", "1 h"]),
        ("fr-en", "mercredi 8 mai, 14 h 30 ; 16 h 03 UTC ; 2 h 30, 14 h de vol", ["14:30", "16:03"]),
        ("fr-en", "De 9 h à 17 h.", ["From 9:00 to 17:00"]),
        ("de-fr", "von 8 bis 20 Uhr, 8 bis 9 Uhr", ["de 8 à 20 h", "8 à 9 h"]),
        ("en-fr", "8am - 6pm, at 2 am (9 lb)", ["8 h - 18 h", "2 h"]),
        ("en-fr", "at 2 am today, what I am.", []),
        ("de-en", "ab 19 Uhr, um 8 Uhr, 14&nbsp;Uhr, 19 Uhren, von 8 bis 20 Leute", ["19:00", "14:00"]),
        ("fr-en", "À 9h, à 17 h 30, jusqu'à 18h.", ["At 9:00", "at 17:30", "18:00"]),
        ("fr-en", "19h ou 20h, entre 8 h et 9h30", ["19:00", "20:00", "8:00", "9:30"]),
        ("fr-en", "en 20h, les 24h, pendant 14h, 14 h de vol", []),
        (
            "fr-de",
            "À 20h30, à 7 h 05 de là, à 2 h de Paris, 3 h, à 9 h XYZ.",
            ["Um 20:30 Uhr", "um 7:05 Uhr"],
        ),
        (
            "de-en",
            "Um 14:37 Uhr und 9.05\u00a0Uhr, 8:00–17:30 Uhr, um 9 Uhr.",
            ["14:37", "9:05", "8:00–17:30"],
        ),
        ("de-fr", "Um 20.15 Uhr.", ["20 h 15"]),
    ],
)
def test_time_in_digits_is_written_by_the_clock_of_24_hours(pair, text, written):
    assert [target for _, _, target in find_counterparts(text, tuple(pair.split("-")))] == written


def test_model_reads_a_time_with_am_or_pm():
    rules = MaskRules(protect=True, languages=("en", "fr"))
    (phrase,) = mask(MarkedText("I got up at 6:30 a.m. today."), rules).phrases
    assert (phrase.source, phrase.target, phrase.trusted, phrase.name) == ("6:30 a.m.", "6 h 30", True, False)


def test_unknown_abbreviation_stays_as_it_is():
    stems = hashes(stem(word, "de") for word in ("haus", "op", "it"))
    known = KnownWords("de", stems, *[hashes(())] * 3)
    text = "Op. cit., Urt. v. 5.3.2001, Rn. 21, op. 64, Haus. 5 Leute, Haus. mit, Abb. 4, u. a. dies."
    found = find_counterparts(text, ("de", "en"), known=known)
    assert [(text[begin:end], written) for begin, end, written in found] == [
        ("Op. cit.", "Op. cit."),
        ("Urt. v. 5.3.2001", "Urt. v. 5.3.2001"),
        ("Rn. 21", "Rn. 21"),
        ("op. 64", "op. 64"),
        ("Abb. 4", "fig. 4"),
    ]
