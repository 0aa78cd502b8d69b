"""The grammar of what is not a word: a table of kinds that stay as they are, with pattern and example.

Every pattern takes time linear in the text: no two repetitions beside one another match the same characters,
or they are possessive, or bounded (`tests/project/test_linear.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final, Literal, NamedTuple

GAP: Final = "[ \u00a0\u202f]"
# numbers: a run of digits with the marks in it, and what belongs to it: sign, currency, unit
CURRENCY: Final = "[$€£¥₹₽₩₺¢₿]"
CODES: Final = "EUR|USD|GBP|CHF|JPY|CNY|PLN|CZK|SEK|NOK|DKK"  # of currencies, before or after
RATES: Final = (  # l/100 km  €/m²
    "(?:l|g|kg|mg|µg|ml|m|km|kWh|t|W|N|MB|GB|kB|kcal|€|EUR|USD)/"
    f"(?:100{GAP}?)?(?:km|m²|m³|m|s²|s|h|min|l|kg|g|t|ml|dl|kWh|GB|MB)"
)
# a unit of letters needs its digits beside it, and is no word of prose
UNITS: Final = (
    f"{RATES}|km/h|km²|m²|m³|cm²|cm³|km|cm|mm|µm|nm|kg|mg|µg|ml|cl|kWh|MWh|kW|MW|GW|mAh|kHz|MHz|GHz|Hz|"
    f"kB|KB|MB|GB|TB|KiB|MiB|GiB|Mbit/s|Gbit/s|{CODES}"
)
DAYTIME: Final = rf"{GAP}?[ap]\.m\.|{GAP}?[AP]M|[ap]m"  # 9:00 a.m.
PLAIN: Final = r"\d++(?:[.,:/x×'’–−-]\d++)*+(?:,[-–—]{1,2}+)?+"  # 1.234,56  12:30  2024-05-12  3–5  1920x1080
PRODUCT: Final = rf"\d++(?:[.,]\d++)?+(?:{GAP}[×x]{GAP}\d++(?:[.,]\d++)?+)++"  # 3 × 4
THOUSANDS: Final = rf"\d{{1,3}}(?:{GAP}\d{{3}})++(?!\d)(?:[.,]\d++)?+"  # 1 234 567,89
GROUPS: Final = rf"\d++(?:{GAP}\d{{2,}}+){{2,}}+"  # 4111 1111 1111 1111
DIALLED: Final = (
    r"(?:\+\d{1,3}|00\d{1,3})(?:[ /.-]?+(?:\(\d++\)|\d{2,}+)){1,8}+"  # +49 (0)30 1234-567
    r"|0\d++(?:[ /-]\d{2,}+){1,6}+"  # 0800 330 1000
    r"|\(\d{2,5}\)[ -]?+\d{2,}+(?:[ -]\d{2,}+){0,4}+"  # (555) 123-4567
)
UNIT: Final = rf"(?:{DAYTIME}|{GAP}?(?:%|‰|°[CFK]?|{CURRENCY}|(?:{UNITS})(?!\w)))?"
NUMBER: Final = (
    rf"(?<![\w+])(?:{DIALLED})(?!\w)"
    rf"|(?:(?<![\w.,+−–-])[+−–±≈~<>≤≥-]|(?<!\w))(?:(?:{CURRENCY}|{CODES}){GAP}?)?"
    rf"(?:{PRODUCT}|{THOUSANDS}|{GROUPS}|{PLAIN}){UNIT}(?!\w)"
)
# names of letters and digits: H2O, A4, MP3, COVID-19, GPT-4; not in a compound such as G7-Staaten
CODE: Final = r"(?<![\w-])[A-Z]++(?:-?\d++[A-Z]*+)++(?![\w-])"
INSTANT: Final = (
    r"(?<!\w)\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?(?!\w)"
)
IBAN: Final = r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z\d]{4})(?: ?\d{4}){2,6}(?: ?[A-Z\d]{1,4})?(?!\w)"
SUFFIX: Final = r"(?:-[0-9A-Za-z]++(?:\.[0-9A-Za-z]++)*+)?+(?:\+[0-9A-Za-z]++(?:\.[0-9A-Za-z]++)*+)?+"
VERSION: Final = (
    rf"(?<!\w)v\d++(?:\.\d++)*+{SUFFIX}(?!\w)"
    r"|(?<![\w.])\d++(?:\.\d++)++-(?:alpha|beta|rc|pre|dev)\.?\d*+(?:\+[0-9A-Za-z.]*[0-9A-Za-z])?+(?!\w)"
)
FILE_SUFFIXES: Final = (  # by length, as a look behind must have one
    "7z|cs|gz|js|md|mo|po|py|rs|sh|so|ts",
    "apk|avi|bat|bmp|bz2|cfg|cpp|css|csv|deb|dll|dmg|doc|eml|exe|gif|htm|ico|img|ini|iso|jar|jpg|log|m4a|mkv|"
    "mov|mp3|mp4|msi|odp|ods|odt|ogg|pdf|php|png|pot|ppt|psd|rar|rpm|rtf|sql|srt|svg|tar|tex|tgz|tif|tsv|"
    "txt|vtt|wav|xls|xml|xsl|xpi|yml|zip|zst",
    "conf|docx|epub|flac|html|java|jpeg|json|mpeg|onnx|opus|orig|pptx|tiff|toml|webm|webp|woff|xlsx|yaml",
)
FILE: Final = (
    r"(?<![\w.-])[\w-]++(?:\.[\w-]++)++(?:" + "|".join(rf"(?<=\.(?:{s}))" for s in FILE_SUFFIXES) + ")"
)
PATH: Final = (
    r"(?<![\w/.~<-])(?:~|\.{1,2})?(?:/(?!-)[\w.+-]*[\w+-])++/?"  # /etc/hosts  ~/.profile  ./run
    r"|(?<!\w)(?:[A-Za-z]:(?=\\)|\\(?=\\\w))(?:\\[\w.+-]++(?: [\w.+-]++){0,4}+(?=\\))*+"  # C:\My Files\x.txt
    r"(?:\\[\w.+-]*[\w+-])?\\?+"
)
DOMAIN: Final = (
    r"(?<![\w@.-])(?:[A-Za-z0-9-]++\.)++(?:com|org|net|edu|gov|info|io|app|dev|eu|de|at|ch|fr|uk|us|it|es|nl|pl)"
    r"(?![\w-])(?:/[^\s<>\"']*[^\s<>\"'.,;:!?)\]}])?"
)
# one picture: with its variant, skin and what is joined to it; a key; a flag
PICTURE: Final = (
    "(?:[\U0001f1e6-\U0001f1ff]{2}|[0-9#*]\ufe0f?\u20e3|"
    "[\u2190-\u21ff\u231a-\u23ff\u2500-\u27bf\u2b00-\u2bff\u3030\u303d\U0001f000-\U0001faff]"
    "[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*+"
    "(?:\u200d[\u2190-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff][\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]*+)*+)"
)
EMOJI: Final = rf"{PICTURE}(?:{GAP}?{PICTURE})*+"
# variables and functions: user_id  camelCase  GitHub  main()  com.example.app
IDENTIFIER: Final = (
    r"(?<![\w$])[^\W_]++(?:_++[^\W_]++)++(?:\(\))?+(?!\w)"
    r"|(?<!\w)[a-z]++(?:[A-Z][a-z\d]*+)++(?:\(\))?+(?!\w)"
    r"|(?<!\w)[A-Z][a-z]++(?!Innen\b|In\b)(?:[A-Z][a-z\d]++)++(?!\w)"
    r"|(?<![\w.])[A-Za-z]\w*+(?:\.[A-Za-z]\w*+)*+\(\)"
    r"|(?<![\w.@-])[a-z]{2,}+\d*+(?:\.[a-z]{2,}+\d*+){2,}+(?![\w-])"
)
MODIFIER: Final = "Strg|Ctrl|Control|Alt|AltGr|Shift|Umschalt|Maj|Cmd|Command|Win|Meta|Fn|Super|Option|[⌘⌥⇧⌃]"
KEYS: Final = (
    rf"(?<!\w)(?:{MODIFIER})(?: ?\+ ?(?:{MODIFIER})){{0,3}}+ ?\+ ?(?:F\d{{1,2}}|[A-Z][a-z]{{2,8}}|\w)(?!\w)"
)
# a company: Müller & Söhne GmbH
FIRM_WORD: Final = r"[^\W\d_a-zà-ÿ][\w'’-]{1,24}+"
LEGAL_FORM: Final = "GmbH|gGmbH|AG|KG|OHG|KGaA|SE|UG|Ltd|LLC|Inc|Corp|PLC|SARL|SAS|SA|BV|NV|SpA|Co"
FIRM: Final = (
    rf"(?<![\w&]){FIRM_WORD} & (?:{FIRM_WORD} ){{1,3}}?(?:{LEGAL_FORM})(?!\w)"
    rf"(?:\.?,? (?:& Co\.? )?(?:{LEGAL_FORM})(?!\w))?"
)
POWERS: Final = "[²³¹⁰-₎]"
TERM: Final = rf"(?:\d++(?:[.,]\d++)?+[a-zA-Z]?{POWERS}*+|[a-zA-Z]{POWERS}*+)"
FORMULA: Final = (
    rf"(?<![\w.,-])(?=[^=]{{1,24}}=|\S{{0,8}}{POWERS}){TERM}(?: ?[=+×·÷±≤≥≠≈*/^−-] ?{TERM})++(?![\w-])"
    rf"|(?<!\w)[A-Za-z]{{1,3}}(?:{POWERS}++[A-Za-z]{{0,3}})++(?!\w)"  # CO₂  x²
)

Treatment = Literal["keep", "read"]


class Placeable(NamedTuple):
    """A kind of placeable.

    treatment: "keep": the model gets a placeholder. "read": the model reads it as it is at first, since it
        translates around it better so; the answer is checked, and asked for again with a placeholder.
    """

    name: str
    pattern: str
    example: str
    treatment: Treatment = "keep"


# of two kinds that begin at the same place the first one counts
KINDS: Final = (
    Placeable(
        "code block",
        r"(?m:^[ \t]{0,3}```[^`\n]*+\n(?:(?![ \t]{0,3}```)[^\n]*+\n)*+[ \t]{0,3}```[ \t]*+$)",
        "```\nx = 1\n```",
    ),
    Placeable("code", r"(?<!`)(?:`[^`\n]++`|``(?!`)[^\n]{1,200}?``)(?!`)", "`git push`"),
    Placeable("address", r"(?:https?|ftp)://[^\s<>\"']*[^\s<>\"'.,;:!?)\]}]", "https://example.org/a?b=1"),
    Placeable("address", r"\bwww\.[^\s<>\"']*[^\s<>\"'.,;:!?)\]}]", "www.example.org"),
    Placeable("mail", r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++", "anna@example.org"),
    Placeable("domain", DOMAIN, "example.org/forum"),
    Placeable(
        "message",
        r"\{\s?\w++,\s?(?:plural|select|selectordinal|number|date|time)\b[^{}]*+"
        r"(?:\{[^{}]*+(?:\{[^{}]*+\}[^{}]*+)*+\}[^{}]*+)*+\}",
        "{count, plural, one {# file} other {# files}}",
    ),
    Placeable("field", r"\$?\{\{[^{}\n]*\}\}", "{{ name }}"),
    Placeable("field", r"[$%#]?\{[^{}\s]*\}", "{name}"),
    Placeable("field", r"%\(\w+\)[-+#0]{0,5}\d{0,9}(?:\.\d{1,9})?[a-zA-Z](?!\w)", "%(count)d"),
    Placeable(
        "field",
        r"(?<![\w%])%(?:\d{1,3}\$)?[-+#0]{0,5}\d{0,9}(?:\.\d{1,9})?(?:hh?|ll?|z)?[sdifuxXeEgGcr@](?!\w)",
        "%1$s",
    ),
    Placeable("field", r"\$t\([^()\s]*\)", "$t(key)"),
    Placeable("field", r"(?<![\w$])\$[A-Za-z_]\w*+", "$HOME"),
    Placeable("field", r"(?<![\w%])%[A-Z][A-Z_]*+%", "%APPDATA%"),
    Placeable("field", r"(?<![^\s(\"'„“/])[:][a-z_]\w*+(?::|(?![\w:]))", ":user"),
    Placeable("mask", r"\[X\d{1,6}X\]|⟦[^⟦⟧\s]{1,16}⟧|@@\w{1,32}+@@", "[X8X]"),
    Placeable(
        "prompt", r"[\[(][A-Za-z](?:/[A-Za-z]){1,3}[\])]|[\[(](?:yes|ja|oui)/(?:no|nein|non)[\])]", "[Y/n]"
    ),
    Placeable("entity", r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});", "&nbsp;"),
    Placeable("escape", r"\\(?:[nrt](?![a-z])|u[0-9a-fA-F]{4}|[\"'])", r"\n"),
    Placeable("colour", r"(?<![\w&/])#(?:[0-9a-fA-F]{6}|[0-9a-fA-F]{8})(?!\w)", "#1a2b3c"),
    Placeable("hashtag", r"(?<![\w&/])#[^\W\d]\w*+", "#Berlin"),
    Placeable("number sign", r"(?<![\w&/])#\d++(?!\w)", "#10482"),
    Placeable("mention", r"(?<![\w.@/])@[^\W\d]\w*+(?:[.@-]\w++)*+", "@anna"),
    Placeable("emoji", EMOJI, "😀"),
    Placeable("face", r"(?<![^\s.!?…])(?:[:;=]['’]?-?[()DPpO|/]|<3)(?!\w)", ":-)"),
    Placeable("path", PATH, r"C:\Users\Max\My Files\letter.docx"),
    Placeable("file", FILE, "letter.docx"),
    Placeable(
        "uuid",
        r"(?<!\w)[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?!\w)",
        "1b4e28ba-2fa1-11d2-883f-0016d3cca427",
    ),
    Placeable("hexadecimal", r"(?<!\w)0x[0-9a-fA-F]++(?!\w)", "0x1F"),
    Placeable("instant", INSTANT, "2024-05-12T08:30:00Z"),
    Placeable("iban", IBAN, "DE02 1203 0000 0000 2020 51"),
    Placeable("version", VERSION, "v10.2.3-beta+build.5"),
    Placeable(
        "option",
        r"(?<![\w-])--[A-Za-z][\w-]*+(?:=[^\s,;]*[^\s.,;:!?)\"'“])?|(?<!\S)-[A-Za-z](?![\w-])",
        "--force",
    ),
    Placeable("keys", KEYS, "Ctrl+C"),
    Placeable("identifier", IDENTIFIER, "user_id"),
    Placeable("company", FIRM, "Müller & Söhne GmbH"),
    Placeable("formula", FORMULA, "a² + b² = c²"),
    Placeable("paragraph", rf"§§?{GAP}?\d++[a-z]?+(?!\w)", "§ 5"),
    Placeable("symbol", "[©®™℠¶†‡№§]", "©"),
    Placeable("number", NUMBER, "1.234,56 €", "read"),
    Placeable("code", CODE, "H2O", "read"),
)
# every placeable has one of these: a text without them, as most prose, needs no further look
# the sign itself is looked for first, and then what is beside it: that takes a third of the time
SIGNS: Final = re.compile(
    r"[^\w\s.,!?'’\"„“”–—-]|[\d_²³¹\u2070-\u209c]|[A-Z](?<=[a-z].)|\.(?<=\w\.)(?=\w)|-(?<!\S-)(?=\w)|-(?=-\w)"
)
EMOJI_STAND_IN: Final = "\u263a"  # stands for pictures where sentences are split

# what a line begins with that is no part of its sentence: marks of lists, headings, quotes, dialogue, song
BULLET: Final = r"[-*+•‣◦▪▫■□▸►●○·−–—>»♪♫#|]{1,6}+(?=[ \t\u00a0])|[–—](?=\w)|[•♪♫]"
BOX: Final = r"\[[ xX]?\](?=\s)"
ENUMERATION: Final = r"\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,4})\)(?=\s)"
NUMBERED: Final = re.compile(r"(\d{1,3})\.[ \t\u00a0]+")  # of a list, where it is no ordinal
# languages that write ordinals so: "1. Mai"
ORDINALS: Final = frozenset(
    {"bs", "cs", "da", "de", "et", "eu", "fi", "hr", "hu", "is", "lv", "nb", "nn", "no", "pl", "sk", "sl"}
    | {"sq", "sr", "sv", "tr"}
)
LEADING: Final = re.compile(rf"(?:(?:{BULLET}|{BOX}|{ENUMERATION}|{EMOJI})[ \t\u00a0]*+)++")
# what a sentence may have at its ends, and is no part of it
EDGE: Final = re.compile(rf"(?:{PICTURE}|[♪♫|])(?:[ \t\u00a0]*+(?:{PICTURE}|[♪♫|]))*+")
COLUMNS: Final = re.compile(r"[ \u00a0]*\t\s*|[ \u00a0]{2,}")
TABLE_ROW: Final = re.compile(r"\s*\|[^|\n]*+\|")  # the beginning of a row of a Markdown table
CELL_BORDER: Final = re.compile(r"\|[ \u00a0]*")
WINDOW_CHARACTERS: Final = 1_024  # that are searched at once, and looked at beyond
LONG_CHARACTERS: Final = 8_192  # that are looked at beyond a window for the end of what may be long
LONG_KINDS: Final = frozenset({"code block", "code", "message"})  # that end with a mark of their own
MAX_COLUMN_WORDS: Final = 3  # of a cell beside no more than two spaces


@cache
def placeables() -> re.Pattern[str]:
    """Compile the patterns of all kinds as one; the name of a group is `k` with the number of its kind."""
    return re.compile("|".join(f"(?P<k{i}>{kind.pattern})" for i, kind in enumerate(KINDS)))


@cache
def long_placeables() -> re.Pattern[str]:
    """Compile the patterns of the kinds that may be longer than a window."""
    return re.compile("|".join(kind.pattern for kind in KINDS if kind.name in LONG_KINDS))


def matches(pattern: re.Pattern[str], long: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Find matches as `finditer` does, in windows: between two searches other threads have their turns.

    pattern: matches at least one character; where a match needs its end, at most `WINDOW_CHARACTERS`.
    long: those of its alternatives that need their ends, and may have `LONG_CHARACTERS`.
    text: any text.
    """
    position = 0
    for window in range(WINDOW_CHARACTERS, len(text) + WINDOW_CHARACTERS, WINDOW_CHARACTERS):
        whole = window + WINDOW_CHARACTERS >= len(text)  # is searched to its end
        later = None if whole or position >= window else long.search(text, position, window + LONG_CHARACTERS)
        while position < window:
            if later and later.start() < position:
                later = long.search(text, position, window + LONG_CHARACTERS)
            match = pattern.search(text, position, window + WINDOW_CHARACTERS)
            if later and (not match or later.start() < match.start()):
                match = later
            if match and match.start() < window < match.end():  # it may go on beyond
                match = pattern.match(text, match.start())
            if not match or match.start() >= window:
                break
            yield match
            position = match.end()
        position = max(position, window)


def kind_of(match: re.Match[str]) -> Placeable:
    """Return the kind of a match of `placeables`."""
    assert match.lastgroup
    return KINDS[int(match.lastgroup[1:])]
