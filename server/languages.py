"""Codes and names of languages, like LibreTranslate's."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from engine.api import short

# LibreTranslate answers with these aliases of its codes, and accepts both in requests
ALIASES: Final = {"zh": "zh-Hans", "zt": "zh-Hant", "pb": "pt-BR"}
REGION: Final = re.compile(r"[a-z]{2}|\d{3}")
# regional codes of languages that have a code of their own
REGIONS: Final = {"zh-tw": "zt", "zh-hk": "zt", "zh-mo": "zt", "pt-br": "pb"}
SHORT: Final = {alias.casefold(): code for code, alias in ALIASES.items()}
LANGUAGE_NAMES: Final = {
    "af": "Afrikaans",
    "am": "Amharic",
    "ar": "Arabic",
    "as": "Assamese",
    "az": "Azerbaijani",
    "be": "Belarusian",
    "bg": "Bulgarian",
    "bn": "Bengali",
    "br": "Breton",
    "bs": "Bosnian",
    "ca": "Catalan",
    "cs": "Czech",
    "cy": "Welsh",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "eo": "Esperanto",
    "es": "Spanish",
    "et": "Estonian",
    "eu": "Basque",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "fy": "West Frisian",
    "ga": "Irish",
    "gd": "Scottish Gaelic",
    "gl": "Galician",
    "gu": "Gujarati",
    "ha": "Hausa",
    "he": "Hebrew",
    "hi": "Hindi",
    "hr": "Croatian",
    "hu": "Hungarian",
    "hy": "Armenian",
    "id": "Indonesian",
    "ig": "Igbo",
    "is": "Icelandic",
    "it": "Italian",
    "ja": "Japanese",
    "jv": "Javanese",
    "ka": "Georgian",
    "kk": "Kazakh",
    "km": "Khmer",
    "kn": "Kannada",
    "ko": "Korean",
    "ku": "Kurdish",
    "ky": "Kyrgyz",
    "la": "Latin",
    "lb": "Luxembourgish",
    "lo": "Lao",
    "lt": "Lithuanian",
    "lv": "Latvian",
    "mg": "Malagasy",
    "mk": "Macedonian",
    "ml": "Malayalam",
    "mn": "Mongolian",
    "mr": "Marathi",
    "ms": "Malay",
    "mt": "Maltese",
    "my": "Burmese",
    "nb": "Norwegian",
    "ne": "Nepali",
    "nl": "Dutch",
    "nn": "Norwegian Nynorsk",
    "no": "Norwegian",
    "oc": "Occitan",
    "or": "Odia",
    "pa": "Punjabi",
    "pb": "Portuguese (Brazil)",
    "pl": "Polish",
    "ps": "Pashto",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "rw": "Kinyarwanda",
    "sa": "Sanskrit",
    "si": "Sinhala",
    "sk": "Slovak",
    "sl": "Slovenian",
    "so": "Somali",
    "sq": "Albanian",
    "sr": "Serbian",
    "sv": "Swedish",
    "sw": "Swahili",
    "ta": "Tamil",
    "te": "Telugu",
    "tg": "Tajik",
    "th": "Thai",
    "tk": "Turkmen",
    "tl": "Tagalog",
    "tr": "Turkish",
    "tt": "Tatar",
    "ug": "Uyghur",
    "uk": "Ukrainian",
    "ur": "Urdu",
    "uz": "Uzbek",
    "vi": "Vietnamese",
    "xh": "Xhosa",
    "yo": "Yoruba",
    "zh": "Chinese",
    "zt": "Chinese (traditional)",
    "zu": "Zulu",
}


def inward(code: str) -> str:
    """Return our code for a client's code: lower case, without aliases, of two letters if possible.

    For example "deu" is "de".
    """
    plain = code.strip().casefold()
    return SHORT.get(plain, short(plain))


def resolve_code(code: str, codes: Collection[str]) -> str:
    """Return the known code for a client's code, with or without its region; or the result of `inward`.

    code: code of a client. "en-US" and "en_GB" are "en", "zh-TW" is "zt".
    codes: known codes.
    """
    plain = inward(code)
    if plain in codes:
        return plain
    language, _, region = code.strip().casefold().replace("_", "-").partition("-")
    regional = REGIONS.get(f"{language}-{region}", short(language))
    return regional if REGION.fullmatch(region) and regional in codes else plain


def outward(code: str) -> str:
    """Return LibreTranslate's code for ours: zh-Hans for zh."""
    return ALIASES.get(code, code)


def name_of(code: str) -> str:
    """Return the English name of a language, or the code itself."""
    return LANGUAGE_NAMES.get(code, code)
