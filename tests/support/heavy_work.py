"""Work for workers that takes more than it may. Workers import this module."""

import time

from engine.errors import InvalidRequest

ENDLESS = "endless"


def spin():
    """Never yield, and never end."""
    while True:
        pass
    yield


def swallow():
    """Take more memory than a worker has."""
    yield
    return len(bytearray(8 << 30))


def take(seconds):
    """Use processor time."""
    while time.process_time() < seconds:
        yield
    return seconds


def echo(value):
    yield
    return value


def refuse():
    yield
    raise InvalidRequest("by design")


def fail():
    yield
    raise KeyError("a bug")


def call_back():
    """Answer with a function, which no message of a worker may have."""
    yield
    return echo


def parse_or_spin(reader, texts):
    """Parse pages; a page with the word ENDLESS takes for ever."""
    from server.answering.pages import parse_pages

    if any(ENDLESS in text for text in texts):
        yield from spin()
    return (yield from parse_pages(reader, texts))
