"""Imports everything that front ends and engine processes need; the fork server does so before it forks them.

The collector then skips these objects: it would write to the memory of each of them, and written memory is no
longer shared with the forked processes.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from server.process.allocator import spare_collector

MODULES: Final = (
    "engine.repository.ipc.host",
    "engine.repository.ipc.service",
    "server.app",
    "server.engine_process",
    "server.supervisor",
)

for name in MODULES:
    import_module(name)
spare_collector()
