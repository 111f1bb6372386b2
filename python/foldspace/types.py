"""Types of parameters."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Sequence
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol, Union

PositionLike = Union[int, str]
"""A position: an event number, -5 for five events ago, "10m" for ten minutes ago, or "tag:NAME"."""

Command = Union[str, Sequence[str]]
"""A command line for ``/bin/sh -c``, or a program with its arguments."""

Data = Union[str, bytes, bytearray, memoryview, BinaryIO, AsyncIterable[bytes]]
"""The contents of a file."""

Output = Callable[[str, bytes], None]
"""Receives output as it comes: ``"stdout"`` or ``"stderr"``, and the bytes."""


class Question(NamedTuple):
    """A command that needs an approval."""

    command: str
    programs: list[str]
    call: int
    document: dict[str, Any]


Answer = Literal["once", "session", "everything", "refuse"]
Ask = Callable[[Question], Answer]
"""Answers a question."""


class Identified(Protocol):
    """A session of either client."""

    @property
    def id(self) -> str:
        """The session's id."""
        ...
