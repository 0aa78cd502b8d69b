"""`convoy corpus`: translates files in bulk, on one machine or many; each line is written once."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import typer
from tqdm import tqdm

from cli import texts
from cli.choices import ModelChoice
from cli.flags import Command, explicit_flags, extend, flags_of, options_of
from engine.answers.options import TextOptions
from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from corpus.engines import EngineChoice
    from corpus.folder import JobFolder
    from corpus.job import CorpusJob
    from corpus.plan import ShardPlan
    from engine.api import ModelRoute

MAX_PROBLEMS: Final = 20  # files with problems that standard error lists
INCOMPLETE: Final = 1  # exit code if some files can't be read to the end

Inputs = Annotated[list[str], typer.Argument(help="Files, folders, globs, or URLs that fsspec opens.")]
Out = Annotated[Path, typer.Option(help="Output folder; an interrupted job continues in it.")]
Model = Annotated[Path, typer.Option(help="A bundle folder, or with --upstreams the name of a model.")]
Fallback = Annotated[
    Path | None,
    typer.Option(help="A bundle that answers where the model of another server fails or is doubtful."),
]
Then = Annotated[Path | None, typer.Option(help="A second bundle that translates the answers of the first.")]
TextColumn = Annotated[
    str | None,
    typer.Option(help="Column of the text: a name, or a number from 1 in TSV and CSV without a header."),
]
Columns = Annotated[
    str | None,
    typer.Option(help="Columns to write, such as translation=mt,score,status. Default: translation."),
]
Format = Annotated[
    str, typer.Option("--format", help="Format of files without a known ending: text, tsv, csv or jsonl.")
]
Errors = Annotated[str, typer.Option(help="Lines that fail: stop, mark or drop.")]
OnlyLanguage = Annotated[
    bool,
    typer.Option(
        "--only-language", help="Do not translate lines in other languages than the source language."
    ),
]
ShardLines = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Lines of a shard, the unit that is repeated after an interruption. Default: 10,000; with "
        "--upstreams 500.",
    ),
]
Window = Annotated[
    int,
    typer.Option("--window", min=1, max=40_000, help="Number of lines sorted and de-duplicated together."),
]
MaxLineBytes = Annotated[int, typer.Option(min=1, help="Longer lines are not translated.")]
Engines = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of processes with an engine; default: one a core; on GPUs and with --upstreams one.",
    ),
]
LeaseSeconds = Annotated[
    float, typer.Option(min=1.0, help="Seconds after which the shards of a silent machine are free.")
]
Price = Annotated[
    float | None, typer.Option("--price-per-hour", min=0.0, help="Dollars an hour for all machines together.")
]
MetricsPort = Annotated[
    int | None, typer.Option(min=1, max=65_535, help="Port of the metrics for Prometheus.")
]


def _optional(flag: Any) -> Any:
    """Return the flag with the value None if it is not given."""
    kind, option = get_args(flag)
    return Annotated[kind | None, option]


RAY_FLAGS: Final[Mapping[str, Any]] = {
    "ray": Annotated[
        str | None,
        typer.Option(help="Ray cluster to run on: address, auto, or local for a new one on this machine."),
    ],
    "ray_cpus": Annotated[
        float | None, typer.Option(min=0.0, help="With --ray: cores of each engine; default: 1.")
    ],
    "ray_gpus": Annotated[
        float | None,
        typer.Option(min=0.0, help="With --ray: GPUs of each engine, such as 0.5; default: none."),
    ],
}
ANSWER_FLAGS: Final[Mapping[str, Any]] = flags_of("translate")
PLACE_FLAGS: Final[Mapping[str, Any]] = {
    "precision": texts.Precision,
    "backend": _optional(texts.Backend),
    "device": _optional(texts.Device),
    "threads": Annotated[int | None, typer.Option(min=1, help="Threads of each engine; default: 1.")],
    "source": texts.Source,
    "target": texts.Target,
    "shortlist": texts.Shortlist,
    "fast": _optional(texts.Fast),
    "upstreams": texts.Upstreams,
}


@dataclass(frozen=True, slots=True)
class Sharing:
    """Settings that no byte of the output depends on.

    engines: number of engines.
    lease_seconds: time without a sign of a process after which others take over its shard.
    price: dollars an hour for all machines together.
    metrics_port: TCP port on which Prometheus reads metrics; None: no metrics.
    cluster: given flags among RAY_FLAGS.
    """

    engines: int
    lease_seconds: float
    price: float | None
    metrics_port: int | None
    cluster: Mapping[str, Any]


def _corpus_flags(command: Command) -> Command:
    return extend(command, {**RAY_FLAGS, **PLACE_FLAGS, **ANSWER_FLAGS})


@_corpus_flags
def corpus(
    inputs: Inputs,
    out: Out,
    model: Model,
    then: Then = None,
    fallback: Fallback = None,
    column: TextColumn = None,
    columns: Columns = None,
    format_name: Format = "text",
    errors: Errors = "mark",
    only_language: OnlyLanguage = False,
    shard_lines: ShardLines = None,
    window_lines: Window = 4_000,
    max_line_bytes: MaxLineBytes = 1 << 20,
    engines: Engines = None,
    lease_seconds: LeaseSeconds = 60.0,
    price: Price = None,
    metrics_port: MetricsPort = None,
    **rest: Any,
) -> None:
    """Translate files of text, TSV, CSV, JSONL or Parquet, each into its own format.

    After an interruption, run it again; run it on several machines with the same --out to share the work.
    Each shard is written once, and the output has the same bytes. Exit code 1: some files could not be read
    to the end.
    """
    from corpus.engines import EngineChoice
    from corpus.job import ERRORS, REMOTE_SHARD_LINES, SHARD_LINES, CorpusJob
    from engine.api import offline_settings

    given = explicit_flags(rest)
    place = ModelChoice(model, **{"threads": 1} | _select(PLACE_FLAGS, given))
    options = options_of("translate", _select(ANSWER_FLAGS, given))
    named = {path: replace(place, model=path).remote_name for path in (model, then) if path}
    bundles = [path.resolve() for path in (*named, fallback) if path and not named.get(path)]
    settings = offline_settings(bundles, place.placement(), options.decode, _absolute(place.upstreams))
    choice = EngineChoice(tuple(bundles), settings)
    job = CorpusJob(
        **_model_fields(choice, list(named.values()), place, options, columns),
        column=column,
        errors=_check_choice("--errors", errors, ERRORS),
        only_language=only_language,
        shard_lines=shard_lines or (REMOTE_SHARD_LINES if place.upstreams else SHARD_LINES),
        window_lines=window_lines,
        max_line_bytes=max_line_bytes,
    )
    sharing = Sharing(
        engines or _engines(place), lease_seconds, price, metrics_port, _select(RAY_FLAGS, given)
    )
    _run(
        job,
        choice,
        inputs,
        _check_choice("--format", format_name, ("text", "tsv", "csv", "jsonl")),
        out,
        sharing,
    )


def _absolute(path: Path | None) -> Path | None:
    return path and path.resolve()


def _model_fields(
    choice: EngineChoice,
    names: Sequence[str | None],
    place: ModelChoice,
    options: TextOptions,
    columns: str | None,
) -> dict[str, Any]:
    """Return the fields of a job that depend on the models. Raises InvalidRequest, UnknownModel.

    choice: bundles, of the models and of the fallback.
    names: name of each model of another server, in the order of work; None: the next bundle.
    place: languages and device.
    options: options of every line.
    columns: value of --columns.
    """
    from corpus.columns import options_for, parse_columns
    from corpus.job import models_of

    default_columns = "translation,alternatives" if options.decode.get("n_best", 1) > 1 else "translation"
    chosen = parse_columns(columns or default_columns)
    service = choice.described()
    local = [info for info in service.models() if not info.remote]
    if len(local) != len(choice.models):
        raise InvalidRequest(f"{', '.join(map(str, choice.models))}: give one bundle for each model")
    rest = iter(local)
    name = "+".join(name or next(rest).name for name in names)
    known = service.route(name)
    _check_direction(known, place)
    route = service.pick(known.infos[0].task, place.source, place.target, name)
    return {
        "models": models_of(route.infos),
        "fallbacks": models_of(list(rest)),
        "route": route.name,
        "languages": (place.source or route.legs[0].source, place.target or route.legs[-1].target),
        "columns": chosen,
        "options": options_for(chosen, options),
        "runs": {
            "backend": choice.settings.placement.backend,
            "device": choice.settings.placement.device.partition(":")[0],
            "precision": choice.settings.placement.precision,
            "shortlist": place.shortlist,
            "fast": place.fast,
        },
    }


def _check_direction(route: ModelRoute, place: ModelChoice) -> None:
    """Raise InvalidRequest if a model of another server has many languages and the job names none."""
    first, last = route.legs[0].directions, route.legs[-1].directions
    several = len(first.sources) > 1 and not place.source, len(last.targets) > 1 and not place.target
    if any(info.remote for info in route.infos) and any(several):
        raise InvalidRequest(f"{route.name} has several languages: give --from and --to")


def _run(
    job: CorpusJob, choice: EngineChoice, inputs: Sequence[str], kind: str, out: Path, sharing: Sharing
) -> None:
    """Begin or continue a job, and print its summary. Raises the errors of planning and working."""
    from corpus.cutting import cut
    from corpus.engines import stopping_on
    from corpus.folder import JobFolder
    from corpus.inputs import find_inputs

    files, folder = find_inputs(inputs, kind), JobFolder(out.resolve())
    with tqdm(unit="line", desc="reading", disable=not sys.stderr.isatty(), leave=False) as bar:
        plan = folder.begin(job, files, lambda: cut(job, files, bar.update))
    with stopping_on(signal.SIGTERM, signal.SIGINT) as stopped:
        _translate(folder, plan, choice, sharing, stopped)
    summary = folder.finish(plan)["summary"]
    typer.echo(json.dumps(summary))
    if found := [f"{file.path}: {file.problem}" for file in plan.files if file.problem]:
        for problem in found[:MAX_PROBLEMS]:
            typer.echo(f"convoy: error: {problem}", err=True)
        if len(found) > MAX_PROBLEMS:
            typer.echo(f"convoy: error: manifest.json lists {len(found) - MAX_PROBLEMS} more", err=True)
        raise typer.Exit(INCOMPLETE)


def _select(flags: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values in `given` of the flags in `flags`."""
    return {name: value for name, value in given.items() if name in flags}


