"""Orders of the operator to models: reload, load, unload."""

from __future__ import annotations

import asyncio
from typing import Final

from fastapi import Request
from fastapi.responses import JSONResponse

from engine.api import BundleError, ExecutorFailed, Unavailable
from server.errors import Refusal
from server.http.openapi import errors
from server.http.schemas import describe
from server.state import state_of

ORDER_ERRORS: Final = errors(401, 403, 404, 409)


async def order(request: Request, verb: str, name: str) -> JSONResponse:
    """Reload, load or unload a model, and return its description.

    request: request of the operator.
    verb: "reload", "load" or "unload".
    name: name of the model.

    Raises Refusal when orders are off or the order fails, and UnknownModel.
    """
    state = state_of(request)
    if state.settings.admin_token is None:
        other_way = ", or send the process SIGHUP" if verb == "reload" else ""
        raise Refusal("disabled", f"{verb}ing is off here: set CONVOY_ADMIN_TOKEN{other_way}")
    try:
        info = await asyncio.shield(state.order(verb, name))
    except (BundleError, ExecutorFailed, Unavailable) as error:
        message = f"the old model is still served: {error}" if verb == "reload" else str(error)
        raise Refusal("conflict", message) from error
    return JSONResponse(describe(info, state.service.repository_entries()[name]))
