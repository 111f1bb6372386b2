"""The examples in the documentation of classes do what they say, with asyncio and without."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import Any

import foldspace
import foldspace.sync
import pytest

CLASSES = ("Client", "Files", "Process", "Session", "Snapshot")


def example(of: Any) -> str:
    """Returns the first indented block of a documentation."""
    doc = inspect.getdoc(of)
    assert doc is not None
    blocks = [block for block in doc.split("\n\n") if block.startswith("    ")]
    assert blocks, f"{of} has no example"
    return textwrap.dedent(blocks[0])


def section_examples(title: str) -> list[str]:
    """Returns the Python blocks of a section of docs/integrations.md."""
    text = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text()
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return [block.split("\n```")[0] for block in section.split("```python\n")[1:]]


async def run_example(text: str, names: dict[str, Any]) -> dict[str, Any]:
    """Runs an example with ``await`` at its top level; returns its variables."""
    body = textwrap.indent(text, "    ")
    exec(f"async def work():\n{body}\n    return locals()", names)
    return await names["work"]()


@pytest.mark.parametrize("name", CLASSES)
async def test_examples_work(name: str, session: foldspace.Session, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDSPACE_DATA", str(data))
    names: dict[str, Any] = {"foldspace": foldspace, "session": session}
    await run_example(example(getattr(foldspace, name)), names)


@pytest.mark.parametrize("name", CLASSES)
def test_examples_work_without_asyncio(
    name: str, sync_session: foldspace.sync.Session, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDSPACE_DATA", str(data))
    exec(example(getattr(foldspace.sync, name)), {"foldspace": foldspace, "session": sync_session})


def test_fork_and_select_works_without_asyncio(sync_session: foldspace.sync.Session) -> None:
    exec(example(foldspace.sync.fork_and_select), {"foldspace": foldspace, "session": sync_session})
