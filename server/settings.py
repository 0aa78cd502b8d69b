"""Everything an operator can set: by flag of `convoy serve`, or by environment variable CONVOY_<NAME>.

Variables LT_<NAME> of LibreTranslate are understood where there is a twin; CONVOY_<NAME> wins.
"""

from __future__ import annotations

import os
import re
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ByteSize, Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from engine.api import (
    BACKEND_HELP,
    DEVICE_HELP,
    FAST_HELP,
    FAST_LANES,
    PRECISION_HELP,
    LaneSize,
    Placement,
    ServiceSettings,
    processors,
    usual_precision,
)
from server.languages import inward
from server.libretranslate import NO, YES, LibreTranslateSource

Lanes = tuple[LaneSize, ...]
Limit = Annotated[int, Field(ge=-1)]
Names = Annotated[tuple[str, ...], NoDecode]
Plugin = Literal["deeplx", "immersive", "mtran", "google", "apertium", "mcp"]
MIN_KEY_CHARACTERS: Final = 16  # characters; those that `convoy keys new` makes have 47


class ServerSettings(BaseSettings):
    """Limits of -1 are off. Lists in environment variables: models with ":" between, lanes as "1x32,5x32"."""

    model_config = SettingsConfigDict(env_prefix="CONVOY_", frozen=True, extra="forbid")

    models: Annotated[tuple[Path, ...], NoDecode] = Field(
        (Path("models"),),
        description="Bundles, or folders of bundles; also packages of Argos and models of CTranslate2.",
    )
    fetch: Names = Field(
        (),
        description="Names or pairs (de-en,en-de) of models to fetch from fetch_mirror at the start, if the "
        "first folder of models lacks them.",
    )
    fetch_mirror: str = Field(
        "", description="Address or folder of a mirror (`convoy package` makes one); none is known."
    )
    cache: Path | None = Field(
        None,
        description="Where models of others (Argos, CTranslate2) lie once they are converted; else beside "
        "store_folder, or in the user's cache.",
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0: any free one.")
    grpc_port: int | None = Field(
        None, ge=0, le=65535, description="Port of gRPC (KServe), extra `grpc`; 0: any free one; else none."
    )
    backend: str = Field("onnx", description=BACKEND_HELP)
    device: str = Field("cpu", description=DEVICE_HELP)
    precision: str | None = Field(None, description=f"{PRECISION_HELP} Default: fp32.")
    shortlist: bool | None = Field(
        None,
        description="Answer with tokens that a source makes likely alone: faster. Else as each bundle says.",
    )
    fast: bool = Field(False, description=FAST_HELP)
    frontends: int = Field(
        0,
        ge=0,
        description="Processes that speak HTTP behind the port, beside those of --engines; 0: one process "
        "does all.",
    )
    engines: int = Field(
        1, ge=1, description="Processes that hold the models, with an engine for each model in each."
    )
    workers: int | None = Field(
        None, ge=1, description="Goes with the next release: N are --frontends N --engines N."
    )
    threads: int | None = Field(
        None,
        ge=1,
        description="Threads that all models of an engine process share; else all cores, divided.",
    )
    lanes: Annotated[Lanes, NoDecode] = Field(
        Placement().lanes, description="Beams x slots of each lane of a model: 1x32,5x32,16x8."
    )
    beam_size: int | None = Field(None, ge=1, description="Overrides the models' default beam size.")
    queue_tokens: int = Field(65_536, ge=1, description="Source tokens that may wait for each model.")
    encode_tokens: int = Field(2_048, ge=1, description="Source tokens encoded between two decoding steps.")
    verify: bool = Field(True, description="Compare the hashes of all files of the bundles at start.")
    strict: bool = Field(
        False, description="Refuse to start where a bundle in a folder is damaged; else it is left out."
    )
    model_budget: ByteSize | None = Field(
        None,
        ge=1,
        description="Memory for the models of each engine process, such as 2GB: they are loaded when first "
        "used, and the least recently used goes. Else all are loaded at the start.",
    )
    watch: float = Field(
        5.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds between two looks for bundles put into the folders of models, or taken out; 0: "
        "none after the start.",
    )
    char_limit: Limit = Field(100_000, description="Characters of one text.")
    batch_limit: Limit = Field(1_000, description="Texts of one request.")
    phrase_limit: Limit = Field(
        1_000, description="Phrases of one request to keep or to translate as a glossary says."
    )
    tag_limit: Limit = Field(10_000, description="Tags of one request in HTML or XML.")
    alternatives_limit: Limit = Field(
        -1, description="Alternatives of one text; the widest lane also limits."
    )
    body_limit: int = Field(1_048_576, ge=1, description="Bytes of one request's body.")
    body_timeout: float = Field(
        30.0, gt=0, allow_inf_nan=False, description="Seconds a client may take to send a request."
    )
    request_timeout: float = Field(
        300.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds a request may take; X-Request-Timeout asks for less.",
    )
    drain_timeout: float = Field(
        30.0, ge=0, allow_inf_nan=False, description="Seconds accepted requests get after SIGTERM."
    )
    hang_timeout: float = Field(
        60.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds for which a process beside others, or the same turn of an engine, may show no "
        "progress; then it is killed and started anew. 0: any.",
    )
    load_only: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Load only the models whose languages are all among these: de,en."
    )
    url_prefix: str = Field("", description="Path that the server is mounted under, such as /translate.")
    plugins: Annotated[tuple[Plugin, ...], NoDecode] = Field(
        (), description="Contracts of other tools to speak too: deeplx,immersive,mtran,google,apertium,mcp."
    )
    suggestions: Path | None = Field(
        None, description="File that better translations are added to, which users send to /suggest."
    )
    web: bool = Field(True, description="Whether there is a web page at /.")
    files: bool = Field(True, description="Whether files are translated.")
    file_limit: int = Field(10_485_760, ge=1, description="Bytes of one file.")
    file_lifetime: float = Field(
        1800.0, gt=0, allow_inf_nan=False, description="Seconds a translated file is kept."
    )
    file_store: int = Field(1_073_741_824, ge=1, description="Bytes of all files that are kept.")
    store_folder: Path | None = Field(
        None,
        description="Where translated files, documents' states and glossaries lie; servers that share it "
        "share them. Else they go when the server stops.",
    )
    cache_bytes: ByteSize = Field(
        ByteSize(0), ge=0, description="Memory for answers that may be asked for again, as 100MB; 0: none."
    )
    frontend_timeout: int = Field(500, ge=0, description="Milliseconds LibreTranslate's page waits.")
    frontend_source: str = Field("auto", description="Source language LibreTranslate's page begins with.")
    frontend_target: str = Field("", description="Its target language; else the first there is.")
    log_level: Literal["critical", "error", "warning", "info", "debug"] = Field(
        "info", description="Least severe messages that are logged."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Log lines for people, or JSON for machines."
    )
    access_log: bool = Field(
        False,
        description="Log a line for every request: sizes, duration, the key's id; never its text or query.",
    )
    api_key_file: Path | None = Field(
        None, description="Keys made by `convoy keys`; with keys, requests need one."
    )
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        (), description="Keys with commas between; better in the environment, as flags show in `ps`."
    )
    anonymous: bool = Field(False, description="With keys: also answer requests that have none.")
    require_api_key_origin: str = Field(
        "", description="With keys: a pattern of origins (of web pages) whose requests need none."
    )
    get_api_key_link: str = Field("", description="Where users get a key, told to those without.")
    req_limit: Limit = Field(
        -1, description="Requests a minute of each address, and of each key without a limit of its own."
    )
    hourly_req_limit: Limit = Field(-1, description="The same, in an hour.")
    daily_req_limit: Limit = Field(-1, description="The same, in a day.")
    char_quota: Limit = Field(-1, description="Characters in 30 days, of each address or key likewise.")
    limit_storage: str = Field(
        "memory://", description="Where limits are counted: memory://, or redis://host:port."
    )
    metrics_auth_token: SecretStr | None = Field(None, description="A token that /metrics needs.")
    docs_auth_token: SecretStr | None = Field(None, description="A token that /docs needs.")
    admin_token: SecretStr | None = Field(
        None, description="A token to reload, load and unload models over HTTP; without one that is off."
    )
    traces: str = Field(
        "",
        description="Collector of OpenTelemetry traces: http://localhost:4318 (extra `otel`).",
    )
    ssl_certfile: Path | None = Field(None, description="Certificates in PEM form, to serve HTTPS.")
    ssl_keyfile: Path | None = Field(None, description="Their key, unless it is in the same file.")
    cors_origins: Names = Field(
        ("*",), description="Origins whose web pages may read answers, with commas between; *: all."
    )
    trusted_proxies: Names = Field(
        (),
        description="Addresses and networks of proxies whose X-Forwarded-For and -Proto are believed.",
    )
    allowed_hosts: Names = Field(
        (),
        description="Names that clients may ask by, with commas between; *: any. Else any, but on a loopback "
        "address only localhost; addresses always.",
    )
    public_url: str = Field(
        "", description="Where clients reach this server, for links to files; else as they ask."
    )

    @model_validator(mode="before")
    @classmethod
    def _by_workers(cls, values: dict[str, Any]) -> dict[str, Any]:
        workers = str(values.get("workers"))
        several = {"frontends": workers, "engines": workers} if workers.isdecimal() and workers != "1" else {}
        return several | values

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.engines > 1 and not self.frontends:
            raise ValueError(f"--engines {self.engines} needs front ends: add --frontends 1 or more")
        if self.frontends > 1 and self.grpc_port == 0:
            raise ValueError("several front ends need one port of gRPC, not any free one: name it")
        if self.grpc_port and self.grpc_port == self.port:
            raise ValueError(f"--port and --grpc-port are both {self.port}: gRPC needs one of its own")
        return self

    @field_validator("api_keys", mode="before")
    @classmethod
    def _split_keys(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, str):
            return value
        if value.casefold() in YES:  # LibreTranslate's LT_API_KEYS says only that there are keys
            if info.data.get("api_key_file") is None:
                raise ValueError("names no keys: make some with `convoy keys new`, set CONVOY_API_KEY_FILE")
            return ()
        keys = () if value.casefold() in NO else tuple(part.strip() for part in value.split(","))
        if any(len(key) < MIN_KEY_CHARACTERS for key in keys):
            raise ValueError(
                f"each key needs {MIN_KEY_CHARACTERS} characters: make one with `openssl rand -hex 32`"
            )
        return keys

    @field_validator("metrics_auth_token", "docs_auth_token", "admin_token")
    @classmethod
    def _no_empty_token(cls, value: SecretStr | None) -> SecretStr | None:
        return value if value is not None and value.get_secret_value() else None

    @field_validator("require_api_key_origin")
    @classmethod
    def _pattern(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"no regular expression: {error}") from None
        return value

    @field_validator("ssl_certfile", "ssl_keyfile")
    @classmethod
    def _readable(cls, value: Path | None) -> Path | None:
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

    @field_validator("cors_origins", "trusted_proxies", "allowed_hosts", "fetch", "plugins", mode="before")
    @classmethod
    def _split_names(cls, value: Any) -> Any:
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(part.strip().rstrip("/") for part in parts if part.strip())

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(ip_network(part, strict=False)) for part in value)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, LibreTranslateSource(settings_cls)

    @field_validator("load_only", mode="before")
    @classmethod
    def _split_codes(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return [inward(code) for code in value.split(",") if code.strip()]

    @field_validator("url_prefix")
    @classmethod
    def _normalise_prefix(cls, value: str) -> str:
        return f"/{value.strip('/')}" if value.strip("/") else ""

    @field_validator("models", mode="before")
    @classmethod
    def _split_models(cls, value: Any) -> Any:
        parts = value.split(os.pathsep) if isinstance(value, str) else value
        return [parts] if isinstance(parts, Path) else parts

    @field_validator("lanes", mode="before")
    @classmethod
    def _split_lanes(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        pairs = [part.strip().split("x") for part in value.split(",")]
        if not all(len(pair) == 2 and all(n.isdecimal() and int(n) > 0 for n in pair) for pair in pairs):
            raise ValueError("lanes are pairs BEAMSxSLOTS, such as 1x32,5x32")
        return pairs

    @property
    def hosts(self) -> frozenset[str] | None:
        """Names that clients may ask by, in lower case; None: any."""
        names = frozenset(name.casefold() for name in self.allowed_hosts)
        if "*" in names or (not names and not _is_loopback(self.host)):
            return None
        return names | {"localhost"}

    @property
    def share(self) -> int:
        """Threads of each engine process."""
        return self.threads or max(1, processors() // self.engines)

    def of_engine(self, number: int) -> Self:
        """Return the settings of an engine process, counted from 0: several devices are dealt out."""
        devices = self.device.split(",")
        own = ",".join(devices[number :: self.engines]) if len(devices) >= self.engines else self.device
        return self.model_copy(update={"device": own})

    def service(self) -> ServiceSettings:
        """Return the engine's share of the settings. ONNX sessions take the pool of `share_threads`."""
        precision = self.precision or usual_precision(self.device, fast=self.fast)
        lanes = FAST_LANES if self.fast and "lanes" not in self.model_fields_set else self.lanes
        return ServiceSettings(
            Placement(self.backend, self.device, precision, None, lanes, self.shortlist, self.fast),
            queue_tokens=self.queue_tokens,
            encode_tokens=self.encode_tokens,
            beam_size=self.beam_size,
            verify=self.verify,
            languages=self.load_only,
            budget=self.model_budget,
            strict=self.strict,
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
