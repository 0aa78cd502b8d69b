"""Settings of the network, the limits of a request, and features."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, ByteSize, Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode

from server.settings.kinds import CONFIG, Limit, Names, split_names

Plugin = Literal["deeplx", "immersive", "mtran", "google", "apertium", "nllb", "xunity", "mcp", "ollama"]


class NetworkSettings(BaseSettings):
    """Addresses, certificates and proxies."""

    model_config = CONFIG

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0: any free one.")
    grpc_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of gRPC (KServe), extra `grpc`; 0: any free one; default: no gRPC.",
    )
    url_prefix: str = Field("", description="Path that the server is mounted under, such as /translate.")
    public_url: str = Field(
        "", description="Address of this server for clients, in links to files; default: as in the request."
    )
    ssl_certfile: Path | None = Field(None, description="Certificates in PEM form, to serve HTTPS.")
    ssl_keyfile: Path | None = Field(
        None, description="Private key of the certificates, unless it is in their file."
    )
    cors_origins: Names = Field(
        ("*",), description="Origins whose web pages may read answers, separated by commas; *: all."
    )
    trusted_proxies: Names = Field(
        (),
        description="Addresses and networks of proxies whose X-Forwarded-For and -Proto are trusted.",
    )
    allowed_hosts: Names = Field(
        (),
        description="Host names that requests may use, separated by commas; *: any. Default: any, or only "
        "localhost on a loopback address. IP addresses are always allowed.",
    )

    @field_validator("ssl_certfile", "ssl_keyfile")
    @classmethod
    def _check_readable(cls, value: Path | None) -> Path | None:
        """Check that a file can be read."""
        try:
            if value is not None:
                value.open("rb").close()
        except OSError as error:
            raise ValueError(f"needs a file that can be read ({error.strerror})") from None
        return value

    @field_validator("ssl_keyfile")
    @classmethod
    def _with_certificate(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None and info.data.get("ssl_certfile") is None:
            raise ValueError("is of no use without ssl_certfile")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(ip_network(part, strict=False)) for part in value)

    @field_validator("url_prefix")
    @classmethod
    def _normalise_prefix(cls, value: str) -> str:
        return f"/{value.strip('/')}" if value.strip("/") else ""

    @property
    def hosts(self) -> frozenset[str] | None:
        """Host names that requests may use, in lower case; None: any."""
        names = frozenset(name.casefold() for name in self.allowed_hosts)
        if "*" in names or (not names and not _is_loopback(self.host)):
            return None
        return names | {"localhost"}


class LimitSettings(BaseSettings):
    """Limits of one request."""

    model_config = CONFIG

    char_limit: Limit = Field(100_000, description="Characters of one text.")
    batch_limit: Limit = Field(1_000, description="Texts of one request.")
    phrase_limit: Limit = Field(1_000, description="Phrases in `ignore` and `glossary` of one request.")
    tag_limit: Limit = Field(10_000, description="Tags of one request in HTML or XML.")
    alternatives_limit: Limit = Field(
        -1, description="Alternatives of one text, within the beams of the widest lane."
    )
    body_limit: int = Field(1_048_576, ge=1, description="Bytes of one request's body.")
    body_timeout: float = Field(
        30.0, gt=0, allow_inf_nan=False, description="Seconds for a client to send a request."
    )
    request_timeout: float = Field(
        300.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds for a request; the header X-Request-Timeout may shorten it.",
    )


class FeatureSettings(BaseSettings):
    """Optional features of a server, and its stores."""

    model_config = CONFIG

    plugins: Annotated[tuple[Plugin, ...], NoDecode, BeforeValidator(split_names)] = Field(
        (),
        description="Plug-ins for other tools: deeplx,immersive,mtran,google,apertium,nllb,xunity,mcp,"
        "ollama.",
    )
    suggestions: Path | None = Field(
        None, description="File for better translations that users send to /suggest."
    )
    web: bool = Field(True, description="Whether there is a web page at /.")
    files: bool = Field(True, description="Whether files are translated.")
    file_limit: int = Field(10_485_760, ge=1, description="Bytes of one file.")
    file_lifetime: float = Field(
        1800.0, gt=0, allow_inf_nan=False, description="Seconds a translated file is kept."
    )
    file_store: int = Field(1_073_741_824, ge=1, description="Bytes of all files that are kept.")
    file_work: int = Field(
        134_217_728,
        ge=1,
        description="Bytes of files that are translated at once, one owner a quarter of them; a file takes "
        "four times its size in memory.",
    )
    store_folder: Path | None = Field(
        None,
        description="Folder of translated files, states of documents and glossaries; servers may share it. "
        "Default: a temporary folder.",
    )
    cache_bytes: ByteSize = Field(
        ByteSize(0), ge=0, description="Memory for the cache of answers, such as 100MB; 0: no cache."
    )
    frontend_timeout: int = Field(
        500, ge=0, description="Milliseconds that LibreTranslate's page waits before it translates."
    )
    frontend_source: str = Field(
        "auto", description="Source language that LibreTranslate's page begins with."
    )
    frontend_target: str = Field(
        "", description="Target language that LibreTranslate's page begins with; default: the first one."
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
