"""`convoy evaluate`: scores the texts of a model by the standard measures."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from cli import lines, local, texts
from cli.choices import ModelChoice
from cli.flags import answer_flags, options_of
from engine.answers.options import TextOptions
from engine.errors import InvalidRequest


@answer_flags("translate", ("truncate", "replace_unk"))
def evaluate(
    model: Annotated[Path, typer.Option(help="A bundle folder.")],
    source: Annotated[
        Path, typer.Option("--input", help="File of tab separated columns, or of one text a line; also .gz.")
    ],
    reference: Annotated[
        Path | None, typer.Option(help="File of references, one a line, if --input has sources only.")
    ] = None,
    source_column: Annotated[int, typer.Option(min=0, help="Column of the sources, from 0.")] = 0,
    target_column: Annotated[int, typer.Option(min=0, help="Column of the references, from 0.")] = 1,
    domain_column: Annotated[
        int | None,
        typer.Option(min=0, help="Column of the domain of each line: scores each domain too, as a table."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only this many first lines.")] = None,
    output: Annotated[Path | None, typer.Option(help="File for the texts of the model.")] = None,
    precision: texts.Precision = None,
    choose_precision: Annotated[
        bool,
        typer.Option(
            "--choose-precision",
            help="Score fp32 and int8 and write both into the bundle: they decide its default precision.",
        ),
    ] = False,
    backend: texts.Backend = None,
    device: texts.Device = "cpu",
    threads: texts.Threads = None,
    shortlist: texts.Shortlist = None,
    fast: texts.Fast = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    **options: Any,
) -> None:
    """Score a model on a file: BLEU and chrF, or for summaries ROUGE (needs the extra `train`).

    Decoding flags are the flags of `convoy translate`; their defaults are the bundle's.
    """
    pairs, domains = _read(source, reference, (source_column, target_column, domain_column), limit)
    if choose_precision and (precision or device != "cpu"):
        raise InvalidRequest(
            "--choose-precision scores fp32 and int8 on the CPU: leave out --precision and --device"
        )
    place = ModelChoice(model, precision, backend, device, threads, shortlist=shortlist, fast=fast)
    began, measure = time.monotonic(), score_both if choose_precision else score
    scores, hypotheses = measure(place, options_of("translate", options), pairs)
    report = {name: round(value, 2) for name, value in scores.items()}
    report |= {"lines": len(pairs), "seconds": round(time.monotonic() - began, 1)}
    if output:
        with lines.writing(output) as out:
            out.writelines(f"{text}\n" for text in hypotheses)
    by_domain = _scores_by_domain(model, domains, pairs, hypotheses)
    _print(report, by_domain, as_json=as_json)


def _read(
    source: Path, reference: Path | None, columns: tuple[int, int, int | None], limit: int | None
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return source and reference of each line, and its domain.

    source: file of the sources.
    reference: file of the references; None: they are a column of `source`.
    columns: columns of source, reference and domain; None: the lines have no domains.
    limit: number of first lines to read; None: all.

    Raises InvalidRequest if a column or a reference is missing, or if there are no lines.
    """
    rows, (source_column, target_column, domain_column) = lines.table(source), columns
    if reference and domain_column is not None:
        raise InvalidRequest("--domain-column needs references in a column of --input, not --reference")
    if reference:
        pairs = _pair_with_references(rows, lines.table(reference))
    else:
        pairs = lines.columns(rows, source, source_column, target_column)
    if not pairs:
        raise InvalidRequest(f"{source}: has no lines to evaluate")
    if domain_column is None:
        return pairs[:limit], []
    domains = lines.columns(rows, source, domain_column, source_column)
    return pairs[:limit], [domain for domain, _ in domains[:limit]]


def _print(
    report: Mapping[str, float], by_domain: Mapping[str, Mapping[str, float]], *, as_json: bool
) -> None:
    """Print the scores of all lines and of each domain."""
    if as_json:
        typer.echo(json.dumps({**report, "domains": by_domain} if by_domain else report))
        return
    for name, value in report.items():
        typer.echo(f"{name:12} {value}")
    if by_domain:
        typer.echo(_table(by_domain))


def _scores_by_domain(
    model: Path, domains: Sequence[str], pairs: Sequence[tuple[str, str]], hypotheses: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return the scores and the number of lines of each domain, in the order of the file.

    model: bundle folder, for the measures of its task.
    domains: domain of each line, or no domains.
    pairs: source and reference of each line.
    hypotheses: text of the model for each line.
    """
    if not domains:
        return {}
    from engine.bundle.bundle import open_bundle
    from training.scores import METRICS

    measure = METRICS[open_bundle(model, verify=False).task]
    members: dict[str, list[int]] = {}
    for number, domain in enumerate(domains):
        members.setdefault(domain, []).append(number)
    return {
        domain: {"lines": len(numbers)}
        | {
            name: round(value, 2)
            for name, value in measure(
                [hypotheses[n] for n in numbers], [pairs[n][1] for n in numbers]
            ).items()
        }
        for domain, numbers in members.items()
    }


def _table(by_domain: Mapping[str, Mapping[str, float]]) -> str:
    """Return a table in Markdown: a row for each domain, a column for each figure."""
    names = list(next(iter(by_domain.values())))
    rows = [[domain, *map(str, figures.values())] for domain, figures in by_domain.items()]
    cells = [["domain", *names], ["---"] * (1 + len(names)), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def score(
    place: ModelChoice, options: TextOptions, pairs: Sequence[tuple[str, str]]
) -> tuple[dict[str, float], list[str]]:
    """Return the scores of a model by the measures of its task, and its texts.

    place: the model, and where it runs.
    options: options of the answers; `protect` and `follow_form` are switched off.
    pairs: source and reference of each text.
    """
    from training.scores import METRICS

    options = replace(options, protect=False, follow_form=False)
    with local.open_service(place, options) as service:
        task = service.models()[0].task
        if task not in METRICS:
            raise InvalidRequest(f"no measure for the task {task!r}; known are {sorted(METRICS)}")
        results = texts.answers(service, task, [source for source, _ in pairs], options, len(pairs))
        hypotheses = [result.text for result in results]
    return METRICS[task](hypotheses, [r for _, r in pairs]), hypotheses


def score_both(
    place: ModelChoice, options: TextOptions, pairs: Sequence[tuple[str, str]]
) -> tuple[dict[str, float], list[str]]:
    """Score a bundle in fp32 and int8, and write both scores into it; returns `score` in its new default.

    place: the bundle, and where it runs; its precision is ignored.
    options: options of the answers.
    pairs: source and reference of each text.
    """
    from engine.bundle.bundle import add_files
    from engine.executors import INT8_FILE, Int8Scores

    assert place.model is not None
    wide, narrow = (score(replace(place, precision=name), options, pairs) for name in ("fp32", "int8"))
    metric = next(iter(wide[0]))
    found = Int8Scores(metric, len(pairs), round(wide[0][metric], 2), round(narrow[0][metric], 2))
    add_files(place.model, {INT8_FILE: found.to_json()})
    typer.echo(f"{place.model}: {found}", err=True)
    return narrow if found.fits else wide


def _pair_with_references(sources: list[str], references: list[str]) -> list[tuple[str, str]]:
    """Return each source with its reference. Raises InvalidRequest if their numbers differ."""
    if len(sources) != len(references):
        raise InvalidRequest(
            f"{len(sources)} sources, but {len(references)} references: give one for each source"
        )
    return list(zip(sources, references, strict=True))
