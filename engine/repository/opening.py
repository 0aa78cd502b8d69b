"""Opens the models of a service: bundles, and models of other servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from engine.bundle.bundle import Bundle, open_bundle
from engine.bundle.tensors import remove_shared
from engine.errors import BundleError
from engine.executors import check_devices
from engine.repository.folders import Folders
from engine.repository.loading import (
    LoadedModel,
    ModelSource,
    ServiceSettings,
    check_budget,
    costs_of,
    facts_of,
    open_bundles,
    open_model,
    undamaged,
)
from engine.repository.repository import Repository
from engine.schedule.stats import Observer


def open_repository(
    paths: Sequence[Path],
    settings: ServiceSettings,
    observe: Callable[[str], Observer] | None = None,
    *,
    lazily: bool = False,
) -> tuple[Repository, Folders]:
    """Open models, not started, and their folders. Raises the errors of `Service.open`.

    paths, settings, observe, lazily: parameters of `Service.open`.
    """
    lazily = lazily or settings.budget is not None
    settings.placement.check()
    if not lazily:  # a process that only describes models needs no GPU
        check_devices(settings.placement)
    bundles = open_bundles(paths, settings, verify=settings.verify and not lazily)
    limit = settings.budget
    if limit is None and settings.ceiling is not None:
        costs = costs_of(bundles, settings)
        limit = max(settings.ceiling, *costs, 0)  # a single model is loaded even if it is larger
        lazily = lazily or sum(costs) > limit

    def load(bundle: Bundle) -> LoadedModel:
        return open_model(bundle, settings, observe(bundle.name) if observe else None)

    def read(path: Path) -> Bundle:
        return open_bundle(path, verify=settings.verify)

    clean = partial(remove_shared, settings.placement.shared)
    source = ModelSource(lambda path: facts_of(read(path), settings), lambda p: load(read(p)), clean)
    source, remote = _add_upstreams(source, settings, {bundle.name for bundle in bundles})
    by_path = {bundle.path: bundle for bundle in bundles}
    if lazily:
        facts = undamaged(list(by_path), paths, settings, lambda p: facts_of(by_path[p], settings))
        check_budget(facts, settings.budget)
        facts += [model.facts for model in remote]
        repository = Repository(facts, source, limit, remote)
    else:
        loaded = undamaged(list(by_path), paths, settings, lambda path: load(by_path[path])) + remote
        facts = [model.facts for model in loaded]
        repository = Repository(facts, source, limit, loaded, eager=True)
    served = {one.info.name: one.path for one in facts}
    return repository, Folders(paths, served, settings.languages)


def _add_upstreams(
    source: ModelSource, settings: ServiceSettings, names: set[str]
) -> tuple[ModelSource, list[LoadedModel]]:
    """Return a source that also opens upstreams, and the opened upstreams.

    source: source of bundles.
    settings: settings of all models.
    names: names of the bundles.

    Raises ConfigError, and BundleError if an upstream has the name of a bundle.
    """
    if settings.upstreams is None:
        return source, []
    # imports httpx
    from engine.repository.upstreams.opening import open_upstreams, with_upstreams

    remote = open_upstreams(settings.upstreams, settings)
    if taken := [model.info.name for model in remote if model.info.name in names]:
        raise BundleError(f"{settings.upstreams}: a bundle has the name {taken[0]!r}: rename the upstream")
    return with_upstreams(source, settings), remote
