"""A fork server that is a fork of this process, so that all processes share the memory of their imports.

The fork server of the standard library is a new program, which imports all modules again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import forkserver, util
from pathlib import Path
from typing import Any, Final

from server.process.allocator import spare_collector

STREAMS: Final = frozenset({0, 1, 2})  # file descriptors of the standard streams
DESCRIPTORS: Final = Path("/proc/self/fd")


def start_fork_server(module: str, prepare: Callable[[], None]) -> None:
    """Import a module, and start the fork server of this process for contexts of `multiprocessing`.

    module: name of a module that imports what the forked processes need.
    prepare: function that opens other objects that the forked processes share.

    Call it before this process starts threads. When the fork server has died, the standard library starts a
    new program in its place; so it does on systems other than Linux, at the first use.
    """
    forkserver.set_forkserver_preload([module])
    if sys.platform != "linux":
        return
    import_module(module)
    prepare()
    spare_collector()
    with _forking():
        forkserver.ensure_running()


@contextmanager
def _forking() -> Iterator[None]:
    """Make the standard library fork its helper processes until the end of the context."""
    start_program = util.spawnv_passfds
    util.spawnv_passfds = _fork
    try:
        yield
    finally:
        util.spawnv_passfds = start_program


def _fork(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
    """Fork a process that runs the code of a Python command; return its id.

    path: path of Python, which is not started again.
    args: arguments of the command; the last one is the code.
    passfds: file descriptors that the process keeps, besides the standard streams.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):  # buffered output would be written twice
        stream.flush()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.setpgrp()  # a signal to the group, such as Ctrl-C, reaches only the parent
        _close_others(STREAMS.union(passfds))
        exec(args[-1], {})  # noqa: S102  (code of the standard library)
        code = 0
    except SystemExit:
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _close_others(kept: Collection[int]) -> None:
    """Close all file descriptors of this process except the kept ones."""
    for entry in os.listdir(DESCRIPTORS):
        if int(entry) not in kept:
            with suppress(OSError):  # the descriptor of the folder is closed already
                os.close(int(entry))
