"""Functions of the engine that work in slices, each run to its end at once."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from documents import projection
from engine.answers import alignment, formats
from engine.answers import plan as planning
from engine.schedule.slices import Slices, at_once
from engine.text import capitals, places
from engine.text import split as splitting
from engine.text.placeables import markup, masking

P, T = ParamSpec("P"), TypeVar("T")


def finished(function: Callable[P, Slices[T]]) -> Callable[P, T]:
    """Return a function that runs the slices of `function` to their end."""

    @wraps(function)
    def run(*values: P.args, **named: P.kwargs) -> T:
        return at_once(function(*values, **named))

    return run


apply, formats_of, write = map(finished, (formats.apply, formats.formats_of, formats._write))
locate = finished(places.locate)
make_alignments = finished(alignment.make_alignments)
mask = finished(masking.mask)
plan = finished(planning.plan)
project = finished(projection.project)
read_capitals, read_markup = finished(capitals.read_capitals), finished(markup.read_markup)
split = finished(splitting.split)
