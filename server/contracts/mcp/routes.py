"""POST /mcp: messages of the protocol, answered by its official SDK, without sessions."""

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

# end of a field's name in JSON; matches within texts are counted too
FIELD_END: Final = re.compile(rb'"\s*+:')
MAX_NAMES: Final = 10_000  # fields of a message, which the SDK parses in the event loop


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run the SDK's server with our tools while the application runs."""
    logging.getLogger("mcp").setLevel(logging.WARNING)  # at lower levels the SDK logs texts of clients
    server = MCPServer("convoy", version=program_version(), log_level="WARNING")
    for tool in TOOLS:
        description = cleandoc(tool.__doc__ or "").partition("\n\n")[0]
        server.add_tool(tool, description=description, structured_output=True)
    limit = app.state.convoy.settings.body_limit
    server.streamable_http_app(
        stateless_http=True,
        json_response=True,
        max_request_body_size=limit,
        # the middleware has checked `allowed_hosts`
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    async with server.session_manager.run():
        app.state.mcp = server.session_manager
        yield


class RpcError(BaseModel):
    code: int
    message: str


class RpcErrorAnswer(BaseModel):
    """An error of JSON-RPC."""

    error: RpcError


router = APIRouter(tags=["MCP"], lifespan=lifespan)


class SdkResponse(Response):
    """The SDK's response to a message, cancelled when the client disconnects."""

    def __init__(self, request: Request, body: bytes) -> None:
        super().__init__()
        self._request, self._message = request, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the SDK answer the message; its body was read before."""
        messages: list[Message] = [{"type": "http.request", "body": self._message, "more_body": False}]

        async def replay() -> Message:
            if not messages:
                await asyncio.Event().wait()  # `while_connected` receives the disconnect
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
            "id": {"description": "A text or an integer; without an id the message is a notification."},
            "method": {"type": "string"},
            "params": {"anyOf": [{"type": "object"}, {"type": "null"}]},
        },
        ["jsonrpc", "method"],
        None,
        (JSON,),
    ),
)
async def model_context_protocol(request: Request) -> Response:
    """Answer a message of the Model Context Protocol, with tools to translate, detect, list and summarize."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise InvalidRequest(f"messages are JSON: send Content-Type: {JSON}")
    state = state_of(request)
    deadline_of(request, state)  # refuses an invalid timeout; tools read it again
    body = await body_of(request, state.settings.body_limit)
    check_values(body)
    if sum(1 for _ in FIELD_END.finditer(body)) > MAX_NAMES:
        raise InvalidRequest(f"the message has more than {MAX_NAMES} fields")
    request.state.context = current.get()
    return SdkResponse(request, body)
