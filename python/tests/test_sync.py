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


def test_fork_and_select_works_in_threads(sync_session: foldspace.sync.Session) -> None:
    together = threading.Barrier(4)

    def attempt(fork: foldspace.sync.Session) -> str:
        together.wait(10)
        if fork.name.endswith("2"):
            sys.exit(3)
        if fork.name.endswith("3"):
            next(iter(()))
        fork.run(f"seq {fork.name[-1]} > list.txt", check=True)
        return fork.name

    def lines(fork: foldspace.sync.Session) -> float:
        return fork.files.read("list.txt").count(b"\n")

    chosen = foldspace.sync.fork_and_select(sync_session, 4, attempt, lines, parallel=4)
    assert [each.score for each in chosen.candidates] == [1, None, None, 4]
    assert [str(each.error) for each in chosen.candidates[1:3]] == ["SystemExit(3)", "StopIteration()"]
    assert chosen.best.result == chosen.best.session.name == "demo-4"
    assert chosen.merged and chosen.merged["outcome"] == "merged"
    assert sync_session.files.read("list.txt") == b"1\n2\n3\n4\n"
    assert [each.id for each in sync_session.children()] == [chosen.best.session.id]


def test_interrupt_removes_the_forks(sync_session: foldspace.sync.Session) -> None:
    def forever(fork: foldspace.sync.Session) -> None:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        fork.run("sleep 60")

    with pytest.raises(KeyboardInterrupt):
        foldspace.sync.fork_and_select(sync_session, 2, forever, lambda fork: 1, parallel=1)
    assert sync_session.children() == []


def test_module_runs_the_program() -> None:
    ran = subprocess.run([sys.executable, "-m", "foldspace", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("foldspace ")
    assert Path(foldspace.find_foldspace_bin()).exists()


def test_asynchronous_names_have_sync_twins() -> None:
    shared = {"foldspace._binary", "foldspace._models", "foldspace.errors", "foldspace.results", "foldspace.types"}
    own = {name: getattr(foldspace, name) for name in foldspace.__all__}
    own = {name: each for name, each in own.items() if each.__module__ not in shared}
    assert {"Session", "fork_and_select", "session"} <= set(own)
    for name, core in own.items():
        public = {each for each in dir(core) if isinstance(core, type) and not each.startswith("_")}
        assert public <= set(dir(getattr(foldspace.sync, name))), f"{name} without a twin"
