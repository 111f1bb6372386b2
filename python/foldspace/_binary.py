"""Finds the program ``foldspace``."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path


def find_foldspace_bin() -> str:
    """Returns the path of the program: ``FOLDSPACE_BIN``, else this package's program, else the one in ``PATH``."""
    if named := os.environ.get("FOLDSPACE_BIN"):
        return named
    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
    places = [Path(sysconfig.get_path("scripts", scheme)) for scheme in schemes]
    # `pip install --target DIR` puts it into DIR/bin.
    places.append(Path(__file__).parent.parent / "bin")
    for place in places:
        if (place / "foldspace").is_file():
            return str(place / "foldspace")
    if found := shutil.which("foldspace"):
        return found
    raise FileNotFoundError("program foldspace not found; install the wheel, or name it with FOLDSPACE_BIN")
