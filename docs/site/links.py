"""Links the names of classes and methods in docstrings, such as ``Session.at``. A name that no page has fails the build."""

from __future__ import annotations

import re
from typing import Any

import griffe

_NAME = re.compile(r"``([A-Z]\w*[a-z]\w*(?:\.\w+)*)``")


class Links(griffe.Extension):
    """Replaces names in docstrings with references."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Replaces the names in an object's docstring."""
        if obj.docstring:
            obj.docstring.value = _NAME.sub(_reference, obj.docstring.value)


def _reference(found: re.Match[str]) -> str:
    name = found[1]
    if name in ("None", "True", "False"):
        return found[0]
    module = "foldspace.errors" if name.endswith("Error") else "foldspace"
    return f"[`{name}`][{module}.{name}]"
