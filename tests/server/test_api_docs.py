"""docs/api.md and docs/switching.md as doctests, with the shipped models behind them: each request is pasted
into a shell, and each client's program is run."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from server.libretranslate import COUNTERPARTS
from tests.server.contracts.test_clients import PACKAGES, modules
from tests.support.served import server

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "api.md"
PAIR = re.compile(r"```sh\n([^`]*)\n```\n```json\n(.*?)\n```", re.DOTALL)
PLUGINS = "deeplx,immersive,mtran,google,apertium,nllb,xunity,mcp,ollama"
ADDRESS = "http://127.0.0.1:8000"
SWITCHING = ROOT / "docs" / "switching.md"
PROGRAM = re.compile(r"```(python|js)\n((?:(?!```).)*?)\n```\n```text\n(.*?)\n```", re.DOTALL)
PROGRAMS = [program for page in (SWITCHING, PAGE) for program in PROGRAM.findall(page.read_text("utf-8"))]
PAIRS = PAIR.findall(PAGE.read_text("utf-8")) if PAGE.exists() else []


@pytest.fixture(scope="module")
def address():
    if not shutil.which("curl"):
        pytest.skip("there is no curl on this machine")
    if not (ROOT / "models" / "tatoeba-de-en").is_dir():
        pytest.skip("the shipped models are not there")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.served.bundles", lambda: ROOT / "models")
        lanes = {"lanes": ((1, 4), (5, 8)), "verify": False}
        with server(service_settings=lanes, plugins=PLUGINS) as (client, _, _):
            yield str(client.base_url).rstrip("/")


def test_the_page_has_requests():
    assert len(PAIRS) > 20


@pytest.mark.parametrize(("request_", "wanted"), PAIRS, ids=[pair[0][-60:] for pair in PAIRS])
def test_the_documented_answer_is_the_real_one(address, request_, wanted):
    command = request_.replace(ADDRESS, address)
    wanted = re.sub(r"\n  +", "", wanted)  # continued lines of a long answer begin with spaces
    pattern = ".*".join(re.escape(part) for part in wanted.split("..."))
    for _ in range(5 if "stream" in command else 1):  # a slow reader gets fewer partial events
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=600)
        found = done.stdout.replace(address, ADDRESS).rstrip("\n")  # events end with a blank line
        if re.fullmatch(pattern, found, re.DOTALL):
            return
    pytest.fail(f"{command}\n{found}")


def test_the_page_of_switching_has_programs():
    assert [kind for kind, _, _ in PROGRAMS].count("python") >= 4
    assert [kind for kind, _, _ in PROGRAMS].count("js") >= 2


@pytest.mark.parametrize(("kind", "program", "wanted"), PROGRAMS, ids=[p[1][:40] for p in PROGRAMS])
def test_documented_program_prints_the_documented_output(address, kind, program, wanted):
    folder = modules() if kind == "js" else ROOT  # where the packages of npm are; skips without them
    command = ["node", "--input-type=module", "-"] if kind == "js" else [sys.executable, "-W", "ignore", "-"]
    program = program.replace(ADDRESS, address)
    program = program.replace(ADDRESS.removeprefix("http://"), address.removeprefix("http://"))
    done = subprocess.run(command, input=program, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == wanted, done.stderr


def test_every_supported_variable_is_documented():
    said = set(re.findall(r"`(LT_[A-Z_]+)`", SWITCHING.read_text("utf-8").partition("## What differs")[0]))
    source = (ROOT / "server" / "libretranslate.py").read_text("utf-8")
    understood = set(re.findall(r'"(LT_[A-Z_]+)"', source))
    assert said - {"LT_"} == understood >= set(COUNTERPARTS)
    for name, ours in COUNTERPARTS.items():
        assert f"`CONVOY_{ours.upper()}`" in SWITCHING.read_text("utf-8") or name == "LT_API_KEYS"


def test_the_page_of_switching_names_the_tested_versions():
    text = SWITCHING.read_text("utf-8")
    pinned = re.findall(r"^(\S+)==(\S+)", (ROOT / "constraints.txt").read_text("utf-8"), re.M)
    tested = {"deepl", "deep-translator", "libretranslatepy", "tritonclient", "mcp", "openai"}
    versions = [pin for pin in pinned if pin[0] in tested]
    assert len(versions) == len(tested)
    for name, version in (*versions, *PACKAGES.items()):
        assert re.search(rf"^\| `{name}`[^|]*\| {re.escape(version)} \|", text, re.M), (name, version)
