"""The line about long work."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import foldspace._progress
import pytest
from foldspace._progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foldspace._progress, "_DELAY", 0.0)


def said(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, shown: bool | None = None) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    line = Progress("create", shown)
    line.say("copying\x1b[2J files")
    line.close()
    return stream.getvalue()


def test_terminal_shows_a_line_and_takes_it_away(monkeypatch: pytest.MonkeyPatch) -> None:
    text = said(monkeypatch, Terminal())
    assert "create: copying [2J files" in text
    assert text.endswith("\r\x1b[K")


def test_nothing_is_shown_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, io.StringIO()) == ""
    assert said(monkeypatch, Terminal(), shown=False) == ""


def test_notebook_shows_html(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = SimpleNamespace(update=shown.append)

    def display(text: str, display_id: bool) -> SimpleNamespace:
        assert display_id
        shown.append(text)
        return handle

    module = SimpleNamespace(HTML=lambda text: text, display=display)
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    line = Progress("bisect")
    line.say("<3 of 8>")
    line.say("4 of 8")
    line.close()
    assert [each.split("(")[0] for each in shown] == ["<small>bisect: &lt;3 of 8&gt; ", "<small>bisect: 4 of 8 ", ""]
