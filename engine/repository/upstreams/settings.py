"""The file with the upstreams: TOML with a table for each, read at the start and at a reload.

A key comes from a file or a variable, never from the file itself, and is part of no message.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

from engine.answers.directions import Directions
from engine.errors import ConfigError
from engine.text.codes import short
from engine.text.language_names import LANGUAGE_NAMES

MAX_FILE_BYTES: Final = 1 << 20
MAX_KEY_BYTES: Final = 1 << 14
NAME: Final = re.compile(r"[\w.-]{1,64}")
PAIR: Final = re.compile(r"([\w-]+?|\*)-([\w]+|\*)")
FAMILIES: Final = ("generic", "translategemma", "hy-mt")
UNITS: Final = ("sentence", "paragraph")
ANY: Final = "*"
OF_ANSWERS: Final = ("url", "model", "family", "unit", "longest", "body")  # entries that change answers
ROUTING: Final = "routing"  # table that is no upstream
COMPLETIONS: Final = "/chat/completions"


@dataclass(frozen=True, slots=True)
class Upstream:
    """A model of another server.

    name: name of the model here.
    url: address of its chat completions.
    model: name of the model there.
    directions: languages of the model.
    key: secret for the header Authorization; "": none is sent.
    prefers: pairs of languages that the upstream answers although a local model could; "*" is any language.
    family: family of the prompt, one of FAMILIES.
    unit: part of a text that is one request, one of UNITS.
    timeout: seconds that one answer may take.
    parallel: largest number of requests in flight.
    longest: largest number of characters of one request.
    price: prices of a million tokens of prompts and of answers.
    price_per_day: largest price of the answers of one day, for each engine process.
    body: further fields of each request.
    digest: digest of the settings that change answers.
    """

    name: str
    url: str
    model: str
    directions: Directions
    key: str = field(default="", repr=False)
    prefers: tuple[tuple[str, str], ...] = ()
    family: str = "generic"
    unit: str = "paragraph"
    timeout: float = 20.0
    parallel: int = 4
    longest: int = 2_000
    price: tuple[float, float] = (0.0, 0.0)
    price_per_day: float = math.inf
    body: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""

    @property
    def host(self) -> str:
        """Host and port of the address."""
        return urlsplit(self.url).netloc


def read_upstreams(path: Path) -> list[Upstream]:
    """Read the upstreams of a file, in its order. Raises ConfigError that names the entry and the remedy."""
    upstreams, tables = [], read_tables(path)
    tables.pop(ROUTING, None)  # `engine.repository.routing` reads it
    for name, table in tables.items():
        if not isinstance(table, dict) or not NAME.fullmatch(name):
            raise ConfigError(f"{path}: {name[:64]!r} must be a table, [NAME] of letters, digits, _ . and -")
        try:
            upstreams.append(_upstream(name, table, path.parent))
        except ConfigError as error:
            raise ConfigError(f"{path}: [{name}]: {error}") from None
    return upstreams


def read_tables(path: Path) -> dict[str, Any]:
    """Return the content of the file, with upstreams and rules. Raises ConfigError."""
    try:
        return tomllib.loads(_read_bounded(path, MAX_FILE_BYTES).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not a TOML file ({error})") from None


def _upstream(name: str, table: Mapping[str, Any], folder: Path) -> Upstream:
    """Read one table. Raises ConfigError."""
    if unknown := sorted(set(table) - set(READERS) - {"key_file", "key_variable", "targets"}):
        raise ConfigError(
            f"unknown entry {unknown[0]!r}; known are {', '.join(sorted(READERS))}, key_file, "
            "key_variable and targets"
        )
    for entry in ("url", "model", "languages"):
        if entry not in table:
            raise ConfigError(f"{entry} is missing")
    if "price_per_day" in table and "price" not in table:
        raise ConfigError("price_per_day needs price, the price of a million tokens")
    values = {entry: READERS[entry](entry, table[entry]) for entry in READERS if entry in table}
    languages = values.pop("languages")
    targets = _languages("targets", table["targets"]) if "targets" in table else languages
    digest = blake2b(repr([name, *map(values.get, OF_ANSWERS)]).encode(), digest_size=16)
    return Upstream(
        name, directions=Directions(languages, targets), key=_key(table, folder), digest=digest.hexdigest(),
        **values,
    )  # fmt: skip


def _read_bounded(path: Path, most: int) -> bytes:
    """Return the content of a file. Raises ConfigError on a missing or larger file."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise ConfigError(f"can't read {path} ({error.strerror})") from None
    if len(content) > most:
        raise ConfigError(f"{path} is larger than {most:,} bytes")
    return content


