"""What stays as it is in a translation: addresses, fields of formats, numbers, emoji, marks of lists.

Every pattern takes time linear in the text: no two repetitions beside one another match the same characters,
or they are possessive, or bounded.
"""

from __future__ import annotations

import re
from typing import Final

# a run of digits with the marks in it, and what belongs to it: sign, currency, unit
GAP: Final = "[ \u00a0\u202f]"
CURRENCY: Final = "[$€£¥₹₽₩₺¢₿]"
CODES: Final = "EUR|USD|GBP|CHF|JPY|CNY|PLN|CZK|SEK|NOK|DKK"  # likewise, before or after
# one of letters needs its digits beside it, and is none of prose
UNITS: Final = (
    "km/h|km²|m²|m³|cm²|cm³|km|cm|mm|µm|nm|kg|mg|µg|ml|cl|kWh|MWh|kW|MW|GW|mAh|kHz|MHz|GHz|Hz|kB|KB|MB|GB|TB|"
    "KiB|MiB|GiB|Mbit/s|Gbit/s|" + CODES
)
PLAIN: Final = r"\d++(?:[.,:/x×'’–−-]\d++)*+(?:,[-–—]{1,2}+)?+"  # 1.234,56  12:30  2024-05-12  3–5  1920x1080
THOUSANDS: Final = rf"\d{{1,3}}(?:{GAP}\d{{3}})++(?!\d)(?:[.,]\d++)?+"  # 1 234 567,89
GROUPS: Final = rf"\d++(?:{GAP}\d{{2,}}+){{2,}}+"  # 4111 1111 1111 1111
DIALLED: Final = (
    r"(?:\+\d{1,3}|00\d{1,3})(?:[ /.-]?+(?:\(\d++\)|\d{2,}+)){1,8}+"  # +49 (0)30 1234-567
    r"|0\d++(?:[ /-]\d{2,}+){1,6}+"  # 0800 330 1000
    r"|\(\d{2,5}\)[ -]?+\d{2,}+(?:[ -]\d{2,}+){0,4}+"  # (555) 123-4567
)
UNIT: Final = rf"(?:{GAP}?(?:%|‰|°[CFK]?|{CURRENCY}|(?:{UNITS})(?!\w)))?"
NUMBER: Final = (
    rf"(?<![\w+])(?:{DIALLED})(?!\w)"
    rf"|(?:(?<![\w.,+−–-])[+−–±≈~<>≤≥-]|(?<!\w))(?:(?:{CURRENCY}|{CODES}){GAP}?)?"
    rf"(?:{THOUSANDS}|{GROUPS}|{PLAIN}){UNIT}(?!\w)"
)
IBAN: Final = r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z\d]{4})(?: ?\d{4}){2,6}(?: ?[A-Z\d]{1,4})?(?!\w)"
VERSION: Final = (
    r"(?<!\w)v\d++(?:\.\d++)*+(?:-[a-z]{1,8}+\.?\d*+)?+(?!\w)"
    r"|(?<![\w.])\d++(?:\.\d++)++-(?:alpha|beta|rc|pre|dev)\.?\d*+(?!\w)"  # only these, without a v
)
# names of letters and digits: H2O, A4, MP3, COVID-19, GPT-4; not in a compound such as G7-Staaten
CODE: Final = r"(?<![\w-])[A-Z]++(?:-?\d++[A-Z]*+)++(?![\w-])"
SUFFIXES: Final = (  # of files, by length, as what is looked behind must have one
    "7z|cs|gz|js|md|mo|po|py|rs|sh|so|ts",
    "apk|avi|bat|bmp|bz2|cfg|cpp|css|csv|deb|dll|dmg|doc|eml|exe|gif|htm|ico|img|ini|iso|jar|jpg|log|m4a|mkv|"
    "mov|mp3|mp4|msi|odp|ods|odt|ogg|pdf|php|png|pot|ppt|psd|rar|rpm|rtf|sql|srt|svg|tar|tex|tgz|tif|tsv|"
    "txt|vtt|wav|xls|xml|xsl|xpi|yml|zip|zst",
    "conf|docx|epub|flac|html|java|jpeg|json|mpeg|onnx|opus|orig|pptx|tiff|toml|webm|webp|woff|xlsx|yaml",
)
FILE: Final = r"(?<![\w.-])[\w-]++(?:\.[\w-]++)++(?:" + "|".join(rf"(?<=\.(?:{s}))" for s in SUFFIXES) + ")"
PATH: Final = (
    r"(?<![\w/.~<-])(?:~|\.{1,2})?(?:/(?!-)[\w.+-]*[\w+-])++/?"  # /etc/hosts  ~/.profile  ./run
    r"|(?<!\w)[A-Za-z]:(?:\\[\w.+-]*[\w+-])++\\?"
)
# one picture: with its variant, skin and what is joined to it; a key; a flag
PICTURE: Final = (
    "(?:[\U0001f1e6-\U0001f1ff]{2}|[0-9#*]\ufe0f?\u20e3|"
    "[\u2190-\u21ff\u231a-\u23ff\u2500-\u27bf\u2b00-\u2bff\u3030\u303d\U0001f000-\U0001faff]"
    "[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*+"
    "(?:\u200d[\u2190-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff][\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]*+)*+)"
)
EMOJI: Final = rf"{PICTURE}(?:{GAP}?{PICTURE})*+"
FACES: Final = r"(?<![^\s.!?…])(?:[:;=]['’]?-?[()DPpO|/]|<3)(?!\w)"  # :-)
# what programs and readers need to the letter: addresses, fields of formats, names in networks
PATTERNS: Final = (
    r"(?:https?|ftp)://[^\s<>\"']*[^\s<>\"'.,;:!?)\]}]",
    r"\bwww\.[^\s<>\"']*[^\s<>\"'.,;:!?)\]}]",
    r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++",
    r"\$?\{\{[^{}\n]*\}\}",
    r"[$%#]?\{[^{}\s]*\}",
    r"%\(\w+\)[-+#0]{0,5}\d{0,9}(?:\.\d{1,9})?[a-zA-Z](?!\w)",
    r"(?<![\w%])%(?:\d{1,3}\$)?[-+#0]{0,5}\d{0,9}(?:\.\d{1,9})?(?:hh?|ll?|z)?[sdifuxXeEgGcr@](?!\w)",
    r"(?<![\w&/])#[^\W\d]\w*+",
    r"(?<![\w.@/])@[^\W\d]\w*+(?:[.@-]\w++)*+",
    EMOJI,
    FACES,
    PATH,
    FILE,
    IBAN,
    VERSION,
    NUMBER,
    CODE,
)
EMOJI_STAND_IN: Final = "\u263a"  # stands for pictures where sentences are split

