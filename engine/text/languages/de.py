"""German."""

from __future__ import annotations

from typing import Final

from engine.text.languages.rules import (
    NUMBER,
    Abbreviation,
    CapitalNouns,
    ClockTimes,
    Dates,
    LanguageRules,
    NumberWords,
    Numerals,
    Ordinals,
    QuotationMarks,
    last_words,
    words,
)

TITLES: Final = {
    "mr": ("Herr", "Herrn", "Hr.", "Hrn."),
    "ms": ("Frau",),
    "mrs": ("Frau",),
    "miss": ("Fräulein",),
    "dr": ("Dr.", "Herr Dr.", "Herrn Dr.", "Frau Dr.", "Dr", "Dr. med."),
    "prof": ("Prof.", "Professor", "Herr Prof.", "Frau Prof.", "Herr Professor", "Frau Professorin"),
    "dear mr": ("Sehr geehrter Herr", "Lieber Herr", "Hallo Herr"),
    "dear ms": ("Sehr geehrte Frau", "Liebe Frau", "Hallo Frau"),
    "dear mrs": ("Sehr geehrte Frau",),
    "dear dr": ("Sehr geehrte/r Dr.", "Sehr geehrter Herr Dr.", "Sehr geehrte Frau Dr."),
    "dear prof": ("Sehr geehrte/r Prof.", "Sehr geehrter Herr Prof.", "Sehr geehrte Frau Prof."),
}
NUMBER_WORDS: Final = NumberWords(
    "null 0 ein 1 eins 1 eine 1 einen 1 einem 1 einer 1 eines 1 erste 1 ersten 1 erster 1 erstes 1 "
    "erstem 1 zwei 2 zwo 2 drei 3 drit 3 vier 4 fünf 5 sechs 6 sech 6 sieben 7 sieb 7 acht 8 ach 8 neun 9 "
    "zehn 10 elf 11 zwölf 12 zwanzig 20 dreißig 30 dreissig 30 vierzig 40 fünfzig 50 sechzig 60 "
    "siebzig 70 achtzig 80 neunzig 90 hundert 100 tausend 1000 "
    "million 1000000 millionen 1000000 "
    "milliarde 1000000000 milliarden 1000000000 billion 1000000000000 billionen 1000000000000 dutzend 12 "
    "paar 2 doppelt 2 doppel 2 beide 2 beiden 2",
    joiner="und|komma",
    ending="(?:s?tel?|mal|fach|er|jährig|köpfig|tägig|stündig|stöckig)e?[mnrs]?|(?:s?t)?ens|ern?|e[nr]?|halb",
    half="halb|hälfte|anderthalb|\\w+einhalb",
    quarter="viertel|dreiviertel",
    clock="uhr|mittags?|mitternachts?|morgens?|abends?|nachmittags?|vormittags?|nachts?|minuten?",
    signs=("drei", "vier", "fünf", "sechs", "sieben", "neun", "zehn", "elf", "zwölf", "zig", "ßig", "ssig")
    + ("hundert", "tausend"),
    ordinals=("erste", "ersten", "erster", "erstes", "erstem"),
    idioms="ach|acht|sieb|achte[nrst]?|unter vier augen|allen? vieren?|siebten himmel|dreifach|tausend dank",
    half_before=True,
    units_first=True,
)
NOUNS: Final = CapitalNouns(
    pronouns=words("Sie Ihnen Ihr Ihre Ihren Ihrem Ihrer Ihres"),
    place_prepositions=words("in nach aus namens"),
    place_endings=(
        ".*(?:bach|berg|brück|burg|büttel|deich|dorf|feld|furt|hagen|hausen|haven|heim|hofen|horst|ingen"
        "|kirch(?:en)?|münde|rode|stadt|stedt|thal|witz|zell)"
    ),
    streets="Straße|Allee|Chaussee|Damm|Platz|Ring|Tor|Weg",
    waters=(
        ".*see|Elbe|Ems|Enz|Fulda|Havel|Iller|Isar|Lahn|Lech|Leine|Lippe|Mulde|Naab|Neckar|Neiße|Pegnitz"
        "|Regnitz|Saale|Saar|Spree|Unstrut|Werra|Weser|Wupper"
    ),
    name_prepositions=words("an auf aus bei für gegen in mit nach von"),
    determiners=(  # einer Dose, zwei Flaschen, beim, die größte
        r"(?i:(?:[kmds]?ein|unser|dies|jed|jen|welch|manch|all|.*(?:isch|lich))(?:e[mnrs]?)?"
        r"|d(?:er|ie|as|e[mns])|ihre?[mnrs]?|eure?[mnrs]?|(?:bei|zu|vo|i|a)m|zur|ins|.*\d"
        r"|zwei|drei|vier|fünf|sechs|sieben|acht|zehn)"
    ),
    adjectives=".*isch(?:e[mnrs]?)?",
    endings=(
        r".*(?:ung|heit|keit|schaft|tion|tät|ismus|erin|[^wz]ig|isch|lich)(?:e[mnrs]?|nen|s)?"
        r"|.*(?:seits|weise)|(?:ab|auf|aus|ein|über|unter).{3,}en"
    ),
    inflected=r"[^\W\d_]{3,}e[mnrs]?",
)
# places that have a name of their own in other languages, and languages: Griechenland, Kroatien, Spanisch
TRANSLATED_NAMES: Final = ".*(?:land|länder|ien|isch)"
TIME: Final = r"(?:[01]?\d|2[0-4])(?:[.:][0-5]\d)?"
LONG_FORMS: Final = {
    "bspw.": "zum Beispiel",
    "bzgl.": "über",
    "bzw.": "oder",
    "ca.": "ungefähr",
    "einschl.": "mit",
    "evtl.": "vielleicht",
    "exkl.": "ohne",
    "etc.": "und so weiter",
    "Fa.": "Firma",
    "ggf.": "vielleicht",
    "Gl.": "Gleis",
    "Hr.": "Herr",
    "Hrn.": "Herrn",
    "i. d. R.": "normalerweise",
    "inkl.": "mit",
    "max.": "höchstens",
    "mind.": "mindestens",
    "Min.": "Minuten",
    "mtl.": "monatlich",
    "MwSt.": "Mehrwertsteuer",
    "Pers.": "Personen",
    "Postf.": "Postfach",
    "Sek.": "Sekunden",
    "Std.": "Stunden",
    "Stk.": "Stück",
    "Tel.-Nr.": "Telefonnummer",
    "tgl.": "täglich",
    "u. a.": "unter anderem",
    "u. U.": "vielleicht",
    "usw.": "und so weiter",
    "v. a.": "vor allem",
    "vgl.": "siehe",
    "vs.": "gegen",
    "z. T.": "teilweise",
    "zzgl.": "plus",
    "zzt.": "zurzeit",
}
RULES: Final = LanguageRules(
    numerals=Numerals(",", "."),
    quotation_marks=QuotationMarks("„", "“", "‚", "‘"),
    dotted_ordinals=True,
    capital_sharp_s=True,
    first_words=words(
        "hallo tschüss tschüs danke bitte guten gute tag morgen abend nacht ja nein wie geht geht's",
        "und ich du er sie es wir ihr der die das ein eine ist nicht was wer wo wann warum mein",
        "dein haus hund katze welt mit auf von zu für willkommen hilfe liebe entschuldigung",
        "wiedersehen speichern abbrechen öffnen datei einstellungen suche suchen vielleicht weiter",
        "zurück anmelden abmelden kein problem zeit wasser brot bis später gern alles klar heute",
        "passwort löschen",
    ),
    small_words=words("der die das den dem des zu bitte ein eine einen einem einer eines"),
    empty_words=words(
        "der die das den dem des ein eine einen einem einer eines es sich zu zum zur im am vom beim man",
        "bin bist ist sind seid sein war warst waren wart gewesen habe hab hast hat haben habt hatte hattest",
        "hatten hattet gehabt werde wirst wird werden werdet wurde wurden worden würde würden denn doch ja",
    ),
    conjunction="und",
    short_words=words("so du er es wo ja"),
    articles=("D(?:ie|er|as|ies|en|em)", "[SKM]?[Ee]in", "Unser", "Ihr", "Jed", "Welch"),
    hyphenated=("und",),
    company_words=("Firma", "Kunden?", "Partner", "Konzern", "Unternehmen"),
    titles=TITLES,
    abbreviations={
        "and others": Abbreviation("et al.", r"et al\."),
        "for example": Abbreviation("z. B.", r"z\. ?B\."),
        "that is": Abbreviation("d. h.", r"d\. ?h\."),
        "before Christ": Abbreviation("v. Chr.", r"v\. ?Chr\."),
        "after Christ": Abbreviation("n. Chr.", r"n\. ?Chr\."),
        "tablespoon": Abbreviation("EL", "EL"),
        "teaspoon": Abbreviation("TL", "TL"),
        "number": Abbreviation("Nr.", rf"Nr\.{NUMBER}"),
        "page": Abbreviation("S.", rf"S\.{NUMBER}"),
        "chapter": Abbreviation("Kap.", rf"Kap\.{NUMBER}"),
        "figure": Abbreviation("Abb.", rf"Abb\.{NUMBER}"),
        "volume": Abbreviation("Bd.", rf"Bd\.{NUMBER}"),
    },
    long_forms=LONG_FORMS,
    dates=Dates(
        ("Januar", "Februar", "März", "April", "Mai", "Juni")
        + ("Juli", "August", "September", "Oktober", "November", "Dezember"),
        r"(?<!\w)\d{1,2}\. ?(?:{})(?: \d{4})?(?!\w)",
        "{}. {}",
        day=r"\d{1,2}\.",
        short_days=("Mo", "Di", "Mi", "Do", "Fr", "Sa", "So"),
        day_dot=".",
        until="bis",
        since="von",
        short_months=("Jan", "Feb", "Mrz", "Apr", "Mai", "Jun", "Jul", "Aug", "Sept", "Okt", "Nov", "Dez"),
    ),
    clock_times=ClockTimes(
        ("eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"),
        "um ",
        {30: ("", "halb {}", 1), 15: ("", "Viertel nach {}", 0), 45: ("", "Viertel vor {}", 1)}
        | {25: ("", "fünf vor halb {}", 1), 35: ("", "fünf nach halb {}", 1)},
        others=((45, "drei ?viertel {}", 1),),
        signs=("halb ", "viertel "),
        # models write full hours before noon themselves
        digits=(
            r"(?<![\w.,:/–-])(?<![–-] )(?P<hour>(?:[01]?\d|2[0-4])(?=[.:])|1[3-9]|2[0-4])"
            r"(?:[.:](?P<minutes>[0-5]\d))?(?:[ \u00a0]|&nbsp;)Uhr(?!\w)"
        ),
        in_digits=("{} Uhr", "{}:{} Uhr"),
        first=rf"{TIME}(?:[ \u00a0]Uhr)?",
        last=rf"{TIME}[ \u00a0]Uhr",
    ),
    ordinals=Ordinals(
        # after an article: im 3. Stock; not the name of a club: 1. FC
        r"(?:(?<=\b[Dd][eia][rmnse] )|(?<=\b[aAiI]m )|(?<=\b[vz][ou][mr] )|(?<=\bbeim )"
        r"|(?<=ein )|(?<=eine )|(?<=eine[rmn] ))"
        r"\d{1,3}\.(?= [^\W\d_][a-zäöüß])",
        ((r"\d+", "{}."),),
    ),
    endings=r"(?:innen|in|chen|ern|e[mnr]?|te?[nt]?|s?t|n)?s?",
    number_words=NUMBER_WORDS,
    numbered_words=("Art", "Abs", "Anm", "Tel", "lit", "op", r"[^\W\d_]{0,24}[Ss]tr"),
    # "Professor" is an ordinary noun too; "Familie" has no counterpart in other languages
    title_words=last_words(TITLES.values()) - {"Professor", "Professorin"} | {"Familie", "Fa"},
    own_particles=words("von der den da du zu und"),
    translated_names=TRANSLATED_NAMES,
    not_names=words("Art Abs Nr Kap Abb"),
    nouns=NOUNS,
    place_words=words("Bad Bayern Blau-Weiß FC Hotel LG Rot-Weiß Sankt SC SV TSG TSV TuS VfB VfL Werder"),
    before_labels="Taste|Knopf|[Dd]rücken(?: Sie)?|[Hh]alten Sie|[Ss]enden Sie|[Tt]ippen Sie|SMS mit"
    "|[Aa]ntworten Sie mit(?: [A-Z]{2,9} (?:[\\w ]{1,15} )?oder)?",
    after_labels="drücken|gedrückt",
    stressed_words=words("alle alles beide fest hier immer jetzt kurz lang nicht nie nur sofort uns"),
    given_names=words("Franz Jan Katharina Tom"),
    surnames=words(
        "Bauer Baumann Beck Becker Berger Bergmann Böhm Brandt Braun Busch Engel Fischer Fuchs Graf Haas",
        "Groß Hahn Hartmann Hofmann Horn Huber Jäger Jung Kaiser Keller Klein Koch Köhler König Krämer Kraus",
        "Krause Krüger Kühn Lang Lange Lehmann Mayer Meier Möller Müller Neumann Pfeiffer Richter Roth Sauer",
        "Schäfer Schmidt Schmitt Schneider Scholz Schreiber Schröder Schulz Schumacher Schuster Schwarz",
        "Sommer Stein Vogel Vogt Wagner Weber Weiß Winkler Winter Wolf Ziegler Zimmermann",
    ),
)
