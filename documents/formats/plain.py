"""Text files, and HTML pages."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from documents.document import Document
from documents.errors import Unreadable
from documents.formats.attributes import read_with_attributes
from documents.formats.html import read_html, with_language
from documents.formats.tags import HTML, MarkupRules
from documents.spans import Segment

BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32le"),  # not supported; must be tested before UTF-16, which begins equally
    (codecs.BOM_UTF16_LE, "utf-16le"),
    (codecs.BOM_UTF16_BE, "utf-16be"),
)
# encodings of the Encoding standard; other names are refused before Python looks them up
ENCODING_NAMES: Final = """
    ascii big5 big5-hkscs cp866 cp932 cp949 cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258
    euc-jp euc-kr gb18030 gb2312 gbk iso-2022-jp iso-8859-1 iso-8859-2 iso-8859-3 iso-8859-4 iso-8859-5
    iso-8859-6 iso-8859-7 iso-8859-8 iso-8859-9 iso-8859-10 iso-8859-13 iso-8859-14 iso-8859-15 iso-8859-16
    koi8-r koi8-u ks_c_5601-1987 latin1 latin-1 mac-roman macintosh shift_jis shift-jis sjis tis-620 us-ascii
    utf-16 utf-16be utf-16le utf-8 utf-8-sig utf8 windows-874 windows-1250 windows-1251 windows-1252
    windows-1253 windows-1254 windows-1255 windows-1256 windows-1257 windows-1258 x-sjis
