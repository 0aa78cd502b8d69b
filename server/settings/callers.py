"""Settings of API keys, quotas and tokens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode

from server.libretranslate import NO, YES
from server.settings.kinds import CONFIG, Limit

MIN_KEY_CHARACTERS: Final = 16  # keys of `convoy keys new` have 47


class CallerSettings(BaseSettings):
    """API keys, quotas and the operator's tokens."""

    model_config = CONFIG

    api_key_file: Path | None = Field(
        None, description="Keys made by `convoy keys`; with keys, requests need one."
    )
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        (), description="Keys, separated by commas; better in the environment, because `ps` shows flags."
    )
    anonymous: bool = Field(False, description="With keys: also answer requests without a key.")
    require_api_key_origin: str = Field(
        "", description="With keys: regular expression of origins (of web pages) whose requests need no key."
    )
    get_api_key_link: str = Field(
        "", description="Address where users get a key, for the error of requests without one."
    )
    req_limit: Limit = Field(
        -1, description="Requests a minute of each address, and of each key without its own limit."
    )
    hourly_req_limit: Limit = Field(-1, description="Requests an hour, counted like req_limit.")
    daily_req_limit: Limit = Field(-1, description="Requests a day, counted like req_limit.")
    char_quota: Limit = Field(-1, description="Characters in 30 days, counted like req_limit.")
    limit_storage: str = Field(
        "memory://", description="Storage of the counters of limits: memory:// or redis://host:port."
    )
    metrics_auth_token: SecretStr | None = Field(None, description="Token for /metrics.")
    metrics_by_key: bool = Field(
        False, description="Count requests and characters by the id of the key in /metrics."
    )
    docs_auth_token: SecretStr | None = Field(None, description="Token for /docs.")
    admin_token: SecretStr | None = Field(
        None, description="Token to reload, load and unload models over HTTP; without it, that is off."
    )

    @field_validator("api_keys", mode="before")
    @classmethod
    def _split_keys(cls, value: Any, info: ValidationInfo) -> Any:
        """Split keys at commas. LibreTranslate's yes and no are accepted: yes needs a key file."""
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
    def _check_pattern(cls, value: str) -> str:
        """Check that the value is a regular expression."""
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"no regular expression: {error}") from None
        return value
