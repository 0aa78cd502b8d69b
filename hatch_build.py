"""Builds the native operators with the package; without a compiler the package has no native operators.

If there is no compiler, the build depends on a compiler that is a wheel (`ziglang`). CONVOY_TARGET is the
platform of a cross build (`make wheels`); see engine/native/build.py.
"""

from __future__ import annotations

import os
import platform
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ZIG: Final = "ziglang>=0.15,<1"
# platforms with wheels of ziglang
WHEELED: Final = {"linux": ("x86_64", "aarch64"), "darwin": ("x86_64", "arm64")}
TARGET: Final = "CONVOY_TARGET"
REVISION: Final = "CONVOY_REVISION"


class NativeHook(BuildHookInterface[Any]):
    def dependencies(self) -> list[str]:
        """Return ziglang as a dependency of the build if there is no compiler."""
        if self.target_name != "wheel":
            return []
        builder = self._builder()
        machine = os.environ.get(TARGET)
        try:
            builder["compiler"](builder["TARGETS"][machine] if machine else None)
        except FileNotFoundError:
            return [ZIG] if platform.machine() in WHEELED.get(sys.platform, ()) else []
        return []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the native library and add it to the wheel.

        version: kind of the build, of hatchling.
        build_data: data of the build, which is changed.
        """
        revision = self._revision()
        if revision and version != "editable":  # the sources of an editable installation have Git's folder
            file = Path(tempfile.mkdtemp()) / "revision.txt"
            file.write_text(f"{revision}\n", "ascii")
            build_data["force_include"][str(file)] = "engine/revision.txt"
        builder, machine = self._builder(), os.environ.get(TARGET)
        if machine:  # a cross build must not leave its library in the sources
            target = builder["TARGETS"][machine]
            library = builder["build"](target, Path(tempfile.mkdtemp()) / target.library)
            build_data["force_include"][str(library)] = f"engine/native/{library.name}"
            build_data["pure_python"], build_data["tag"] = False, f"py3-none-{target.tag}"
            return
        try:
            library = builder["build"]()
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"without the native operators: {error}")
            return
        build_data["artifacts"].append(f"/engine/native/{library.name}")
        build_data["pure_python"], build_data["infer_tag"] = False, True

    def _revision(self) -> str:
        """Return the commit of the sources; "" outside a checkout."""
        if REVISION in os.environ:  # a build of an image has no Git
            return os.environ[REVISION]
        try:
            done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=self.root, capture_output=True, text=True)
        except FileNotFoundError:
            return ""
        return done.stdout.strip()

    def _builder(self) -> dict[str, Any]:
        return runpy.run_path(str(Path(self.root) / "engine" / "native" / "build.py"))
