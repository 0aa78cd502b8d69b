"""`convoy fetch`: fetches published models by name, verifies them, and imports them as bundles."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from engine.bundle.bundle import Bundle
    from export.fetching.job import FetchJob
    from export.fetching.offers import ModelOffer
    from export.fetching.sources import SourceTable

FAILED_CODE: Final = 2  # exit code if a model could not be fetched
RETRY_SECONDS: Final = 30.0  # first pause of --follow after a transient failure; each pause doubles the last
MAX_RETRY_SECONDS: Final = 900.0
REVISION_DIGITS: Final = 8  # digits of a commit in a list

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="[SOURCE:]NAME: firefox:de-en, firefox-registry:de-en, argos:de-en, hf:ORG/NAME[@REVISION], "
        "mirror:NAME. With --list: languages."
    ),
]
Mirror = Annotated[str, typer.Option(help="Address or folder with index.json, made by convoy package.")]
Firefox = Annotated[str, typer.Option(help="Address of Remote Settings, or of a mirror of it (hf:ORG/NAME).")]
Registry = Annotated[str, typer.Option(help="Address of Mozilla's registry of models.")]
Argos = Annotated[str, typer.Option(help="Address of the index of Argos Translate's packages.")]
Out = Annotated[Path, typer.Option(help="Folder of bundles.")]
Architecture = Annotated[
    str | None, typer.Option(help="tiny, base-memory or base, if a pair has several models.")
]
Languages = Annotated[
    str | None, typer.Option(help="Fetch the missing directions between these languages: de,en,nl.")
]
Source_ = Annotated[str | None, typer.Option("--source", help="Source language of a model that names none.")]
Target_ = Annotated[str | None, typer.Option("--target", help="Target language of a model that names none.")]


def fetch(
    names: Names = None,
    languages: Languages = None,
    listed: Annotated[bool, typer.Option("--list", help="List the models, of some languages only.")] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Replace models that have a newer version.")
    ] = False,
    mirror: Mirror = "",
    firefox: Firefox = "",
    firefox_registry: Registry = "",
    argos: Argos = "",
    out: Out = Path("models"),
    architecture: Architecture = None,
    source: Source_ = None,
    target: Target_ = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the fetched files in OUT/.fetched.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing bundles.")] = False,
    state: Annotated[
        Path | None, typer.Option(help="File for the state of each model, which convoy serve can read.")
    ] = None,
    also: Annotated[
        list[Path] | None, typer.Option(help="With --languages: another folder of bundles to search.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", hidden=True)] = False,
) -> None:
    """Fetch models, verify them and import them as bundles.

    A name without a source is one of --mirror, if it is set, otherwise of firefox. Models on disk are not
    asked for again, an interrupted download continues, and every host is named before it is asked.
    """
    from export.fetching.installing import Installer
    from export.fetching.job import FetchJob
    from export.fetching.progress import progress_report
    from export.fetching.sources import Addresses, SourceTable
    from export.fetching.state import StateFile

    addresses = Addresses(mirror, firefox, firefox_registry, argos)
    if follow:
        _end_with_parent()
    with closing(SourceTable(addresses, _say)) as sources:
        if listed or not (names or languages or update):
            _list(sources, names or [], out)
            return
        with progress_report(_complain) as report:
            installer = Installer(out, report, typer.echo, keep, source, target)
            job = FetchJob(sources, installer, StateFile(state), _error, architecture, overwrite=overwrite)
            if update:
                job.update(names or [])
            else:
                codes = [code.strip() for code in (languages or "").split(",") if code.strip()]
                _run(job, names or [], codes, also or [], follow=follow)
    if job.state.failed():
        raise typer.Exit(FAILED_CODE)


def _run(
    job: FetchJob, names: Sequence[str], languages: Sequence[str], folders: Sequence[Path], *, follow: bool
) -> None:
    """Run a job; with `follow`, again while a later try may succeed.

    job: the job.
    names: names of models.
    languages: codes of languages.
    folders: further folders of bundles.
    follow: whether to repeat it.
    """
    pause = RETRY_SECONDS
    job.run(names, languages, folders)
    while follow and job.transient:
        time.sleep(pause)
        pause = min(2 * pause, MAX_RETRY_SECONDS)
        job.run(names, languages, folders)


def _end_with_parent() -> None:
    """End this process when its stdin is closed, which happens at the end of the server that started it."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 64):  # Python can't end while a thread reads sys.stdin itself
            pass
        os._exit(1)  # what has been downloaded stays for the next start

    threading.Thread(target=watch, daemon=True).start()


