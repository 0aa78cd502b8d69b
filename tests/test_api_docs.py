"""docs/api.md as a doctest: each request is pasted into a shell, with the shipped models behind it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.served import server

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "api.md"
PAIR = re.compile(r"```sh\n([^`]*)\n```\n```json\n(.*?)\n```", re.DOTALL)
ADDRESS = "http://127.0.0.1:8000"
PAIRS = PAIR.findall(PAGE.read_text("utf-8")) if PAGE.exists() else []


@pytest.fixture(scope="module")
def address():
    if not shutil.which("curl"):
        pytest.skip("there is no curl on this machine")
    if not (ROOT / "models" / "tatoeba-de-en").is_dir():
        pytest.skip("the shipped models are not there")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.served.bundles", lambda: ROOT / "models")
        lanes = {"lanes": ((1, 4), (5, 8)), "verify": False}
        with server(service_settings=lanes) as (client, _, _):
            yield str(client.base_url).rstrip("/")


def test_the_page_has_requests():
    assert len(PAIRS) > 20


@pytest.mark.parametrize(("request_", "wanted"), PAIRS, ids=[pair[0][-60:] for pair in PAIRS])
def test_the_documented_answer_is_the_real_one(address, request_, wanted):
    command = request_.replace(ADDRESS, address)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    pattern = ".*".join(re.escape(part) for part in wanted.split("..."))
    found = done.stdout.replace(address, ADDRESS)
    assert re.fullmatch(pattern, found), f"{command}\n{found}"
