"""`convoy calibrate`: the quality of two models together, by the share of texts for the second one."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli import lines, texts
from cli.choices import ModelChoice
from engine.answers.options import USUAL_OPTIONS
from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from engine.api import ModelRoute, TextResult

SHARES: Final = (0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
ENOUGH: Final = 0.5  # share of the largest gain that the proposed threshold reaches
SEED: Final = 1


@dataclass(frozen=True, slots=True)
class ShareRow:
    """The quality at one share.

    share: share of the texts that the second model answers.
    score: threshold; answers of the first model with a lower score are in doubt. None: only faulty answers.
    BLEU, chrF: quality of all answers.
    chance: BLEU if the second model gets as many texts, but by chance.
    """

    share: float
    score: float | None
    BLEU: float  # noqa: N815 - the name of the measure
    chrF: float  # noqa: N815 - the name of the measure
    chance: float


def calibrate(
    model: Annotated[Path, typer.Option(help="A bundle folder: the first model, which answers all texts.")],
    upstream: Annotated[
        Path, typer.Option(help="A bundle folder, or with --upstreams a name: the model for texts in doubt.")
    ],
    source: Annotated[
        Path, typer.Option("--input", help="File of tab separated sources and references; also .gz.")
    ],
    source_column: Annotated[int, typer.Option(min=0, help="Column of the sources, from 0.")] = 0,
    target_column: Annotated[int, typer.Option(min=0, help="Column of the references, from 0.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only this many first lines.")] = None,
    share: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=1,
            help="Largest share of texts for the second model. Default: the least share with half of the "
            "largest gain.",
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="File for a plot of the table, as SVG.")] = None,
    upstreams: texts.Upstreams = None,
    precision: texts.Precision = None,
    threads: texts.Threads = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Propose when a second model answers: prints BLEU and chrF by the share of texts that it gets.

    The first model's least certain answers are replaced first. The last lines are a rule for the file of
    `convoy serve --upstreams`. Needs the extra `train`.
    """
    pairs = lines.columns(lines.table(source), source, source_column, target_column)[:limit]
    if not pairs:
        raise InvalidRequest(f"{source}: has no lines to evaluate")
    sources = [text for text, _ in pairs]
    first, results = _answers(ModelChoice(model, precision, threads=threads), sources)
    place = ModelChoice(upstream, precision, threads=threads, upstreams=upstreams)
    (leg,) = first.legs
    second, others = _answers(replace(place, source=leg.source, target=leg.target), sources)
    rows = measure(results, others, [reference for _, reference in pairs])
    if plot:
        plot.write_text(_drawing(rows), "utf-8")
    chosen = _propose(rows, share)
    if as_json:
        typer.echo(json.dumps({"rows": [asdict(row) for row in rows], "proposed": chosen and asdict(chosen)}))
        return
    typer.echo("share   score    BLEU    chrF  BLEU by chance")
    for row in rows:
        score = "" if row.score is None else f"{row.score:.3f}"
        typer.echo(f"{row.share:5.2f}  {score:>6}  {row.BLEU:6.2f}  {row.chrF:6.2f}  {row.chance:6.2f}")
    if chosen is None:
        typer.echo("\nno rule: the second model improves no share of these answers")
        return
    typer.echo(
        f'\n[routing."{leg.source}:{leg.target}"]\nfirst = "{first.models}"\nsecond = "{second.models}"\n'
        f"score = {chosen.score:.3f}\nshare = {chosen.share:.2f}"
    )


def _answers(place: ModelChoice, sources: Sequence[str]) -> tuple[ModelRoute, list[TextResult]]:
    """Return a model in one direction, and its answers to texts. Raises UnknownModel."""
    from engine.api import offline_service

    options, name = USUAL_OPTIONS["translate"], place.remote_name
    # no local model answers for an upstream
    models = list[Path]() if name or place.model is None else place.model
    with offline_service(models, place.placement(), options.decode, place.upstreams) as service:
        route = service.pick("translate", place.source, place.target, name or service.models()[0].name)
        return route, list(texts.answers(service, "translate", sources, options, len(sources), route))


def measure(
    results: Sequence[TextResult], others: Sequence[TextResult], references: Sequence[str]
) -> list[ShareRow]:
    """Return the quality of the answers of two models by the share of the second one.

    results: answers of the first model.
    others: answers of the second model.
    references: reference of each text.
    """
    from engine.api import is_usable
    from training.scores import bleu

    by_doubt = sorted(range(len(results)), key=lambda number: confidence(results[number]))
    by_chance = random.Random(SEED).sample(by_doubt, len(by_doubt))
    rows = list[ShareRow]()
    for count in dict.fromkeys(round(share * len(results)) for share in SHARES):
        mixed, chance = (
            bleu(
                [
                    others[n].text if n in sent and is_usable(others[n]) else one.text
                    for n, one in enumerate(results)
                ],
                references,
            )
            for sent in (set(by_doubt[:count]), set(by_chance[:count]))
        )
        # the next answer is the first one that stays; a sum of rounded numbers may exceed 0
        next_score = confidence(results[by_doubt[count]]) if count < len(results) else 0.0
        score = next_score if count and math.isfinite(next_score) else None
        rows.append(ShareRow(count / len(results), score, mixed["BLEU"], mixed["chrF"], chance["BLEU"]))
    return rows


def confidence(result: TextResult) -> float:
    """Return the score of an answer; minus infinity if it has a fault that no score makes up for."""
    faulty = result.repetition.loop or result.finish == "length" or result.forced
    return -math.inf if faulty else min(result.score, 0.0)


def _propose(rows: Sequence[ShareRow], share: float | None) -> ShareRow | None:
    """Return the row for a rule, None if no row has a threshold and is better than the first model alone."""
    better = [row for row in rows if row.score is not None and row.BLEU > rows[0].BLEU]
    if share is not None:
        better = [row for row in better if row.share <= share][-1:]
    enough = ENOUGH * max((row.BLEU - rows[0].BLEU for row in better), default=0.0)
    return next((row for row in better if enough <= row.BLEU - rows[0].BLEU), None)


def _drawing(rows: Sequence[ShareRow]) -> str:
    """Return the gains over the first model as SVG."""
    from training.curve import svg

    first = rows[0]
    curves = {
        "BLEU": [(row.share, row.BLEU - first.BLEU) for row in rows],
        "chrF": [(row.share, row.chrF - first.chrF) for row in rows],
        "BLEU, texts by chance": [(row.share, row.chance - first.BLEU) for row in rows],
    }
    return svg(curves, "share of texts for the second model", "points above the first model alone")
