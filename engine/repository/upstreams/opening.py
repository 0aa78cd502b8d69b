"""Upstreams as models. Their path is the file of the settings with their name behind it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from engine.answers.directions import Directions
from engine.answers.text_model import TextModel
from engine.errors import BundleError, ConfigError
from engine.repository.loading import LoadedModel, ModelFacts, ModelInfo, ModelSource, ServiceSettings
from engine.repository.upstreams.engine import UpstreamEngine
from engine.repository.upstreams.settings import Upstream, read_upstreams
from engine.text.placeables.markup import compile_patterns
from engine.text.tokenizers.characters import EOS, SYMBOLS, VOCABULARY, CodePoints
from engine.types import QUOTAS, DecodeOptions, Limits

ARCHITECTURE: Final = "upstream"
OPENER: Final = "engine.repository.upstreams.opening:open_text"
HEAD_TOKENS: Final = 3  # tokens of a source that are no text: two languages, and the end
SHARE_OF_TARGET: Final = 8  # longest answer, by the longest source


def open_upstreams(file: Path, settings: ServiceSettings) -> list[LoadedModel]:
    """Open the upstreams of a file with their engines, not started. Raises ConfigError.

    file: file with the settings of upstreams.
    settings: settings of all models.
    """
    return [_open(file / upstream.name, upstream, settings) for upstream in read_upstreams(file)]


def with_upstreams(source: ModelSource, settings: ServiceSettings) -> ModelSource:
    """Return a source that also opens the upstreams of the settings.

    source: source of bundles.
    settings: settings of all models.
    """

    def facts(path: Path) -> ModelFacts:
        return facts_of(path, settings) if path.parent == settings.upstreams else source.facts(path)

    def load(path: Path) -> LoadedModel:
        if path.parent != settings.upstreams:
            return source.open(path)
        return _open(path, _find(path), settings)

    return replace(source, facts=facts, open=load)


def _open(path: Path, upstream: Upstream, settings: ServiceSettings) -> LoadedModel:
    """Return an upstream with its engine, not started. Raises BundleError."""
    facts = _describe(path, upstream, settings)
    return LoadedModel(facts, text_of(facts.info), UpstreamEngine(upstream))


def text_of(info: ModelInfo) -> TextModel:
    """Return the text side of an upstream, in its usual direction."""
    compile_patterns()
    return open_text(info.name, info.architecture, info.source, info.target, info.options, info.limits)


@lru_cache(maxsize=8)
def open_text(
    name: str, kind: str, source: str, target: str, defaults: DecodeOptions, limits: Limits
) -> TextModel:
    """Return the text side of an upstream in one direction; workers call it.

    name: name of the model.
    kind: ARCHITECTURE and the unit of its requests.
    source, target: codes of the languages.
    defaults: default decoding options of the model.
    limits: limits of the model.
    """
    return TextModel(
        task="translate",
        source=source,
        target=target,
        tokenizer=CodePoints(source, target),
        defaults=defaults,
        limits=limits,
        eos=EOS,
        name=name,
        max_sentence_tokens=limits.source,
        bundle=(name, kind),
        remote=True,
        paragraphs=kind.endswith("paragraph"),
        opener=OPENER,
    )


def _find(path: Path) -> Upstream:
    """Return the upstream of a path. Raises ConfigError."""
    for upstream in read_upstreams(path.parent):
        if upstream.name == path.name:
            return upstream
    raise ConfigError(f"{path.parent} has no upstream {path.name!r} any more")


def facts_of(path: Path, settings: ServiceSettings) -> ModelFacts:
    """Return the facts of an upstream, which takes no memory. Raises ConfigError."""
    return _describe(path, _find(path), settings)


def _describe(path: Path, upstream: Upstream, settings: ServiceSettings) -> ModelFacts:
    """Return the facts of an upstream. Raises BundleError."""
    directions: Directions = upstream.directions
    if settings.languages:
        directions = directions.within(settings.languages)
    if directions.empty:
        raise BundleError(f"{path}: none of its languages is among those that are served")
    limits = Limits(QUOTAS, upstream.longest + HEAD_TOKENS, SHARE_OF_TARGET * upstream.longest, VOCABULARY)
    source = directions.sources[0]
    # the usual direction is between two languages
    targets = sorted(directions.targets, key=lambda code: code == source)
    info = ModelInfo(
        name=upstream.name,
        task="translate",
        source=source,
        target=targets[0],
        architecture=f"{ARCHITECTURE}, by {upstream.unit}",
        parameters=0,
        limits=limits,
        precision="",
        backend=ARCHITECTURE,
        options=DecodeOptions(beam_size=1),
        placeholders=len(SYMBOLS),
        device=upstream.host,
        sources=directions.sources,
        targets=tuple(targets),
        digest=upstream.digest,
        remote=upstream.host,
        prefers=upstream.prefers,
    )
    return ModelFacts(path, info, 0)
