"""POST /mcp: messages of the protocol, handed on to its official SDK, each by itself, without sessions."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import cleandoc
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import BaseModel
from starlette.types import Message, Receive, Scope, Send

from engine.api import InvalidRequest, program_version
from server.contracts.mcp.tools import TOOLS
from server.http.openapi import JSON, errors, request_of
from server.http.parameters import body_of, check_values, while_connected
from server.observing.context import current
from server.state import deadline_of, state_of

NAME: Final = re.compile(rb'"\s*+:')  # what follows a name in JSON; in a text it costs nothing but a count
MAX_NAMES: Final = 10_000  # of fields in a message, which the SDK reads in the event loop


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    logging.getLogger("mcp").setLevel(logging.WARNING)  # below, it writes clients' words of any length
    server = MCPServer("convoy", version=program_version(), log_level="WARNING")
    for tool in TOOLS:
        description = cleandoc(tool.__doc__ or "").partition("\n\n")[0]
        server.add_tool(tool, description=description, structured_output=True)
    limit = app.state.convoy.settings.body_limit
    server.streamable_http_app(
        stateless_http=True,
        json_response=True,
        max_request_body_size=limit,
        # `allowed_hosts` has been looked at by now
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    async with server.session_manager.run():
        app.state.mcp = server.session_manager
        yield


class RpcError(BaseModel):
    code: int
    message: str


class RpcErrorAnswer(BaseModel):
    """What JSON-RPC has for a failure."""

    error: RpcError


router = APIRouter(tags=["MCP"], lifespan=lifespan)


class SdkResponse(Response):
    """What the SDK answers to a message; it is cancelled when the client goes."""

    def __init__(self, request: Request, body: bytes) -> None:
        super().__init__()
        self._request, self._message = request, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        messages: list[Message] = [{"type": "http.request", "body": self._message, "more_body": False}]

        async def replay() -> Message:
            if not messages:
                await asyncio.Event().wait()  # `while_connected` hears of the client's going
            return messages.pop()

        work = self._request.app.state.mcp.handle_request(scope, replay, send)
        await while_connected(self._request, work)


@router.post(
    "/mcp",
    response_model=dict[str, Any],
    responses={
        202: {"description": "A notification, which has no answer."},
        406: {"model": dict[str, Any], "description": "Accept lacks application/json or text/event-stream."},
        **errors(400, 413, 429, 503, model=RpcErrorAnswer),
    },
    openapi_extra=request_of(
        {
            "jsonrpc": {"type": "string", "enum": ["2.0"]},
            "id": {"description": "A text or an integer; without such a one it is a notification."},
            "method": {"type": "string"},
            "params": {"anyOf": [{"type": "object"}, {"type": "null"}]},
        },
        ["jsonrpc", "method"],
        None,
        (JSON,),
    ),
)
async def model_context_protocol(request: Request) -> Response:
    """Take a message of the Model Context Protocol; its tools translate, detect, list and summarize."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise InvalidRequest(f"messages are JSON: send Content-Type: {JSON}")
    state = state_of(request)
    deadline_of(request, state)  # refuses one that is none; the SDK's tools read it again
    body = await body_of(request, state.settings.body_limit)
    check_values(body)
    if sum(1 for _ in NAME.finditer(body)) > MAX_NAMES:
        raise InvalidRequest(f"the message has more than {MAX_NAMES} names of fields")
    request.state.context = current.get()
    return SdkResponse(request, body)
