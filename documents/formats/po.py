"""gettext's catalogues (.po), by polib: the messages that have no translation yet get one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import polib

from documents.document import Document, unreadable
from documents.formats.messages import Message
from documents.formats.plain import decode
from documents.spans import Segment

KIND_NAME: Final = "a catalogue of gettext"


def read_po(data: bytes) -> Document:
    """Read the messages of a catalogue without a translation; those with one stay, as do fuzzy ones.

    Of a plural the first form translates the singular, all others the plural. Raises Unreadable.
    """
    file = decode(data)
    try:
        # a text without a line end could be the name of a file, which polib would open
        catalogue = polib.pofile("\n" + file.text, encoding=file.encoding)
    except (OSError, ValueError, IndexError, AttributeError, TypeError):
        raise unreadable(KIND_NAME) from None
    places = [
        (entry, field, Message(text))
        for entry in catalogue
        if not (entry.obsolete or entry.msgstr or any(entry.msgstr_plural.values()))
        for field, text in _texts(entry)
    ]

    def write(segments: Sequence[Segment]) -> bytes:
        rest = iter(segments)
        for entry, field, message in places:
            translation = message.write([next(rest) for _ in message.segments])
            if field == "msgid" and not entry.msgid_plural:
                entry.msgstr = translation
                continue
            for number in entry.msgstr_plural:
                if (number == min(entry.msgstr_plural)) == (field == "msgid") or len(
                    entry.msgstr_plural
                ) == 1:
                    entry.msgstr_plural[number] = translation
        return file.encode(f"{catalogue}")

    return Document([segment for *_, message in places for segment in message.segments], write)


def _texts(entry: Any) -> Iterator[tuple[str, str]]:
    yield "msgid", entry.msgid
    if entry.msgid_plural:
        yield "msgid_plural", entry.msgid_plural
