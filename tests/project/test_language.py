"""Prose is plain: few sentences, parameter lines and names of tests have a mark of `sentences.MARKS`.

The limits only fall: when a share has fallen below its limit by a point, lower the limit.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import pytest
import typer

from cli.main import COMMANDS, table
from tests.project.rooms import PARTS, ROOT
from tests.project.sentences import Sentence, docstring_sentences, page_sentences, source_sentences


class Limit(NamedTuple):
    """Largest shares of marked lines, in percent.

    whole: share in the whole repository.
    room: share in any room that has at least `MIN_ROOM_LINES` lines of the kind.
    """

    whole: float
    room: float


LIMITS: Final[Mapping[str, Limit]] = {
    "parameter": Limit(0.5, 2),
    "docstring": Limit(2.6, 8),
    "comment": Limit(1.8, 6),
    "test name": Limit(1, 1),
    "page": Limit(3.2, 5),
    "help": Limit(7, 15),
}
# a room with fewer lines of a kind is judged as a part of the whole only
MIN_ROOM_LINES: Final = 25
# sentences that a failure prints
PRINTED_SENTENCES: Final = 12
PAGES: Final = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "models")
# rooms that are split into their folders
SPLIT_PARTS: Final = ("engine", "server")


def room_of(place: str) -> str:
    """Return the room of a file: its first folder, two folders in `SPLIT_PARTS`, or the page itself."""
    parts = place.rpartition(":")[0].split("/") if ":" in place else place.split("/")
    return "/".join(parts[: 2 if parts[0] in SPLIT_PARTS else 1])


@cache
def written() -> tuple[Sentence, ...]:
    """Return every sentence of sources and pages."""
    return tuple(_written())


def _written() -> Iterator[Sentence]:
    for part in (*PARTS, "tests", "deploy"):
        for path in sorted((ROOT / part).rglob("*.py")):
            yield from source_sentences(path, str(path.relative_to(ROOT)))
    for name in PAGES:
        page = ROOT / name
        for path in [page] if page.is_file() else sorted(page.rglob("*.md")):
            if path.parent.name != "lab":
                yield from page_sentences(path, str(path.relative_to(ROOT)))


@cache
def helped() -> tuple[Sentence, ...]:
    """Return every sentence that `--help` of a command prints."""
    group = typer.main.get_command(table)
    return tuple(each for name in COMMANDS for each in _helped(group.get_command(None, name), name))


def _helped(command: Any, name: str) -> Iterator[Sentence]:
    texts = [command.help or "", *(getattr(each, "help", None) or "" for each in command.params)]
    for text in texts:
        for sentence in docstring_sentences(text, f"convoy {name} --help"):
            yield sentence._replace(kind="help")
    for each in getattr(command, "commands", {}):
        yield from _helped(command.commands[each], f"{name} {each}")
    if hasattr(command, "names"):
        for each in command.names:
            yield from _helped(command.get_command(None, each), f"{name} {each}")


def _changed_files() -> set[str]:
    """Return the files that the working tree or the last commit changes; none without git."""
    command = ["git", "diff", "--name-only", "HEAD~1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return set(done.stdout.split())


def _report(marked: Iterable[Sentence], heading: str) -> str:
    """Return a message with the worst sentences; changed files come first."""
    changed = _changed_files()
    worst = sorted(marked, key=lambda s: (s.place.partition(":")[0] not in changed, -len(s.marks())))
    lines = [f"{s.place}: {s.text} [{', '.join(s.marks())}]" for s in worst[:PRINTED_SENTENCES]]
    return "\n".join([heading, *lines])


@pytest.mark.parametrize("kind", LIMITS)
def test_few_sentences_of_the_repository_have_a_mark(kind):
    sentences = [each for each in (*written(), *helped()) if each.kind == kind]
    marked = [each for each in sentences if each.marks()]
    share = 100 * len(marked) / len(sentences)
    assert share <= LIMITS[kind].whole, _report(
        marked, f"{kind}: {share:.1f} % have a mark, limit {LIMITS[kind].whole} %"
    )


@pytest.mark.parametrize("kind", LIMITS)
def test_few_sentences_of_a_room_have_a_mark(kind):
    rooms = defaultdict(list)
    for each in (*written(), *helped()):
        if each.kind == kind:
            rooms[room_of(each.place) if kind != "help" else each.place].append(each)
    problems = []
    for room, sentences in sorted(rooms.items()):
        marked = [each for each in sentences if each.marks()]
        share = 100 * len(marked) / len(sentences)
        if len(sentences) >= MIN_ROOM_LINES and share > LIMITS[kind].room:
            problems.append(
                _report(marked, f"{room}: {share:.1f} % have a mark, limit {LIMITS[kind].room} %")
            )
    assert not problems, "\n\n".join(problems)


@pytest.mark.parametrize(
    "kind, text, marks",
    [
        ("parameter", "number of hypotheses per source.", []),
        ("parameter", "of each source.", ["no noun first"]),
        ("docstring", "Return the tokens of each text.", []),
        ("docstring", "Of lanes those that wait.", ["pronoun", "inverted"]),
        ("comment", "sessions that hardly differ", ["rare word"]),
        ("comment", 'messages that begin with "told"', []),
    ],
)
def test_marks_of_a_sentence(kind, text, marks):
    assert Sentence(kind, "x.py:1", text).marks() == marks


def test_parameter_lines_of_a_docstring_are_separated_from_its_sentences():
    found = docstring_sentences("Return the sum.\n\nterms: numbers to add.\n", "x.py:1")
    assert [(each.kind, each.text) for each in found] == [
        ("parameter", "numbers to add."),
        ("docstring", "Return the sum."),
    ]
