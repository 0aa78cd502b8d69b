"""Environment variables LT_<NAME> of LibreTranslate that have a counterpart among our settings."""

from __future__ import annotations

import os
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

# our setting by LibreTranslate's variable
COUNTERPARTS: Final = {
    "LT_HOST": "host",
    "LT_PORT": "port",
    "LT_THREADS": "threads",
    "LT_CHAR_LIMIT": "char_limit",
    "LT_BATCH_LIMIT": "batch_limit",
    "LT_ALTERNATIVES_LIMIT": "alternatives_limit",
    "LT_LOAD_ONLY": "languages",
    "LT_URL_PREFIX": "url_prefix",
    "LT_FRONTEND_TIMEOUT": "frontend_timeout",
    "LT_FRONTEND_LANGUAGE_SOURCE": "frontend_source",
    "LT_FRONTEND_LANGUAGE_TARGET": "frontend_target",
    "LT_API_KEYS": "api_keys",
    "LT_REQUIRE_API_KEY_ORIGIN": "require_api_key_origin",
    "LT_GET_API_KEY_LINK": "get_api_key_link",
    "LT_REQ_LIMIT": "req_limit",
    "LT_HOURLY_REQ_LIMIT": "hourly_req_limit",
    "LT_DAILY_REQ_LIMIT": "daily_req_limit",
    "LT_REQ_LIMIT_STORAGE": "limit_storage",
    "LT_METRICS_AUTH_TOKEN": "metrics_auth_token",  # nosec B105 # a name, no token
}
FLAGS: Final = ("LT_DISABLE_FILES_TRANSLATION", "LT_DISABLE_WEB_UI", "LT_DEBUG")
YES: Final = frozenset({"1", "true", "t", "yes", "y", "on"})
NO: Final = frozenset({"", "0", "false", "f", "no", "n", "off"})


def without_effect() -> list[str]:
    """Return the variables of LibreTranslate that are set but have no counterpart here."""
    return sorted(
        name for name in os.environ if name.startswith("LT_") and name not in {*COUNTERPARTS, *FLAGS}
    )


class LibreTranslateSource(PydanticBaseSettingsSource):
    """The values of LibreTranslate's variables."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError  # `__call__` returns all values at once

    def __call__(self) -> dict[str, Any]:
        """Return the values of our settings from LibreTranslate's variables."""
        values: dict[str, Any] = {
            ours: os.environ[name] for name, ours in COUNTERPARTS.items() if os.environ.get(name)
        }
        if os.environ.get("LT_DISABLE_FILES_TRANSLATION", "").lower() in YES:
            values["files"] = False
        if os.environ.get("LT_DISABLE_WEB_UI", "").lower() in YES:
            values["web"] = False
        if os.environ.get("LT_DEBUG", "").lower() in YES:
            values["log_level"] = "debug"
        return values
