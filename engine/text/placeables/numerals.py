"""Numbers as each language writes them: `1.234,56 €` in German is `€1,234.56` in English.

Only an amount that reads in one way in the source language is changed: digits in groups of three, a decimal
mark, a sign, a currency and a per cent sign. Dates, times, versions and telephone numbers stay. Marks and
places come from Unicode's CLDR.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from engine.text.codes import primary
from engine.text.placeables.amounts import CODES, CURRENCY, GAP

NARROW, WIDE = "\u202f", "\u00a0"  # spaces that break no line
SPACES: Final = GAP
AMOUNT: Final = (
    rf"(?P<sign>[+−–±≈~<>≤≥-]?+)(?P<code>(?:(?:{CODES}){GAP}?)?)(?:(?P<before>{CURRENCY}){GAP}?)?"
    r"(?P<whole>\d{{1,3}}(?:{group}\d{{3}})++|\d++)(?:{decimal}(?P<part>\d++))?+"
    rf"(?P<after>{GAP}?(?:%|{CURRENCY}))?(?P<unit>{GAP}?(?:‰|°[CFK]?|[^\W\d_][\w²³/]*+))?"
)


@dataclass(frozen=True, slots=True)
class Numerals:
    """How a language writes amounts.

    decimal: mark before the fraction.
    group: mark between groups of three digits.
    min_grouped_digits: digits that a whole number must have to be grouped.
    currency: place of the currency sign: "before", "before with space" or "after".
    percent: characters before the per cent sign.
    """

    decimal: str
    group: str
    min_grouped_digits: int = 4
    currency: str = "after"
    percent: str = WIDE


POINT: Final = Numerals(".", ",", currency="before", percent="")
COMMA: Final = Numerals(",", ".")
SPACED: Final = Numerals(",", WIDE)
OF_LANGUAGE: Final[dict[str, Numerals]] = (
    dict.fromkeys(("en", "he", "hi", "ja", "ko", "ms", "th", "zh", "zt"), POINT)
    | dict.fromkeys(("da", "de", "ro"), COMMA)
    | dict.fromkeys(("ca", "el", "hr", "id", "is", "it", "sl", "sr", "vi"), Numerals(",", ".", percent=""))
    | dict.fromkeys(("be", "cs", "fi", "nb", "nn", "no", "ru", "sk", "sv"), SPACED)
    | dict.fromkeys(("bg", "et", "lt", "lv"), Numerals(",", WIDE, 5))
    | {
        "es": Numerals(",", ".", 5),
        "fr": Numerals(",", NARROW, percent=NARROW),
        "hu": Numerals(",", WIDE, 5, percent=""),
        "nl": Numerals(",", ".", currency="before with space", percent=""),
        "pl": Numerals(",", WIDE, 5, percent=""),
        "pt": Numerals(",", ".", percent=""),
        "uk": Numerals(",", WIDE, percent=""),
    }
)


def localise(number: str, source: str, target: str) -> str:
    """Write an amount of one language as another language does.

    number: the amount as it stands in the source.
    source, target: codes of the two languages.

    Returns the number as it is where a language is not known, or the number is no amount.
    """
    there, here = (OF_LANGUAGE.get(primary(code)) for code in (source, target))
    if there is None or here is None or (match := _amount(there).fullmatch(number)) is None:
        return number
    whole, part = "".join(filter(str.isdigit, match["whole"])), match["part"]
    if len(whole) < len(match["whole"]) and len(whole) >= here.min_grouped_digits:
        whole = here.group.join(_threes(whole))
    written = whole + (here.decimal + part if part else "")
    after = (match["after"] or "").strip()
    if after == "%":
        written += here.percent + "%"
    written = _with_currency(written, match["before"] or after.removesuffix("%"), here.currency)
    return match["sign"] + match["code"] + written + (match["unit"] or "")


def _with_currency(written: str, currency: str, place: str) -> str:
    if not currency:
        return written
    if place == "after":
        return written + WIDE + currency
    return currency + (WIDE if place == "before with space" else "") + written


@cache
def _amount(there: Numerals) -> re.Pattern[str]:
    group = SPACES if there.group in (NARROW, WIDE) else f"(?:{re.escape(there.group)}|{SPACES})"
    return re.compile(AMOUNT.format(group=group, decimal=re.escape(there.decimal)))


def _threes(digits: str) -> list[str]:
    """Digits from the right in threes."""
    first = len(digits) % 3
    return [
        part for part in (digits[:first], *(digits[i : i + 3] for i in range(first, len(digits), 3))) if part
    ]
