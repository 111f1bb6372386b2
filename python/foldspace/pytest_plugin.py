"""A fixture ``foldspace_session`` for pytest, and ``--foldspace-expect``.

    def test_agent(foldspace_session):
        foldspace_session.run("make", check=True)

``--foldspace-expect DIR`` compares the files and calls of each passed test's session with the expectations in DIR;
``--foldspace-update`` writes the expectations. ``@pytest.mark.foldspace(backend=..., mount=..., ignore=[...])`` sets
the options of a session, and globs of paths that may differ.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import foldspace.sync

Expected = dict[str, Any]
"""The files and calls that a test's session has at its end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("foldspace")
    group.addoption("--foldspace-backend", default="host", help="the backend of foldspace_session (host)")
    group.addoption("--foldspace-data", help="stores the sessions in this directory; by default in a temporary one")
    group.addoption("--foldspace-expect", metavar="DIR", help="compares files and calls with the expectations in DIR")
    group.addoption("--foldspace-update", action="store_true", help="writes the expectations")


def pytest_configure(config: pytest.Config) -> None:
    """Describes the marker."""
    config.addinivalue_line("markers", "foldspace(ignore=[], **options): options of foldspace_session")
    if config.getoption("--foldspace-update") and not config.getoption("--foldspace-expect"):
        raise pytest.UsageError("--foldspace-update needs --foldspace-expect DIR")


@pytest.fixture(scope="session")
def foldspace_client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[foldspace.sync.Client]:
    """A client of a server for this run, or of the server of ``--foldspace-data``."""
    import foldspace.sync

    kept = request.config.getoption("--foldspace-data")
    client = foldspace.sync.Client(kept or tmp_path_factory.mktemp("foldspace"), progress=False)
    with client:
        yield client
        if not kept:
            client.stop_server()


_SESSION = pytest.StashKey["foldspace.sync.Session"]()
_PASSED = pytest.StashKey[bool]()


@pytest.fixture
def foldspace_session(
    request: pytest.FixtureRequest, foldspace_client: foldspace.sync.Client
) -> Iterator[foldspace.sync.Session]:
    """A session for this test."""
    given = _options(request.node)
    ignored: list[str] = given.pop("ignore", [])
    backend: str = given.pop("backend", request.config.getoption("--foldspace-backend"))
    session = foldspace_client.create(backend=backend, auto_confirm=given.pop("auto_confirm", True), **given)
    session.annotate("pytest", note=request.node.nodeid)
    begun = session.head()
    yield session
    directory: str | None = request.config.getoption("--foldspace-expect")
    if directory and request.node.stash.get(_PASSED, False):
        _expect(request, Path(directory), _found(session, begun, ignored))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remembers if the test itself passed."""
    report = yield
    if call.when == "call":
        item.stash[_PASSED] = report.passed
    return report


def _options(node: pytest.Item) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers("foldspace"))):
        options |= marker.kwargs
    return options


def _found(session: foldspace.sync.Session, begun: int, ignored: list[str]) -> Expected:
    """Returns the files at the end, and all calls of the test."""
    files = {
        entry["path"]: entry.get("content") or entry.get("target") or entry["node"]
        for entry in session.files.tree()
        if not any(fnmatch.fnmatch(entry["path"], glob) for glob in ignored)
    }
    calls: list[Any] = []
    for event in session.log(begun + 1):
        told = event["event"]
        if event["kind"] == "CallStarted":
            calls.append({"tool": told["tool"], "params": told["params"]})
        elif event["kind"] == "CommandResult" and calls:
            calls[-1]["exit_code"] = told["exit_code"]
        elif event["kind"] == "CallFinished" and calls:
            calls[-1]["status"] = told["status"]
    return {"files": files, "calls": calls}


def _expect(request: pytest.FixtureRequest, directory: Path, found: Expected) -> None:
    name = re.sub(r"[^A-Za-z0-9_.\[\]-]+", "-", request.node.nodeid)
    path = directory / f"{name}.json"
    if request.config.getoption("--foldspace-update"):
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        return
    if not path.exists():
        pytest.fail(f"{path} does not exist; --foldspace-update writes it", pytrace=False)
    differences = _differences(json.loads(path.read_text()), found)
    if differences:
        said = "\n".join(f"  {each}" for each in differences)
        pytest.fail(f"the session differs from {path}:\n{said}\n--foldspace-update accepts this", pytrace=False)


def _differences(expected: Expected, found: Expected) -> list[str]:
    was, now = expected["files"], found["files"]
    told = [f"file {path}: missing" for path in was if path not in now]
    told += [f"file {path}: new" for path in now if path not in was]
    told += [f"file {path}: changed" for path in was if path in now and was[path] != now[path]]
    for number, (before, after) in enumerate(zip(expected["calls"], found["calls"]), 1):
        if before != after:
            told.append(f"call {number}: expected {json.dumps(before)}, found {json.dumps(after)}")
    if len(expected["calls"]) != len(found["calls"]):
        told.append(f"expected {len(expected['calls'])} calls, found {len(found['calls'])}")
    return told
