"""Makes deploy/convoy.env of `ServerSettings`: every setting with its sentence and default.

python -m tests.deploy.env_file
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, Final

from pydantic_core import PydanticUndefined

from server.settings import ServerSettings

PATH: Final = Path(__file__).parents[2] / "deploy" / "convoy.env"
HEAD: Final = """\
# Every setting of the server, for `docker compose`, systemd (EnvironmentFile=) and `docker run --env-file`.
# Take away the # of those that you set; an empty value is the default.
# Secrets may be in files: CONVOY_API_KEYS_FILE, CONVOY_METRICS_AUTH_TOKEN_FILE, CONVOY_DOCS_AUTH_TOKEN_FILE,
# CONVOY_ADMIN_TOKEN_FILE and CONVOY_LIMIT_STORAGE_FILE are paths, or /run/secrets/convoy_api_keys, ...
# Made by: python -m tests.deploy.env_file
"""


def env_file() -> str:
    """Return the text of the file."""
    entries = [HEAD]
    for name, field in ServerSettings.model_fields.items():
        sentence = textwrap.fill(field.description or "", 108, initial_indent="# ", subsequent_indent="# ")
        entries.append(f"{sentence}\n#CONVOY_{name.upper()}={_value(field.default)}\n")
    return "\n".join(entries)


def _value(default: Any) -> str:
    """Return a default in the syntax of a variable; empty: none, or it depends on the machine."""
    if default is None or default is PydanticUndefined:
        return ""
    if isinstance(default, tuple):
        return ",".join(
            "x".join(map(str, each)) if isinstance(each, tuple) else str(each) for each in default
        )
    return (
        str(default).lower()
        if isinstance(default, bool)
        else str(int(default) if isinstance(default, int) else default)
    )


if __name__ == "__main__":
    PATH.write_text(env_file(), encoding="utf-8")
