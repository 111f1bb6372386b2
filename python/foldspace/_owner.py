"""Finds the server of a data directory, or starts it, and stays connected to it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import subprocess
import time
from pathlib import Path
from typing import Any

from foldspace._binary import find_foldspace_bin
from foldspace.errors import StartError

_START_SECONDS = 30.0
_PAUSE = 0.05
_started: list[subprocess.Popen[bytes]] = []


def data_directory(data: str | os.PathLike[str] | None = None) -> Path:
    """Returns the data directory, by the command line's rules."""
    if data is not None:
        return Path(data).absolute()
    if named := os.environ.get("FOLDSPACE_DATA"):
        return Path(named).absolute()
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "foldspace"


_opened: dict[Path, int] = {}
# Below the kernel's limit of 108.
_SOCKET_BYTES = 100


def socket_of(directory: Path) -> str:
    """Returns the path of the server's socket, or a shorter path to it if that is too long for the kernel."""
    socket = directory / "http.sock"
    if len(os.fsencode(socket)) <= _SOCKET_BYTES:
        return str(socket)
    if directory not in _opened:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _opened[directory] = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return f"/proc/self/fd/{_opened[directory]}/http.sock"


class Attendance:
    """A connection that keeps the server running."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def is_over(self) -> bool:
        """Returns true if the server has hung up."""
        if self._reader.at_eof() or self._writer.is_closing():
            return True
        # Asks the kernel, since the event loop may not have polled yet. The server sends nothing here.
        hung_up = select.poll()
        hung_up.register(self._writer.get_extra_info("socket"), select.POLLIN)
        return bool(hung_up.poll(0))

    def close(self) -> None:
        """Disconnects from the server."""
        self._writer.close()


async def attend(directory: Path) -> Attendance:
    """Connects to the server of the data directory. Starts the server if none runs."""
    until = time.monotonic() + _START_SECONDS
    while True:
        attendance = await _greet(socket_of(directory))
        if attendance is not None:
            return attendance
        await _start(directory, until)
        if time.monotonic() >= until:
            raise StartError("the server ends as soon as it is ready", hint=f"see {directory / 'owner.log'}")
        await asyncio.sleep(_PAUSE)


class UpgradeRefusedError(Exception):
    """The server's answer to an upgrade that it refuses."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


async def upgraded(
    socket: str, path: str, protocol: str, body: Any, seconds: float | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to the server, and upgrades the connection. ``seconds`` limits the time for the answer."""
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        content = json.dumps(body)
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: {protocol}\r\n"
        writer.write(f"{head}content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n{content}".encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), seconds)
        status = int(answer.split(None, 2)[1])
        if status != 101:
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", answer)
            raise UpgradeRefusedError(status, await reader.readexactly(int(length[1]) if length else 0))
    except BaseException:
        writer.close()
        raise
    return reader, writer


async def _greet(socket: str) -> Attendance | None:
    try:
        return Attendance(*await upgraded(socket, "/v1/attend", "foldspace-attend", {}, 10))
    except (FileNotFoundError, asyncio.IncompleteReadError, ConnectionError):
        # The server is not running, or has just ended.
        return None
    except UpgradeRefusedError as refused:
        if refused.status == 503:
            return None
        raise StartError(f"the server refused the connection: {refused.status}") from None


async def _start(directory: Path, until: float) -> None:
    """Starts a server, and waits until it serves. Another process may start one first."""
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    command = [find_foldspace_bin(), "--data", str(directory), "serve", "--background"]
    try:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/", env=environment
        )
    except OSError as error:
        raise StartError(f"failed to start {command[0]}: {error}", hint="FOLDSPACE_BIN names the program") from error
    assert server.stdout is not None
    said = await asyncio.to_thread(_read_and_close, server)
    words: Any = json.loads(said) if said else None
    if words == "ready":
        _remember(server)
        return
    await asyncio.to_thread(server.wait)
    if words is None:
        raise StartError("the server ended before it was ready", hint=f"see {directory / 'owner.log'}")
    failed = words["failed"]
    if failed["exit"] == _TAKEN and time.monotonic() < until:
        # That process may be about to serve, or to end.
        await asyncio.sleep(_PAUSE)
        return
    raise StartError(failed["message"], hint=failed.get("hint"))


_TAKEN = 4
# Rules come with each call, since the server has other clients, too.
_NOT_INHERITED = ("FOLDSPACE_AUTO_CONFIRM", "FOLDSPACE_MAX_TIMEOUT")


def _read_and_close(server: subprocess.Popen[bytes]) -> bytes:
    assert server.stdout is not None
    with server.stdout as words:
        return words.read()


def _remember(server: subprocess.Popen[bytes]) -> None:
    # The server outlives this process. `poll` reaps servers that have ended.
    _started[:] = [each for each in _started if each.poll() is None]
    _started.append(server)

