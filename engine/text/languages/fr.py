"""French."""

from __future__ import annotations

from typing import Final

from engine.text.languages.rules import (
    LETTERS,
    NARROW,
    NUMBER,
    TIME_ZONE,
    Abbreviation,
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
    "mr": ("M.", "Monsieur", "M"),
    "ms": ("Mme", "Madame"),
    "mrs": ("Mme",),
    "miss": ("Mlle", "Mademoiselle"),
    "dr": ("Dr", "Docteur", "Dr."),
    "prof": ("Pr", "Professeur", "Prof.", "prof."),
    "dear mr": ("Cher M.", "Cher Monsieur"),
    "dear ms": ("Chère Mme", "Chère Madame"),
    "dear mrs": ("Chère Mme",),
    "dear dr": ("Cher Dr", "Cher Docteur", "Cher Dr."),
    "dear prof": ("Cher Pr", "Cher Professeur"),
}
HOURS: Final = "deux trois quatre cinq six sept huit neuf dix onze douze"
NUMBER_WORDS: Final = NumberWords(
    "zéro 0 un 1 une 1 premier 1 première 1 deux 2 second 2 seconde 2 double 2 paire 2 couple 2 trois 3 "
    "triple 3 tiers 3 quatre 4 quatr 4 cinq 5 cinqu 5 six 6 sept 7 huit 8 neuf 9 neuv 9 dix 10 diz 10 "
    "onze 11 onz 11 douze 12 douz 12 treize 13 treiz 13 quatorze 14 quatorz 14 quinze 15 quinz 15 "
    "seize 16 seiz 16 vingt 20 vingts 20 trente 30 trent 30 quarante 40 quarant 40 cinquante 50 "
    "cinquant 50 soixante 60 soixant 60 septante 70 huitante 80 octante 80 nonante 90 quatre-vingt 80 "
    "quatre-vingts 80 cent 100 cents 100 mille 1000 mill 1000 millier 1000 milliers 1000 "
    "million 1000000 "
    "millions 1000000 milliard 1000000000 milliards 1000000000",
    joiner="et|virgule",
    ending="i?èmes?|aines?|s",
    half="demi|moitié",
    quarter="quarts?(?!\\w)",
    clock="heures?|h|midi|minuit|matin|soir|après-midi|nuit|minutes?",
    signs=("trois", "quatre", "cinq", "six", "sept", "huit", "dix", "onze", "douze", "treize", "quatorze")
    + ("quinze", "seize", "vingt", "vingts", "ante", "cent", "cents", "mille"),
    ordinals=("premier", "première", "second", "seconde", "tiers"),
    idioms="pour cent|\\d+ cents|milles|deux ou trois|mille mercis|(?:de|tout|flambant) neufs?|"
    "ces quatre|(?:son|leur|votre|notre|mon|ton) trente[- ]et[- ]un|"
    "(?:à )?quatre (?:pattes|épingles)|huit jours|quinze jours|quinzaine",
    long_tens=(60, 80),
)
TIME: Final = r"(?:[01]?\d|2[0-4])[ \u00a0\u202f]?h(?:[ \u00a0\u202f]?[0-5]\d)?"
LONG_FORMS: Final = {
    "appt.": "appartement",
    "bât.": "bâtiment",
    "bcp": "beaucoup",
    "env.": "environ",
    "ét.": "étage",
    "hab.": "habitants",
    "max.": "au maximum",
    "n° de": "numéro de",
    "pers.": "personnes",
    "rdv": "rendez-vous",
    "stp": "s'il te plaît",
    "svp": "s'il vous plaît",
    "tél.": "téléphone",
    "vs.": "contre",
}
RULES: Final = LanguageRules(
    numerals=Numerals(",", NARROW, percent=NARROW),
    quotation_marks=QuotationMarks("«\u202f", "\u202f»", "“", "”"),
    final_marks={"?": " ?", "!": " !"},
    first_words=words(
        "bonjour salut merci bonsoir bonne nuit au revoir oui non comment ça va vas s'il vous plaît",
        "plait le la les un une et je tu il elle nous est pas mon ton maison chien chat monde avec",
        "de du des pour bienvenue aide amour pardon désolé désolée coucou enregistrer annuler",
        "ouvrir fichier paramètres mot passe rechercher peut être suivant retour connexion problème",
        "eau pain demain heure bientôt appétit journée félicitations trouvé introuvable d'accord",
    ),
    small_words=words("le la les un une des du de ne à"),
    empty_words=words(
        "le la les l un une des du de d au aux à en y ne n se s ce c qu que il est suis es sommes êtes sont",
        "était été être ai as a avons avez ont avait eu avoir est-ce c'est l' d' s' qu'il qu'elle",
    ),
    conjunction="et",
    short_words=words("ma ta sa si tu ne où"),
    articles=("L[ae]s?", "Une?", "[NV]otre", "Cette"),
    hyphenated=("les", "des", "et", "vingts?", "dix", "cents?", "mille"),
    company_words=("Société",),
    titles=TITLES,
    abbreviations={
        "and others": Abbreviation("et al.", r"et al\."),
        "for example": Abbreviation("p. ex.", r"p\. ?ex\."),
        "that is": Abbreviation("c.-à-d.", r"c\.-à-d\."),
        "before Christ": Abbreviation("av. J.-C.", r"av\. ?J\.-C\."),
        "after Christ": Abbreviation("apr. J.-C.", r"apr?\. ?J\.-C\."),
        "tablespoon": Abbreviation("c. à s.", r"c\. ?à ?s\."),
        "teaspoon": Abbreviation("c. à c.", r"c\. ?à ?c\."),
        "number": Abbreviation("n°", rf"[nN][°º]{NUMBER}"),
        "page": Abbreviation("p.", rf"pp?\.{NUMBER}"),
        "chapter": Abbreviation("chap.", rf"[Cc]hap\.{NUMBER}"),
        "figure": Abbreviation("fig.", rf"[Ff]ig\.{NUMBER}"),
        "volume": Abbreviation("vol.", rf"[Vv]ol\.{NUMBER}"),
    },
    long_forms=LONG_FORMS,
    dates=Dates(
        ("janvier", "février", "mars", "avril", "mai", "juin")
        + ("juillet", "août", "septembre", "octobre", "novembre", "décembre"),
        r"(?<!\w)(?:\d{1,2}|1er) (?:{})(?: \d{4}(?!\w)|(?<=\.)(?=[,;:)]| [a-zß-ÿ(]))",
        "{} {}",
        day=r"(?:1er|\d{1,2})",
        first_day="1er",
        short_days=("lun", "mar", "mer", "jeu", "ven", "sam", "dim"),
        day_dot=".",
        until="à",
        since="de",
        short_months=("janv", "févr", "mars", "avr", "mai", "juin")
        + ("juill?", "août", "sept", "oct", "nov", "déc"),
    ),
    clock_times=ClockTimes(
        ("une heure", *(f"{hour} heures" for hour in HOURS.split())),
        "à ",
        {30: ("", "{} et demie", 0), 15: ("", "{} et quart", 0), 45: ("", "{} moins le quart", 1)}
        | {25: ("", "{} vingt-cinq", 0), 35: ("", "{} moins vingt-cinq", 1)},
        others=(),
        signs=("heure",),
        # a time, not a duration: à 20h30 ou 21h, but not "à 2 h de Paris", "en 24h"
        digits=(
            r"(?:(?P<at>(?<![\w'’])[àÀ] )|(?<=\b[àÀ] )|(?<=[dD]ès )|(?<=[vV]ers )|(?<=vant )|(?<=près )"
            r"|(?<=[eE]ntre )|(?<=partir de )|(?<=\dh et )|(?<=\d h et )|(?<=h\d\d et )"
            r"|(?<![\w.,:/–-])(?<!\b[ld]es )(?<!\ben )(?<!dant )"
            r"(?=(?:1[3-9]|2[0-3])(?:h|[ \u00a0\u202f]h[ \u00a0\u202f][0-5]\d)))"
            r"(?P<hour>[01]?\d|2[0-4])[ \u00a0\u202f]?h"
            r"(?:[ \u00a0\u202f]?(?P<minutes>[0-5]\d)(?!\w)|(?![ \u00a0\u202f]?\d|\w| de | d['’]))"
            rf"(?! (?!{TIME_ZONE})[A-Z]{{2,4}}(?!\w))"
        ),
        in_digits=("{} h", "{} h {}"),
        first=TIME,
        last=TIME,
    ),
    name_particles=words("de du des la le les"),
    ordinals=Ordinals(r"(?<![\w.,/–-])(?:1(?:er|re|ère)|\d{1,3}(?:e|ème))", (("1", "{}er"), (".*", "{}e"))),
    endings=r"ements?|e(?:nt|[rz])|ons|ai[st]|ant|ées?|és?|es?|s|x",
    number_words=NUMBER_WORDS,
    numbered_words=("al", "op", "réf"),
    # elided words are words of their own: l'Algérie; but not the beginning of a name: N'Diaye
    word=rf"(?i:(?!n[’'](?-i:[A-ZÀ-Þ][a-zß-ÿ]))(?:[cdjlmnst]|qu)(?=[’'])|{LETTERS}(?:[-’']{LETTERS})*)",
    # "Docteur" and "Professeur" are ordinary nouns too, "Pr" is ambiguous, and "M" is a title in French only
    title_words=last_words(TITLES.values()) - {"M", "Docteur", "Pr", "Professeur"},
    own_title_words=words("M MM"),
    own_particles=words("de du la le y"),
    country_articles=words("le la les l en du des au aux"),
    before_labels="[Ee]nvoye[zr]|[Rr]éponde[zr]|[Tt]ape[zr]|[Ss]aisisse[zr]|[Ss]aisir|touche|bouton"
    "|(?:[Aa]ppuye[rz]|[Cc]lique[rz]) sur|[Mm]aintene[rz]|[Rr]éponde[rz] [A-Z]{2,9} (?:[\\w ]{1,15} )?ou",
    stressed_words=words(
        "ici jamais juste moi nous pas que rien seulement surtout tous tout toute toutes trop"
    ),
    given_names=words("Alexandre Camille Claire Julie Élise"),
)
