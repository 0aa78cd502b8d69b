"""The outline of a page in XML: tags that end a sentence, found by the prose next to them."""

from __future__ import annotations

from documents.formats.tags import MarkupRules, pieces


def outline(source: str, rules: MarkupRules) -> frozenset[str]:
    """Return the names of tags that have no prose next to them, in their parent element."""
    names, inline = set[str](), set[str]()
    beside: list[set[str]] = [set()]  # names in each open element
    prose, opened = [False], [""]  # whether each open element has prose directly inside, and its name
    for piece in pieces(source, rules):
        if piece.name is None:
            prose[-1] = prose[-1] or not piece.raw.isspace()
        elif not piece.closing and piece.name:
            names.add(piece.name)
            beside[-1].add(piece.name)
            if not piece.void:
                beside.append(set())
                prose.append(False)
                opened.append(piece.name)
        elif piece.closing and opened[-1] == piece.name:
            opened.pop()
            inner = beside.pop()
            inline |= inner if prose.pop() else set()
    for inner, has in zip(beside, prose, strict=True):
        inline |= inner if has else set()
    return frozenset(names - inline)
