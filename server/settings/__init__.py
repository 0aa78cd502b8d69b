"""Everything that an operator can set, by a flag of `convoy serve` or an environment variable CONVOY_<NAME>.

engines     ModelSettings, DecodingSettings, ProcessSettings
requests    NetworkSettings, LimitSettings, FeatureSettings
callers     CallerSettings: keys, quotas, tokens
sources     environment variables, files with secrets

Variables LT_<NAME> of LibreTranslate that have a counterpart are read too; CONVOY_<NAME> has precedence.
"""

from __future__ import annotations

import sys
from typing import Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from engine.api import (
    Place,
    Placement,
    ServiceSettings,
    choose_place,
    devices,
    processors,
    usual_budget,
    usual_lanes,
    usual_precision,
)
from server.libretranslate import LibreTranslateSource
from server.settings.callers import CallerSettings
from server.settings.engines import DecodingSettings, ModelSettings, ProcessSettings
from server.settings.kinds import CONFIG
from server.settings.requests import FeatureSettings, LimitSettings, NetworkSettings
from server.settings.sources import EnvironmentSource, SecretFileSource

MAX_GPU_FRONTENDS: Final = 4  # default number of front ends of a server with GPUs, at most
CORES_OF_GPU_FRONTEND: Final = 4  # cores of the machine for each of them


class LogSettings(BaseSettings):
    """Logs and traces."""

    model_config = CONFIG

    log_level: Literal["critical", "error", "warning", "info", "debug"] = Field(
        "info", description="Least severe messages that are logged."
    )
    log_format: Literal["text", "json"] = Field("text", description="Log lines as text or JSON.")
    access_log: bool = Field(
        False,
        description="Log a line for every request with sizes, duration and the key's id, never its text.",
    )
    traces: str = Field(
        "",
        description="Collector of OpenTelemetry traces: http://localhost:4318 (extra `otel`).",
    )


class ServerSettings(
    LogSettings,
    CallerSettings,
    FeatureSettings,
    LimitSettings,
    NetworkSettings,
    ProcessSettings,
    DecodingSettings,
    ModelSettings,
):
    """The settings of all groups. `convoy serve --help` lists the last group first.

    A limit of -1 is off. In environment variables, models are separated by ":", and lanes are "1x32,5x32".
    """

    model_config = CONFIG

    @model_validator(mode="after")
    def _check_ports(self) -> Self:
        """Refuse settings that contradict each other."""
        if self.engines > 1 and not self.frontends:
            raise ValueError(f"--engines {self.engines} needs front ends: add --frontends 1 or more")
        if self.frontends > 1 and self.grpc_port == 0:
            raise ValueError("several front ends share one gRPC port: set --grpc-port, not to 0")
        if self.grpc_port and self.grpc_port == self.port:
            raise ValueError(f"--port and --grpc-port are both {self.port}: gRPC needs one of its own")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        variables = EnvironmentSource(settings_cls)
        return init_settings, variables, SecretFileSource(settings_cls), LibreTranslateSource(settings_cls)

    def of_engine(self, number: int) -> Self:
        """Return the settings of engine process `number` (from 0), with its share of the devices."""
        devices = self.device.split(",")
        # with fewer devices than engine processes, all processes use all devices
        own_devices = (
            ",".join(devices[number :: self.engines]) if len(devices) >= self.engines else self.device
        )
        return self.model_copy(update={"device": own_devices})

    def place(self) -> Place:
        """Return backend and device of the models; int8 and shortlists keep "auto" on the CPU."""
        return choose_place(
            self.device, self.backend, on_cpu=self.precision == "int8" or bool(self.shortlist)
        )

    def with_processes(self) -> Self:
        """Return the settings with front ends and an engine process for each GPU, if the models run on GPUs.

        Numbers of processes that are set stay as they are. Windows supports one process only.
        """
        place = self.place()
        fixed = {"frontends", "engines", "workers"} & self.model_fields_set or sys.platform == "win32"
        if fixed or place.device.startswith("cpu"):
            return self
        most = 1 if self.grpc_port == 0 else MAX_GPU_FRONTENDS  # port 0: front ends would have other ports
        front_ends = min(most, max(1, processors() // CORES_OF_GPU_FRONTEND))
        return self.model_copy(update={"frontends": front_ends, "engines": len(devices(place.device))})

    def service(self) -> ServiceSettings:
        """Return the settings of the engines."""
        place = self.place()
        precision = self.precision or usual_precision(place.device, fast=self.fast, backend=place.backend)
        lanes = self.lanes or usual_lanes(place, fast=self.fast)
        return ServiceSettings(
            Placement(place.backend, place.device, precision, None, lanes, self.shortlist, self.fast),
            queue_tokens=self.queue_tokens,
            encode_tokens=self.encode_tokens,
            beam_size=self.beam_size,
            verify=self.verify,
            languages=self.served_languages,
            awaited=self.fetch_state is not None,
            budget=self.model_budget,
            ceiling=usual_budget(self.engines) if place.device == "cpu" else None,
            strict=self.strict,
            upstreams=self.upstreams,
            frontends=max(1, self.frontends),
        )
