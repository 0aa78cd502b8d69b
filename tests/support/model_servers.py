"""Local servers that serve the paths, headers and JSON of the public sources of models, and their faults."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
import zstandard

from export.importers.marian.compressed import contents
from tests.support.students import GOLDEN

RECORDS = "/v1/buckets/main/collections/translations-models-v2/records"
STUDENT = {"model": "model*", "vocab": "vocab*", "lex": "lex*"}


@dataclass
class Server:
    """A server of files in memory.

    files: content by path.
    moved: addresses that paths redirect to.
    extra: further headers of the answers for a path.
    asked: paths of the requests with the first byte that each asked for.
    faults: function that may answer a request instead; see `Fault`.
    drip: bytes of each chunk, with a pause after it; 0: no pauses.
    sent: number of body bytes sent for each path.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    extra: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[tuple[str, int]] = field(default_factory=list)
    statuses: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    cut_path: str = "zst"
    ranges: bool = True
    drip: int = 0
    sent: Counter = field(default_factory=Counter)
    address: str = ""

    async def __call__(self, scope: Any, receive: Callable, send: Callable) -> None:
        """Answer a request (ASGI)."""
        if scope["type"] != "http":
            return
        path = scope["path"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        begin = int(headers.get("range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        self.asked.append((path, begin))
        if path in self.moved:
            await self._send(send, 302, {"Location": self.moved[path]} | self.extra.get(path, {}), b"")
        elif self.statuses and self.cut_path in path:
            await self._send(send, *self.statuses.pop(0), b"")
        elif path not in self.files:
            await self._send(send, 404, {}, b"")
        else:
            await self._send_file(send, path, headers, begin if self.ranges else 0)

    async def _send_file(self, send: Callable, path: str, headers: dict[str, str], begin: int) -> None:
        data = self.files[path]
        tag = f'"{hashlib.md5(data).hexdigest()}"'
        if headers.get("if-range", tag) != tag:
            begin = 0
        more = {"ETag": tag, "Accept-Ranges": "bytes"} | self.extra.get(path, {})
        if begin:
            more["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        body = data[begin:]
        cut = self.cuts.pop(0) if self.cuts and self.cut_path in path else len(body)
        self.sent[path] += min(cut, len(body))
        await self._send(send, 206 if begin else 200, more, body, cut)

    async def _send(
        self, send: Callable, status: int, headers: dict[str, str], body: bytes, cut: int | None = None
    ) -> None:
        fields = {"content-length": str(len(body))} | headers
        pairs = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        whole = cut is None or cut >= len(body)
        body = body[:cut]
        step = self.drip or max(1, len(body))
        for at in range(0, len(body), step):
            if at:
                await asyncio.sleep(0.001)
            await send({"type": "http.response.body", "body": body[at : at + step], "more_body": True})
        if not whole:
            raise ConnectionError("cut on purpose")  # uvicorn closes the connection
        await send({"type": "http.response.body", "body": b""})

    def put(self, path: str, value: Any) -> None:
        """Serve a value as JSON."""
        self.files[path] = json.dumps(value).encode()


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Serve on a free port of this machine until the context ends."""
    config = uvicorn.Config(server, port=0, log_config=None, lifespan="off", ws="none")
    running_server = uvicorn.Server(config)
    thread = threading.Thread(target=running_server.run, daemon=True)
    thread.start()
    while not running_server.started:
        thread.join(0.005)
    port = running_server.servers[0].sockets[0].getsockname()[1]
    server.address = f"http://127.0.0.1:{port}"
    yield server
    running_server.should_exit = running_server.force_exit = True
    thread.join(10)


def student(source: str, target: str) -> dict[str, tuple[str, bytes]]:
    """Return name and content of each file of a student, by its kind."""
    found = {}
    for kind, pattern in STUDENT.items():
        path = next(GOLDEN.glob(pattern))
        name = path.name.removesuffix(path.suffix).replace("deen", f"{source}{target}")
        found[kind] = name, contents(path)
    return found


def record(
    server: Server, kind: str, name: str, data: bytes, pair: tuple[str, str], version: str, **more: Any
) -> dict:
    """Serve a file as an attachment of Remote Settings, and return its record."""
    packed = zstandard.compress(data, 1)
    location = f"main-workspace/translations-models-v2/{name}-{version}.zst"
    server.files[f"/attachments/{location}"] = packed
    attachment = {"hash": sha(packed), "size": len(packed), "filename": f"{name}.zst", "location": location}
    return {
        "name": name,
        "version": version,
        "fileType": kind,
        "architecture": "tiny",
        "sourceLanguage": pair[0],
        "targetLanguage": pair[1],
        "decompressedHash": sha(data),
        "decompressedSize": len(data),
        "filter_expression": "",
        "attachment": attachment | {"mimetype": "application/zstd"},
        "unknown": {"field": [1]},
    } | more


def remote_settings(server: Server, pairs: list[tuple[str, str]], version: str = "3.0") -> list[dict]:
    """Serve students as Mozilla's Remote Settings does; return the records."""
    records = [
        record(server, kind, name, data, pair, version)
        for pair in pairs
        for kind, (name, data) in student(*pair).items()
    ]
    publish(server, records)
    return records


def publish(server: Server, records: list[dict]) -> None:
    """Serve records; the server itself has the attachments."""
    server.put(RECORDS, {"data": records})
    base = {"attachments": {"base_url": f"{server.address}/attachments/"}}
    server.put("/v1/", {"project_name": "Remote Settings", "capabilities": base})


def repository(server: Server, name: str, folder: Path, commit: str = "c" * 40, **card: Any) -> None:
    """Serve a folder as a repository of Hugging Face; its weights are on another host, as on a CDN."""
    files = {
        path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()
    }
    siblings = [{"rfilename": path, "size": file.stat().st_size} for path, file in files.items()]
    info = {"id": name, "sha": commit, "siblings": siblings, "cardData": card, "private": False, "tags": []}
    for path in (
        f"/api/models/{name}",
        *(f"/api/models/{name}/revision/{r}" for r in ("main", "v1", commit)),
    ):
        server.put(path, info | {"downloads": 1, "likes": 1})
    for path, file in files.items():
        data = file.read_bytes()
        for revision in (commit, "main", "v1"):
            place = f"/{name}/resolve/{revision}/{path}"
            server.extra[place] = {"X-Repo-Commit": commit}
            if len(data) > 20_000:
                cdn = f"/cdn/{sha(data)}"
                server.files[cdn] = data
                server.moved[place] = server.address.replace("127.0.0.1", "localhost") + cdn
                linked = {"X-Linked-Size": str(len(data)), "X-Linked-Etag": f'"{sha(data)}"'}
                server.extra[place] |= linked
            else:
                server.files[place] = data


def zipped(folder: Path, top: str) -> bytes:
    """Return a zip of a folder, with one top folder."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, f"{top}/{path.relative_to(folder).as_posix()}")
    return out.getvalue()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
