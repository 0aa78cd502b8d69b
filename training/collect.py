"""Make corpora of collected and written text: interfaces, manuals, letters, shops, contracts and so on.

    python -m training.collect ../shared/corpora/wide CORPORA

writes CORPORA/wide-XX-en (collected text), CORPORA/written-XX-en (pairs written one by one) and
CORPORA/templates-XX-en (pairs of templates), each with train, valid and test. What a model copies at its
serving, such as fields, addresses and code, is a placeholder on both sides of the collected text.
"""

from __future__ import annotations

import gzip
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from engine.text.placeables.grammar import kind_of, long_placeables, matches, placeables
from training.cleaning import normalise
from training.data import PLACEHOLDERS, read_pairs
from training.written.templates import expand

Pair = tuple[str, str]
LANGUAGES: Final = ("de", "fr")  # each with English
# largest number of pairs of each collected file; files of other names are left out: copyleft texts, texts of
# mixed licences, and lists of names
FILES: Final = {
    "allauth-ui": 1000,
    "aosp-apps": 6000,
    "app-legal": 1000,
    "app-store": 1000,
    "apps-ui": 30_000,
    "apps2-ui": 6000,
    "cc-legalcode": 1000,
    "chromium-ui": 9000,
    "django-ui": 1000,
    "docs-misc": 2500,
    "firefox-ui": 9000,
    "food-household": 2000,
    "godot-editor-ui": 1000,
    "home-assistant-ui": 10_000,
    "httpd-docs": 2500,
    "indico-events-ui": 5000,
    "jupyterlab-ui": 1000,
    "libreoffice-help": 14_000,
    "libreoffice-ui": 8000,
    "matrix-chat-ui": 4000,
    "medusa-shop-ui": 2000,
    "mozilla-www": 3000,
    "opensource-guide": 1000,
    "oscar-shop-ui": 2000,
    "osm-presets": 1500,
    "payload-ui": 1000,
    "postgresql-messages": 1500,
    "python-docs": 2500,
    "react-docs": 2500,
    "shop-ui": 12_000,
    "spyder-ui": 1000,
    "subversion-messages": 800,
    "superset-ui": 1500,
    "thunderbird-ui": 9000,
    "tomcat-messages": 800,
    "wagtail-ui": 2000,
}
TAG: Final = re.compile(r"</?[a-zA-Z][^<>]{0,200}/?>")
SPACES: Final = re.compile(r"\s+")
MAX_WORDS: Final = 36
MAX_PLACEHOLDERS: Final = 6
TEMPLATE_PAIRS: Final = 40  # pairs of a template
HELD_OUT: Final = 300  # lines of `valid`, and of `test`
HELD_OUT_FILE: Final = Path(__file__).parent / "heldout.tsv"  # lines by domain that no corpus contains
HELD_OUT_COLUMNS: Final = ("domain", "de", "en", "fr")
WRITTEN_FILE: Final = Path(__file__).parent / "written" / "pairs.tsv.gz"  # lines in three languages
WRITTEN_COLUMNS: Final = ("de", "en", "fr")
SEED: Final = 1


def masked(pair: Pair, rng: random.Random) -> Pair | None:
    """Return a pair without tags and with placeholders for what a server protects.

    Returns None if the sides differ in what is protected.
    """
    found = [_split(SPACES.sub(" ", TAG.sub(" ", side)).strip()) for side in pair]
    kept = [Counter(piece for piece, protected in pieces if protected) for pieces in found]
    if kept[0] != kept[1] or len(kept[0]) > MAX_PLACEHOLDERS:
        return None
    symbols = dict(zip(kept[0], rng.sample(PLACEHOLDERS, len(kept[0])), strict=True))
    sides = [
        "".join(symbols.get(piece, piece) if protected else piece for piece, protected in pieces)
        for pieces in found
    ]
    return (sides[0], sides[1]) if all(map(_has_words, sides)) else None


def _has_words(text: str) -> bool:
    """Return whether a text has letters outside its placeholders, and is of ordinary length."""
    words = [word for word in text.split() if any(map(str.isalpha, word)) and not word.startswith("<ph")]
    return bool(words) and len(text.split()) <= MAX_WORDS


