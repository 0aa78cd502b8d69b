"""Runs work on long texts in processes that can be killed: `python -m engine.schedule.worker FD`.

This process is the template. It imports modules and opens tokenizers, and forks the workers, which share its
memory; it works on no text itself. FD is a socket to the server; a message is 8 bytes with its length, then
a value of `engine.schedule.values`:

    ("fork", [names of modules], [models])       with the socket of the worker; answered with its process id
    ("end", process id)                          kill a worker; answered with its exit code

A worker gets (seconds, function, arguments) and answers (error, value, seconds of processor time). The error
is "" or the class of an exception, whose message is the value. The function returns a generator. A worker
that uses more processor time dies of SIGPROF, and the template kills all workers when the server has gone.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from typing import Final

from engine.errors import ConvoyError
from engine.schedule.slices import at_once
from engine.schedule.values import decode, encode, name_of

if sys.platform != "win32":
    import resource

LENGTH_BYTES: Final = 8
# address space that a worker may take in addition to the template's
MAX_MEMORY_BYTES: Final = 1 << 30
QUICK_SECONDS: Final = 0.25  # processor time after which work has a lower priority
NICENESS: Final = 5
STARVED: Final = "starved"  # error of work that takes too much memory
FAILED: Final = "failed"  # error of an unexpected exception


def receive(connection: socket.socket, start: bytes = b"") -> bytes | None:
    """Return the next message of a blocking socket, or None at its end.

    connection: socket to read.
    start: bytes of the message that have been read.
    """
    head = start + _exactly(connection, LENGTH_BYTES - len(start))
    if len(head) < LENGTH_BYTES:
        return None
    body = _exactly(connection, length := int.from_bytes(head, "big"))
    return body if len(body) == length else None


def frame(message: bytes) -> bytes:
    """Return a message after its length."""
    return len(message).to_bytes(LENGTH_BYTES, "big") + message


def _exactly(connection: socket.socket, count: int) -> bytes:
    """Read a number of bytes; fewer at the end of the stream."""
    data = bytearray()
    while len(data) < count and (part := connection.recv(min(count - len(data), 1 << 20))):
        data += part
    return bytes(data)


def main(control: socket.socket) -> None:
    """Fork and kill workers until the server closes the socket."""
    workers = set[int]()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        while True:
            start, descriptors, *_ = socket.recv_fds(control, LENGTH_BYTES, 1)
            message = receive(control, start) if start else None
            if message is None:
                break
            verb, *values = decode(message)
            if verb == "end":
                control.sendall(frame(encode(_end(values[0], workers))))
                continue
            connection = socket.socket(fileno=descriptors[0])
            _warm(*values)
            if not (worker := os.fork()):
                control.close()
                _work(connection)
            connection.close()
            workers.add(worker)
            control.sendall(frame(encode(worker)))
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)


def _end(worker: int, workers: set[int]) -> int:
    """Kill a worker; return its exit code, negative for a signal; 0 if there is no such worker."""
    if worker not in workers:
        return 0
    workers.discard(worker)
    ended, status = os.waitpid(worker, os.WNOHANG)
    if not ended:
        os.kill(worker, signal.SIGKILL)
        _, status = os.waitpid(worker, 0)
    return os.waitstatus_to_exitcode(status)


def _warm(modules: list[str], models: list[bytes]) -> None:
    """Import modules and open models in the template, whose memory workers share."""
    with suppress(Exception):  # the worker reports the error
        for module in modules:
            importlib.import_module(module)
        for model in models:
            decode(model, calls=True)
    gc.collect()
    gc.freeze()  # the collector of a worker writes to none of these objects


def _work(connection: socket.socket) -> None:
    """Run work until the server closes the socket, and end the process."""
    try:
        signal.signal(signal.SIGVTALRM, lambda *_: os.nice(NICENESS))
        room = _address_space() + MAX_MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        while (message := receive(connection)) is not None:
            connection.sendall(frame(_answer(message)))
        os._exit(0)
    finally:  # after an error, without the cleaning up of the template
        os._exit(1)


def _answer(message: bytes) -> bytes:
    """Run the work in a message, and return the answer."""
    began = time.process_time()
    try:
        seconds, function, arguments = decode(message, calls=True)
        signal.setitimer(signal.ITIMER_PROF, seconds)  # its signal ends the process
        signal.setitimer(signal.ITIMER_VIRTUAL, QUICK_SECONDS)
        return encode(("", at_once(function(*arguments)), time.process_time() - began))
    except MemoryError:
        return encode((STARVED, "", time.process_time() - began))
    except ConvoyError as error:
        return encode((name_of(type(error)), str(error), time.process_time() - began))
    except Exception:  # noqa: BLE001 - the server raises it
        return encode((FAILED, traceback.format_exc(), time.process_time() - began))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _address_space() -> int:
    """Return the bytes of address space of this process; 0 without /proc."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
