"""A client that writes bytes to a socket, for requests that no HTTP library would send."""

from __future__ import annotations

import socket
from contextlib import suppress


def exchange(port: int, data: bytes, half_close: bool = False, patience: float = 600) -> bytes:
    """Send bytes on a new connection; return the answer until the server closes the connection.

    A server that refuses a request may close or reset the connection before it has read all bytes.

    port: port on 127.0.0.1.
    data: bytes of one or more requests.
    half_close: whether the client closes its side after the last byte.
    patience: seconds until TimeoutError.
    """
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as one:
        with suppress(OSError):  # ENOTCONN of a closed connection is a plain OSError
            one.sendall(data)
            if half_close:
                one.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while received := one.recv(65_536):
                answer += received
    return answer
