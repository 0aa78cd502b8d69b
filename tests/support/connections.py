"""Records every connection and look-up of a name by a process and by the processes that it starts."""

from __future__ import annotations

import os
from pathlib import Path

# code that each Python process runs first; an audit hook sees every call of the standard library
HOOK = """
import os, sys

def record(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):  # not of a Unix socket
        host, port = arguments[1][:2]
    elif event == "socket.getaddrinfo":
        host, port = arguments[:2]
    else:
        return
    host = host.decode() if isinstance(host, bytes) else host
    file = os.open({path!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{{event}} {{host}}:{{port}}\\n".encode())
    os.close(file)

sys.addaudithook(record)
"""


class Connections:
    """The connections of processes that were started with `variables`."""

    def __init__(self, folder: Path, *paths: Path) -> None:
        """Write the code of the hook.

        folder: new folder.
        paths: further folders of modules.
        """
        folder.mkdir()
        self._file = folder / "connections"
        (folder / "sitecustomize.py").write_text(HOOK.format(path=str(self._file)), "utf-8")
        given = os.environ.get("PYTHONPATH", "")
        self.variables = {"PYTHONPATH": os.pathsep.join([str(folder), *map(str, paths), given])}

    def take(self) -> set[str]:
        """Return "HOST:PORT" of each connection and look-up since the last call."""
        lines = self._file.read_text("utf-8").splitlines() if self._file.exists() else []
        self._file.unlink(missing_ok=True)
        return {line.partition(" ")[2] for line in lines}