def _list(sources: SourceTable, languages: Sequence[str], out: Path) -> None:
    """Print the models of the usual source, or of "SOURCE:" among the names, for some languages.

    sources: sources by name.
    languages: codes of languages, each with an optional source such as "argos:nl".
    out: folder of bundles; the fetched ones are marked, and those of other sources are printed too.
    """
    from export.fetching.installing import fetched_bundles
    from export.fetching.languages import plain_code

    chosen = [sources.split(language) for language in languages] or [(sources.usual, "")]
    there = fetched_bundles(out)
    for prefix in dict.fromkeys(prefix for prefix, _ in chosen):
        codes = {plain_code(code) for source, code in chosen if source == prefix and code}
        _list_source(sources, prefix, codes, there)


def _list_source(
    sources: SourceTable, prefix: str, codes: set[str], there: Mapping[tuple[str, str], Bundle]
) -> None:
    """Print the models of a source for some languages.

    sources: sources by name.
    prefix: name of the source.
    codes: plain codes of the languages; empty: all.
    there: fetched bundles by source and name.
    """
    from engine.errors import InvalidRequest
    from export.fetching.languages import plain_code

    def fits(source: str, target: str) -> bool:
        return codes <= {plain_code(source), plain_code(target)}

    spare = {key: bundle for key, bundle in there.items() if fits(bundle.source, bundle.target)}
    offers = sources.open(prefix).offers() if prefix != "hf" or not spare else ()
    offers = [offer for offer in offers if fits(offer.source, offer.target)]
    if not offers and not spare:
        named = ", ".join(sorted(codes))
        raise InvalidRequest(f"{prefix} has no models for {named}; languages are codes, such as de")
    for offer in offers:
        typer.echo(_offered(prefix, offer, spare.pop((prefix, offer.origin.name), None)))
    for (source, _), bundle in spare.items():
        if prefix in (source, sources.usual):
            typer.echo(_fetched(bundle))


def _offered(prefix: str, offer: ModelOffer, bundle: Bundle | None) -> str:
    """Return the line of an offer.

    prefix: name of the source.
    offer: the model.
    bundle: its bundle on disk; None: there is none.
    """
    mark = "" if bundle is None else f"on disk {_version(bundle)}".rstrip()
    names = offer.bundle, offer.pair, prefix, offer.architecture
    return _line(names, offer.origin.version, offer.size, offer.quality, offer.origin.licence, mark)


def _fetched(bundle: Bundle) -> str:
    """Return the line of a bundle that was fetched, and that the list of offers lacks."""
    origin = bundle.provenance
    assert origin is not None
    names = bundle.path.name, f"{bundle.source}-{bundle.target}", origin.source, bundle.config.architecture
    size = sum(entry.size for entry in bundle.manifest.values())
    return _line(names, _version(bundle), size, "", origin.licence, "on disk")


def _version(bundle: Bundle) -> str:
    """Return the version of a fetched bundle; without any, the beginning of its revision."""
    assert bundle.provenance is not None
    return bundle.provenance.version or bundle.provenance.revision[:REVISION_DIGITS]


def _line(names: Sequence[str], version: str, size: int, score: str, licence: str, mark: str) -> str:
    """Return a line of the list; what is unknown is "-".

    names: bundle, direction, source and architecture.
    version: version or revision.
    size: bytes of the model; 0: unknown.
    score: score that the source publishes.
    licence: licence of the model.
    mark: whether the model is on disk, with its version there.
    """
    widths = zip((*names, version), (24, 12, 8, 12, 8), strict=True)
    columns = [f"{name or '-':{width}}" for name, width in widths]
    amount = f"{size / 1e6:.1f} MB" if size else "-"
    return " ".join((*columns, f"{amount:>9}", f"{score or '-':12}", licence or "-", mark)).rstrip()


def _complain(line: str) -> None:
    typer.echo(line, err=True)


def _say(line: str) -> None:
    typer.echo(f"convoy: {line}", err=True)


def _error(fault: str) -> None:
    typer.echo(f"convoy: error: {fault}", err=True)
