"""The table of error codes in docs/api.md; `python -m tests.project.error_table` writes it again."""

import re
from typing import Final

from server.errors import STATUSES
from server.http.openapi import REASONS
from tests.project.rooms import ROOT

PAGE: Final = ROOT / "docs" / "api.md"
HEAD: Final = "| status | codes | reason |\n|---|---|---|\n"


def table() -> str:
    """Return the table of all statuses: the codes of errors with each, and the reason."""
    rows = []
    for status, reason in sorted(REASONS.items()):
        codes = ", ".join(f"`{code}`" for code, other in STATUSES.items() if other == status)
        rows.append(f"| {status} | {codes} | {reason} |\n")
    return HEAD + "".join(rows)


def page(text: str) -> str:
    """Return the text of the page with the present table."""
    return re.sub(re.escape(HEAD) + r"(?:\|.*\n)*", lambda _: table(), text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