def _key(table: Mapping[str, Any], folder: Path) -> str:
    """Return the key of an upstream; "" if it has none. Raises ConfigError."""
    file, variable = table.get("key_file"), table.get("key_variable")
    if file is None and variable is None:
        return ""
    if not isinstance(variable if file is None else file, str) or None not in (file, variable):
        raise ConfigError("set one of key_file and key_variable, to a text")
    if file is not None:
        key = _read_bounded(folder / file, MAX_KEY_BYTES).decode("utf-8", "replace").strip()
    else:
        key = os.environ.get(str(variable), "").strip()
        if not key:
            raise ConfigError(f"the variable {variable} of key_variable is not set")
    if not key.isascii() or not key.isprintable() or not key:
        raise ConfigError("the key must be a line of ASCII characters")
    return key


def _text(entry: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{entry} must be a text")
    return value


def _url(entry: str, value: Any) -> str:
    """Return the address of chat completions. Raises ConfigError."""
    address = urlsplit(_text(entry, value).rstrip("/"))
    if address.scheme not in ("http", "https") or not address.hostname or address.query or address.fragment:
        raise ConfigError(f"{entry} must be an address such as http://localhost:11434/v1")
    if address.username is not None or address.password is not None:
        raise ConfigError(f"{entry} must not contain a password: use key_file or key_variable")
    path = address.path if address.path else "/v1"
    return address._replace(path=path if path.endswith(COMPLETIONS) else path + COMPLETIONS).geturl()


def _languages(entry: str, value: Any) -> tuple[str, ...]:
    """Return short codes of languages; "*" is every language with a name. Raises ConfigError."""
    codes = [value] if isinstance(value, str) else value
    if not isinstance(codes, list) or not codes or not all(isinstance(code, str) and code for code in codes):
        raise ConfigError(f'{entry} must be codes such as ["de", "en"], or "*"')
    if ANY in codes:
        return tuple(LANGUAGE_NAMES)
    codes = list(dict.fromkeys(map(short, codes)))
    if unknown := [code for code in codes if code not in LANGUAGE_NAMES]:
        raise ConfigError(f"{entry} has {unknown[0][:20]!r}, which is no code of a language (de, en, zh)")
    return tuple(codes)


def _pairs(entry: str, value: Any) -> tuple[tuple[str, str], ...]:
    """Return pairs of languages. Raises ConfigError."""
    pairs = [value] if isinstance(value, str) else value
    listed = pairs if isinstance(pairs, list) else [None]
    found = [PAIR.fullmatch(pair) if isinstance(pair, str) else None for pair in listed]
    if not all(found):
        raise ConfigError(f'{entry} must be pairs such as ["de-en", "*-fr"]')
    return tuple((short(match[1]), short(match[2])) for match in found if match)


def _one_of(known: Collection[str]) -> Callable[[str, Any], str]:
    def read(entry: str, value: Any) -> str:
        if value not in known:
            raise ConfigError(f"{entry} must be one of {', '.join(known)}")
        return str(value)

    return read


def number(low: float, high: float) -> Callable[[str, Any], float]:
    """Return a function that returns the value of an entry, or raises ConfigError.

    low, high: bounds of the value.
    """

    def read(entry: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ConfigError(f"{entry} must be a number between {low:g} and {high:g}")
        return value

    return read


def _price(entry: str, value: Any) -> tuple[float, float]:
    prices = value if isinstance(value, list) else [value, value]
    if len(prices) != 2:
        raise ConfigError(f"{entry} must be one price of a million tokens, or [of prompts, of answers]")
    first, last = (float(number(0, 1e6)(entry, each)) for each in prices)
    return first, last


def _table(entry: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{entry} must be a table")
    return MappingProxyType(value)


READERS: Final[Mapping[str, Callable[[str, Any], Any]]] = MappingProxyType(
    {
        "url": _url,
        "model": _text,
        "languages": _languages,
        "prefers": _pairs,
        "family": _one_of(FAMILIES),
        "unit": _one_of(UNITS),
        "timeout": number(0.1, 3_600),
        "parallel": lambda entry, value: int(number(1, 1_000)(entry, value)),
        "longest": lambda entry, value: int(number(200, 20_000)(entry, value)),
        "price": _price,
        "price_per_day": number(0, 1e6),
        "body": _table,
    }
)
