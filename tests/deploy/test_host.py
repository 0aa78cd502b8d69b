"""The systemd unit and the settings file match the settings of the server."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cli.serve import unknown_variables
from server.settings import ServerSettings
from tests.deploy.env_file import PATH, env_file

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "convoy.service"
MOST_EXPOSED = 2.0  # of systemd's scale to 10
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")


def test_settings_file_has_every_setting():
    assert PATH.read_text("utf-8") == env_file(), "make it anew: python -m tests.deploy.env_file"


def test_lines_of_the_settings_file_are_the_defaults(monkeypatch):
    lines = [line[1:] for line in env_file().splitlines() if line.startswith("#CONVOY_")]
    assert not unknown_variables(
        [line.partition("=")[0] for line in lines], list(ServerSettings.model_fields)
    )
    for line in lines:
        name, _, value = line.partition("=")
        monkeypatch.setenv(name, value)
    assert ServerSettings().model_dump() == ServerSettings.model_construct().model_dump() | {
        "api_keys": ServerSettings().api_keys
    }


@needs_systemd
def test_systemd_reads_the_unit(tmp_path):
    """The unit has the path of an existing program."""
    program = tmp_path / "convoy"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "convoy.service"
    unit.write_text(re.sub(r"(?<=ExecStart=)\S+", str(program), UNIT.read_text("utf-8")))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "convoy.service" not in done.stderr
    unit.write_text(unit.read_text("utf-8") + "\n[Service]\nNonsense=yes\n")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert "Nonsense" in done.stderr


@needs_systemd
def test_unit_has_a_low_exposure_level():
    command = ["systemd-analyze", "security", "--offline=yes", UNIT]
    done = subprocess.run(command, capture_output=True, text=True)
    if "unrecognized" in done.stderr:
        pytest.skip("this systemd-analyze looks at running units only")
    exposure = float(re.search(r"Overall exposure level.*: ([\d.]+)", done.stdout)[1])
    assert exposure <= MOST_EXPOSED


def test_unit_stops_after_the_drain_and_allows_resource_limits():
    text = UNIT.read_text("utf-8")
    assert int(re.search(r"TimeoutStopSec=(\d+)", text)[1]) > ServerSettings().drain_timeout + 10
    assert "~@privileged @resources" not in text  # they set limits of their own
    assert "ProcSubset=pid" not in text  # the boot's id and the processor's kind are read
