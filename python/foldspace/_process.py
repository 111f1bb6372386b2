"""Processes that run in the background of a session."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

from foldspace import _models
from foldspace._http import Connection
from foldspace.errors import BackendError
from foldspace._files import resumed
from foldspace.results import CommandResult
from foldspace.types import Output

_ONE = "/v1/sessions/{session}/processes/{process}"


class Process:
    """A background process, running or ended. ``Session.start`` makes it.

        process = await session.start("read name; echo hello $name", input=True)
        await process.send("world\\n", end=True)
        assert (await process.collect()).stdout == "hello world\\n"

    It runs while other calls of the session run, and ends with the server.
    """

    def __init__(self, connection: Connection, session: str, document: _models.Process) -> None:
        self._connection = connection
        self._session = session
        self._document = document

    @property
    def number(self) -> int:
        """Its number: the position of the call that started it."""
        return self._document["process"]

    async def show(self) -> _models.Process:
        """Returns its present description."""
        self._document = await self._connection.document("GET", _ONE, session=self._session, process=self.number)
        return self._document

    async def wait(self, timeout: float | None = None) -> _models.Process:
        """Waits for its end, or ``timeout`` seconds, and returns its description."""
        body = {"timeout_seconds": timeout}
        self._document = await self._connection.document(
            "POST", _ONE + "/wait", body=body, session=self._session, process=self.number
        )
        return self._document

    async def send(self, data: str | bytes = b"", *, end: bool = False) -> None:
        """Sends standard input, and closes it if ``end`` is true. Waits while the process does not read."""
        raw = data.encode() if isinstance(data, str) else data
        pieces = [raw[start : start + _PIECE] for start in range(0, len(raw), _PIECE)] or [b""]
        for number, piece in enumerate(pieces):
            body: dict[str, Any] = {"base64": base64.b64encode(piece).decode(), "end": end and number == len(pieces) - 1}
            await self._connection.document("POST", _ONE + "/input", body=body, session=self._session, process=self.number)

    async def resize(self, rows: int, columns: int) -> None:
        """Changes the size of its terminal."""
        body = {"window": {"rows": rows, "columns": columns}}
        await self._connection.document("POST", _ONE + "/input", body=body, session=self._session, process=self.number)

    async def signal(self, signal: str | int = "TERM") -> None:
        """Sends a signal to it and its group, by name (``"INT"``) or number."""
        await self._connection.document(
            "POST", _ONE + "/signal", body={"signal": signal}, session=self._session, process=self.number
        )

    async def kill(self) -> None:
        """Kills it, and everything that it has started."""
        await self.signal("KILL")

    async def output(self, start: int = 0) -> AsyncIterator[tuple[str, bytes]]:
        """Yields its output with the stream's name: the stored output (the last MiB), then new output, until it ends.

        ``start`` is the number of bytes to skip.
        """
        query = {"from": start or None}
        async for name, event in resumed(self._connection, _ONE + "/output", query, session=self._session, process=self.number):
            if name == "output":
                yield event["stream"], decoded(event)
            elif name == "ended":
                self._document = event

    async def collect(self, on_output: Output | None = None) -> CommandResult:
        """Waits for its end, and returns its result with all output."""
        streams: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        async for stream, data in self.output():
            streams[stream].append(data)
            if on_output:
                on_output(stream, data)
        # The last event of the stream has set the document.
        ended = self._document
        problem = ended["problem"]
        if problem:
            raise BackendError(problem)
        stdout, stderr = (b"".join(streams[each]) for each in ("stdout", "stderr"))
        missing = len(stdout) + len(stderr) < ended["stdout_bytes"] + ended["stderr_bytes"]
        code, signal = ended["exit_code"], ended["signal"]
        return CommandResult(
            stdout_bytes=stdout,
            stderr_bytes=stderr,
            exit_code=code if code is not None else 128 + (signal or 0),
            timed_out=ended["timed_out"],
            signal=signal,
            truncated=missing,
            call=ended["process"],
            finished=ended["call"] or 0,
            seconds=ended["micros"] / 1e6,
        )

    async def feed_and_collect(self, data: bytes, on_output: Output | None = None) -> CommandResult:
        """Sends all standard input, and collects the output at the same time."""
        sending = asyncio.create_task(self.send(data, end=True))
        try:
            return await self.collect(on_output)
        except asyncio.CancelledError:
            await asyncio.shield(self.kill())
            raise
        finally:
            sending.cancel()
            # A process that ends early takes no more input.
            await asyncio.gather(sending, return_exceptions=True)


_PIECE = 1 << 18


def decoded(event: dict[str, Any]) -> bytes:
    """Returns the bytes of an output event."""
    encoded = event.get("base64")
    return base64.b64decode(encoded) if encoded is not None else str(event.get("text", "")).encode()
