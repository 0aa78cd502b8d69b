"""Patterns of the grammar: numbers with signs, currencies and units, times, formulas, codes, companies."""

from __future__ import annotations

from typing import Final

from engine.text import given_names
from engine.text.languages import of_all

GAP: Final = "[ \u00a0\u202f]"
# a number is a run of digits with its marks, sign, currency and unit
CURRENCY: Final = "[$€£¥₹₽₩₺¢₿]"
CODES: Final = "EUR|USD|GBP|CHF|JPY|CNY|PLN|CZK|SEK|NOK|DKK"  # currencies, before or after a number
RATES: Final = (  # l/100 km  €/m²
    "(?:l|g|kg|mg|µg|ml|m|km|kWh|t|W|N|MB|GB|kB|kcal|€|EUR|USD)/"
    f"(?:100{GAP}?)?(?:km|m²|m³|m|s²|s|h|min|l|kg|g|t|ml|dl|kWh|GB|MB)"
)
# units of letters, only next to digits; no unit is also an ordinary word
UNITS: Final = (
    f"{RATES}|km/h|[kc]?m²|c?m³|µ[mgAF]|[kM]Wh|[kMG]W|mAh|[kMG]Hz|bar|psi|fl\\.? oz|mA|[mk]V|[kM]?Ω|[np]F"
    f"|dB|[hkM]Pa|kJ|kcal|oz|dpi|mmHg|[kKMGT]B|[KMGT]iB|[MG]bit/s|[kMG]bps|[MGT]o|{CODES}"
    # consonants: km  Hz  lbs
    "|(?!tb?sp|hrs|Std|yrs|wks|mths|pts|Mr|Dr|St|nd|th|rd)"
    "[b-df-hj-np-tv-zB-DF-HJ-NP-TV-Z][b-df-hj-np-tv-z]{1,3}"
)
SHORT_UNITS: Final = "(?:min|mn|[hmglsVW])(?![\\w'’/])"  # with a space: in French l' and m' are words
CLOSE_UNITS: Final = rf"(?:[kKMBa-c]|(?<!0)s)(?!\w)|{GAP}(?:bis|ter)(?=,)"  # $3.5M  5a  45s, but not the 90s
# 5bn  1,2 Mio.  3 Mrd. €  30k€
MAGNITUDE: Final = (
    rf"(?:{GAP}?(?:[bmt]n|(?:Mio|Mrd|Tsd)\b\.?|Mill\.|Mds?|[kKM](?=[€$£]))(?!\w)"
    rf"(?:{GAP}?{CURRENCY}|{GAP}(?:{CODES})(?!\w))?)"
)
ZONE: Final = "(?:UTC|GMT)(?:[+−-]\\d{1,2}(?::\\d{2})?)?|CES?T|MES?Z|[ECMP][SD]T|BST|MSK|JST"
# 9:00 a.m.  12:30 pm; "am" with a space is a German word
DAYTIME: Final = rf"{GAP}?[ap]\.m\.|{GAP}?[AP]M|[ap]m|{GAP}pm|(?<=:\d\d){GAP}am(?=[.,;!?)]|$)|{GAP}(?:{ZONE})"
# 1.234,56  12:30  2024-05-12  3–5  0..255  1920x1080  1.5e-10  10^-6  2½
PLAIN: Final = (
    r"\d++(?:(?:[.,:/x×'’–−-]|\.\.|€(?=\d\d(?!\d)))\d++)*+(?:[eE][+−-]?\d{1,4}(?!\w)|\^[+−-]?\d{1,4}(?!\w)|[½⅓⅔¼¾⅛⅜⅝⅞]|[×·]10[⁻⁺]?[⁰¹²³⁴-⁹]++)?+"
    r"(?:,[-–—]{1,2}+)?+"
)
MEASURE: Final = rf"\d++(?:[.,]\d++)?+(?:{GAP}?(?:mm|cm|m|km|px)(?!\w)|[\"″](?={GAP}?[×x]|[^\w\"]|$))?+"
PRODUCT: Final = rf"{MEASURE}(?:{GAP}[×x]{GAP}{MEASURE})++"  # 3 × 4  210 mm × 297 mm
THOUSANDS: Final = rf"\d{{1,3}}(?:{GAP}\d{{3}})++(?!\d)(?:[.,]\d++)?+"  # 1 234 567,89
MIXED: Final = rf"\d{{1,3}}{GAP}[1-9]/[2-9]\d?(?![\d/])|[½⅓⅔¼¾⅛⅜⅝⅞]"  # 2 1/2  ½
GROUPS: Final = rf"\d++(?:{GAP}\d{{2,}}+){{2,}}+"  # 4111 1111 1111 1111
DIALLED: Final = (
    r"(?:\+\d{1,3}|00\d{1,3})(?: \d(?= \d\d))?+(?:[ /.-]?+(?:\(\d++\)|\d{2,}+)){1,8}+"  # +49 (0)30 1234-567
    r"|0\d++(?:[ /-]\d{2,}+){1,6}+"  # 0800 330 1000
    r"|\(\d{2,5}\)[ -]?+\d{2,}+(?:[ -]\d{2,}+){0,4}+"  # (555) 123-4567
)
DURATION: Final = (  # 1h 30m  14h30  8 h 15
    rf"\d{{1,3}}+{GAP}?h{GAP}?\d{{1,2}}+(?:{GAP}?(?:min|mn|m)(?!\w))?+(?:{GAP}?\d{{1,2}}{GAP}?s)?+"
)
ANGLE: Final = (  # 52°31'12"N  48.2° N  5' 11"
    rf"\d{{1,3}}+(?:[.,]\d++)?+°{GAP}?(?:\d{{1,2}}+(?:[.,]\d++)?+['′’]{GAP}?"
    rf"(?:\d{{1,2}}+(?:[.,]\d++)?+(?:[\"″”]|''){GAP}?)?+[NSEWO]?|[NSEWO])(?!\w)"
    rf"|\d++['′]{GAP}?\d{{1,2}}+(?:[\"″”]|'')"
)
UNIT: Final = (
    rf"(?:{DAYTIME}|{MAGNITUDE}|{CLOSE_UNITS}|x?/[^\W\d_]{{1,4}}\.?(?![\w/])"
    rf"|{GAP}[a-zµ]{{1,4}}/[a-zA-Z²³]{{1,3}}(?:/[a-z]{{1,4}})?(?!\w)"
    rf"|{GAP}?(?:%(?:{GAP}[vV]ol(?:\.(?=\s+\w))?(?!\w))?+|‰|°[CFK]?|{CURRENCY}|{SHORT_UNITS}|(?:{UNITS})(?!\w)))?"
)
NUMBER: Final = (
    rf"(?<![\w+])(?:{DIALLED})(?!\w)|(?<!\w)(?:{ANGLE}|{DURATION}(?!\w))"
    rf"|(?:(?<![\w.,+−–-])[+−–±≈~<>≤≥-]|(?<!\w))(?:(?:(?:US|CA|AU|NZ|HK|C|A|R)?{CURRENCY}|{CODES}){GAP}?)?"
    rf"(?:{PRODUCT}|{MIXED}|{THOUSANDS}|{GROUPS}|{PLAIN}){UNIT}(?!\w)(?:{GAP}(?:{ZONE})(?!\w))?+"
    rf"(?:{GAP}?±{GAP}?\d++(?:[.,]\d++)?+{UNIT}(?!\w))?+"  # 3.3 V ± 5 %
)
RANGE: Final = rf"(?:{NUMBER})(?: [–—-] (?:{NUMBER})){{1,12}}+"  # 8:00 – 18:30
# chords and grades: Am7 – D9 – G
CHORD: Final = r"[A-H][#b♯♭]?(?:m|maj|min|dim|aug|sus|add)?\d{0,2}(?:/[A-H][#b]?)?(?![\w'’])"
CHORDS: Final = rf"(?<![\w-]){CHORD}(?:(?: [–|-] |, (?=\w{{2}})){CHORD}){{1,12}}+"
IBAN: Final = (  # each group after the bank has a digit
    r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z\d]{4})(?: ?(?=[A-Z]{0,3}\d)[A-Z\d]{4}){2,6}"
    r"(?: ?(?=[A-Z]{0,3}\d)[A-Z\d]{1,4})?(?!\w)"
)
# letters with digits: H2O, A4, MP3, COVID-19, GPT-4; not in a compound such as G7-Staaten
CODE: Final = (
    r"(?<![\w-])(?:[A-Z]++(?:-?\d++[A-Z]*+)++|[a-z]{2,6}\d++|[a-z]\d{2,}+|[a-wyz]\d|[A-Za-z]++\d++[A-Za-z][A-Za-z\d]*+"
    r"|\d++(?!er)[A-Za-z]++\d[A-Za-z\d]*+|\d++\.\d++[a-z]{1,3}|(?![1-4]D)\d{1,6}+[A-Z]{1,3})(?![\w-])"
)
# a single letter: size M, plan B; not an initial or a word
LETTER: Final = r"(?<![^\s(])[B-HK-NP-XZx](?!\) [^\W\d_])(?=[\s,;:!?)»”“\"]|\.?(?:$|\n))"
# flight, star or book: LH 1234  HD 209458 b  ISBN 978-3-16
LINE_NUMBER: Final = (
    rf"(?<![\w-])(?<![A-Z] )(?!{CODES})"
    r"(?:[A-Z]{2,3} \d{1,7}+(?: [b-z](?![\w'’]))?|[A-Z]{4,5} \d++(?:-[\dX]++)++)"
    r"(?![\w%€$]|[.,:/–-]\w| ?[%€$]| [A-Z]{2})"
    r"|(?:(?<![^\s(])(?=A \d{1,3} [A-ZÄÖÜ])|(?<=[’'])|(?<=\bdie ))A \d{1,3}(?![\w%]|[.,:/–-]\w)"  # l'A 6
)
# Roman numerals: XIV, II, MCMXC. C, D and M count in four letters or more: short ones are abbreviations
ROMAN: Final = (
    r"(?<![\w.&/-])(?=[IVXL]{2}|[IVXLCDM]{4})M{0,3}(?:C[MD]|D?C{0,3})(?:X[CL]|L?X{0,3})(?:I[XV]|V?I{0,3})"
    r"(?:ᵉ|ème|e)?(?![\w&/-])"
)
STANDARD: Final = (  # DIN EN ISO 9001:2015  RFC 2119
    r"(?<!\w)(?:(?:DIN|EN|ISO|IEC|IEEE|ANSI|ASTM|VDE|NF|BS|RFC|ITU)[ /](?=[A-Z\d])){1,4}"
    r"\d++(?:[-.:]\d++)*+(?!\w)|(?<!\w)DIN A\d(?!\w)"
)
PLATE: Final = r"(?<![\w-])[A-ZÄÖÜ]{1,3}-[A-Z]{1,2}[ -]\d{1,4}[EH]?(?!\w)"  # B-MW 1234
# a move of chess: Nf3  exd5
MOVE: Final = r"(?:O-O(?:-O)?|[KQRBNDTLSCF]?[a-h]?[1-8]?x?[a-h][1-8](?:=[A-Z])?)[+#]?[!?]{0,2}(?![\w-])"
MOVES: Final = rf"(?<!\w)\d{{1,3}}\.(?:\.\.)? ?{MOVE}(?:(?: \d{{1,3}}\.(?:\.\.)?)? ?{MOVE}){{0,99}}+"
# one picture with its variant, skin colour and joined pictures, a flag or a key
PICTURE: Final = (
    "(?:[\U0001f1e6-\U0001f1ff]{2}|[0-9#*]\ufe0f?\u20e3|"
    "[\u2190-\u21ff\u231a-\u23ff\u2500-\u27bf\u2b00-\u2bff\u3030\u303d\U0001f000-\U0001faff]"
    "[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*+"
    "(?:\u200d[\u2190-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff][\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]*+)*+)"
)
EMOJI: Final = rf"{PICTURE}(?:{GAP}?{PICTURE})*+"
FACE: Final = r"(?<![^\s.!?…])(?:[:;=]['’]?-?[()DPpO|/*]|<3|[xX]D|-_-)(?!\w)|¯\\_\(ツ\)_/¯"
POWERS: Final = "[²³¹⁰-₎]"
TERM: Final = (
    rf"(?:\d++(?:[.,]\d++)?+[a-zA-Z]?{POWERS}*+|[a-zA-Z]\([a-zA-Z](?:, ?[a-zA-Z])*\)"
    rf"|[a-zA-Z]{{1,3}}{POWERS}++|[a-zA-Zα-ω])"
)
FORMULA: Final = (
    rf"(?<![\w.,-])(?=[^=≤≥≠≈]{{1,24}}[=≤≥≠≈]|\S{{0,8}}{POWERS})"
    rf"{TERM}(?: ?[=+×·÷±≤≥≠≈*/^−-] ?{TERM})++(?:{GAP}(?:{UNITS})(?!\w))?+(?![\w-])"
    rf"|(?<!\w)[A-Za-z]{{1,3}}(?:{POWERS}++[A-Za-z]{{0,3}})++(?!\w|/\w{{1,3}}{POWERS})"  # CO₂  x²
    r"|(?<![\w,])[A-Z](?:,[A-Z])++-[A-Za-z]\w{2,40}+"  # N,N-dimethylformamide
)
AMOUNT: Final = rf"(?:{CURRENCY}{GAP}?)?\d++(?:[.,]\d++)*+{UNIT}"
# 3 × 19,99 € = 59,97 €
SUM: Final = rf"(?<![\w.,+−–-])(?=[^=\n]{{1,60}}=){AMOUNT}(?: [=×x·*+÷/−–-] {AMOUNT}){{1,8}}+(?!\w)"
CONVERSION: Final = rf"(?<![\w.,+−–-])[−-]?{AMOUNT} \([≈~−-]?{AMOUNT}\)"  # 350°F (175°C)
SUBSTANCE: Final = (  # 2 H₂O
    r"\d{0,2}+ ?(?:[A-Z][a-z]?[₀-₉\d]{0,3}|\([A-Za-z₀-₉\d]{1,12}\)[₀-₉\d]{0,2}){1,8}+"
    r"(?:[⁰-⁻²³]{1,3}+|\((?:s|l|g|aq)\))?"
)
REACTION: Final = (  # CaCO₃ → CaO + CO₂
    rf"(?<!\w){SUBSTANCE}(?: \+ {SUBSTANCE}){{0,5}}+ ?(?:→|⇌|⟶|->)"
    rf" ?{SUBSTANCE}(?: \+ {SUBSTANCE}){{0,5}}+(?!\w)"
)
CODED: Final = r"(?=[A-Z]{0,12}\d)(?=\d{0,12}[A-Z])[A-Z\d]{2,12}+"
SERIES: Final = (  # NW1 6XE  205/55 R16 91V  EDDF 261150Z 24012KT 9999
    rf"(?<![\w/-])(?:[A-Z]{{4}} (?=\d{{3}})|\d{{3}}/\d{{2}} )?+{CODED}(?: {CODED})++(?: \d{{4}})?+(?![\w/-])"
)
PART_NUMBER: Final = (  # A-77812  4711-B/22  ISO-2022-JP
    r"(?<![\w/.-])(?=[A-Z/.-]{0,12}\d)(?=[\d/.-]{0,12}[A-Z])[A-Z\d]{1,12}(?:(?<=\d)[A-Z]?[a-z]{1,3})?"
    r"(?:[-–/.][A-Z\d]{1,12}(?:(?<=\d)[A-Z]?[a-z]{1,3})?){1,6}%?(?![\w/-]|\.\w)"
    r"|(?<![\w/.-])[A-Za-z]{1,6}\d[A-Za-z\d]{1,20}-[A-Za-z]?\d[A-Za-z\d]{0,20}(?![\w/-])"
    r"|(?<![\w/.-])\d{1,4}(?:e|er|th|st|nd|rd|te)/\d{1,6}(?![\w/-])"
)
# the mask of a date or time in a form: MM/DD/YYYY
MASK_PART: Final = "(?:YYYY|YY|MM|DD|TT|JJJJ|JJ|AAAA|AA|HH|hh|mm|SS|ss)"
DATE_MASK: Final = rf"(?<![\w/.:-])(?:{MASK_PART}[./: -]){{1,5}}{MASK_PART}(?!\w)"
# ¹  [1, 2]
FOOTNOTE: Final = r"(?<!\d)[⁰¹²³⁴-⁹]{1,3}+(?!\w)|(?<!\w)\[\d{1,3}(?:(?:, ?|[–-])\d{1,3}){0,9}+\](?!\()"
# company: Müller & Söhne GmbH
FIRM_WORD: Final = r"[^\W\d_a-zà-ÿ][\w'’-]{1,24}+"
LEGAL_FORM: Final = "GmbH|gGmbH|AG|KG|OHG|KGaA|SE|UG|Ltd|LLC|Inc|Corp|PLC|[Pp]lc|LLP|SARL|SAS|SA|BV|NV|SpA|Co"
# articles and possessives at the beginning of a sentence
ARTICLE: Final = rf"(?:{'|'.join(of_all(lambda rules: rules.articles))})\w{{0,2}} "
COMPANY_WORDS: Final = "|".join(of_all(lambda rules: rules.company_words))
# second legal form, and the dot of an abbreviation: Co. KG  & Co. KG
FIRM_END: Final = rf"(?:\.?,? (?:& Co\.? )?(?:{LEGAL_FORM})(?![\w-]))?+(?:\.(?=,| [a-z]))?+"
FIRM: Final = (
    rf"(?<![\w&]){FIRM_WORD} & (?:Co|(?:{FIRM_WORD} ){{1,3}}?(?:{LEGAL_FORM}))(?![\w-]){FIRM_END}"
    rf"|(?<![\w&])(?!{ARTICLE}){FIRM_WORD} (?:{LEGAL_FORM})(?![\w-]){FIRM_END}"  # Siemens AG
    rf"|(?<=\w )(?!{ARTICLE}|(?:{COMPANY_WORDS}) ){FIRM_WORD} "
    rf"(?:{FIRM_WORD} ){{1,3}}?(?:{LEGAL_FORM})(?![\w-]){FIRM_END}"  # Deutsche Bahn AG
)
# a name alone: on a line, in a cell, behind "Name: "; or with initials before a verb
GIVEN_NAMES: Final = "|".join(sorted({*given_names.GIVEN_NAMES, *of_all(lambda rules: rules.given_names)}))
SURNAME: Final = r"(?:(?:von|van|de|der|den|du|le|la|ter|zu) ){0,3}[^\W\d_a-zß-öø-ÿ][\w'’-]{1,30}"
PERSON: Final = (
    rf"(?:(?<![^\n\t])|(?<=: )|(?<=\| )|(?<=^[-*•] ))(?:{GIVEN_NAMES}|[A-ZÄÖÜ]\.)"
    rf"(?:[ -](?:{GIVEN_NAMES}|[A-ZÄÖÜ]\.)){{0,3}} {SURNAME}(?: {SURNAME})?(?=[ ,]?\s*(?:\Z|[\n\t|]))"
    rf"|(?<![^\n])[A-ZÄÖÜ]\.(?: ?[A-ZÄÖÜ]\.){{0,3}} {SURNAME}(?= [a-zß-öø-ÿ])"
    rf"|(?<![^\n])(?:{GIVEN_NAMES.upper()})(?= ?:)"  # a speaker
    # Ndiaye, B.; Lang, C. (2018)
    r"|(?<![\w'’-])[A-ZÄÖÜ][\w'’-]{2,30}, [A-ZÄÖÜ]\.(?:[ -]?[A-ZÄÖÜ]\.){0,2}"
    r"(?=[;:]| & [A-ZÄÖÜ][a-zß-ü]| \(\d{4})"
)
JOURNAL: Final = (  # J. Food Hist. 12(3), 45–67
    r"(?<![\w.-])[A-Z][a-z]{0,9}\.(?: [A-Z][a-z]{0,15}\.?){0,5}(?<=\.) \d{1,4}\(\d{1,4}(?:[–-]\d{1,4})?\)"
    r"(?:[,:] ?\d{1,5}(?:[–-]\d{1,5})?)?(?!\w)"
)
STREET: Final = (  # 221B Baker Street, London NW1 6XE
    r"(?<![\w.,])\d{1,5}[A-Za-z]?(?:[–-]\d{1,5})?,? (?:[NSEW]\.? )?(?:[A-Z][\w'’-]{1,20} ){1,3}"
    r"(?:Street|St|Road|Rd|Avenue|Ave|Lane|Ln|Drive|Boulevard|Blvd|Square|Court|Place|Terrace|Close|Crescent"
    r"|Gardens|Grove|Mews|Row|Way)(?![\w-])(?:\.(?=,))?"
    r"(?:, [A-Z][\w'’-]{1,20}(?: [A-Z][a-z][\w'’-]{1,20}){0,2}+){0,2}+"
    r"(?:(?:,? [A-Z]{2})? \d{5}(?!\w)| [A-Z]{1,2}\d[A-Z\d]? \d[A-Z]{2}(?!\w))?"
    r"|(?<![\w.,])\d{1,4}(?: ?(?:bis|ter|[A-D]))?,? (?:rue|avenue|boulevard|place|impasse|allée|quai|chemin) "
    r"(?:(?:du|des|de(?: la)?) |(?:de l|d)['’])?[^\W\d_a-zß-öø-ÿ][\w'’-]{2,30}"  # 3 bis, rue du Four
    # Mesa, AZ 85201
    r"|(?<![\w-])[A-Z][a-z'’-]{2,20}(?: [A-Z][a-z'’-]{2,20}){0,2}, [A-Z]{2} \d{5}(?:-\d{4})?(?!\w)"
    # Am Alten Markt 12 a, An der Mühle 3: on a line, or with a capital in a sentence
    r"|(?:(?<![^\n\t])|(?<=[a-zß-ü] )|(?<=[:,] ))(?:Am|Im|Zu[mr]|(?:An|Auf|In|Unter|Hinter|Vor) de[mnr])"
    r" (?:[A-ZÄÖÜ][a-zß-ü]{1,20}e[nr] [A-ZÄÖÜ][a-zß-ü]{2,20}|(?=[A-ZÄÖÜ])\w{0,16}(?i:markt|platz|berg|hof"
    r"|bach|see|feld|wald|garten|ring|tor|kirche|hang|rain|park|graben|damm|ufer|mühle|dorf|wall|teich"
    r"|linden|brunnen))"
    r" \d{1,3}(?: ?[a-h])?(?=[.,]?(?:\n|\Z)|, (?:\d{5} |[A-ZÄÖÜ][a-zß-ü-]{2,20}[.,\n]))"
)
# device or system: iPhone 15 Pro  Galaxy S24 Ultra  MacBook Air  Ender-3 V2
MODEL: Final = "(?:Pro(?: Max)?|Plus|Ultra|[Mm]ini|Lite|Slim|Air|SE|Home|Enterprise)"
DEVICE: Final = (
    rf"(?<![\w-])(?!{ARTICLE})(?:[a-z]?[A-Z][a-z]{{1,14}}(?:[A-Z][a-z]{{1,14}})? [A-Z]?\d{{1,4}}[a-z]?"
    rf"|(?:[a-z]|[A-Z][a-z]{{1,14}})[A-Z][a-z]{{1,14}}) {MODEL}(?![\w-])"
    r"|(?<![\w-])[A-Z][a-z]{2,14}-\d{1,7}(?: [A-Z]\d{1,2})?(?![\w-])"
)
PARAGRAPH: Final = (  # § 4.2  § 433 Abs. 2 BGB
    rf"(?:§§?|(?<!\w)(?:[nN][°º]|[nN]o\.|Art\.)|(?<=[aA]rt\. )[A-Z]\.)"
    rf"{GAP}?\d++(?:-\d++)?(?:\.\d++)*+[a-z]?+(?!\w)"
    rf"(?:{GAP}(?:(?:Abs|Satz|Nr|S)\.?{GAP}\d{{1,3}}+|lit\.{GAP}[a-z])(?!\w)){{0,4}}+(?:\((?:\d{{1,3}}|[a-z])\)){{0,4}}+(?:{GAP}[A-Z][A-Za-z]{{0,5}}[A-Z](?![\w-]))?+"
)
