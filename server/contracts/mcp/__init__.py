"""Plug-in for the Model Context Protocol, for agents: tools.py, and routes.py, which calls the SDK."""

from typing import Any, Final

from server.contract import Contract, Fault
from server.contracts.mcp import routes

INVALID_REQUEST: Final = -32600  # JSON-RPC's code


def _error(fault: Fault) -> dict[str, Any]:
    error = {"code": INVALID_REQUEST, "message": fault.message}
    return {"jsonrpc": "2.0", "id": None, "error": error}


CONTRACT: Final = Contract(
    routers=(routes.router,),
    paths=("/mcp",),
    error_body=_error,
    statuses={"key_required": 401, "invalid_key": 401},
)
