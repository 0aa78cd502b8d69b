"""`make serve` ends with its server, and the page's configuration of nginx passes what the server accepts."""

import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from server.errors import Refusal
from server.http.hosts import check_host
from server.settings import ServerSettings
from tests.support.served import until

ROOT = Path(__file__).parents[2]
SERVER = """#!/bin/sh
echo $$ > server.pid.new && mv server.pid.new server.pid
exec sleep 600
"""


def is_running(process):
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@pytest.mark.skipif(shutil.which("make") is None or not Path("/proc/self/stat").exists(), reason="needs make")
def test_kill_of_make_serve_ends_the_server(tmp_path):
    """The folder has an environment that `make` takes for complete, and a server that only waits."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy2(ROOT / name, tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("python", "convoy"):
        program = tmp_path / ".venv" / "bin" / name
        program.write_text(SERVER)
        program.chmod(0o755)
    (tmp_path / ".venv" / "serve").touch()
    found = tmp_path / "server.pid"
    with subprocess.Popen(["make", "serve"], cwd=tmp_path, stderr=subprocess.PIPE) as make:
        try:
            until(lambda: found.exists() or make.poll() is not None)
            assert found.exists(), make.stderr.read().decode()
            server = int(found.read_text())
            assert is_running(server)
            make.terminate()
            make.wait()
            until(lambda: not is_running(server), 60)
        finally:
            if found.exists() and is_running(int(found.read_text())):
                subprocess.run(["kill", "-KILL", found.read_text().strip()], check=True)
            make.send_signal(signal.SIGKILL)


def test_names_that_nginx_passes_on_are_accepted_with_the_setting_of_the_page():
    """Without `proxy_set_header Host` nginx sends the name of its upstream."""
    page = (ROOT / "docs" / "machines.md").read_text("utf-8")
    (block,) = re.findall(r"^```nginx\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    upstream = re.search(r"^upstream (\S+) {", block, re.MULTILINE)[1]
    assert f"proxy_pass http://{upstream};" in block
    named = re.search(r"server_name (\S+);", block)[1]
    (setting,) = re.findall(r"proxy_set_header Host \$host; .*allowed_hosts=(\S+)", block)
    assert setting == named
    for host, settings in ((upstream, {}), (named, {}), (upstream, {"allowed_hosts": setting})):
        with pytest.raises(Refusal, match="CONVOY_ALLOWED_HOSTS"):
            check_host(host, ServerSettings(**settings))
    check_host(named, ServerSettings(allowed_hosts=setting))
    section = (ROOT / "docs" / "operations.md").read_text("utf-8").partition("## Behind a proxy")[2]
    assert "`allowed_hosts`" in section.partition("\n## ")[0]
