"""A client of Convoy servers: `Client` and, for asyncio, `AsyncClient`. Needs httpx only.

from convoy_client import Client

with Client("http://127.0.0.1:8000") as convoy:
    print(convoy.translate("Guten Tag!", "en").text)
"""

from convoy_client.client import AsyncClient, Client
from convoy_client.errors import ApiError, BadAnswer, ClientError, Unreachable, UnreadOption
from convoy_client.results import (
    Alignment,
    Detection,
    Language,
    Model,
    Partial,
    Score,
    Scores,
    Summary,
    Timings,
    Translation,
)

__all__ = [
    "Alignment",
    "ApiError",
    "AsyncClient",
    "BadAnswer",
    "Client",
    "ClientError",
    "Detection",
    "Language",
    "Model",
    "Partial",
    "Score",
    "Scores",
    "Summary",
    "Timings",
    "Translation",
    "Unreachable",
    "UnreadOption",
]
