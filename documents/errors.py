"""Why a file is no document."""

from __future__ import annotations


class Unreadable(Exception):
    """The file can't be read; the message says why, and what to do about it."""


class OversizedDocument(Unreadable):
    """The file, or what is packed in it, is larger than anybody means a document to be."""
