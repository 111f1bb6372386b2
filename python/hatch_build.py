"""Puts built programs into the wheel: those in the directory FOLDSPACE_PROGRAMS, tagged with FOLDSPACE_WHEEL_TAG."""

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProgramsHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # An editable installation takes the program from the PATH, and so does a wheel without programs.
        directory = os.environ.get("FOLDSPACE_PROGRAMS")
        if directory is None or version == "editable":
            return
        programs = [path for path in sorted(Path(directory).iterdir()) if path.name.startswith("foldspace")]
        build_data["shared_scripts"] = {str(path): path.name for path in programs}
        build_data["pure_python"] = False
        build_data["tag"] = os.environ["FOLDSPACE_WHEEL_TAG"]
