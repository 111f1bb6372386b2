"""Results of calls, with HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

from foldspace._models import Change, EntryAtPath, Event

_ROWS = 200

Entries = list[EntryAtPath]
"""Entries of a directory."""


@dataclass(frozen=True)
class CommandResult:
    """The end of a command, with its output."""

    stdout_bytes: bytes
    """Standard output."""
    stderr_bytes: bytes
    """Standard error."""
    exit_code: int
    """The exit code: 124 if it timed out, 127 if the program is missing, 128 + signal if a signal ended it."""
    timed_out: bool = False
    """True if it timed out; ``exit_code`` is 124 then."""
    signal: int | None = None
    """The signal that ended it; ``None`` if it exited."""
    truncated: bool = False
    """True if part of the output is missing here. The log has up to 8 MiB of it."""
    call: int = 0
    """The position of its call, for the log, ``fork`` and ``rewind``."""
    finished: int = 0
    """The position after it."""
    seconds: float = 0.0
    """Its duration in seconds."""
    note: str | None = None
    """Advice, besides its output."""

    @property
    def stdout(self) -> str:
        """Standard output as text."""
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """Standard error as text."""
        return self.stderr_bytes.decode(errors="replace")

    @property
    def ok(self) -> bool:
        """True if it ended with 0 and did not time out."""
        return self.exit_code == 0 and not self.timed_out


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]], more: int = 0) -> str:
    cells = "".join(f"<th style='text-align:left'>{escape(each)}</th>" for each in head)
    lines = ["<tr>" + "".join(f"<td style='text-align:left'>{escape(str(each))}</td>" for each in row) + "</tr>" for row in rows]
    rest = f"<p>and {more} more</p>" if more > 0 else ""
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(lines)}</tbody></table>{rest}"


class Diff(list[Change]):
    """The changes of files between two positions."""

    def __init__(self, changes: Iterable[Change], start: int, end: int) -> None:
        super().__init__(changes)
        self.start = start
        """The earlier position."""
        self.end = end
        """The later position."""

    @property
    def patch(self) -> str:
        """A patch for ``git apply``."""
        return "".join(each["patch"] for each in self)

    def paths(self) -> list[str]:
        """Returns the paths of the changes."""
        return [each["path"] for each in self]

    def _repr_html_(self) -> str:
        colours = {"+": "#1a7f37", "-": "#cf222e", "@": "#8250df"}
        parts = [f"<p>{len(self)} changes between {self.start} and {self.end}</p>"]
        for change in self[:_ROWS]:
            head = f"{change['change']} {change['path']} +{change['lines_added']} -{change['lines_removed']}"
            lines = [
                f"<span style='color:{colours.get(line[:1], 'inherit')}'>{escape(line)}</span>"
                for line in change["patch"].splitlines()[:_ROWS]
            ]
            parts.append(f"<details><summary>{escape(head)}</summary><pre>{chr(10).join(lines)}</pre></details>")
        return "".join(parts)


class Log(list[Event]):
    """Events of a session."""

    def _repr_html_(self) -> str:
        rows = [(each["seq"], each["time"], each["agent"], each["kind"], _short(each["event"])) for each in self[:_ROWS]]
        return _table(("seq", "time", "agent", "kind", "event"), rows, len(self) - _ROWS)


class Tree(list[EntryAtPath]):
    """All entries below a directory."""

    def _repr_html_(self) -> str:
        lines: list[str] = []
        for entry in self[: 5 * _ROWS]:
            path = entry["path"]
            name = path.rsplit("/", 1)[-1] + ("/" if entry["node"] == "directory" else "")
            size = entry.get("size")
            lines.append("  " * path.count("/") + escape(name) + (f"  {size}" if size is not None else ""))
        rest = len(self) - 5 * _ROWS
        return f"<pre>{chr(10).join(lines)}</pre>" + (f"<p>and {rest} more</p>" if rest > 0 else "")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:200] + "..."
