"""Fetches the models that a server lacks, in a process of its own, while the server uses the others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from server.settings import ServerSettings

WATCH_SECONDS: Final = 1.0  # between two scans for fetched models
END_SECONDS: Final = 5.0


@contextmanager
def fetching(settings: ServerSettings) -> Iterator[ServerSettings]:
    """Fetch the missing models of the settings to the end of the context; yield the settings to serve with.

    settings: settings of the server; `languages` and `fetch` name the models.

    If all models are on disk, nothing is started and no host is asked.
    """
    from server.process.temporary import OwnFolder

    out = settings.fetch_out or settings.models[0]
    if settings.fetch_out is not None and _has_bundles(out):
        settings = _with_folder(settings, out)
    missing = _missing(settings, out)
    if not missing:
        yield settings
        return
    with closing(OwnFolder("convoy-fetch-")) as folder:
        state = settings.fetch_state or folder.path / "state.json"
        _begin(missing, state)
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            typer.echo(f"convoy: {out}: can't make the folder ({error.strerror})", err=True)
        else:
            settings = _with_folder(settings, out)
        watch = min(settings.watch or WATCH_SECONDS, WATCH_SECONDS)
        process = _start(settings, out, state)
        try:
            yield settings.model_copy(update={"watch": watch, "fetch_state": state})
        finally:
            _end(process)


def _has_bundles(folder: Path) -> bool:
    from engine.bundle.manifest import MANIFEST

    return any(folder.glob(f"*/{MANIFEST}"))


def _with_folder(settings: ServerSettings, out: Path) -> ServerSettings:
    """Return the settings with a folder of fetched models."""
    return settings.model_copy(update={"models": tuple(dict.fromkeys((*settings.models, out)))})


def _missing(settings: ServerSettings, out: Path) -> list[str]:
    """Return the names of models and directions that are not on disk. Asks no host."""
    if not (settings.languages or settings.fetch):
        return []
    from export.fetching.installing import installed
    from export.fetching.languages import missing_legs, missing_pairs, name_of, pairs_on_disk, wanted_pairs
    from export.fetching.sources import Addresses, SourceTable

    there = pairs_on_disk((*settings.models, out))
    pairs = missing_legs(missing_pairs(wanted_pairs(settings.languages), there), there)
    sources = SourceTable(Addresses(settings.fetch_mirror), typer.echo)
    names = [name for name in settings.fetch if installed(out, *sources.split(name)) is None]
    return [*names, *map(name_of, pairs)]


def _begin(missing: list[str], state: Path) -> None:
    """Write the state of each missing model before the first request can arrive."""
    from export.fetching.state import WAITING, StateFile

    states = StateFile(state)
    for name in missing:
        states.set(name, WAITING)


def _start(settings: ServerSettings, out: Path, state: Path) -> subprocess.Popen[bytes]:
    """Start the process; it ends when its stdin is closed, so also when this process is killed."""
    words = ["fetch", *settings.fetch, "--out", out, "--state", state, "--follow"]
    if settings.languages:
        words += ["--languages", ",".join(settings.languages)]
    words += [word for path in settings.models if path != out for word in ("--also", path)]
    for flag in ("mirror", "firefox", "argos"):
        if address := getattr(settings, f"fetch_{flag}"):
            words += [f"--{flag}", address]
    command = [sys.executable, "-m", "cli.main", *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process; downloaded files stay for the next start."""
    assert process.stdin is not None
    process.stdin.close()
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
