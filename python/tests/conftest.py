"""Servers of their own for the tests, and what each backend needs."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import foldspace
import foldspace.sync
from checked import check_answer, check_request
from foldspace._http import Connection

CONTAINERS = bool(os.environ.get("CONTAINER_HOST") and os.environ.get("FOLDSPACE_IMAGE"))
BACKENDS = ["host", pytest.param("podman", marks=pytest.mark.skipif(not CONTAINERS, reason="no CONTAINER_HOST and FOLDSPACE_IMAGE"))]


# A server ends when it is told to, and not between two clients of a test.
os.environ["FOLDSPACE_IDLE"] = "600"


def stop(directory: Path) -> None:
    """Ends the server of a directory, and waits until its process has ended."""
    with foldspace.sync.Client(directory) as client:
        process = client.server()["process"]
        client.stop_server()
    until = time.monotonic() + 20
    while is_there(process):
        assert time.monotonic() < until, f"the server {process} of {directory} goes on"
        time.sleep(0.02)


def is_there(process: int) -> bool:
    try:
        # It is a child of this process, or of one that has ended.
        return os.waitpid(process, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return Path(f"/proc/{process}").exists()


@pytest.fixture(autouse=True)
def checked_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks all requests of the tests against the API's description."""
    document, response = Connection.document, Connection.response

    async def checked_document(self: Connection, method: str, template: str, **given: Any) -> Any:
        answer = await document(self, method, template, **given)
        check_answer(method, template, answer)
        return answer

    def checked_response(self: Connection, method: str, template: str, **given: Any) -> Any:
        check_request(method, template, given.get("query"), given.get("body"))
        return response(self, method, template, **given)

    monkeypatch.setattr(Connection, "document", checked_document)
    monkeypatch.setattr(Connection, "response", checked_response)


@pytest.fixture
def data() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="foldspace-py-") as directory:
        place = Path(directory) / "data"
        yield place
        if (place / "http.sock").exists():
            stop(place)


@pytest.fixture(params=BACKENDS)
def backend_name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def backend(backend_name: str) -> str:
    return backend_name


@pytest.fixture
async def client(data: Path) -> AsyncIterator[foldspace.Client]:
    async with foldspace.Client(data) as client:
        yield client


@pytest.fixture
async def session(client: foldspace.Client, backend: str) -> foldspace.Session:
    return await client.create("demo", backend=backend, auto_confirm=True)


@pytest.fixture
def sync_client(data: Path) -> Iterator[foldspace.sync.Client]:
    with foldspace.sync.Client(data) as client:
        yield client


@pytest.fixture
def sync_session(sync_client: foldspace.sync.Client, backend: str) -> foldspace.sync.Session:
    return sync_client.create("demo", backend=backend, auto_confirm=True)


async def until(condition, seconds: float = 10.0) -> None:
    """Waits for a condition."""
    end = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < end, "it never came"
        await asyncio.sleep(0.05)
