"""OpenAI's interface: chat.py, completions.py (and models), responses.py; tasks.py has their fields.

Errors are {"error": {"message", "type", "param", "code"}}.
"""

from dataclasses import replace
from typing import Any, Final

from server.contract import Contract, Fault
from server.contracts.openai import chat, completions, responses
from server.contracts.openai.answers import ERROR_STATUSES, error_body

CONTRACT: Final = Contract(
    routers=(chat.router, completions.router, responses.router),
    paths=("/v1/*",),
    error_body=error_body,
    statuses=ERROR_STATUSES,
    text_fields=frozenset({"prompt", "input"}),
)


def _without_version(fault: Fault) -> dict[str, Any]:
    """Return the body of an error for a client whose base address lacks the version."""
    return error_body(
        replace(fault, message=f"{fault.message}; the base address of this interface ends in /v1")
    )


WITHOUT_VERSION: Final = Contract((), ("/chat/*", "/completions", "/responses"), _without_version)
