"""Settings of models, engines and processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import ByteSize, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode

from engine.api import (
    BACKEND_HELP,
    DEVICE_HELP,
    FAST_HELP,
    PRECISION_DEFAULT,
    PRECISION_HELP,
    LaneSize,
    processors,
)
from server.languages import inward
from server.settings.kinds import CONFIG, Names

Lanes = tuple[LaneSize, ...]
PIVOT = "en"


class ModelSettings(BaseSettings):
    """Which models are served, and how they are loaded."""

    model_config = CONFIG

    models: Annotated[tuple[Path, ...], NoDecode] = Field(
        (Path("models"),),
        description="Bundles or folders of bundles; also packages of Argos and models of CTranslate2.",
    )
    languages: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Serve these languages (de,en,nl); missing models are fetched, from fetch_mirror or else "
        "from Mozilla, while the server answers with the others.",
    )
    fetch: Names = Field(
        (),
        description="Names of models to fetch as `convoy fetch` does (de-en,argos:sq-en), unless they are on "
        "disk.",
    )
    fetch_out: Path | None = Field(
        None, description="Folder of fetched models, which are served too; default: the first of models."
    )
    fetch_mirror: str = Field(
        "", description="Address or folder of a mirror, which `convoy package` makes; there is no public one."
    )
    fetch_firefox: str = Field("", description="Address of Remote Settings, or of a mirror of it.")
    fetch_argos: str = Field("", description="Address of the index of Argos Translate's packages.")
    fetch_state: Path | None = Field(
        None, description="File with the states of models that are fetched; default: a temporary file."
    )
    cache: Path | None = Field(
        None,
        description="Folder of converted models of Argos and CTranslate2; default: next to store_folder, or "
        "the user's cache.",
    )
    load_only: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Load only models of these languages: de,en."
    )
    upstreams: Path | None = Field(
        None,
        description="File (TOML) of language models on other servers, which are then sent texts: "
        "docs/upstreams.md; and rules for sentences in doubt: docs/routing.md.",
    )
    verify: bool = Field(True, description="Compare the hashes of all files of the bundles at start.")
    strict: bool = Field(
        False, description="Refuse to start with a damaged bundle in a folder; by default it is skipped."
    )
    model_budget: ByteSize | None = Field(
        None,
        ge=1,
        description="Memory for the models of each engine process, such as 2GB: models are loaded at first "
        "use, and the least recently used is evicted. Default: all are loaded at the start if they fit in "
        "60 % of the memory of the machine or container; otherwise that is the budget.",
    )
    watch: float = Field(
        5.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds between two scans of the folders of models for changed bundles; 0: never.",
    )

    @property
    def served_languages(self) -> tuple[str, ...]:
        """Languages of the models to serve; English joins others, as most models are to or from it."""
        wanted = tuple(dict.fromkeys((*self.languages, PIVOT))) if self.languages else ()
        return self.load_only or wanted

    @field_validator("load_only", "languages", mode="before")
    @classmethod
    def _split_codes(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return [inward(code) for code in value.split(",") if code.strip()]

    @field_validator("models", mode="before")
    @classmethod
    def _split_models(cls, value: Any) -> Any:
        parts = value.split(os.pathsep) if isinstance(value, str) else value
        return [parts] if isinstance(parts, Path) else parts


class DecodingSettings(BaseSettings):
    """How an engine decodes."""

    model_config = CONFIG

    backend: str | None = Field(None, description=f"{BACKEND_HELP} Default: onnx on the CPU, cuda on GPUs.")
    device: str = Field("auto", description=DEVICE_HELP)
    precision: str | None = Field(None, description=f"{PRECISION_HELP} {PRECISION_DEFAULT}")
    shortlist: bool | None = Field(
        None,
        description="Decode only tokens that are likely for a source: faster. Default: set by the bundle.",
    )
    fast: bool = Field(False, description=FAST_HELP)
    lanes: Annotated[Lanes | None, NoDecode] = Field(
        None,
        description="Beams x slots of each lane of a model. Default: 1x32,5x32,16x8; with the backend cuda "
        "5x128,16x8, or fewer slots on cards of less than 18 GiB.",
    )
    beam_size: int | None = Field(None, ge=1, description="Overrides the models' default beam size.")
    queue_tokens: int = Field(65_536, ge=1, description="Source tokens that may be queued for each model.")
    encode_tokens: int = Field(2_048, ge=1, description="Source tokens encoded between two decoding steps.")

    @field_validator("lanes", mode="before")
    @classmethod
    def _split_lanes(cls, value: Any) -> Any:
        """Split lanes such as 1x32,5x32 in pairs."""
        if not isinstance(value, str):
            return value
        pairs = [part.strip().split("x") for part in value.split(",")]
        if not all(len(pair) == 2 and all(n.isdecimal() and int(n) > 0 for n in pair) for pair in pairs):
            raise ValueError("lanes are pairs BEAMSxSLOTS, such as 1x32,5x32")
        return pairs


class ProcessSettings(BaseSettings):
    """The processes of a server."""

    model_config = CONFIG

    frontends: int = Field(
        0,
        ge=0,
        description="Front ends: processes for HTTP, in addition to --engines; 0: one process for all. On "
        "GPUs the default is one for four cores, at most 4, and an engine process for each GPU.",
    )
    engines: int = Field(1, ge=1, description="Engine processes, each with an engine for every model.")
    workers: int | None = Field(None, ge=1, description="Deprecated: N means --frontends N --engines N.")
    threads: int | None = Field(
        None,
        ge=1,
        description="Threads that all models of an engine process share; default: its share of the cores.",
    )
    drain_timeout: float = Field(
        30.0, ge=0, allow_inf_nan=False, description="Seconds for accepted requests after SIGTERM."
    )
    hang_timeout: float = Field(
        60.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds without progress after which one of several processes is restarted; 0: never.",
    )

    @model_validator(mode="before")
    @classmethod
    def _by_workers(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Read the deprecated `workers` as `frontends` and `engines`."""
        workers = str(values.get("workers"))
        several = {"frontends": workers, "engines": workers} if workers.isdecimal() and workers != "1" else {}
        return several | values

    @property
    def share(self) -> int:
        """Threads of each engine process."""
        return self.threads or max(1, processors() // self.engines)
