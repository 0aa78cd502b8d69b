"""Flags of `convoy translate` for documents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.texts import FILES

Bilingual = Annotated[
    str,
    typer.Option(
        "--bilingual",
        metavar="above|below|side|tmx",
        help="Write the source too: above or below each translation, in a table of HTML (side), or in a "
        "translation memory (tmx).",
        rich_help_panel=FILES,
    ),
]
Columns = Annotated[
    str,
    typer.Option(
        help="Names or numbers of the columns of a .csv or .tsv to translate, separated by commas.",
        rich_help_panel=FILES,
    ),
]
Memory = Annotated[
    Path | None,
    typer.Option(
        help="Translation memory (.tmx), whose translations of whole paragraphs, cells or cues are used.",
        rich_help_panel=FILES,
    ),
]
