"""Translation memories (TMX) as the translations of texts that were translated before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any, Final, TypeAlias

from lxml import etree

from documents.document import Document, unreadable
from documents.errors import OversizedDocument
from documents.formats.strings.memories import KIND_NAME, LANGUAGE
from documents.formats.strings.xliff import content_atoms
from documents.inline import Atom, Line, lines_of
from documents.spans import Segment, Span

# text with single spaces, and formats by the numbers of characters before both ends, without spaces
Key: TypeAlias = tuple[str, tuple[tuple[int, int], ...]]
MAX_UNITS: Final = 1_000_000
IDENTITIES: Final = ("i", "x", "id")  # attributes that name an inline element


@dataclass(frozen=True, slots=True)
class TranslationMemory:
    """Translations of whole texts.

    translations: translation by text and formats, with its spans in the order of the source's.
    ranks: 1 where the language of the translation is exactly the asked one, such as pt-BR.
    """

    translations: dict[Key, Segment] = field(default_factory=dict)
    ranks: dict[Key, int] = field(default_factory=dict)

    def add(self, old: Segment, new: Segment, rank: int) -> None:
        """Store a translation, unless there is one of a higher rank.

        old, new: text and translation, with spans in one order.
        rank: 1 where the language of the translation is exactly the asked one.
        """
        outer = _whole_spans(old)
        inner, moved = (
            tuple(span for number, span in enumerate(side.spans) if number not in outer)
            for side in (old, new)
        )
        key = _key(old.text, inner)
        if rank >= self.ranks.get(key, 0):
            self.translations[key], self.ranks[key] = Segment(new.text, moved), rank

    def find(self, segment: Segment) -> Segment | None:
        """Return the translation of a segment with the same words and formats; None: there is none."""
        text, outer = segment.text, _whole_spans(segment)
        lines = [number for number, span in enumerate(segment.spans) if span.line and span.parent < 0]
        inner = [number for number in range(len(segment.spans)) if number not in {*outer, *lines}]
        found = self.translations.get(_key(text, [segment.spans[number] for number in inner]))
        if found is None or (lines and inner):
            return None
        lead = text[: len(text) - len(text.lstrip())]
        new = lead + found.text + text[len(text.rstrip()) :]
        spans = [replace(span, begin=0, end=len(new)) for span in segment.spans]
        for number, span in zip(inner, found.spans, strict=True):
            begin, end = len(lead) + span.begin, len(lead) + span.end
            spans[number] = replace(segment.spans[number], begin=begin, end=end)
        for number in lines:  # a line break keeps its share of the text
            share = segment.spans[number].begin * len(new) // len(text)
            at = min((new.rfind(" ", 0, share) + 1, new.find(" ", share) + 1), key=lambda at: abs(at - share))
            spans[number] = replace(segment.spans[number], begin=at, end=at)
        return Segment(new, tuple(spans))


def read_memory(data: bytes, source: str, target: str) -> TranslationMemory:
    """Return the translations of a memory; of two for one text the last counts.

    data: bytes of a .tmx file.
    source, target: codes of the languages; variants of a language (en-US, en) count as one.

    Raises Unreadable and OversizedDocument.
    """
    memory = TranslationMemory()
    try:
        for unit in _units(data):
            old, new = (_best(unit.findall("tuv"), language) for language in (source, target))
            pair = None if old is None or new is None or old is new else _pair(_line(old), _line(new))
            if pair is not None:
                memory.add(*pair, int(_language(new) == target.lower()))
    except (etree.XMLSyntaxError, ValueError):  # lxml raises ValueError on names with unknown prefixes
        raise unreadable(KIND_NAME) from None
    return memory


def _units(data: bytes) -> Iterator[Any]:
    """Yield the units of a .tmx file, each without the others in memory.

    Raises XMLSyntaxError, Unreadable and OversizedDocument.
    """
    units = etree.iterparse(BytesIO(data), tag="tu", resolve_entities=False, no_network=True, load_dtd=False)
    for number, (_, unit) in enumerate(units):
        if number >= MAX_UNITS:
            raise OversizedDocument(f"the translation memory has more than {MAX_UNITS} units: split it")
        yield unit
        unit.clear()
        while unit.getprevious() is not None:
            del unit.getparent()[0]
    if units.root is None or units.root.tag != "tmx":
        raise unreadable(KIND_NAME)


def recall(memory: TranslationMemory, segments: Sequence[Segment]) -> tuple[list[Segment | None], str]:
    """Return the translation of each segment (None: there is none), and a sentence with their number.

    memory: translations of whole segments.
    segments: segments of a document.
    """
    found = [memory.find(segment) for segment in segments]
    count = len(found) - found.count(None)
    return found, f"{count} of {len(found)} texts come from the translation memory"


def with_memory(document: Document, memory: TranslationMemory) -> Document:
    """Return a document whose segments are only those that a memory has no translation of.

    document: the source.
    memory: translations of whole segments; a notice has their number.
    """
    found, notice = recall(memory, document.segments)
    rest = [segment for segment, known in zip(document.segments, found, strict=True) if known is None]

    def united(segments: Sequence[Segment]) -> list[Segment]:
        new = iter(segments)
        return [known or next(new) for known in found]

    write_in = document.write_in
    return Document(
        rest,
        lambda segments: document.write(united(segments)),
        (*document.notices, notice),
        write_in and (lambda segments, language: write_in(united(segments), language)),
        lambda segments: (document, united(segments)),
    )


def _best(texts: Sequence[Any], language: str) -> Any:
    """Return the last text of a unit in a language, if possible of the same variant; None: there is none."""
    wanted = language.lower()
    same = [
        text
        for text in texts
        if text.find("seg") is not None and _language(text).partition("-")[0] == wanted.partition("-")[0]
    ]
    exact = [text for text in same if _language(text) == wanted]
    return (exact or same or [None])[-1]


def _language(text: Any) -> str:
    """Return the code of a text's language, in small letters."""
    return (text.get(LANGUAGE) or text.get("lang") or "").lower().replace("_", "-")


