"""Hatchling's hook for wheels: what goes in as data. Native code for levels of CPUs (`intarsia.codegen.llvm.level_images`),
and the library that lays graphs out for pages (`intarsia.reports.page.layout_library`), from the package that brings it.

Where native code cannot be compiled the wheel is built without: sessions of it start as those of a checkout that has not
prebuilt anything. `INTARSIA_WHEEL_LEVELS=0` leaves it out, `INTARSIA_WHEEL_LEVELS=1` makes it an error that it cannot be made.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SECONDS = 600
_CHOICE = "INTARSIA_WHEEL_LEVELS"


class WheelData(BuildHookInterface):
    """Compiles the sources that are being built, in a process of its own with a cache of its own; adds what others made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # a checkout prebuilds for its own CPU, and has the library from an extra
            return
        self._folder = tempfile.mkdtemp(prefix="intarsia-wheel-")
        build_data["force_include"] |= self._layout_library()
        choice = os.environ.get(_CHOICE, "")
        if choice == "0":
            return
        levels = Path(self._folder) / "levels"
        environment = {
            **os.environ, "PYTHONPATH": str(Path(self.root) / "src"), "INTARSIA_CACHE_DIR": str(Path(self._folder) / "cache"),
        }  # fmt: skip
        environment.pop("INTARSIA_CPU_FEATURES", None)
        done = subprocess.run(
            [sys.executable, "-m", "intarsia.cli.prebuild", "--levels", str(levels)],
            env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            build_data["force_include"] |= {str(file): f"intarsia/.levels/{file.name}" for file in sorted(levels.iterdir())}
        elif choice == "1":
            raise RuntimeError(f"native code for levels of CPUs was not compiled: {done.stderr}")
        else:
            self.app.display_warning(f"the wheel brings no native code, it was not compiled: {done.stderr.strip()[-2000:]}")

    def _layout_library(self) -> dict[str, str]:
        """Where the library's file is -> its place in the wheel.

        Raises:
            RuntimeError: the package that the build requires brings another file.
        """
        module = runpy.run_path(str(Path(self.root) / "src/intarsia/reports/page/layout_library.py"))
        data = module["installed"]()
        if data is None:
            raise RuntimeError(f"the package netron {module['NETRON']} has no {module['FILE']} as it is known")
        file = Path(self._folder) / module["PACKAGED"].name
        file.write_bytes(data)
        return {str(file): f"intarsia/reports/page/{file.name}"}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(getattr(self, "_folder", ""), ignore_errors=True)
