"""List answers with a number that their source lacks, and answers that lack a number of their source.

    python -m loadtest.engine.number_check models/tatoeba-de-en --texts train.tsv.gz --out answers.tsv

The lines with numbers, in digits or in words, are translated. Source and answer are compared by two readings:
the project's (`engine.text.numbers`) and the one of text2num. The second one takes some words for numbers
that are none, and has no times of day, so its differences are for a person to read. Needs text2num from PyPI.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from engine.api import Placement, Service, ServiceSettings, TextOptions
from engine.text.numbers import ORDINARY, foreign_numbers, foreign_words, has_numbers

WRITTEN: Final = re.compile(r"\d+(?:[.,'’ \u00a0\u202f]\d{3})*(?!\d)|\d+")
SEED: Final = 1


def read_lines(paths: list[Path], column: int, language: str, count: int) -> list[str]:
    """Return different lines with numbers, as many from each file.

    paths: files of columns between tabs, which may be compressed.
    column: number of the column with the lines.
    language: code of the language of the lines.
    count: number of lines.
    """
    found = dict[str, None]()
    for number, path in enumerate(paths, 1):
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as rows:
            columns = [row.rstrip("\n").split("\t") for row in rows]
        random.Random(SEED).shuffle(columns)
        for line in (row[column] for row in columns if len(row) > column):
            if len(found) >= count * number // len(paths):
                break
            if has_numbers(line, language) or any(n > ORDINARY for n in spelled_numbers(line, language)):
                found[line] = None
    return list(found)


def spelled_numbers(text: str, language: str) -> set[int]:
    """Return the numbers of a text in digits and in words, as text2num reads them.

    text: text.
    language: code of its language.
    """
    from text_to_num import alpha2digit

    written = alpha2digit(text, language, threshold=0)
    return {int("".join(filter(str.isdecimal, number))) for number in WRITTEN.findall(written)}


def differences(source: str, answer: str, languages: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each difference of the numbers of a source and its answer: kind and numbers.

    source, answer: texts.
    languages: codes of their languages.
    """
    first, last = languages
    known, found = spelled_numbers(source, first), spelled_numbers(answer, last)
    found_by_kind: dict[str, Collection[object]] = {
        "digits that the source lacks": foreign_numbers(answer, source, (last, first)),
        "digits that the answer lacks": foreign_numbers(source, answer, languages),
        "words that the source lacks": foreign_words(answer, source, (last, first)),
        "words that the answer lacks": foreign_words(source, answer, languages),
        "second reading: numbers that the source lacks": found - known - set(range(ORDINARY + 1)),
        "second reading: numbers that the answer lacks": known - found - set(range(ORDINARY + 1)),
    }
    for kind, numbers in found_by_kind.items():
        if numbers:
            yield kind, " ".join(map(str, numbers))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument(
        "--texts", type=Path, nargs="+", required=True, help="files with columns between tabs"
    )
    parser.add_argument("--column", type=int, default=0, help="column with the lines")
    parser.add_argument("--count", type=int, default=2500, help="number of lines with numbers")
    parser.add_argument(
        "--out", type=Path, required=True, help="new file of sources, answers and differences"
    )
    given = parser.parse_args()
    service = Service.open([given.bundle], ServiceSettings(Placement(threads=1, precision="int8")))
    service.start()
    (name,) = service.repository.loaded
    languages = service.repository.loaded[name].text.languages
    lines = read_lines(given.texts, given.column, languages[0], given.count)
    counts = Counter[str]({"lines": len(lines)})
    options = TextOptions(protect=True, follow_form=True)
    with given.out.open("w", encoding="utf-8") as out:
        for line, answer in zip(lines, service.run_many(name, lines, options), strict=True):
            found = list(differences(line, answer.text, languages))
            counts.update(kind for kind, _ in found)
            counts["forced"] += answer.forced > 0
            counts["same as the source"] += answer.text == line
            shown = "; ".join(f"{kind}: {numbers}" for kind, numbers in found)
            print(line, answer.text, answer.forced, shown, sep="\t", file=out, flush=True)
    print(json.dumps(counts, indent=1))
    service.stop(drain=False)


if __name__ == "__main__":
    main()
