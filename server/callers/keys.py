"""API keys: made at random, kept as hashes, found again in constant time.

A key is 256 random bits, so plain SHA-256 is the right hash: there is nothing to guess that salt or a slow
hash would protect, and a check costs a microsecond. Keys that an operator sets by hand must be long.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from engine.api import ConfigError, InvalidRequest, replacing_file
from server.process import locks

logger = logging.getLogger(__name__)

KEY_PREFIX: Final = "cvy_"  # lets scanners for leaked secrets find ours
FORMAT_VERSION: Final = 1
STALE_SECONDS: Final = 1.0  # after which the file is looked at again


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is kept.

    digest: SHA-256 in hex.
    created: ISO 8601, UTC.
    requests, characters: a minute and in 30 days; -1 is no limit, None the server's own.
    """

    id: str
    name: str
    digest: str
    created: str = ""
    requests: int | None = None
    characters: int | None = None


def digest_of(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def make_key(name: str, requests: int | None = None, characters: int | None = None) -> tuple[Key, str]:
    """Make a new key and its token.

    name: whose the key is.
    requests: limit a minute; -1 is none, None the server's own.
    characters: limit in 30 days; -1 is none, None the server's own.

    Returns the token beside the key: the file holds only the token's digest.
    """
    token = KEY_PREFIX + secrets.token_urlsafe(32)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return Key(secrets.token_hex(6), name, digest_of(token), created, requests, characters), token


def keys_from_tokens(tokens: Iterable[str]) -> tuple[Key, ...]:
    """Make keys of tokens that an operator gave as they are.

    Their ids are the beginnings of their digests.
    """
    digests = [digest_of(token) for token in tokens]
    return tuple(Key(digest[:8], "environment", digest) for digest in digests)


def read_keys(path: Path) -> tuple[Key, ...]:
    """Read the keys of a file. Raises ConfigError that names the file when it can't be read or understood."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != FORMAT_VERSION:
            raise ConfigError(f"{path}: version {data['version']!r} of the key file is not known")
        return tuple(_key(entry) for entry in data["keys"])
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}; make a key file with: convoy keys new --file {path}"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        # the content is not repeated: a token put there by mistake would be told
        raise ConfigError(f"{path}: no key file of `convoy keys` ({type(error).__name__})") from None


@contextmanager
def editing(path: Path) -> Iterator[list[Key]]:
    """Open the keys of a file, and write them back as a whole at the end; no other editor comes between.

    A file that is not there is made, readable by its owner only. Raises ConfigError.
    """
    path = Path(os.path.realpath(path))  # a link stays a link
    lock = os.open(path.with_name(f".{path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        locks.lock(lock)
        keys = list(read_keys(path)) if path.exists() else []
        yield keys
        _write(path, keys)
    finally:
        os.close(lock)


class KeyRing:
    """The keys of a server. Those of a file are read again when it has changed, so that a revoked key ends
    within a second; while the file can't be read, the last keys hold. For one thread."""

    def __init__(self, given: Sequence[Key], path: Path | None) -> None:
        self._given, self._path = given, path
        self._state = self._look()
        self._keys = self._index(read_keys(path) if path else ())
        self._looked = time.monotonic()

    def find(self, token: str) -> Key | None:
        if self._path and time.monotonic() - self._looked > STALE_SECONDS:
            self._refresh(self._path)
        digest = digest_of(token)
        # what the time of this look-up could tell is of the digest, and that tells nothing of any key
        key = self._keys.get(digest)
        return key if key and hmac.compare_digest(key.digest, digest) else None

    def _refresh(self, path: Path) -> None:
        self._looked, state = time.monotonic(), self._look()
        if state == self._state:
            return
        self._state = state
        try:
            self._keys = self._index(read_keys(path))
            logger.info("read the keys again: %d", len(self._keys))
        except ConfigError as error:
            logger.error("the last keys hold: %s", error)  # noqa: TRY400

    def _index(self, keys: Iterable[Key]) -> dict[str, Key]:
        return {key.digest: key for key in (*keys, *self._given)}

    def _look(self) -> tuple[int, int, int] | None:
        try:
            status = os.stat(self._path) if self._path else None
        except OSError:
            return None
        return (status.st_ino, status.st_mtime_ns, status.st_size) if status else None


def remove_key(keys: list[Key], name: str) -> Key:
    """Take out the key with this id, or the only one with this name, and return it. Raises InvalidRequest."""
    matches = [k for k in keys if k.id == name] or [k for k in keys if k.name == name]
    if len(matches) != 1:
        many = f"{len(matches)} keys are named {name!r}: give an id" if matches else f"no key {name!r}"
        raise InvalidRequest(f"{many}; `convoy keys list` shows all")
    keys.remove(matches[0])
    return matches[0]


def _key(entry: Any) -> Key:
    """Raises ValueError, KeyError or TypeError on anything but a key."""
    key = Key(**{field.name: entry[field.name] for field in fields(Key)})
    texts = (key.id, key.name, key.digest, key.created)
    limits = (key.requests, key.characters)
    if not all(isinstance(text, str) for text in texts) or len(bytes.fromhex(key.digest)) != 32:
        raise ValueError(entry)
    if not all(limit is None or (type(limit) is int and limit >= -1) for limit in limits):
        raise ValueError(entry)
    return key


def _write(path: Path, keys: Sequence[Key]) -> None:
    """The whole file or nothing."""
    text = json.dumps({"version": FORMAT_VERSION, "keys": [asdict(key) for key in keys]}, indent=1) + "\n"
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    with replacing_file(path, mode=0o600, sync=True) as partial:
        partial.write_text(text, encoding="utf-8")
        partial.chmod(mode)
