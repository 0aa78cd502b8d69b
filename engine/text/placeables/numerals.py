"""Numbers as each language writes them: `1.234,56 €` in German is `€1,234.56` in English.

Only an amount that reads in one way in the source language is changed: digits in groups of three, a decimal
mark, a sign, a currency and a per cent sign. Dates, times, versions and telephone numbers stay. Marks and
places come from Unicode's CLDR.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from engine.text.languages import rules_of
from engine.text.languages.rules import NARROW, WIDE, Numerals
from engine.text.placeables.amounts import CODES, CURRENCY, GAP

SPACES: Final = GAP
AMOUNT: Final = (
    rf"(?P<sign>[+−–±≈~<>≤≥-]?+)(?P<code>(?:(?:{CODES}){GAP}?)?)(?:(?P<before>{CURRENCY}){GAP}?)?"
    r"(?P<whole>\d{{1,3}}(?:{group}\d{{3}})++|\d++)(?:{decimal}(?P<part>\d++))?+"
    rf"(?P<after>{GAP}?(?:%|{CURRENCY}))?(?P<unit>{GAP}?(?:‰|°[CFK]?|[^\W\d_][\w²³/]*+))?"
)


def localise(number: str, source: str, target: str) -> str:
    """Write an amount of one language as another language does.

    number: the amount as it stands in the source.
    source, target: codes of the two languages.

    Returns the number as it is where a language is not known, or the number is no amount.
    """
    there, here = (rules_of(code).numerals for code in (source, target))
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