def _translate(
    folder: JobFolder, plan: ShardPlan, choice: EngineChoice, sharing: Sharing, stopped: Callable[[], bool]
) -> None:
    """Work on the unfinished shards, by this process with its helpers or on Ray."""
    from corpus.engines import Helpers
    from corpus.leases import Leases
    from corpus.progress import Progress
    from corpus.worker import CorpusWorker

    if len(folder.done()) == len(plan.shards):
        return
    on_ray = "ray" in sharing.cluster
    with ExitStack() as stack:
        helpers = Helpers(folder.root, choice, sharing.lease_seconds, 0 if on_ray else sharing.engines - 1)
        stack.enter_context(helpers)
        leases = stack.enter_context(Leases(folder.leases, sharing.lease_seconds))
        progress = Progress(folder, plan, leases, sharing.price, sharing.metrics_port, helpers.restart_killed)
        stack.enter_context(progress)
        if on_ray:
            from corpus.ray_data import Cluster, work_on_ray

            ray = sharing.cluster
            cpus, gpus = ray.get("ray_cpus", 1.0), ray.get("ray_gpus", 0.0)
            work_on_ray(folder, plan, choice, Cluster(ray["ray"], sharing.engines, cpus, gpus), leases)
            return
        service = stack.enter_context(choice.opened())
        CorpusWorker(folder, plan, leases).work(service, stopped)


def _engines(place: ModelChoice) -> int:
    """Return the default number of engines: on the CPU one for each `threads` cores, otherwise one."""
    from engine.api import processors

    if place.upstreams:  # one engine keeps the limits of an upstream
        return 1
    return max(1, processors() // (place.threads or 1)) if place.placement().device == "cpu" else 1


def _check_choice(flag: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise InvalidRequest(f"{flag} takes {', '.join(known)}, not {value!r}")
    return value
