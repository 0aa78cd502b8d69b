"""Builds the native operators with the package; without a compiler the package has none."""

from __future__ import annotations

import runpy
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            made = runpy.run_path(str(Path(self.root) / "engine" / "native" / "build.py"))["build"]()
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"without the native operators: {error}")
            return
        build_data["artifacts"].append(f"/engine/native/{made.name}")
        build_data["pure_python"], build_data["infer_tag"] = False, True
