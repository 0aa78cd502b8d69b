"""Models of this machine: the ones that a command may use, and the choice of one for a text."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cli.choices import ModelChoice
from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from engine.answers.options import TextOptions
    from engine.api import ModelRoute, Service

VARIABLE: Final = "CONVOY_MODELS"  # folders of models, as for `convoy serve`
HERE: Final = "models"  # default folder of models
AUTO: Final = "auto"  # word for a language that is detected


def open_service(place: ModelChoice, options: TextOptions) -> AbstractContextManager[Service]:
    """Start a service with lanes as wide as some options need, and stop it at the end.

    place: the model; without a bundle, all bundles of CONVOY_MODELS or of the folder `models`.
    options: decoding and text options given by flags.

    Raises BundleError, and InvalidRequest when there is no model.
    """
    from engine.api import offline_service

    bundles = (None if place.remote_name else place.model) or _folders(needed=place.upstreams is None)
    return offline_service(bundles, place.placement(), options.decode, place.upstreams)


def source_is_open(task: str, place: ModelChoice) -> bool:
    """Return whether the language of the text must be detected.

    task: "translate" or "summarize".
    place: model and languages, as the user gave them.
    """
    named = place.source or (not place.remote_name and place.model) or AUTO
    return task == "translate" and AUTO in (place.source, named)


def choose_route(service: Service, task: str, place: ModelChoice, sample: str) -> ModelRoute:
    """Return the model of a service, or the pair of models, that answers a text.

    service: service of `open_service`.
    task: "translate" or "summarize".
    place: model and languages, as the user gave them.
    sample: beginning of the text, if `source_is_open`.

    Raises UnknownModel, and InvalidRequest if a language must be given.
    """
    name = place.remote_name or (service.models()[0].name if place.model else None)
    source = None if place.source is None else _code(service, place.source)
    target = None if place.target is None else _code(service, place.target)
    if source_is_open(task, place):
        source, target = _detected(service, target, sample)
    return service.pick(task, source, target, name)


def _folders(*, needed: bool) -> list[Path]:
    """Return the usual folders of models. Raises InvalidRequest if there are none, but some are needed."""
    named = os.environ.get(VARIABLE)
    if not named and not Path(HERE).is_dir():
        if not needed:
            return []
        raise InvalidRequest(
            f"there is no folder {HERE}: give --model with a bundle folder, --url with a server, or name the "
            f"folders of models in {VARIABLE}"
        )
    return [Path(folder) for folder in (named or HERE).split(os.pathsep)]


def _code(service: Service, language: str) -> str:
    """Return the code of a language as the models write it, for any usual code or name of it."""
    from server.languages import resolve_code

    return resolve_code(language, {known.code for known in service.languages()})


def _detected(service: Service, target: str | None, sample: str) -> tuple[str, str]:
    """Return the language of a text, and the target. Raises InvalidRequest if one of them is not clear."""
    from server.languages import name_of

    targets = sorted({code for language in service.languages() for code in language.targets})
    if target is None:
        if len(targets) > 1:
            raise InvalidRequest(f"give --to: the models translate to {', '.join(targets)}")
        (target,) = targets
    sources = [known.code for known in service.languages() if target in known.targets]
    if not sources:
        raise InvalidRequest(f"no model translates to {target}, only to {', '.join(targets)}")
    detection = service.detect(sample, sources)
    if detection.other is not None:
        raise InvalidRequest(
            f"the text seems to be {name_of(detection.other)}, which no model translates to {target}; if it "
            f"is not, give --from with one of {', '.join(sources)}"
        )
    return detection.ranked[0][0], target
