"""Options for reading and writing a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Bilingual = Literal["", "above", "below", "side", "tmx"]


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Options for reading and writing a file.

    attributes: descriptions in attributes of HTML, such as `alt`, are prose too.
    columns: names or numbers of the columns of a table to translate, separated by commas; "": all.
    bilingual: place of the source in the translation: none (""), "above" or "below" each translation, "side"
        by side in a table of HTML, or "tmx", a translation memory.
    """

    attributes: bool = False
    columns: str = ""
    bilingual: Bilingual = ""


USUAL_FILE: Final = FileOptions()
