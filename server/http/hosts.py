"""The names of this server, and web pages of other origins.

A browser sends the requests of any page, also to servers that only its own machine reaches. Such a page must
not read answers under a name of its own (DNS rebinding), nor use what a server without keys stores.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from server.errors import Refusal
from server.settings import ServerSettings

SHOWN_CHARACTERS: Final = 200


def check_host(host: str, settings: ServerSettings) -> None:
    """Raise Refusal when the host of a request is not a name of this server.

    This protects against DNS rebinding: a web page whose name points to this server for a moment could
    otherwise read its responses.

    host: header Host of the request.
    settings: settings of the server, with its names.
    """
    name, names = _name_of(host), settings.hosts
    if names is None or not host or name.casefold() in names or _is_address(name):
        return
    raise Refusal(
        "wrong_host",
        f"this server is not {name[:SHOWN_CHARACTERS]}: use its IP address, or add the name to "
        "CONVOY_ALLOWED_HOSTS",
    )


def check_origin(headers: Headers, settings: ServerSettings) -> None:
    """Raise Refusal when a request comes from a web page of another origin that the settings do not list.

    headers: headers of the request; programs send no Origin.
    settings: settings of a server without keys. "*" in `cors_origins` lists no origin here.
    """
    origin, host = headers.get("origin", "").casefold(), headers.get("host", "")
    if not origin or origin in settings.cors_origins or origin == _origin_of(settings.public_url):
        return
    name = _name_of(host)
    # a page can give this server any other name
    own = settings.hosts is not None or _is_address(name) or name in ("localhost", *settings.allowed_hosts)
    if own and host and origin.partition("://")[2] == host.casefold():
        return
    raise Refusal(
        "foreign_origin",
        f"pages of {origin[:SHOWN_CHARACTERS]} may not use what this server stores: add the origin to "
        "CONVOY_CORS_ORIGINS, or give the server keys",
    )


def _name_of(host: str) -> str:
    """Return the name or address in a header Host: an IPv6 address is in brackets, and a port may follow."""
    return host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]


def _origin_of(address: str) -> str:
    """Return the origin of a web address; empty for no address."""
    parts = urlsplit(address.casefold())
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""


def _is_address(name: str) -> bool:
    """Return whether a name is an IP address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
