"""The shell blocks of the pages for operators, run by bash with stubs of the programs that they call.

Each stub keeps its arguments. The calls of the blocks are then compared with the commands, charts, compose
files, images, extras and targets of make that exist.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest
import typer.main
import yaml

from cli.main import table
from tests.deploy.chart import CHART, merged, values_of

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("operations", "upgrading", "machines", "gpu", "metrics")),
]
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.findall(page.read_text("utf-8")))
]
PROGRAMS = (
    "bash convoy curl docker git helm kill kubectl locust make pip promtool pytest python serve sudo "
    "ollama systemctl tar npm npx"
)
STUB = """#!/bin/sh
{{ printf '%s' "${{0##*/}}"; for each; do printf '\\037%s' "$each"; done; printf '\\036'; }} >> "{log}"
"""


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    for name in PROGRAMS.split():
        (folder / name).write_text(STUB.format(log=folder / "log"), "utf-8")
        (folder / name).chmod(0o755)
    return folder


def calls(stubs, block, folder):
    """Run a block in a folder, and return the programs that it called with their arguments."""
    (stubs / "log").write_text("")
    (folder / "dist").mkdir()
    (folder / ".venv" / "bin").mkdir(parents=True)
    for name in ("convoy_server", "convoy_client"):
        (folder / "dist" / f"{name}-0.6.0-py3-none-any.whl").touch()
    for name in ("in.txt", "my.env", ".venv/bin/activate"):
        (folder / name).touch()
    for name in PROGRAMS.split():
        shutil.copy(stubs / name, folder / ".venv" / "bin")
    variables = {"PATH": f"{stubs}:/usr/bin:/bin", "PID": "1", "CONVOY_ADMIN_TOKEN": "t", "HOME": str(folder)}
    script = f"kill() {{ '{stubs}/kill' \"$@\"; }}\n{block}"
    done = subprocess.run(
        [shutil.which("bash"), "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    log = (stubs / "log").read_text("utf-8").split("\036")[:-1]
    return [_without_sudo(entry.split("\037")) for entry in log]


def _without_sudo(call):
    call = call[1:] if call[0] == "sudo" else call
    return [call[0].rpartition("/")[2], *call[1:]]


def check_convoy(arguments):
    """Parse the flags of a command, without running it."""
    command = typer.main.get_command(table)
    context = command.make_context("convoy", list(arguments))
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)


def check_pip(arguments):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for each in arguments:
        path, _, names = each.partition("[")
        assert not re.match("convoy[-_](server|client)(?!-[0-9])", path), "a name that anybody may register"
        assert set(names.rstrip("]").split(",")) - {""} <= set(extras) or path != "."


def check_make(arguments):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert {each for each in arguments if "=" not in each and not each.startswith("-")} <= targets


def check_docker(arguments):
    compose = (ROOT / "docker-compose.yml").read_text("utf-8")
    if arguments[0] == "build":
        file = ROOT / arguments[arguments.index("-f") + 1]
        assert file.is_file()
        if "--target" in arguments:
            assert f" AS {arguments[arguments.index('--target') + 1]}\n" in file.read_text("utf-8")
    if arguments[0] != "compose":
        return
    services = yaml.safe_load(compose)["services"]
    if "--profile" in arguments:
        profile = arguments[arguments.index("--profile") + 1]
        assert any(profile in service.get("profiles", []) for service in services.values())
    if "up" in arguments:
        named = [each for each in arguments[arguments.index("up") + 1 :] if not each.startswith("-")]
        assert set(named) <= set(services)
    if "run" in arguments:
        command = [each for each in arguments[arguments.index("run") + 1 :] if each != "--rm"]
        assert command[0] in services
        check_convoy(command[1:])


def check_helm(arguments):
    """Read --set and --set-json, and validate the values by the schema."""
    charts = [each for each in arguments if each.startswith("deploy/")]
    assert all((ROOT / chart / "Chart.yaml").is_file() for chart in charts)
    values = {}
    for flag, text in zip(arguments, arguments[1:], strict=False):
        if flag == "--set-json":
            name, _, value = text.partition("=")
            values = merged(values, _nested(name, json.loads(value)))
        elif flag == "--set":
            for pair in re.split(r",(?![^{]*\})", text):
                name, _, value = pair.partition("=")
                parts = value.strip("{}").split(",") if value.startswith("{") else yaml.safe_load(value)
                values = merged(values, _nested(name, parts))
    jsonschema.validate(
        merged(values_of("default"), values), json.loads((CHART / "values.schema.json").read_text())
    )


def _nested(name, value):
    for part in reversed(re.split(r"(?<!\\)\.", name)):
        value = {part.replace("\\.", "."): value}
    return value


def check_python(arguments):
    """Find a module of ours, and its flags in the source of its parser."""
    if arguments[:1] != ["-m"] or arguments[1] in ("venv", "pip"):
        return
    spec = importlib.util.find_spec(arguments[1])
    assert spec, arguments[1]
    if spec.submodule_search_locations:
        spec = importlib.util.find_spec(f"{arguments[1]}.__main__")
    check_flags(Path(spec.origin), arguments[2:])


def check_flags(source, arguments):
    text = source.read_text("utf-8")
    for flag in [each.partition("=")[0] for each in arguments if each.startswith("--")]:
        assert f'"{flag}"' in text, f"{source.name} has no {flag}"


def check_bash(arguments):
    """Find the purpose of loadtest/gpu.sh, and the flags in the module that it starts."""
    script, *rest = arguments
    text = (ROOT / script).read_text("utf-8")
    if rest and not rest[0].startswith("-"):
        assert re.search(rf"^  {rest[0]}\) flags=", text, re.MULTILINE), rest[0]
        module = "gpu_train.py" if rest[0] == "train" else "gpu_bench/__main__.py"
        check_flags(ROOT / "loadtest" / "engine" / module, rest[1:])


def check_promtool(arguments):
    assert all((ROOT / each).is_file() for each in arguments if "/" in each)


def check_locust(arguments):
    assert (ROOT / arguments[arguments.index("-f") + 1]).is_file()


CHECKS = {
    "bash": check_bash,
    "convoy": check_convoy,
    "docker": check_docker,
    "helm": check_helm,
    "locust": check_locust,
    "make": check_make,
    "pip": check_pip,
    "promtool": check_promtool,
    "python": check_python,
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("block", BLOCKS)
def test_block_of_a_page_calls_existing_commands(stubs, tmp_path, block):
    found = calls(stubs, block, tmp_path)
    assert found or not block.strip()
    for name, *arguments in found:
        CHECKS.get(name, lambda _: None)(arguments)


def test_variables_before_compose_are_read_by_its_file():
    compose = (ROOT / "docker-compose.yml").read_text("utf-8")
    lines = [
        line
        for page in PAGES
        for block in BLOCK.findall(page.read_text("utf-8"))
        for line in block.splitlines()
    ]
    named = {
        name
        for line in lines
        if " docker compose " in line
        for name in re.findall(r"\b([A-Z_]+)=", line.split("docker compose")[0])
    }
    assert {"METRICS_TOKEN_FILE", "CONVOY_ENV_FILE"} <= named
    assert all(f"${{{name}" in compose for name in named)


def test_locust_of_compose_finds_its_file_and_its_modules(tmp_path):
    """The mounts of the service, as folders: the file is loaded there as locust loads it."""
    locust = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]["locust"]
    for mount in locust["volumes"]:
        source, target, _ = mount.split(":")
        path = tmp_path / target.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(ROOT / source)
    file = locust["command"][locust["command"].index("-f") + 1]
    (tmp_path / "locust").mkdir()
    stub = "class _Any:\n    wait_time = None\n    def __class_getitem__(cls, _): return cls\n"
    stub += "HttpUser = FastHttpUser = _Any\ndef task(*a): return a[0] if a and callable(a[0]) else task\n"
    stub += "def tag(*a): return lambda f: f\ndef between(*a): return None\ndef constant(*a): return None\n"
    (tmp_path / "locust" / "__init__.py").write_text(stub, "utf-8")
    code = f"import runpy, pathlib; runpy.run_path({str(tmp_path) + file!r})"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    # without the packages of this environment, which may have the repository itself
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
