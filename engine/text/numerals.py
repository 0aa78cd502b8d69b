"""Amounts in the form of each language: `1.234,56 €` in German is `€1,234.56` in English.

Only an unambiguous amount of the source language is changed: digits in groups of three, a decimal mark, a
sign, a currency and a per cent sign. Dates, times, versions and telephone numbers stay. The forms
(`engine.text.languages`) come from Unicode's CLDR.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from engine.text.languages import rules_of
from engine.text.languages.rules import NARROW, WIDE, Numerals
from engine.text.placeables.amounts import CODES, CURRENCY, GAP

SPACED_DASH: Final = re.compile(" [–—-] ")
EDGES: Final = re.compile("( [–—-] |^\\(|\\)$)")  # between two amounts, and brackets around one
AMOUNT: Final = (
    rf"(?P<sign>[+−–±≈~<>≤≥-]?+)(?P<code>(?:(?:{CODES}){GAP}?)?)(?:(?P<before>{CURRENCY}){GAP}?)?"
    r"(?P<whole>\d{{1,3}}(?:{group}\d{{3}})++|\d++)(?:{decimal}(?P<part>\d++))?+"
    rf"(?P<after>{GAP}?(?:%|{CURRENCY}))?(?P<unit>{GAP}?(?:‰|°[CFK]?|[^\W\d_][\w²³/]*+))?"
)


def localise(number: str, source: str, target: str) -> str:
    """Write an amount of one language in the form of another.

    number: amount in the source.
    source, target: codes of the two languages.

    Returns the number unchanged if a language has no form, or if the number is no amount.
    """
    if SPACED_DASH.search(number) or number.startswith("("):
        parts = EDGES.split(number)
        return "".join(localise(part, source, target) if part[:1].isalnum() else part for part in parts)
    source_form, target_form = (rules_of(code).numerals for code in (source, target))
    if (
        source_form is None
        or target_form is None
        or (match := _amount_pattern(source_form).fullmatch(number)) is None
    ):
        return number
    whole, part = "".join(filter(str.isdigit, match["whole"])), match["part"]
    # only an amount that has groups of digits in the source gets groups
    if len(whole) < len(match["whole"]) and len(whole) >= target_form.min_grouped_digits:
        whole = target_form.group.join(_groups_of_three(whole))
    amount = whole + (target_form.decimal + part if part else "")
    after = (match["after"] or "").strip()
    if after == "%":
        amount += target_form.percent + "%"
    amount = _with_currency(amount, match["before"] or after.removesuffix("%"), target_form.currency)
    return match["sign"] + match["code"] + amount + (match["unit"] or "")


def _with_currency(amount: str, currency: str, position: str) -> str:
    """Add a currency sign, if any, to an amount: `position` is after, before, or before with space."""
    if not currency:
        return amount
    if position == "after":
        return amount + WIDE + currency
    return currency + (WIDE if position == "before with space" else "") + amount


@cache
def _amount_pattern(source_form: Numerals) -> re.Pattern[str]:
    """Return the pattern of amounts in the form of a language."""
    group = GAP if source_form.group in (NARROW, WIDE) else f"(?:{re.escape(source_form.group)}|{GAP})"
    return re.compile(AMOUNT.format(group=group, decimal=re.escape(source_form.decimal)))


def _groups_of_three(digits: str) -> list[str]:
    """Split digits into groups of three from the right."""
    first = len(digits) % 3 or 3
    return [digits[:first], *(digits[i : i + 3] for i in range(first, len(digits), 3))]
