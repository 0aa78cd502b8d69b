"""Sources of settings in addition to flags: environment variables, and files with secrets.

An empty variable counts as absent. A secret may be in a file: CONVOY_<NAME>_FILE has its path, or the file is
/run/secrets/convoy_<name>, where Docker, Podman and Swarm mount secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource, PydanticBaseSettingsSource

from engine.api import InvalidRequest

# settings that may be read from files; the address of Redis may have a password
IN_FILES: Final = ("api_keys", "metrics_auth_token", "docs_auth_token", "admin_token", "limit_storage")
SECRETS_FOLDER: Final = Path("/run/secrets")
MAX_SECRET_BYTES: Final = 1 << 20
# variables that Kubernetes and Docker's links set for a Service or a container called `convoy`
LINK: Final = re.compile(
    r"CONVOY(_\w+)?_(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)|CONVOY_NAME"
)


def is_link(name: str, value: str | None) -> bool:
    """Return whether a variable is the address of a Service or a linked container, and no setting."""
    return bool(LINK.fullmatch(name)) or (name.endswith("_PORT") and "://" in (value or ""))


class EnvironmentSource(EnvSettingsSource):
    """Variables CONVOY_<NAME>, except empty ones and links."""

    def _load_env_vars(self) -> Mapping[str, str | None]:
        found = super()._load_env_vars()
        return {name: value for name, value in found.items() if not is_link(name.upper(), value)}


class SecretFileSource(PydanticBaseSettingsSource):
    """Secrets in files."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError  # `__call__` returns all values at once

    def __call__(self) -> dict[str, Any]:
        """Return the secrets that are in files, by setting. Raises InvalidRequest."""
        found = {name: _file_of(name) for name in IN_FILES}
        return {name: _read(name, path) for name, path in found.items() if path is not None}


def _file_of(name: str) -> Path | None:
    """Return the path of the file with a secret; None: there is no file."""
    variable = f"CONVOY_{name.upper()}"
    given = os.environ.get(f"{variable}_FILE")
    if given and os.environ.get(variable):
        raise InvalidRequest(f"{variable} and {variable}_FILE are both set: remove one")
    if given:
        return Path(given)
    mounted = (SECRETS_FOLDER / each for each in (f"convoy_{name}", variable))
    return next((path for path in mounted if path.is_file()), None)


def _read(name: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
        if len(content) > MAX_SECRET_BYTES:
            raise InvalidRequest(
                f"CONVOY_{name.upper()}_FILE: {path} is larger than {MAX_SECRET_BYTES:,} bytes"
            )
        lines = content.decode("utf-8").split()
    except OSError as error:
        raise InvalidRequest(f"CONVOY_{name.upper()}_FILE: can't read {path} ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"CONVOY_{name.upper()}_FILE: {path} is not text in UTF-8") from None
    return ",".join(lines)  # keys may be on lines of their own
