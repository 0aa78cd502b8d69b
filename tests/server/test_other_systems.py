"""The server and the commands where the system lacks what Linux has: its modules are hidden."""

from __future__ import annotations

import subprocess
import sys

import pytest

HIDDEN = """
import os, sys, types
import cli.main, documents.worker, server.app, server.callers.keys, server.files.store, server.supervisor
OWN = ("engine", "documents", "server", "cli", "convoy_client", "export")
for name in [name for name in sys.modules if name.split(".")[0] in OWN]:
    del sys.modules[name]
for name in ("fcntl", "resource"):
    sys.modules[name] = None
for name in ("sched_getaffinity", "getuid", "fchmod", "setpgrp", "sched_yield"):
    delattr(os, name)
locked = []
sys.modules["msvcrt"] = types.SimpleNamespace(
    locking=lambda descriptor, how, count: locked.append((how, count)), LK_LOCK=1, LK_NBLCK=2
)
sys.platform = PLATFORM
import prometheus_client.registry
prometheus_client.registry.REGISTRY._names_to_collectors.clear()
prometheus_client.registry.REGISTRY._collector_to_names.clear()
"""
USED = """
import cli.main, documents.worker, server.app
from pathlib import Path
from engine.api import processors
from server.callers import keys
from server.files import store
from server.settings import ServerSettings
assert processors() >= 1
assert ServerSettings(models=Path("x")).share >= 1
files = store.Store(lifetime=60.0, limit=10_000)
files.put("a.txt", b"content", "")
assert files.size
files.close()
assert locked
"""


def run(platform: str, code: str) -> subprocess.CompletedProcess[str]:
    script = HIDDEN.replace("PLATFORM", repr(platform)) + code
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)


@pytest.mark.skipif(sys.platform != "linux", reason="hides what Linux has")
def test_modules_import_and_files_lock_on_windows():
    done = run("win32", USED)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.skipif(sys.platform != "linux", reason="hides what Linux has")
def test_on_windows_several_processes_are_refused_with_the_remedy():
    code = "\nfrom pathlib import Path\nfrom server.settings import ServerSettings"
    code += "\nfrom server.supervisor import supervise\n"
    code += "supervise(ServerSettings(models=Path('x'), frontends=1))\n"
    done = run("win32", code)
    assert done.returncode != 0
    assert "leave out --frontends" in done.stderr
