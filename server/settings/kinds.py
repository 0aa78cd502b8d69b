"""Types that several groups of settings share."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode, SettingsConfigDict


def split_names(value: Any) -> Any:
    """Return the names of a list with commas between them; of another value, its parts."""
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(part.strip().rstrip("/") for part in parts if part.strip())


Limit = Annotated[int, Field(ge=-1)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_names)]
# compose and Helm set many variables to nothing
CONFIG: Final = SettingsConfigDict(env_prefix="CONVOY_", frozen=True, extra="forbid", env_ignore_empty=True)
