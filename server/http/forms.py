"""Forms of browsers and curl, read in linear time. Long forms are read in slices, outside the event loop."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_to_bytes

from engine.api import InvalidRequest, Slices, in_slices
from server.http.media import Media, media_of, parse_parameters

URL_ENCODED: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"
INLINE_BYTES: Final = 16_384  # longer forms are read in slices
MAX_FIELDS: Final = 2_000
MAX_PART_HEAD: Final = 8_192  # bytes
MAX_PART_HEADERS: Final = 16
WINDOW_BYTES: Final = 1 << 20  # bytes of a form that are searched for a boundary in one slice
PIECE_BYTES: Final = 16_384  # bytes decoded in one slice, during which no other thread runs
ESCAPE: Final = re.compile(rb"%[0-9A-Fa-f]{2}")
BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
Fields = dict[str, list[str]]  # values of each field, in order
DELIMITER_END: Final = re.compile(rb"--|[ \t]*\r\n")  # follows a boundary; other text makes it content
TOO_MANY_FIELDS: Final = f"Invalid form: it has more than {MAX_FIELDS} fields"


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file of a form: its name and its content."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form, and its files by the name of their field."""

    fields: Fields = field(default_factory=dict)
    files: dict[str, UploadedFile] = field(default_factory=dict)


async def form_of(media: Media, raw: bytes, most_files: int = 1) -> Form:
    """Return the form of a body; an empty form for another media type. Uploaded files stay in memory.

    media: media type of the body.
    raw: whole body.
    most_files: greatest number of files.

    Raises InvalidRequest.
    """
    small = len(raw) <= INLINE_BYTES
    if media.kind == URL_ENCODED:
        return Form(await in_slices(read_fields(raw, media.codec), small=small))
    if media.kind == MULTIPART:
        return await in_slices(read_parts(raw, media, most_files), small=small)
    return Form()


def read_fields(raw: bytes, codec: str = "utf-8") -> Slices[Fields]:
    """Parse a URL-encoded form, in slices. Raises InvalidRequest when it has more than MAX_FIELDS.

    raw: form or query string.
    codec: Python's name of its charset.
    """
    check_fields(raw)
    fields: Fields = {}
    for pair in filter(None, raw.split(b"&")):
        name, _, value = pair.partition(b"=")
        values = fields.setdefault((yield from _unquote(name, codec)), [])
        values.append((yield from _unquote(value, codec)))
    return fields


def check_fields(raw: bytes) -> None:
    """Raise InvalidRequest when a URL-encoded form or query string has more than MAX_FIELDS."""
    if raw.count(b"&") >= MAX_FIELDS:
        raise InvalidRequest(TOO_MANY_FIELDS)


def _unquote(text: bytes, codec: str) -> Slices[str]:
    """Decode URL-encoded text, with + for spaces, in slices."""
    pieces, begin = [], 0
    while begin < len(text):
        end = begin + PIECE_BYTES
        escape = text.rfind(b"%", end - 2, end)  # an escape at the end belongs to the next piece
        end = escape if escape > begin else end
        pieces.append(_unescape(text[begin:end].replace(b"+", b" ")))
        begin = end
        yield
    return b"".join(pieces).decode(codec, "replace")


def _unescape(text: bytes) -> bytes:
    """Decode the escapes of a text; an invalid one stays, which costs the library an exception."""
    if BAD_ESCAPE.search(text):
        return ESCAPE.sub(lambda escape: unquote_to_bytes(escape[0]), text)
    return unquote_to_bytes(text)


def read_parts(raw: bytes, media: Media, most_files: int = 1) -> Slices[Form]:
    """Parse a multipart form, a part in each slice. Raises InvalidRequest.

    raw: whole body.
    media: media type of the body, with its boundary.
    most_files: greatest number of files.
    """
    if not media.boundary:
        raise InvalidRequest("Invalid form: Missing boundary in multipart.")
    fields: Fields = {}
    files: dict[str, UploadedFile] = {}
    raw = b"\r\n" + raw
    count = 0
    for part in _parts(raw, media.boundary):
        yield
        if part is None:
            continue
        (begin, end), count = part, count + 1
        if count > MAX_FIELDS + most_files:
            raise InvalidRequest(TOO_MANY_FIELDS)
        content = raw.find(b"\r\n\r\n", begin, min(end, begin + MAX_PART_HEAD))
        if content < 0:
            raise InvalidRequest(f"Invalid form: the head of a part must end within {MAX_PART_HEAD} bytes")
        disposition, kind = _read_head(raw[begin + 2 : content])
        if b"name" not in disposition:
            raise InvalidRequest('Invalid form: The Content-Disposition header "name" must be provided.')
        value = raw[content + 4 : end]
        name = _decode(disposition[b"name"], media.codec)
        if b"filename" not in disposition:
            codec = media_of(kind).codec if "charset" in kind.lower() else media.codec
            fields.setdefault(name, []).append(_decode(value, codec))
        elif len(files) == most_files:
            raise InvalidRequest(f"Invalid form: it has more than {most_files} file{'s' * (most_files > 1)}")
        else:
            files[name] = UploadedFile(_decode(disposition[b"filename"], media.codec), value)
    return Form(fields, files)


def _parts(raw: bytes, boundary: bytes) -> Iterator[tuple[int, int] | None]:
    """Yield begin and end of each part, its head included; None after a long search.

    raw: whole body after a line break, which the first boundary may lack.
    boundary: separator between the parts.

    The search takes linear time in C, whatever the content of a file is. Raises InvalidRequest for a form
    without an end.
    """
    mark, begin, position, marks = b"\r\n--" + boundary, -1, 0, 0
    while position < len(raw) and marks < 2 * MAX_FIELDS:
        place = raw.find(mark, position, position + WINDOW_BYTES)
        if place < 0:
            position += WINDOW_BYTES - len(mark) + 1
            yield None
            continue
        position, marks = place + len(mark), marks + 1
        end = DELIMITER_END.match(raw, position)
        if end is None:  # content that only begins like a boundary
            continue
        if begin >= 0:
            yield begin, place
        if end[0] == b"--":
            return
        begin = end.end() - len(b"\r\n")  # a part without headers begins with a blank line
    raise InvalidRequest("Invalid form: it has no closing boundary, or too many boundaries")


def _read_head(head: bytes) -> tuple[dict[bytes, bytes], str]:
    """Return the parameters of a part's Content-Disposition, and its Content-Type. Raises InvalidRequest."""
    lines = head.split(b"\r\n", MAX_PART_HEADERS)
    if len(lines) > MAX_PART_HEADERS:
        raise InvalidRequest(f"Invalid form: a part has more than {MAX_PART_HEADERS} headers")
    headers = {name.strip().lower(): value.strip() for name, _, value in (x.partition(b":") for x in lines)}
    _, disposition = parse_parameters(headers.get(b"content-disposition", b""), "Content-Disposition")
    return disposition, headers.get(b"content-type", b"").decode("latin-1")


def _decode(text: bytes, codec: str) -> str:
    """Decode a text of a form; bytes that are not in its charset count as Latin-1."""
    try:
        return text.decode(codec)
    except UnicodeDecodeError:
        return text.decode("latin-1")