def _line(text: Any) -> Line | None:
    """Return the content of a text in one language; None: it has several lines."""
    seg = text.find("seg")
    if not len(seg) and "\n" not in (seg.text or ""):  # the usual text costs half the time
        return Line(Segment(seg.text or ""), None, [])
    atoms = content_atoms(seg)
    lines = lines_of([Atom("text", None, " ") if atom.kind in ("space", "split") else atom for atom in atoms])
    return lines[0] if len(lines) == 1 else None


def _pair(old: Line | None, new: Line | None) -> tuple[Segment, Segment] | None:
    """Return source and translation with spans in one order and without white space at both ends; None: the
    translation is empty or has other inline elements."""
    if old is None or new is None:
        return None
    names = [[_identity(atom) for atom in line.marks] for line in (old, new)]
    if len(names[0]) != len(names[1]) or sorted(names[0]) != sorted(names[1]):
        return None
    order: dict[str, list[int]] = {}
    for number, name in enumerate(names[1]):
        order.setdefault(name, []).append(number)
    source, target = _bare(old.segment), _bare(new.segment)
    if not target.text:
        return None
    return source, Segment(target.text, tuple(target.spans[order[name].pop(0)] for name in names[0]))


def _identity(atom: Atom) -> str:
    """Return the name of an inline element that is the same in both languages."""
    element = (
        atom.element[0] if isinstance(atom.element, list) else getattr(atom.element, "head", atom.element)
    )
    value = next((element.get(name) for name in IDENTITIES if element.get(name)), "")
    return f"{element.tag} {value}"


def _bare(segment: Segment) -> Segment:
    """Return a segment without white space at both ends."""
    begin = len(segment.text) - len(segment.text.lstrip())
    text = segment.text.strip()
    spans = (
        replace(
            span,
            begin=min(max(span.begin - begin, 0), len(text)),
            end=min(max(span.end - begin, 0), len(text)),
        )
        for span in segment.spans
    )
    return Segment(text, tuple(spans))


def _whole_spans(segment: Segment) -> set[int]:
    """Return the numbers of the spans over a whole text, whose translation has them too."""
    text = segment.text
    return {
        number
        for number, span in enumerate(segment.spans)
        if not span.kept and span.begin < span.end and text[span.begin : span.end].strip() == text.strip()
    }


def _key(text: str, spans: Sequence[Span]) -> Key:
    """Return the key of a text with formats."""
    before = [0]
    for character in text:
        before.append(before[-1] + (not character.isspace()))
    return " ".join(text.split()), tuple((before[span.begin], before[span.end]) for span in spans)
