"""OpenAI's interface: chat.py, completions.py (and models), tasks.py (requests), answers.py (responses).

Errors are {"error": {"message", "type", "param", "code"}}.
"""

from typing import Final

from server.contract import Contract
from server.contracts.openai import chat, completions
from server.contracts.openai.answers import ERROR_STATUSES, error_body

CONTRACT: Final = Contract(
    routers=(chat.router, completions.router),
    paths=("/v1/*",),
    error_body=error_body,
    statuses=ERROR_STATUSES,
    text_fields=frozenset({"prompt"}),
)
