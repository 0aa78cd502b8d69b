"""The interfaces that the server answers, with a folder for each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from engine.api import ConfigError
from server.contract import Contract, longest_match, under
from server.contracts import convoy, deepl, kserve, libretranslate, ollama, openai
from server.contracts.reading import reading_contracts

# unknown paths under /v2 may be from clients of either contract, so that errors have both shapes
UNKNOWN: Final = replace(deepl.CONTRACT, routers=(), paths=("/v2/*",), error_body=under("message", "error"))
CONTRACTS: Final = (
    *(libretranslate.CONTRACT, convoy.CONTRACT, deepl.CONTRACT, kserve.CONTRACT, openai.CONTRACT),
    *(openai.WITHOUT_VERSION, UNKNOWN),
)


def served_contracts(plugins: Collection[str]) -> tuple[Contract, ...]:
    """Return the contracts of a server, with its plug-ins.

    plugins: names from the settings.

    Raises ConfigError when the library of a plug-in is missing.
    """
    local = (ollama.CONTRACT,) if "ollama" in plugins else ()
    return (*CONTRACTS, *reading_contracts(plugins), *local, *(_mcp() if "mcp" in plugins else ()))


def _mcp() -> tuple[Contract, ...]:
    """Return the contract of the plug-in mcp. Raises ConfigError when its library is missing."""
    try:
        from server.contracts.mcp import CONTRACT
    except ModuleNotFoundError as error:
        message = f"the plug-in mcp needs its library ({error}); run: pip install 'convoy-server[mcp]'"
        raise ConfigError(message) from error
    return (CONTRACT,)


def contract_of(path: str, contracts: Sequence[Contract] = CONTRACTS) -> Contract:
    """Return the contract that a path belongs to.

    path: path without the prefix that the server is mounted under.
    contracts: contracts of the server.
    """
    return max(contracts, key=lambda contract: longest_match(contract.paths, path))
