"""The rooms of the source and their imports; `python -m tests.project.rooms` redraws the picture."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PICTURE: Final = ROOT / "docs" / "rooms.svg"
PARTS: Final = (
    "engine",
    "documents",
    "corpus",
    "server",
    "export",
    "cli",
    "training",
    "convoy_client",
    "loadtest",
)
# the rooms of engine/, lowest first: each may import those before it
ROOMS: Final = {
    "errors": "the closed set of errors",
    "types": "options, requests, results",
    "native": "C++ operators for ONNX Runtime",
    "backends": "the table of backends",
    "bundle": "a model on disk",
    "text": "text to tokens and back",
    "search": "the next token",
    "kernels": "CUDA, and their reference in torch",
    "models": "architectures in torch",
    "executors": "a lane's tensors and steps",
    "schedule": "queue, lanes, one thread",
    "answers": "texts in, answers out",
    "repository": "models of a server",
    "api": "what server/ imports",
}
NOTES: Final = {
    "documents": "files as prose",
    "corpus": "bulk translation",
    "server": "HTTP",
    "export": "importers and graphs",
    "cli": "commands",
    "training": "recipes",
    "convoy_client": "client of a server",
    "loadtest": "measurements",
}


class Import(NamedTuple):
    """One import.

    module: importing module.
    imported: imported module, ours or a library's.
    lazily: the import is in a function, or for type checkers only.
    """

    module: str
    imported: str
    lazily: bool


@cache
def trees(part: str) -> Mapping[str, ast.Module]:
    """Return the syntax trees of a folder by dotted module name."""
    paths = sorted((ROOT / part).rglob("*.py"))
    assert paths
    return {module_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@cache
def imports(part: str) -> tuple[Import, ...]:
    """Return every import of a folder."""
    return tuple(each for module, tree in trees(part).items() for each in _imports(module, tree))


def within(module: str, prefixes: tuple[str, ...]) -> bool:
    """Return whether a module is one of these, or inside one."""
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


def room(module: str) -> str:
    """Return the room of a module: a room of engine/, or another top-level folder."""
    part, _, rest = module.partition(".")
    return rest.partition(".")[0] if part == "engine" else part


def arrows(*parts: str) -> dict[str, set[str]]:
    """Return the rooms that each room of these folders imports."""
    pairs = {
        (room(each.module), room(each.imported))
        for part in parts
        for each in imports(part)
        if within(each.imported, PARTS) and each.imported != "engine"
    }
    rooms = sorted({name for pair in pairs for name in pair} - {""})
    return {name: {to for of, to in pairs if of == name != to} for name in rooms}


def floors(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the length of the longest chain of imports below each room. Raises ValueError for a cycle."""
    height: dict[str, int] = {}

    def climb(name: str, path: tuple[str, ...]) -> int:
        if name in path:
            raise ValueError("a cycle of imports: " + " -> ".join((*path[path.index(name) :], name)))
        if name not in height:
            height[name] = max((climb(to, (*path, name)) + 1 for to in sorted(graph[name])), default=0)
        return height[name]

    for name in sorted(graph):
        climb(name, ())
    return height


def direct(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the arrows that do not follow from others."""

    def reached(name: str) -> set[str]:
        return graph[name].union(*(reached(to) for to in graph[name]))

    return {name: into - set().union(*(reached(to) for to in into)) for name, into in graph.items()}


def picture() -> str:
    """Return the picture of the rooms, by floors, as SVG."""
    graph = arrows(*PARTS)
    height = floors(graph)
    rows = [
        sorted(name for name in graph if height[name] == floor) for floor in range(max(height.values()) + 1)
    ]
    wide, tall, gap = 210, 46, 34
    width = max(map(len, rows)) * (wide + 24) + 24
    total = len(rows) * (tall + gap) + gap
    place = {
        name: (width * (i + 1) // (len(row) + 1) - wide // 2, total - (floor + 1) * (tall + gap))
        for floor, row in enumerate(rows)
        for i, name in enumerate(row)
    }
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" font-family="sans-serif">',
        '<marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,1 L7,4 L0,7" fill="none" stroke="#667"/></marker>',
        f'<rect width="{width}" height="{total}" fill="#fff"/>',
    ]
    for name, into in direct(graph).items():
        for to in sorted(into):
            (x, y), (u, v) = place[name], place[to]
            ends = f'x1="{x + wide // 2}" y1="{y + tall}" x2="{u + wide // 2}" y2="{v}"'
            lines.append(f'<line {ends} stroke="#99a" marker-end="url(#head)"/>')
    for name, (x, y) in place.items():
        fill = "#e8f0fe" if name in ROOMS else "#f3f3f3"
        note = ROOMS.get(name) or NOTES[name]
        label = f"engine/{name}" if name in ROOMS else f"{name}/"
        lines += [
            f'<rect x="{x}" y="{y}" width="{wide}" height="{tall}" rx="6" fill="{fill}" stroke="#667"/>',
            f'<text x="{x + wide // 2}" y="{y + 20}" text-anchor="middle" font-size="15">{label}</text>',
            f'<text x="{x + wide // 2}" y="{y + 37}" text-anchor="middle" font-size="11">{note}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def module_of(path: Path) -> str:
    """Return the dotted module name of a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imports(module: str, tree: ast.Module) -> Iterator[Import]:
    inner = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef))
        or (isinstance(outer, ast.If) and ast.unparse(outer.test) == "TYPE_CHECKING")
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        for imported in _names(node, module):
            yield Import(module, imported, id(node) in inner)


def _names(node: ast.AST, module: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{module}: write imports in full"
        origin = str(node.module)
        # `from engine.schedule import lane` imports the module engine.schedule.lane
        names = [f"{origin}.{alias.name}" for alias in node.names]
        return [name if _is_module(name) else origin for name in names]
    return []


@cache
def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
