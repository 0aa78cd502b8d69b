"""DeepL's own client library without its pauses of seconds, which tests do not need."""

import time
from types import SimpleNamespace

import deepl
import pytest


def make_impatient(patch: pytest.MonkeyPatch) -> None:
    """Switch off the client's retries, and make it poll for a translated document every 20 ms instead of
    every five seconds."""
    patch.setattr(deepl.http_client, "max_network_retries", 0)
    patch.setattr(deepl.translator, "time", SimpleNamespace(time=time.time, sleep=lambda _: time.sleep(0.02)))
