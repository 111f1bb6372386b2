"""Shows the server's progress messages: a line in terminals and notebooks, nothing elsewhere."""

from __future__ import annotations

import html
import importlib
import shutil
import sys
import time
from typing import Any

_DELAY = 0.4


def _notebook() -> Any:
    """Returns the display module of a running notebook, else ``None``."""
    if "IPython" not in sys.modules:
        return None
    python: Any = sys.modules["IPython"]
    shell = python.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    return importlib.import_module("IPython.display")


class Progress:
    """A progress line, removed at the end."""

    def __init__(self, what: str, shown: bool | None = None) -> None:
        self._what = what
        self._begun = time.monotonic()
        self._notebook: Any = None if shown is False else _notebook()
        self._terminal = shown is not False and self._notebook is None and sys.stderr.isatty()
        self._handle: Any = None
        self._written = False

    @property
    def shown(self) -> bool:
        """True if progress can be shown."""
        return self._terminal or self._notebook is not None

    def say(self, text: str) -> None:
        """Replaces the shown text."""
        if not self.shown or time.monotonic() - self._begun < _DELAY:
            return
        seconds = time.monotonic() - self._begun
        line = f"{self._what}: {text} ({seconds:.0f} s)"
        if self._notebook is not None:
            shown = self._notebook.HTML(f"<small>{html.escape(line)}</small>")
            if self._handle is None:
                self._handle = self._notebook.display(shown, display_id=True)
            else:
                self._handle.update(shown)
            return
        width = shutil.get_terminal_size().columns
        safe = "".join(each if each.isprintable() else " " for each in line)
        sys.stderr.write(f"\r\x1b[K{safe[: width - 1]}")
        sys.stderr.flush()
        self._written = True

    def close(self) -> None:
        """Removes the line."""
        if self._written:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        if self._handle is not None:
            self._handle.update(self._notebook.HTML(""))
