"""Errors of reading a file."""

from __future__ import annotations


class Unreadable(Exception):
    """The file can't be read; the message has the reason and the remedy."""


class OversizedDocument(Unreadable):
    """The file, or its unpacked content, exceeds a limit."""
