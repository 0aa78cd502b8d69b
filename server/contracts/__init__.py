"""The interfaces that the server answers, a room each: routes, codec, the shape of errors, open paths."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from server.contract import Contract, longest_match
from server.contracts import convoy, deepl, kserve, libretranslate

# nobody knows whose client asks for what is not there under the prefix that two contracts share
UNKNOWN: Final = replace(deepl.CONTRACT, routers=(), paths=("/v2/*",), error_keys=("message", "error"))
CONTRACTS: Final = (libretranslate.CONTRACT, convoy.CONTRACT, deepl.CONTRACT, kserve.CONTRACT, UNKNOWN)


def contract_of(path: str) -> Contract:
    """Find the contract that a path belongs to, so that its errors have that shape."""
    return max(CONTRACTS, key=lambda contract: longest_match(contract.paths, path))
