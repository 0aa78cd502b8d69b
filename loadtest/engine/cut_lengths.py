"""How well a model translates long texts by the length at which it cuts sentences, for `max_sentence_tokens`.

    python -m loadtest.engine.cut_lengths models/tatoeba-de-en --input CORPORA/newstest/newstest2013.de.gz \
        --reference CORPORA/newstest/newstest2013.en.gz

Texts without ends: neighbouring lines of the input, joined, without any of `.!?:;`. Long sentences: the first
lines of many words, as they are. The seconds are those of the processor. Needs sacrebleu from PyPI.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

import sacrebleu

from cli import lines
from engine.answers.compose import compose
from engine.answers.options import TextOptions
from engine.answers.plan import plan
from engine.answers.text_model import TextModel
from engine.api import Placement, Service, ServiceSettings
from engine.schedule.aio import generate_group
from engine.schedule.any_engine import AnyEngine
from engine.schedule.slices import at_once

WITHOUT_ENDS: Final = str.maketrans("", "", ".!?:;")
TEXTS: Final = 10
TEXT_WORDS: Final = 450
SENTENCES: Final = 80
SENTENCE_WORDS: Final = 39

Pair = tuple[str, str]


def joined(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield texts of `TEXT_WORDS` words and more, of neighbouring pairs, without ends of sentences."""
    sources, references = list[str](), list[str]()
    for source, reference in pairs:
        sources.append(source.translate(WITHOUT_ENDS).strip())
        references.append(reference.translate(WITHOUT_ENDS).strip())
        if len(" ".join(sources).split()) >= TEXT_WORDS:
            yield " ".join(sources), " ".join(references)
            sources, references = [], []


def score(engine: AnyEngine, model: TextModel, pairs: Sequence[Pair]) -> str:
    """Translate texts and say BLEU and chrF against their references, and processor seconds.

    engine: decodes.
    model: its text side.
    pairs: sources with references.
    """
    began = time.process_time()
    plans = [plan(model, source, TextOptions()) for source, _ in pairs]
    results = iter(asyncio.run(generate_group(engine, [job for one in plans for job in one.jobs])))
    texts = [at_once(compose(model, one, [next(results) for _ in one.places])).text for one in plans]
    seconds, references = time.process_time() - began, [[reference for _, reference in pairs]]
    bleu, chrf = sacrebleu.corpus_bleu(texts, references), sacrebleu.corpus_chrf(texts, references)
    return f"{bleu.score:.2f}, {chrf.score:.1f} | {seconds:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--input", type=Path, required=True, help="pairs between tabs, or sources; maybe .gz")
    parser.add_argument("--reference", type=Path, help="references, where --input holds sources only")
    parser.add_argument("--columns", type=int, nargs=2, default=(0, 1), help="of source and reference")
    parser.add_argument("--cuts", type=int, nargs="+", default=[32, 48, 64, 96, 128, 256])
    given = parser.parse_args()
    table = lines.table(given.input)
    pairs = (
        list(zip(table, lines.table(given.reference), strict=True))
        if given.reference
        else lines.columns(table, given.input, *given.columns)
    )
    texts = list(islice(joined(pairs), TEXTS))
    long = list(islice((pair for pair in pairs if len(pair[0].split()) >= SENTENCE_WORDS), SENTENCES))
    service = Service.open([given.bundle], ServiceSettings(Placement(threads=1)))
    service.start()
    (loaded,) = service.repository.loaded.values()
    print(f"cut at | {len(texts)} texts without ends: BLEU, chrF | s | {len(long)} long sentences | s")
    for cut in given.cuts:
        model = replace(loaded.text, max_sentence_tokens=cut)
        columns = [score(loaded.engine, model, each) for each in (texts, long) if each]
        print(" | ".join((str(cut), *columns)), flush=True)
    service.stop(drain=False, timeout=10)


if __name__ == "__main__":
    main()
