"""How many placeholders a model keeps by itself, with the search limited to those of the source, and free.

    python -m loadtest.engine.kept_phrases models/tatoeba-de-en --pairs CORPORA/tatoeba-de-en/test.tsv.gz

The phrase of each pair is a name or a number that stands in source and translation once.
Needs sacrebleu from PyPI.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import sacrebleu

from engine.answers.compose import compose
from engine.answers.options import TextOptions
from engine.answers.plan import Plan, plan
from engine.answers.text_model import TextModel
from engine.api import Placement, Service, ServiceSettings
from engine.schedule.aio import generate_group
from engine.schedule.any_engine import AnyEngine
from engine.schedule.slices import at_once
from engine.text.placeables.masking import MarkedText
from engine.types import Result

PHRASE = re.compile(r"(?<=[ „\"])(?:[^\W\d_a-zäöü][a-zäöüß]{2,}|\d{2,})\b")


def marked_pairs(path: Path) -> Iterator[tuple[MarkedText, str]]:
    """Yield sources with what both sides have in common, and their translations."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for source, target in (line.rstrip("\n").split("\t") for line in lines):
            for match in PHRASE.finditer(source):
                if all(len(re.findall(rf"\b{match[0]}\b", text)) == 1 for text in (source, target)):
                    yield MarkedText(source, (match.span(),)), target
                    break


def fates(model: TextModel, plan: Plan, results: Sequence[Result]) -> Iterator[str]:
    """Yield what became of the placeholders of each sentence's best hypothesis, before it is mended.

    model: has the placeholders.
    plan: of the text.
    results: of its sentences.
    """
    for place, result in zip(plan.places, results, strict=True):
        sentence = plan.sentences[place]
        pieces = Counter(model.placeholder_tokenizer.pieces(result.hypotheses[0].tokens, target=True))
        count = {symbol: pieces[symbol] for symbol in model.placeholders}
        wanted = set(sentence.symbols.values())
        if not wanted:
            continue
        missing = any(not count[symbol] for symbol in wanted)
        excess = any(number > (symbol in wanted) for symbol, number in count.items())
        yield "missing" if missing else "excess" if excess else "whole"


def row(
    engine: AnyEngine, model: TextModel, pairs: Sequence[tuple[MarkedText, str]], beam: int, limited: bool
) -> str:
    """Decode all pairs and say, in one row of the table, what became of their placeholders.

    engine: decodes.
    model: its text side.
    pairs: sources with their phrases, and translations.
    beam: width of the search.
    limited: whether the search may bring no other placeholders than the source's.
    """
    options = TextOptions(decode={"beam_size": beam}, protect=True, follow_form=True)
    plans = [plan(model, source, options) for source, _ in pairs]
    jobs = [job for one in plans for job in one.jobs]
    if not limited:
        jobs = [job._replace(options=replace(job.options, quotas=())) for job in jobs]
    results = iter(asyncio.run(generate_group(engine, jobs)))
    shares, texts = Counter[str](), list[str]()
    for one in plans:
        own = [next(results) for _ in one.places]
        shares.update(fates(model, one, own))
        texts.append(at_once(compose(model, one, own)).text)
    bleu = sacrebleu.corpus_bleu(texts, [[target for _, target in pairs]]).score
    percentages = (f"{shares[fate] / shares.total():.1%}" for fate in ("whole", "missing", "excess"))
    return " | ".join((model.name, str(beam), "limited" if limited else "free", *percentages, f"{bleu:.2f}"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("bundles", type=Path, nargs="+")
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    arguments = parser.parse_args()
    pairs = list(marked_pairs(arguments.pairs))
    print("model | beam | search | whole | missing | excess | BLEU")
    for bundle in arguments.bundles:
        service = Service.open([bundle], ServiceSettings(Placement(threads=1)))
        service.start()
        (loaded,) = service.repository.loaded.values()
        for beam in arguments.beams:
            for limited in (False, True):
                print(row(loaded.engine, loaded.text, pairs, beam, limited), flush=True)
        service.stop(drain=False, timeout=10)


if __name__ == "__main__":
    main()
