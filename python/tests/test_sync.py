"""The client without asyncio."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import foldspace
import foldspace.sync
import pytest


def test_sync_session_is_the_same(data: Path, backend: str) -> None:
    with foldspace.sync.session(backend=backend, data=data, auto_confirm=True) as session:
        assert session.run("echo hello > a; cat a", check=True).stdout == "hello\n"
        assert session.files.read("a") == b"hello\n"
        assert b"".join(session.files.stream("a")) == b"hello\n"
        fork = session.fork()[0]
        fork.files.write("b", "x")
        assert session.merge(fork)["outcome"] == "merged"
        assert session.at(0).files.list() == []
        assert "hello" in session.diff().patch
        with pytest.raises(foldspace.NotFoundError):
            session.files.stat("missing")
        process = session.start("echo from; echo behind")
        assert b"".join(data for _, data in process.output()) == b"from\nbehind\n"


def test_sync_events_can_be_left(sync_client: foldspace.sync.Client) -> None:
    session = sync_client.create()
    session.files.write("a", "1")
    for event in session.events():
        if event["kind"] == "WriteFile":
            break
    assert event["event"]["path"].endswith("a")


def test_errors_leave_the_context(data: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        with foldspace.sync.session(data=data, name="gone", remove=True):
            raise ZeroDivisionError
    with foldspace.sync.Client(data) as client:
        assert client.sessions() == []


def test_interrupt_cancels_the_call(sync_client: foldspace.sync.Client) -> None:
    session = sync_client.create(backend="host", auto_confirm=True)
    threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        session.run("sleep 60")
    end = time.monotonic() + 10
    while sync_client.server()["calls"]:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_module_runs_the_program() -> None:
    ran = subprocess.run([sys.executable, "-m", "foldspace", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("foldspace ")
    assert Path(foldspace.find_foldspace_bin()).exists()


def test_async_methods_have_sync_twins() -> None:
    for core, twin in ((foldspace.Session, foldspace.sync.Session), (foldspace.Files, foldspace.sync.Files)):
        public = {name for name in dir(core) if not name.startswith("_")}
        assert public <= {name for name in dir(twin)}, f"{core.__name__} without a twin"
