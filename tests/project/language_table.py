"""The table of languages in docs/languages.md; `python -m tests.project.language_table` writes it again."""

from typing import Final

from engine.text.codes import EQUALS, SHORT
from engine.text.language_names import KNOWN_NAMES, OTHER_NAMES
from server.languages import ALIASES
from tests.project.rooms import ROOT

PAGE: Final = ROOT / "docs" / "languages.md"
HEAD: Final = "| language | code | other codes | names |\n|---|---|---|---|\n"


def table() -> str:
    """Return the table of all languages that have a name: codes and names that find each."""
    rows = []
    for code, (english, *others) in KNOWN_NAMES.items():
        aliases = [ALIASES[code]] if code in ALIASES else []
        aliases += [long for long, short in SHORT.items() if short == code]
        aliases += sorted(
            other for other, meant in EQUALS.items() if meant == code and other not in KNOWN_NAMES
        )
        names = dict.fromkeys([*others, *OTHER_NAMES.get(code, "").split("|")])
        shown = ", ".join(f"`{alias}`" for alias in dict.fromkeys(aliases))
        rows.append(f"| {english} | `{code}` | {shown} | {', '.join(filter(None, names))} |\n")
    return HEAD + "".join(rows)


def page(text: str) -> str:
    """Return the text of the page with the present table."""
    return text[: text.index(HEAD)] + table()


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