# what a line begins with that is no part of its sentence: marks of lists, headings, quotes, dialogue, song
BULLET: Final = r"[-*+•‣◦▪▫■□▸►●○·−–—>»♪♫#]{1,6}+(?=[ \t\u00a0])|[–—](?=\w)|[•♪♫]"
BOX: Final = r"\[[ xX]?\](?=\s)"
ENUMERATION: Final = r"\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,4})\)(?=\s)"
NUMBERED: Final = re.compile(r"(\d{1,3})\.[ \t\u00a0]+")  # of a list, where it is no ordinal
# languages that write ordinals so: "1. Mai"
ORDINALS: Final = frozenset(
    {"bs", "cs", "da", "de", "et", "eu", "fi", "hr", "hu", "is", "lv", "nb", "nn", "no", "pl", "sk", "sl"}
    | {"sq", "sr", "sv", "tr"}
)
LEADING: Final = re.compile(rf"(?:(?:{BULLET}|{BOX}|{ENUMERATION}|{EMOJI})[ \t\u00a0]*+)++")
EDGE: Final = re.compile(rf"(?:{PICTURE}|[♪♫])(?:[ \t\u00a0]*+(?:{PICTURE}|[♪♫]))*+")  # likewise its ends
COLUMNS: Final = re.compile(r"[ \u00a0]*\t\s*|[ \u00a0]{2,}")
WORDS: Final = 3  # that a cell beside no more than two spaces has at most
