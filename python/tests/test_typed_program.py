"""The program whose types are checked does what it says."""

from __future__ import annotations

from pathlib import Path

import typed_program


async def test_typed_program_works(data: Path) -> None:
    assert await typed_program.asynchronous(data) == ["stdout 6"]
    assert sorted(typed_program.synchronous(data)) == ["one", "one-1", "one-2", "two", "two-1"]
