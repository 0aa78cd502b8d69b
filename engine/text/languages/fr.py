"""French."""

from __future__ import annotations

from typing import Final

from engine.text.languages.rules import (
    LETTERS,
    NARROW,
    Abbreviation,
    Dates,
    LanguageRules,
    Numerals,
    QuotationMarks,
    last_words,
    words,
)

TITLES: Final = {
    "mr": ("M.", "Monsieur", "M"),
    "ms": ("Mme", "Madame"),
    "mrs": ("Mme",),
    "miss": ("Mlle", "Mademoiselle"),
    "dr": ("Dr", "Docteur", "Dr."),
    "prof": ("Pr", "Professeur", "Prof."),
    "dear mr": ("Cher M.", "Cher Monsieur"),
    "dear ms": ("Chère Mme", "Chère Madame"),
    "dear mrs": ("Chère Mme",),
    "dear dr": ("Cher Dr", "Cher Docteur", "Cher Dr."),
    "dear prof": ("Cher Pr", "Cher Professeur"),
}
RULES: Final = LanguageRules(
    numerals=Numerals(",", NARROW, percent=NARROW),
    quotation_marks=QuotationMarks("«\u202f", "\u202f»", "“", "”"),
    first_words=words(
        "bonjour salut merci bonsoir bonne nuit au revoir oui non comment ça va vas s'il vous plaît",
        "plait le la les un une et je tu il elle nous est pas mon ton maison chien chat monde avec",
        "de du des pour bienvenue aide amour pardon désolé désolée coucou enregistrer annuler",
        "ouvrir fichier paramètres mot passe rechercher peut être suivant retour connexion problème",
        "eau pain demain heure bientôt appétit journée félicitations trouvé introuvable d'accord",
    ),
    small_words=words("le la les un une des du de ne à"),
    conjunction="et",
    short_words=words("ma ta sa si tu ne où"),
    articles=("L[ae]s?", "Une?", "[NV]otre", "Cette"),
    hyphenated=("les", "des"),
    company_words=("Société",),
    titles=TITLES,
    abbreviations={
        "for example": Abbreviation("p. ex.", r"p\. ?ex\."),
        "that is": Abbreviation("c.-à-d.", r"c\.-à-d\."),
    },
    dates=Dates(
        ("janvier", "février", "mars", "avril", "mai", "juin")
        + ("juillet", "août", "septembre", "octobre", "novembre", "décembre"),
        r"(?<!\w)(?:\d{1,2}|1er) (?:{}) \d{4}(?!\w)",
        "{} {}",
        first_day="1er",
    ),
    numbered_words=("chap",),
    # elided words are words of their own: l'Algérie
    word=rf"(?i:(?:[cdjlmnst]|qu)(?=[’'])|{LETTERS}(?:[-’']{LETTERS})*)",
    # "Docteur" and "Professeur" are ordinary nouns too, "Pr" is ambiguous, and "M" is a title in French only
    title_words=last_words(TITLES.values()) - {"M", "Docteur", "Pr", "Professeur"},
    own_title_words=words("M MM"),
    own_particles=words("de du la le y"),
    country_articles=words("le la les l en du des au aux"),
)
