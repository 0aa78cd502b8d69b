"""German."""

from __future__ import annotations

from typing import Final

from engine.text.languages.rules import (
    Abbreviation,
    CapitalNouns,
    Dates,
    LanguageRules,
    Numerals,
    QuotationMarks,
    last_words,
    words,
)

TITLES: Final = {
    "mr": ("Herr", "Herrn"),
    "ms": ("Frau",),
    "mrs": ("Frau",),
    "miss": ("Fräulein",),
    "dr": ("Dr.", "Herr Dr.", "Herrn Dr.", "Frau Dr.", "Dr"),
    "prof": ("Prof.", "Professor", "Herr Prof.", "Frau Prof.", "Herr Professor", "Frau Professorin"),
    "dear mr": ("Sehr geehrter Herr", "Lieber Herr", "Hallo Herr"),
    "dear ms": ("Sehr geehrte Frau", "Liebe Frau", "Hallo Frau"),
    "dear mrs": ("Sehr geehrte Frau",),
    "dear dr": ("Sehr geehrte/r Dr.", "Sehr geehrter Herr Dr.", "Sehr geehrte Frau Dr."),
    "dear prof": ("Sehr geehrte/r Prof.", "Sehr geehrter Herr Prof.", "Sehr geehrte Frau Prof."),
}
NOUNS: Final = CapitalNouns(
    pronouns=words("Sie Ihnen Ihr Ihre Ihren Ihrem Ihrer Ihres"),
    place_prepositions=words("in nach aus namens"),
    determiners=(  # einer Dose, zwei Flaschen, beim, die größte
        r"(?i:(?:[kmds]?ein|unser|dies|jed|jen|welch|manch|all|.*(?:isch|lich))(?:e[mnrs]?)?"
        r"|d(?:er|ie|as|e[mns])|ihre?[mnrs]?|eure?[mnrs]?|(?:bei|zu|vo|i|a)m|zur|ins|.*\d"
        r"|zwei|drei|vier|fünf|sechs|sieben|acht|zehn)"
    ),
    adjectives=".*isch(?:e[mnrs]?)?",
    inflected=r"[^\W\d_]{3,}e[mnrs]?",
)
# places that have a name of their own in other languages, and languages: Griechenland, Kroatien, Spanisch
TRANSLATED_NAMES: Final = ".*(?:land|länder|ien|isch)"
RULES: Final = LanguageRules(
    numerals=Numerals(",", "."),
    quotation_marks=QuotationMarks("„", "“", "‚", "‘"),
    dotted_ordinals=True,
    first_words=words(
        "hallo tschüss tschüs danke bitte guten gute tag morgen abend nacht ja nein wie geht geht's",
        "und ich du er sie es wir ihr der die das ein eine ist nicht was wer wo wann warum mein",
        "dein haus hund katze welt mit auf von zu für willkommen hilfe liebe entschuldigung",
        "wiedersehen speichern abbrechen öffnen datei einstellungen suche suchen vielleicht weiter",
        "zurück anmelden abmelden kein problem zeit wasser brot bis später gern alles klar heute",
        "passwort löschen",
    ),
    small_words=words("der die das den dem des zu bitte ein eine einen einem einer eines"),
    conjunction="und",
    short_words=words("so du er es wo ja"),
    articles=("D(?:ie|er|as|ies|en|em)", "[SKM]?[Ee]in", "Unser", "Ihr", "Jed", "Welch"),
    hyphenated=("und",),
    company_words=("Firma", "Kunden?", "Partner", "Konzern", "Unternehmen"),
    titles=TITLES,
    abbreviations={
        "for example": Abbreviation("z. B.", r"z\. ?B\."),
        "that is": Abbreviation("d. h.", r"d\. ?h\."),
    },
    dates=Dates(
        ("Januar", "Februar", "März", "April", "Mai", "Juni")
        + ("Juli", "August", "September", "Oktober", "November", "Dezember"),
        r"(?<!\w)\d{1,2}\. ?(?:{}) \d{4}(?!\w)",
        "{}. {}",
    ),
    numbered_words=("Art", "Abs", "Kap", "Abb", "Tel", r"[^\W\d_]{0,24}[Ss]tr"),
    # "Professor" is an ordinary noun too; "Familie" has no counterpart in other languages
    title_words=last_words(TITLES.values()) - {"Professor", "Professorin"} | {"Familie"},
    own_particles=words("von der den da du zu und"),
    translated_names=TRANSLATED_NAMES,
    not_names=words("Art Abs Nr Kap Abb"),
    nouns=NOUNS,
)