def _split(text: str) -> list[tuple[str, bool]]:
    """Return the pieces of a text, each with whether a server replaces it by a placeholder."""
    pieces, end = [], 0
    for match in matches(placeables(), long_placeables(), text):
        if match is None or kind_of(match).treatment != "keep":
            continue
        pieces += [(text[end : match.start()], False), (match[0], True)]
        end = match.end()
    return [*pieces, (text[end:], False)]


def collect(folder: Path, language: str, rng: random.Random) -> Iterator[Pair]:
    """Yield the distinct masked pairs of all collected files, each file with at most its number of pairs.

    folder: folder of the files.
    language: code of the language beside English.
    rng: source of the draws.
    """
    seen: set[Pair] = set()
    for name, most in FILES.items():
        path = folder / f"{name}.{language}-en.tsv.gz"
        pairs = read_pairs(path, 0, 1) if path.exists() else []
        for pair in rng.sample(pairs, min(most, len(pairs))):
            changed = masked(pair, rng)
            if changed and changed not in seen:
                seen.add(changed)
                yield changed


def write_corpus(folder: Path, train: Iterable[Pair], valid: Iterable[Pair], test: Iterable[Pair]) -> None:
    """Write the three parts of a corpus: `train.tsv.gz`, `valid.tsv.gz` and `test.tsv.gz`.

    folder: folder of the corpus.
    train, valid, test: pairs of each part.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in (("train", train), ("valid", valid), ("test", test)):
        with gzip.open(folder / f"{name}.tsv.gz", "wt", encoding="utf-8") as out:
            out.writelines(f"{source}\t{target}\n" for source, target in pairs)


def read_held_out(path: Path, language: str) -> list[Pair]:
    """Return the held-out lines of a language, each with its English line.

    path: file with the columns domain, de, en, fr.
    language: code of the language beside English.
    """
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    side, english = (HELD_OUT_COLUMNS.index(code) for code in (language, "en"))
    return [(row[side], row[english]) for row in rows]


def _read_if_there(path: Path) -> list[Pair]:
    """Return the pairs of a file, or no pairs if it does not exist."""
    return read_pairs(path, 0, 1) if path.exists() else []


def main(
    wide: Path, corpora: Path, held_out: Path = HELD_OUT_FILE, languages: Sequence[str] = LANGUAGES
) -> None:
    """Write the corpora of some languages with English. A corpus without pairs is not written.

    wide: folder of the collected files, and of `written.XX-en.tsv.gz` and `templates.XX-en.tsv.gz`; without
        one of them, the corpora have the other pairs.
    corpora: folder of all corpora.
    held_out: file of the lines by domain that no model may learn.
    languages: codes of the languages.
    """
    for language in languages:
        rng = random.Random(SEED)  # nosec B311 # reproducible, no secret
        measured = read_held_out(held_out, language)
        sides = {normalise(side) for pair in measured for side in pair}
        rows = [*collect(wide, language, rng)]
        rng.shuffle(rows)
        if rows:
            parts = rows[2 * HELD_OUT :], rows[:HELD_OUT], rows[HELD_OUT : 2 * HELD_OUT]
            write_corpus(corpora / f"wide-{language}-en", *parts)
        written = _read_if_there(wide / f"written.{language}-en.tsv.gz")
        written += read_pairs(WRITTEN_FILE, *(WRITTEN_COLUMNS.index(code) for code in (language, "en")))
        rest = [pair for pair in written if sides.isdisjoint(map(normalise, pair))]
        write_corpus(corpora / f"written-{language}-en", rest, measured, measured)
        made = _read_if_there(wide / f"templates.{language}-en.tsv.gz")
        made += [(source, target) for _, source, target in expand((language, "en"), TEMPLATE_PAIRS, SEED)]
        made = [pair for pair in made if sides.isdisjoint(map(normalise, pair))]
        rng.shuffle(made)
        parts = made[2 * HELD_OUT :], made[:HELD_OUT], made[HELD_OUT : 2 * HELD_OUT]
        write_corpus(corpora / f"templates-{language}-en", *parts)
        print(language, len(rows), len(rest), len(made))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
