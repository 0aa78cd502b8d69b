"""Entries of glossaries: the forms of a phrase that an entry finds, and the translation of each form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

EXACT: Final = "="  # before a phrase that is found only as it is written
FORM: Final = "|"  # between the forms of a phrase: station|stations


def targets_of(ignore: Sequence[str], glossary: Mapping[str, str]) -> dict[str, str | None]:
    """Return the translation of each phrase to find; None for a phrase that stays unchanged.

    ignore: phrases that stay unchanged.
    glossary: translations by entry. A form in other capitals gives way to a phrase that is written so.
    """
    if not (ignore or glossary):
        return {}
    written, cased = dict[str, str](), dict[str, str]()
    for entry, target in glossary.items():
        for form in _written_forms(entry):
            written[form] = target
            if form is entry or not _is_exact(entry):
                cased[form] = target
    other: dict[str, str | None] = {form.upper(): target.upper() for form, target in reversed(cased.items())}
    other |= {_with_capital(form): _with_capital(target) for form, target in reversed(cased.items())}
    return other | dict.fromkeys(ignore) | written


def forms_of(entry: str) -> Iterator[str]:
    """Yield every form that an entry finds: as it is written, with a capital, and in capitals."""
    for form in _written_forms(entry):
        yield form
        if not _is_exact(entry):
            yield _with_capital(form)
            yield form.upper()


def _written_forms(entry: str) -> list[str]:
    """Return the forms of an entry as they are written."""
    if EXACT not in entry and FORM not in entry:  # nearly always
        return [entry]
    if _is_exact(entry):
        return [entry.removeprefix(EXACT)]
    forms = [form.strip() for form in entry.split(FORM)]
    return forms if len(forms) > 1 and all(forms) else [entry]


def _is_exact(entry: str) -> bool:
    return entry.startswith(EXACT) and bool(entry.removeprefix(EXACT).strip())


def _with_capital(phrase: str) -> str:
    """Return a phrase with a capital at its beginning."""
    return phrase[:1].upper() + phrase[1:]
