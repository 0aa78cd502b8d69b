"""The origin of a model: its source, version, licence and the hashes of the fetched files.

`manifest.json` has it under "provenance"; bundles that were not fetched have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PROVENANCE: Final = "provenance"  # key in manifest.json
DEMONSTRATION: Final = "demonstration"  # source of the small models that Convoy ships


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of a model; an empty text is unknown.

    source: kind of the source, such as "firefox".
    name: name of the model at its source, such as "de-en".
    address: address that the model was fetched from.
    version: version of the model.
    revision: revision of the repository, or date of the index.
    licence: licence of the model.
    files: SHA-256 of each file as it was fetched, by name.
    """

    source: str
    name: str = ""
    address: str = ""
    version: str = ""
    revision: str = ""
    licence: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
