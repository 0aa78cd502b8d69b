"""Media types of bodies and of the parts of forms: their kind, charset and parameters, within limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from python_multipart.multipart import parse_options_header

from engine.api import InvalidRequest

MAX_VALUE_BYTES: Final = 2_048  # bytes of a header with parameters, such as the name of a file
MAX_PARAMETERS: Final = 32
MAX_BOUNDARY_BYTES: Final = 256  # RFC 2046 allows 70
SHOWN_CHARACTERS: Final = 40  # characters of a charset in an error
# Python's codec for each charset that clients may name. Other codecs of Python take quadratic time (punycode)
# or raise errors of their own (undefined, idna)
CODECS: Final = {
    **dict.fromkeys(("", "utf-8", "utf8", "us-ascii", "ascii"), "utf-8"),
    **dict.fromkeys(("iso-8859-1", "iso8859-1", "latin-1", "latin1"), "latin-1"),
}


@dataclass(frozen=True, slots=True)
class Media:
    """The media type of a body.

    kind: type and subtype in lower case, such as application/json.
    codec: Python's name of its charset: utf-8 or latin-1.
    boundary: separator between the parts of a form; empty without one.
    """

    kind: str
    codec: str
    boundary: bytes


def media_of(value: str) -> Media:
    """Return the media type in a header Content-Type.

    Raises InvalidRequest when it is too long, or names another charset than UTF-8, ASCII or Latin-1.
    """
    kind, parameters = parse_parameters(value.encode("latin-1", "replace"), "Content-Type")
    charset = parameters.get(b"charset", b"").decode("latin-1").strip().lower()
    if charset not in CODECS:
        raise InvalidRequest(
            f"the charset {charset[:SHOWN_CHARACTERS]!r} is not supported: send the body in UTF-8"
        )
    boundary = parameters.get(b"boundary", b"")
    if len(boundary) > MAX_BOUNDARY_BYTES:
        raise InvalidRequest(f"Invalid form: its boundary is longer than {MAX_BOUNDARY_BYTES} bytes")
    return Media(kind, CODECS[charset], boundary)


def parse_parameters(value: bytes, name: str) -> tuple[str, dict[bytes, bytes]]:
    """Return the value of a header in lower case without its parameters, and the parameters by name.

    value: whole value.
    name: name of the header, for the error.

    Raises InvalidRequest when the value has more than MAX_VALUE_BYTES or MAX_PARAMETERS.
    """
    if len(value) > MAX_VALUE_BYTES or value.count(b";") > MAX_PARAMETERS:
        limits = f"{MAX_VALUE_BYTES} bytes or {MAX_PARAMETERS} parameters"
        raise InvalidRequest(f"the header {name} has more than {limits}")
    kind, parameters = parse_options_header(value)
    lower = {key.strip().lower(): text for key, text in parameters.items()}
    return kind.decode("latin-1").strip(), lower
