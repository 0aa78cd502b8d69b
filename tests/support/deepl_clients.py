"""DeepL's own client library, which waits for seconds where nothing needs to be waited for here."""

import time
from types import SimpleNamespace

import deepl
import pytest


def make_impatient(patch: pytest.MonkeyPatch) -> None:
    """Make its clients try nothing again after an error, and look for a document's translation not every five
    seconds but at once and all the time."""
    patch.setattr(deepl.http_client, "max_network_retries", 0)
    patch.setattr(deepl.translator, "time", SimpleNamespace(time=time.time, sleep=lambda _: time.sleep(0.02)))