"""
ENCODINGS: Final = frozenset(ENCODING_NAMES.split())
PYTHON_ENCODINGS: Final = {"windows-874": "cp874", "x-sjis": "shift_jis"}  # names that Python does not have
# encodings that are guessed; the first wins where several are as likely
EUROPEAN: Final = ("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "koi8_r")
GUESSED_ENCODINGS: Final = (*EUROPEAN, "shift_jis", "euc_jp", "gb18030", "big5", "euc_kr")
GUESS_BYTES: Final = 65_536  # bytes from which an encoding is guessed
CHARSET: Final = re.compile(
    rb"<meta\b[^<>]{0,200}?\bcharset[ \t\r\n]{0,9}=[ \t\r\n]{0,9}[\"']?([\w.:-]{1,40})", re.IGNORECASE
)
PARAGRAPH_CHARACTERS: Final = 4_000  # of a segment; longer paragraphs are cut at line ends
MAX_HEAD_BYTES: Final = 1_024  # bytes of a page in which its encoding is searched
NEWLINE: Final = re.compile(r"\r\n?|\n")


@dataclass(frozen=True, slots=True)
class DecodedText:
    """The text of a file, its encoding, and its byte order mark.

    text: text without the mark.
    encoding: Python's name of the encoding.
    mark: byte order mark.
    guessed: the encoding was guessed.
    """

    text: str
    encoding: str
    mark: bytes = b""
    guessed: bool = False

    @property
    def notices(self) -> tuple[str, ...]:
        """Return a sentence about a guessed encoding."""
        return (f"the file is not in UTF-8: it was read as {self.encoding}",) if self.guessed else ()

    def encode(self, text: str, errors: str = "replace") -> bytes:
        """Return the bytes of another text in the same encoding; in UTF-8 with a mark if a guessed encoding
        lacks a character.

        text: the new text.
        errors: treatment of characters that the encoding lacks, as for `str.encode`.
        """
        try:
            return self.mark + text.encode(self.encoding, "strict" if self.guessed else errors)
        except UnicodeEncodeError:
            if not self.guessed:
                raise
            return codecs.BOM_UTF8 + text.encode()


def decode(data: bytes, encoding: str = "utf-8") -> DecodedText:
    """Return the text of a file.

    data: bytes of the file.
    encoding: one of ENCODINGS, used for a file without a byte order mark.

    Raises Unreadable.
    """
    mark, name = next(
        (pair for pair in BYTE_ORDER_MARKS if data.startswith(pair[0])), (b"", encoding.lower())
    )
    if name not in ENCODINGS:
        raise Unreadable(f"the file says that it is in {name!r}, which is not read; save it as UTF-8")
    name = PYTHON_ENCODINGS.get(name, name)
    try:
        return DecodedText(data[len(mark) :].decode(name), name, mark)
    except UnicodeDecodeError:
        raise Unreadable(f"the file is not in {name}; save it as UTF-8") from None


def decode_guessed(data: bytes) -> DecodedText:
    """Return the text of a file in UTF-8, with a byte order mark, or in an encoding that is guessed.

    Raises Unreadable.
    """
    try:
        return decode(data)
    except Unreadable:
        if b"\0" in data or any(data.startswith(mark) for mark, _ in BYTE_ORDER_MARKS):
            raise
    from charset_normalizer import from_bytes

    head = data[: data.rfind(b"\n", 0, GUESS_BYTES) + 1 or GUESS_BYTES]
    matches = list(from_bytes(head, cp_isolation=list(GUESSED_ENCODINGS)))
    least = min((match.chaos for match in matches), default=0.0)
    names = {name for match in matches if match.chaos <= least for name in match.could_be_from_charset}
    for name in filter(names.__contains__, GUESSED_ENCODINGS):
        with suppress(UnicodeDecodeError):
            return DecodedText(data.decode(name), name, guessed=True)
    raise Unreadable("the encoding of the file is not known; save it as UTF-8")


def read_text(data: bytes) -> Document:
    """Return the paragraphs of a text file as segments; line ends and blank lines stay.

    The model decides which lines of a paragraph belong together.
    """
    file = decode_guessed(data)
    newline = "\r\n" if "\r\n" in file.text else "\n"
    parts = list(_paragraphs(file.text, newline))
    numbers = [number for number, part in enumerate(parts) if part.strip()]

    def write(segments: Sequence[Segment]) -> bytes:
        for number, segment in zip(numbers, segments, strict=True):
            body = parts[number].rstrip()
            if segment.text != _one_newline(body):
                text = segment.text
                if segment.original:
                    text = segment.stacked(text, segment.original.text, "\n")
                parts[number] = text.replace("\n", newline) + parts[number][len(body) :]
        return file.encode("".join(parts))

    segments = [Segment(_one_newline(parts[number].rstrip())) for number in numbers]
    return Document(segments, write, file.notices)


def _paragraphs(text: str, newline: str) -> Iterator[str]:
    """Yield the paragraphs of a text with their line ends, and each blank line; long paragraphs in parts."""
    part, length = list[str](), 0
    for line in text.splitlines(keepends=True):
        if part and (not line.strip() or length + len(line) > PARAGRAPH_CHARACTERS):
            yield "".join(part)
            part, length = [], 0
        if not line.strip() or not line.endswith(newline):  # another line end ends a paragraph
            yield "".join([*part, line])
            part, length = [], 0
        else:
            part.append(line)
            length += len(line)
    yield "".join(part)


def _one_newline(text: str) -> str:
    return text.replace("\r\n", "\n")


def read_page(data: bytes, *, attributes: bool = False, rules: MarkupRules = HTML) -> Document:
    """Return the prose of a page in the encoding that it names, by default UTF-8. Raises Unreadable.

    data: bytes of the file.
    attributes: descriptions in attributes of HTML, such as `alt`, are prose too.
    rules: meaning of the tags.
    """
    charset = CHARSET.search(data[:MAX_HEAD_BYTES])
    file = decode(data, charset[1].decode("ascii") if charset else "utf-8")
    page = read_with_attributes(file.text) if attributes else read_html(file.text, rules)

    def write(segments: Sequence[Segment], language: str = "") -> bytes:
        text = page.join(segments)
        return file.encode(with_language(text, language) if language else text, "xmlcharrefreplace")

    return Document(page.segments, write, write_in=write)
