"""The sources of models by the prefix of a name, such as "firefox:de-en"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from engine.errors import InvalidRequest
from export.fetching.argos import Argos
from export.fetching.firefox import Firefox
from export.fetching.hugging_face import HuggingFace
from export.fetching.mirror import Mirror
from export.fetching.offers import Source
from export.fetching.registry import Registry
from export.fetching.web import Web

SOURCE_NAMES: Final = ("firefox", "firefox-registry", "argos", "hf", "mirror")


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses of the sources; "": the usual one, and no mirror."""

    mirror: str = ""
    firefox: str = ""
    firefox_registry: str = ""
    argos: str = ""


class SourceTable:
    """The sources of one command; each is opened once."""

    def __init__(self, addresses: Addresses, say: Callable[[str], object]) -> None:
        """Open no source yet.

        addresses: addresses of the sources.
        say: receives one line for each host before it is asked, and for each model that can't be used.
        """
        self._addresses, self._say = addresses, say
        self._web: Web | None = None
        self._opened: dict[str, Source] = {}

    @property
    def usual(self) -> str:
        """Source of names without a prefix."""
        return "mirror" if self._addresses.mirror else "firefox"

    def split(self, name: str) -> tuple[str, str]:
        """Return the source of a name, and the name without its prefix. Raises InvalidRequest."""
        prefix, colon, rest = name.partition(":")
        if not colon:
            if "/" in name:
                raise InvalidRequest(f"{name}: names no source; a repository of Hugging Face is hf:{name}")
            return self.usual, name
        if prefix not in SOURCE_NAMES:
            raise InvalidRequest(f"{name}: there is no source {prefix}; there are {', '.join(SOURCE_NAMES)}")
        return prefix, rest

    def open(self, name: str) -> Source:
        """Return the source of a name in SOURCE_NAMES. Asks no host."""
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    def close(self) -> None:
        """Close the connections of all sources."""
        if self._web is not None:
            self._web.close()

    def _open(self, name: str) -> Source:
        web = self._web = self._web or Web(self._say)
        to, note = self._addresses, self._say
        if name == "mirror":
            return Mirror(web, to.mirror)
        if name == "hf":
            return HuggingFace(web)
        if name == "argos":
            return Argos(web, to.argos, note)
        if name == "firefox":
            return Firefox(web, to.firefox, note)
        return Registry(web, to.firefox_registry, note)
