"""Reads from web servers and folders: names each host before it is asked, repeats after transient errors."""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from engine.api import program_version
from engine.errors import CheckpointError, InvalidRequest

CHUNK: Final = 2**18  # bytes
CONNECT_SECONDS: Final = 10.0
SILENCE_SECONDS: Final = 30.0  # timeout without a received byte
PAUSES: Final = (0.5, 1.0, 2.0, 4.0)  # seconds before each repetition
MAX_PAUSE_SECONDS: Final = 120.0  # longest Retry-After that is waited for
MAX_REDIRECTS: Final = 10
MAX_INDEX_BYTES: Final = 2**24
REDIRECTS: Final = (301, 302, 303, 307, 308)
TRANSIENT: Final = (408, 425, 429, 500, 502, 503, 504)
RANGE: Final = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class Interrupted(CheckpointError):
    """A transient error: the same request may succeed later.

    after: least seconds to wait, as the server asks.
    """

    def __init__(self, message: str, after: float = 0.0) -> None:
        super().__init__(message)
        self.after = after


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a file.

    resumed: whether the bytes start at the requested position; otherwise they start at 0.
    size: number of bytes of the whole file; None: unknown.
    tag: mark of this content (ETag); "": there is none.
    chunks: the bytes.
    headers: headers of the answer.
    """

    resumed: bool
    size: int | None
    tag: str
    chunks: Iterator[bytes]
    headers: Mapping[str, str]


class Web:
    """A reader of addresses (http, https) and of paths on this machine."""

    def __init__(self, announce: Callable[[str], object]) -> None:
        """Connect to no host.

        announce: receives one line for each host, before that host is asked for the first time.

        Raises InvalidRequest if the environment names a proxy that can't be used.
        """
        import httpx

        self._announce, self._hosts = announce, set[str]()
        timeout = httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        headers = {"User-Agent": f"convoy/{program_version()}"}
        try:
            self._client = httpx.Client(timeout=timeout, headers=headers)
        except ImportError as error:
            raise InvalidRequest(
                "the environment names a proxy of SOCKS; run: pip install 'httpx[socks]', or set ALL_PROXY "
                "and HTTPS_PROXY to http://HOST:PORT"
            ) from error
        except ValueError as error:
            raise InvalidRequest(
                f"the environment names a proxy that can't be used ({error}); set HTTPS_PROXY to http://HOST:PORT"
            ) from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def name_host(self, address: str, purpose: str) -> None:
        """Announce the host of an address, once.

        address: address that will be asked.
        purpose: reason for the requests, as a phrase.
        """
        host = urlsplit(address).netloc.rpartition("@")[2]
        if host and host not in self._hosts:
            self._hosts.add(host)
            self._announce(f"asking {host} for {purpose}{_through(address)}")

    @contextmanager
    def read(self, address: str, begin: int = 0, tag: str = "", *, index: bool = False) -> Iterator[Part]:
        """Open a file.

        address: address or path of the file.
        begin: number of bytes to skip if the server can.
        tag: mark of the content that the skipped bytes belong to; "": unknown.
        index: whether the file is an index, which may not come from another host.

        Raises CheckpointError, and Interrupted on a transient error.
        """
        if not is_web(address):
            with _read_path(Path(address), begin) as part:
                yield part
            return
        import httpx

        self.name_host(address, "its list of models" if index else "files of models")
        # no compression in transit: sizes and hashes belong to the file itself
        headers = {"Accept-Encoding": "identity"}
        if begin:
            headers |= {"Range": f"bytes={begin}-"} | ({"If-Range": tag} if tag else {})
        try:
            with self._answer(address, headers, index=index) as response:
                resumed = response.status_code == 206 and _begins_at(response.headers, begin)
                if response.status_code == 206 and not resumed:
                    raise Interrupted(f"{address}: the server sends another part than the one asked for")
                yield Part(
                    resumed,
                    _size(response.headers, begin if resumed else 0),
                    response.headers.get("ETag", ""),
                    response.iter_raw(),
                    response.headers,
                )
        except httpx.TransportError as error:
            raise Interrupted(
                f"{address}: not reached, or interrupted{_through(address)} "
                f"({error or type(error).__name__}); check the network"
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CheckpointError(f"{address}: {error or type(error).__name__}") from error

    @contextmanager
    def _answer(self, address: str, headers: Mapping[str, str], *, index: bool) -> Iterator[Any]:
        """Yield the answer of a request, after redirects. Raises CheckpointError on any other status."""
        url = address
        for _ in range(MAX_REDIRECTS):
            with self._client.stream("GET", url, headers=dict(headers)) as response:
                status = response.status_code
                if status not in REDIRECTS:
                    _check_status(url, response)
                    yield response
                    return
                target = urljoin(url, response.headers.get("Location", ""))
            if not is_web(target) or (url.startswith("https:") and not target.startswith("https:")):
                raise CheckpointError(f"{url}: sends to {target[:200]}, which is not safe")
            if index and urlsplit(target).hostname != urlsplit(address).hostname:
                raise CheckpointError(
                    f"{url}: sends to another host, {urlsplit(target).hostname}, for its index: name that "
                    "one where you trust it"
                )
            self.name_host(target, f"files of models, where {urlsplit(url).netloc} sends to")
            url = target
        raise CheckpointError(f"{address}: more than {MAX_REDIRECTS} redirects")

    def index(self, address: str) -> tuple[Any, Mapping[str, str]]:
        """Read an index, a file of JSON, and repeat after transient errors.

        address: address or path of the index.

        Returns the value and the headers of the answer. Raises CheckpointError, also if the index is too
        large.
        """
        pauses = iter(PAUSES)
        while True:
            try:
                return self._index(address)
            except Interrupted as error:
                wait(next(pauses, None), error)

    def _index(self, address: str) -> tuple[Any, Mapping[str, str]]:
        data = bytearray()
        with self.read(address, index=True) as part:
            for chunk in part.chunks:
                data += chunk
                if len(data) > MAX_INDEX_BYTES:
                    raise CheckpointError(
                        f"{address}: has more than {MAX_INDEX_BYTES:,} bytes, so it is not an index"
                    )
        try:
            return json.loads(data), part.headers
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{address}: not an index of models ({type(error).__name__})") from error


def is_web(address: str) -> bool:
    """Return whether an address is one of the web, and not a path."""
    return address.startswith(("http://", "https://"))


def _through(address: str) -> str:
    """Return ", through the proxy HOST" if the environment names a proxy for an address, otherwise ""."""
    parts, proxies = urlsplit(address), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.hostname or ""):
        return ""
    return f", through the proxy {proxy.rpartition('@')[2].rpartition('//')[2].rstrip('/')}"


def wait(pause: float | None, error: Interrupted) -> None:
    """Wait before a repetition, or raise the error.

    pause: seconds to wait; None: there is no further repetition.
    error: error of the last request.
    """
    if pause is None or error.after > MAX_PAUSE_SECONDS:
        raise error
    time.sleep(max(pause, error.after))


@contextmanager
def _read_path(path: Path, begin: int) -> Iterator[Part]:
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            file.seek(begin)
            yield Part(True, size, "", iter(lambda: file.read(CHUNK), b""), {})
    except OSError as error:
        raise CheckpointError(f"{path}: not readable ({error.strerror}); is it a mirror?") from error


def _check_status(url: str, response: Any) -> None:
    """Raise Interrupted for a transient status, and CheckpointError for any other error."""
    status = response.status_code
    if status in (200, 206):
        return
    if status in TRANSIENT:
        after = _seconds(response.headers.get("Retry-After", ""))
        raise Interrupted(f"{url}: the server answers {status}; try again later", after)
    raise CheckpointError(f"{url}: the server answers {status}; is the address right?")


def _seconds(value: str) -> float:
    """Return the seconds of a header Retry-After, which may be a date; 0 if it is invalid."""
    if value.strip().isdecimal():
        return float(value.strip()[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _begins_at(headers: Mapping[str, str], begin: int) -> bool:
    """Return whether a partial answer starts at a position; a header Content-Range is optional."""
    match = RANGE.fullmatch(headers.get("Content-Range", ""))
    return match is None or int(match[1]) == begin


def _size(headers: Mapping[str, str], begin: int) -> int | None:
    """Return the size of the whole file, from the length of an answer that starts at `begin`."""
    length = headers.get("Content-Length", "")
    return begin + int(length) if length.isdecimal() else None
