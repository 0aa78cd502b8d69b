"""Everything an operator can set: by flag of `convoy serve`, or by environment variable CONVOY_<NAME>."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from engine.api import ServiceSettings

Lanes = tuple[tuple[int, int], ...]
Limit = Annotated[int, Field(ge=-1)]


class Settings(BaseSettings):
    """Limits of -1 are off. Lists in environment variables: models with ":" between, lanes as "1x32,5x32"."""

    model_config = SettingsConfigDict(env_prefix="CONVOY_", frozen=True, extra="forbid")

    models: Annotated[tuple[Path, ...], NoDecode] = Field(
        (Path("models"),), description="Bundles, or folders of bundles."
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0: any free one.")
    backend: str = Field("onnx", description="onnx, or torch (needs the extra `torch`).")
    device: str = Field("cpu", description="cpu, or cuda with the torch backend.")
    precision: str = Field("fp32", description="fp32 or int8.")
    threads: int | None = Field(None, ge=1, description="Threads that all models share; else all cores.")
    lanes: Annotated[Lanes, NoDecode] = Field(
        ((1, 32), (5, 32), (16, 8)), description="Beams x slots of each lane of a model: 1x32,5x32,16x8."
    )
    beam_size: int | None = Field(None, ge=1, description="Overrides the models' default beam size.")
    queue_tokens: int = Field(65_536, ge=1, description="Source tokens that may wait for each model.")
    encode_tokens: int = Field(2_048, ge=1, description="Source tokens encoded between two decoding steps.")
    verify: bool = Field(True, description="Compare the hashes of all files of the bundles at start.")
    char_limit: Limit = Field(-1, description="Characters of one text.")
    batch_limit: Limit = Field(-1, description="Texts of one request.")
    alternatives_limit: Limit = Field(
        -1, description="Alternatives of one text; the widest lane also limits."
    )
    body_limit: int = Field(4_194_304, ge=1, description="Bytes of one request's body.")
    request_timeout: float = Field(
        300.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds a request may take; X-Request-Timeout asks for less.",
    )
    drain_timeout: float = Field(
        30.0, ge=0, allow_inf_nan=False, description="Seconds accepted requests get after SIGTERM."
    )
    log_level: Literal["critical", "error", "warning", "info", "debug"] = Field(
        "info", description="Least severe messages that are logged."
    )
    access_log: bool = Field(False, description="Log a line for every request.")

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
            raise ValueError(f"lanes are pairs BEAMSxSLOTS, such as 1x32,5x32; not {value!r}")
        return pairs

    def service(self) -> ServiceSettings:
        """The engine's share. ONNX sessions take the pool of `share_threads`."""
        return ServiceSettings(
            backend=self.backend,
            device=self.device,
            precision=self.precision,
            threads=None,
            lanes=self.lanes,
            queue_tokens=self.queue_tokens,
            encode_tokens=self.encode_tokens,
            beam_size=self.beam_size,
            verify=self.verify,
        )
