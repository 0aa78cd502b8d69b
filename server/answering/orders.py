"""What the operator orders of models: reload, load, unload."""

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
    """Do with a model what the operator alone may.

    request: the operator's.
    verb: "reload", "load" or "unload".
    name: the model's name.

    Raises Refusal where orders are off or the model can't obey, and UnknownModel.
    """
    state = state_of(request)
    if state.settings.admin_token is None:
        others = ", or send the process SIGHUP" if verb == "reload" else ""
        raise Refusal("disabled", f"{verb}ing is off here: set CONVOY_ADMIN_TOKEN{others}")
    try:
        info = await asyncio.shield(state.order(verb, name))
    except (BundleError, ExecutorFailed, Unavailable) as error:
        message = f"the old model goes on: {error}" if verb == "reload" else str(error)
        raise Refusal("conflict", message) from error
    return JSONResponse(describe(info, state.service.repository_entries()[name]))
