"""Files as segments of prose in an unchanged structure: one module of `formats/` for each kind of file.

This package uses no models or servers: `read_document` returns segments, the caller has them translated and
moves formats to the translations by `projection.project`, and `Document.write` returns the new file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from types import MappingProxyType, ModuleType
from typing import Any, Final

from documents.document import Document, check_sizes
from documents.errors import OversizedDocument, Unreadable
from documents.menus import divide
from documents.options import USUAL_FILE, FileOptions

__all__ = [
    "FORMATS",
    "Document",
    "FileOptions",
    "OversizedDocument",
    "Unreadable",
    "format_of",
    "read_document",
    "written_ending",
]


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A kind of file.

    module: module of `formats/` that reads it; imported, with its libraries, when it is needed.
    media: media type.
    reader: function of the module.
    written: ending of the translated file, if it has another format.
    """

    module: str
    media: str
    reader: str
    written: str = ""

    def load(self) -> ModuleType:
        """Return the module, imported with its libraries."""
        return import_module(f"documents.formats.{self.module}")

    def read(self, data: bytes, **options: Any) -> Document:
        document = getattr(self.load(), self.reader)(data, **options)
        assert isinstance(document, Document)
        return document


OFFICE: Final = "application/vnd.openxmlformats-officedocument"
PAGE: Final = FileFormat("plain", "text/html", "read_page")
TABLES: Final = "strings.tables"
SUBSTATION: Final = FileFormat("subtitles", "text/x-ssa", "read_substation")
YAML: Final = FileFormat("strings.yaml", "application/yaml", "read_yaml")
XLIFF: Final = FileFormat("strings.xliff", "application/xliff+xml", "read_xliff")
FORMATS: Final[Mapping[str, FileFormat]] = MappingProxyType(
    {
        ".txt": FileFormat("plain", "text/plain", "read_text"),
        ".md": FileFormat("markdown", "text/markdown", "read_markdown"),
        ".html": PAGE,
        ".htm": PAGE,
        ".ipynb": FileFormat("notebooks", "application/x-ipynb+json", "read_ipynb"),
        ".srt": FileFormat("subtitles", "application/x-subrip", "read_subrip"),
        ".sbv": FileFormat("subtitles", "text/plain", "read_subviewer"),
        ".ass": SUBSTATION,
        ".ssa": SUBSTATION,
        ".vtt": FileFormat("subtitles", "text/vtt", "read_webvtt"),
        ".docx": FileFormat("office.docx", f"{OFFICE}.wordprocessingml.document", "read_docx"),
        ".pptx": FileFormat("office.pptx", f"{OFFICE}.presentationml.presentation", "read_pptx"),
        ".xlsx": FileFormat("office.xlsx", f"{OFFICE}.spreadsheetml.sheet", "read_xlsx"),
        ".odt": FileFormat("office.odt", "application/vnd.oasis.opendocument.text", "read_odt"),
        ".odp": FileFormat("office.odt", "application/vnd.oasis.opendocument.presentation", "read_odt"),
        ".ods": FileFormat("office.odt", "application/vnd.oasis.opendocument.spreadsheet", "read_odt"),
        ".epub": FileFormat("epub", "application/epub+zip", "read_epub"),
        ".pdf": FileFormat("pdf", "application/pdf", "read_pdf", written=".txt"),
        ".po": FileFormat("strings.po", "text/x-gettext-translation", "read_po"),
        ".xliff": XLIFF,
        ".xlf": XLIFF,
        ".sdlxliff": XLIFF,
        ".mqxliff": XLIFF,
        ".tmx": FileFormat("strings.memories", "application/x-tmx+xml", "read_tmx"),
        ".json": FileFormat("strings.messages", "application/json", "read_json"),
        ".arb": FileFormat("strings.messages", "application/json", "read_arb"),
        ".xml": FileFormat("strings.resources", "application/xml", "read_android"),
        ".resx": FileFormat("strings.resources", "application/xml", "read_resx"),
        ".ts": FileFormat("strings.resources", "application/xml", "read_qt"),
        ".ftl": FileFormat("strings.fluent", "text/plain", "read_fluent"),
        ".csv": FileFormat(TABLES, "text/csv", "read_csv"),
        ".tsv": FileFormat(TABLES, "text/tab-separated-values", "read_tsv"),
        ".properties": FileFormat("strings.pairs", "text/x-java-properties", "read_properties"),
        ".stringsdict": FileFormat("strings.resources", "application/xml", "read_stringsdict"),
        ".strings": FileFormat("strings.pairs", "text/plain", "read_strings"),
        ".yaml": YAML,
        ".yml": YAML,
    }
)


UNKNOWN_FORMAT: Final = f"file format not supported; there are {', '.join(FORMATS)}"


def read_document(name: str, data: bytes, options: FileOptions = USUAL_FILE) -> Document:
    """Return the document of a file. This may take long: call it in a thread.

    name: name of the file, with the ending of its format.
    data: bytes of the file.
    options: options of the format; the place of the source is for `write_bilingual`.

    Raises OversizedDocument, and Unreadable also on an unknown ending and on columns of a file without.
    """
    kind = format_of(name)
    if kind is None:
        raise Unreadable(UNKNOWN_FORMAT)
    columns = [column.strip() for column in options.columns.split(",") if column.strip()]
    if columns and kind.module != TABLES:
        raise Unreadable("only .csv and .tsv have columns to choose")
    document = kind.read(
        data,
        **({"attributes": options.attributes} if kind is PAGE else {}),
        **({"columns": columns} if kind.module == TABLES else {}),
    )
    parts, unite = divide(document.segments)
    check_sizes(parts)
    write_in = document.write_in
    return Document(
        parts,
        lambda segments: document.write(unite(segments)),
        document.notices,
        write_in and (lambda segments, language: write_in(unite(segments), language)),
    )


def written_ending(name: str) -> str:
    """Return the ending of a file's translation: its own, unless the format can't be written."""
    kind = format_of(name)
    return kind.written if kind and kind.written else PurePath(name).suffix


def format_of(name: str) -> FileFormat | None:
    """Return the format of a file name; None if its ending is unknown."""
    return FORMATS.get(PurePath(name).suffix.lower())
