"""API keys: random tokens, stored as hashes, compared in constant time.

A key has 256 random bits, so SHA-256 without salt is enough: it can't be guessed, and a check takes a
microsecond. Keys that an operator sets by hand must be long.
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

KEY_PREFIX: Final = "cvy_"  # scanners for leaked secrets recognize it
FORMAT_VERSION: Final = 1
STALE_SECONDS: Final = 1.0  # seconds between two checks whether the file has changed


@dataclass(frozen=True, slots=True)
class Key:
    """A stored key.

    id: name of the key in logs and commands.
    name: name of the key's holder.
    digest: SHA-256 of the token, in hex.
    created: time of creation, ISO 8601 in UTC.
    requests: limit of requests a minute; -1: no limit; None: the server's own limit.
    characters: limit of characters in 30 days; -1: no limit; None: the server's own limit.
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

    name: name of the key's holder.
    requests: limit of requests a minute; -1: no limit; None: the server's own limit.
    characters: limit of characters in 30 days; -1: no limit; None: the server's own limit.

    Returns the key and its token; the key file stores only a digest of the token.
    """
    token = KEY_PREFIX + secrets.token_urlsafe(32)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return Key(secrets.token_hex(6), name, digest_of(token), created, requests, characters), token


def keys_from_tokens(tokens: Iterable[str]) -> tuple[Key, ...]:
    """Return keys for tokens from the environment. The id of a key is the beginning of its digest."""
    digests = [digest_of(token) for token in tokens]
    return tuple(Key(digest[:8], "environment", digest) for digest in digests)


def read_keys(path: Path) -> tuple[Key, ...]:
    """Return the keys of a file. Raises ConfigError that names the file when it can't be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != FORMAT_VERSION:
            raise ConfigError(f"{path}: unknown version {data['version']!r} of the key file")
        return tuple(_key(entry) for entry in data["keys"])
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}; make a key file with: convoy keys new --file {path}"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        # the message does not quote the content, which may be a secret
        raise ConfigError(f"{path}: not a key file of `convoy keys` ({type(error).__name__})") from None


@contextmanager
def editing(path: Path) -> Iterator[list[Key]]:
    """Yield the keys of a locked file for changes, and write them back atomically at the end.

    path: key file; made if it is missing, readable by its owner only.

    Raises ConfigError.
    """
    path = Path(os.path.realpath(path))  # write to the target of a link
    lock = os.open(path.with_name(f".{path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        locks.lock(lock)
        keys = list(read_keys(path)) if path.exists() else []
        yield keys
        _write(path, keys)
    finally:
        os.close(lock)


class KeyRing:
    """Finds the key of a token: among `given` keys of the environment, and keys of a file. For one thread.

    A changed key file is read again, so that a revoked key ends within a second. While the file can't be
    read, the last keys stay valid.
    """

    def __init__(self, given: Sequence[Key], path: Path | None) -> None:
        self._fixed_keys, self._path = given, path
        self._state = self._file_state()
        self._keys = self._index(read_keys(path) if path else ())
        self._checked_at = time.monotonic()

    def find(self, token: str) -> Key | None:
        """Return the key of a token; None when there is none."""
        if self._path and time.monotonic() - self._checked_at > STALE_SECONDS:
            self._refresh(self._path)
        digest = digest_of(token)
        # the time of this look-up depends on the digest, which reveals nothing about keys
        key = self._keys.get(digest)
        return key if key and hmac.compare_digest(key.digest, digest) else None

    def _refresh(self, path: Path) -> None:
        """Read the key file again if it has changed."""
        self._checked_at, state = time.monotonic(), self._file_state()
        if state == self._state:
            return
        self._state = state
        try:
            self._keys = self._index(read_keys(path))
            logger.info("read the keys again: %d", len(self._keys))
        except ConfigError as error:
            logger.error("the last keys stay valid: %s", error)  # noqa: TRY400

    def _index(self, keys: Iterable[Key]) -> dict[str, Key]:
        return {key.digest: key for key in (*keys, *self._fixed_keys)}

    def _file_state(self) -> tuple[int, int, int] | None:
        """Return inode, modification time and size of the key file; None when there is no file."""
        try:
            status = os.stat(self._path) if self._path else None
        except OSError:
            return None
        return (status.st_ino, status.st_mtime_ns, status.st_size) if status else None


def remove_key(keys: list[Key], name: str) -> Key:
    """Remove and return the key with this id, or the only key with this name. Raises InvalidRequest."""
    matches = [k for k in keys if k.id == name] or [k for k in keys if k.name == name]
    if len(matches) != 1:
        many = f"{len(matches)} keys are named {name!r}: give an id" if matches else f"no key {name!r}"
        raise InvalidRequest(f"{many}; `convoy keys list` shows all")
    keys.remove(matches[0])
    return matches[0]


def _key(entry: Any) -> Key:
    """Return the key of a JSON value. Raises ValueError, KeyError or TypeError when it is not a key."""
    key = Key(**{field.name: entry[field.name] for field in fields(Key)})
    texts = (key.id, key.name, key.digest, key.created)
    limits = (key.requests, key.characters)
    # SHA-256 has 32 bytes; fromhex raises ValueError if the digest is not in hex
    if not all(isinstance(text, str) for text in texts) or len(bytes.fromhex(key.digest)) != 32:
        raise ValueError(entry)
    if not all(limit is None or (type(limit) is int and limit >= -1) for limit in limits):
        raise ValueError(entry)
    return key


def _write(path: Path, keys: Sequence[Key]) -> None:
    """Write the key file atomically. A new file is readable by its owner only; an old one keeps its mode."""
    text = json.dumps({"version": FORMAT_VERSION, "keys": [asdict(key) for key in keys]}, indent=1) + "\n"
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    # while the file is written, only its owner may read it
    with replacing_file(path, mode=0o600, sync=True) as partial:
        partial.write_text(text, encoding="utf-8")
        partial.chmod(mode)
