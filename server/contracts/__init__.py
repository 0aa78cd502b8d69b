"""The interfaces that the server answers, a room each: routes, codec, the shape of errors, open paths."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from engine.api import ConfigError
from server.contract import Contract, longest_match, under
from server.contracts import convoy, deepl, kserve, libretranslate, openai
from server.contracts.reading import reading_contracts

# nobody knows whose client asks for what is not there under the prefix that two contracts share
UNKNOWN: Final = replace(deepl.CONTRACT, routers=(), paths=("/v2/*",), error_body=under("message", "error"))
CONTRACTS: Final = (
    *(libretranslate.CONTRACT, convoy.CONTRACT, deepl.CONTRACT, kserve.CONTRACT, openai.CONTRACT),
    UNKNOWN,
)


def served_contracts(plugins: Collection[str]) -> tuple[Contract, ...]:
    """Return the contracts of a server: those that every server speaks, and what the operator asks for.

    plugins: names, as the operator gives them.

    Raises ConfigError when the library of a contract is missing.
    """
    return (*CONTRACTS, *reading_contracts(plugins), *(_mcp() if "mcp" in plugins else ()))


def _mcp() -> tuple[Contract, ...]:
    try:
        from server.contracts.mcp import CONTRACT
    except ModuleNotFoundError as error:
        message = f"the plug-in mcp needs its library ({error}); run: pip install 'convoy-server[mcp]'"
        raise ConfigError(message) from error
    return (CONTRACT,)


def contract_of(path: str, contracts: Sequence[Contract] = CONTRACTS) -> Contract:
    """Find the contract that a path belongs to, so that its errors have that shape.

    path: without the prefix that the server is mounted under.
    contracts: of the server.
    """
    return max(contracts, key=lambda contract: longest_match(contract.paths, path))
