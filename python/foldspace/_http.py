"""Requests to the server for documents, bytes and streams; problems become errors."""

from __future__ import annotations

import asyncio
import io
import json
import os
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import aiohttp
from typing_extensions import TypeVar
from yarl import URL

from foldspace import _owner
from foldspace._progress import Progress
from foldspace.errors import ClientClosedError, ConnectionLostError, FoldspaceError, UnusableError, of_problem

T = TypeVar("T", default=Any)

_STREAM = {"accept": "text/event-stream"}
# The server limits the time of requests; a call may take a day.
_NO_LIMIT = aiohttp.ClientTimeout(total=None, sock_connect=30.0)


class StreamEvent(NamedTuple):
    """An event of a stream."""

    name: str
    id: str
    data: Any


class Connection:
    """Connections to the server of a data directory, for one event loop."""

    def __init__(self, data: str | os.PathLike[str] | None, progress: bool | None) -> None:
        self.directory: Path = _owner.data_directory(data)
        self.progress = progress
        self._attendance: _owner.Attendance | None = None
        self._http: aiohttp.ClientSession | None = None
        self._attending = asyncio.Lock()
        self._responses: set[aiohttp.ClientResponse] = set()
        # The number of times it was closed: earlier work does not continue after a close.
        self.closings = 0
        # The contexts of each directory that this client mounted, and the lock of their changes.
        self.mount_users: Counter[str] = Counter()
        self.mounting = asyncio.Lock()

    def check_open(self, closings: int) -> None:
        """Raises if it was closed since ``closings`` was read."""
        if closings != self.closings:
            raise ClientClosedError("the client was closed")

    async def attend(self, closings: int | None = None) -> aiohttp.ClientSession:
        """Connects, or reconnects if the server has ended. Raises for work that was started before a close."""
        closings = self.closings if closings is None else closings
        async with self._attending:
            self.check_open(closings)
            if self._http is not None and self._attendance is not None and not self._attendance.is_over():
                return self._http
            # Readers of the old server see its end; if this closed their connections, aiohttp would not notify them.
            self.leave()
            attendance = await _owner.attend(self.directory)
            if closings != self.closings:
                attendance.close()
            self.check_open(closings)
            self._attendance = attendance
            http = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(_owner.socket_of(self.directory), limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"accept-encoding": "identity"},
                timeout=_NO_LIMIT,
            )
            closing = asyncio.create_task(_close_at_last(http))
            weakref.finalize(self, _cancel, asyncio.get_running_loop(), closing)
            self._http = http
            return http

    def leave(self) -> None:
        """Allows the server to end."""
        if self._attendance is not None:
            self._attendance.close()
            self._attendance = None

    async def close(self) -> None:
        """Closes all connections. Pending work fails with ``ClientClosedError``."""
        self.closings += 1
        self.leave()
        # Otherwise aiohttp would not notify the readers of closed connections.
        for response in self._responses:
            response.content.set_exception(ClientClosedError("the client was closed"))
        if self._http is not None:
            http, self._http = self._http, None
            await http.close()

    async def document(
        self,
        method: str,
        template: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content: Any = None,
        what: str | None = None,
        headers: Mapping[str, str] | None = None,
        **path: str | int,
    ) -> T:  # pyright: ignore[reportInvalidTypeVarUse]
        """Makes a request and returns its document. Shows its progress if ``what`` names the work.

        The type of the document is the type that the caller expects.
        """
        line = Progress(what, self.progress) if what else None
        try:
            wanted = dict(headers or {}) | (_STREAM if line and line.shown else {})
            async with self.response(method, template, query=query, body=body, content=content, headers=wanted, **path) as response:
                if response.headers.get("content-type", "").startswith("text/event-stream"):
                    found: T = await self._outcome(response, line)
                else:
                    read = await response.read()
                    found = json.loads(read or b"null")
                return found
        finally:
            if line:
                line.close()

    async def _outcome(self, response: aiohttp.ClientResponse, line: Progress | None) -> Any:
        outcome: StreamEvent | None = None
        # Reads to the end, so that the connection can be reused.
        async for event in events_of(response):
            if event.name == "progress" and line:
                line.say(str(event.data.get("text", "")))
            elif event.name == "outcome":
                outcome = event
            elif event.name == "problem":
                raise of_problem(event.data)
        if outcome is None:
            raise ConnectionLostError("the server hung up before the outcome")
        return outcome.data

    @asynccontextmanager
    async def response(
        self,
        method: str,
        template: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content: Any = None,
        headers: Mapping[str, str] | None = None,
        **path: str | int,
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """Makes a request and yields its unread response."""
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        path_and_query = filled(template, path) + (f"?{urlencode(given)}" if given else "")
        sent = content if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json" if content is None else "application/octet-stream", **(headers or {})}
        url = URL("http://localhost" + path_and_query, encoded=True)
        closings = self.closings
        try:
            response = await self._send(method, url, sent, headers, closings, is_repeatable=content is None)
            self._responses.add(response)
            try:
                async with response:
                    if response.status >= 400:
                        raise _problem(await response.read(), response.status)
                    yield response
            finally:
                self._responses.discard(response)
        except aiohttp.ClientError as error:
            self.check_open(closings)
            raise ConnectionLostError(f"the server hung up: {error!r}") from error

    async def upgraded(
        self, path: str, protocol: str, body: Any, closings: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Upgrades a new connection to another protocol."""
        await self.attend(closings)
        try:
            return await _owner.upgraded(_owner.socket_of(self.directory), path, protocol, body)
        except _owner.UpgradeRefusedError as refused:
            raise _problem(refused.body, refused.status) from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise ConnectionLostError(f"the server hung up: {error!r}") from error

    async def _send(
        self, method: str, url: URL, content: Any, headers: dict[str, str], closings: int, *, is_repeatable: bool
    ) -> aiohttp.ClientResponse:
        # Avoids aiohttp's warning about long bytes.
        body = io.BytesIO(content) if isinstance(content, bytes) and len(content) > _LONG else content
        http = await self.attend(closings)
        try:
            return await http.request(method, url, data=body, headers=headers)
        except aiohttp.ClientConnectorError:
            # The server has ended without receiving the request.
            if self._http is http:
                self.leave()
            http = await self.attend(closings)
            if not is_repeatable:
                raise ConnectionLostError("the server was restarted", hint="send the contents again") from None
        return await http.request(method, url, data=content, headers=headers)


_LONG = 1 << 16


async def _close_at_last(http: aiohttp.ClientSession) -> None:
    """Closes connections that were not closed explicitly, when the event loop or their owner ends."""
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await http.close()


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(task.cancel)


def filled(template: str, path: Mapping[str, str | int]) -> str:
    """Fills in a path template of the API's description. Empty names and dots would make the path of another route."""
    if bad := next((name for name, value in path.items() if name != "path" and str(value) in ("", ".", "..")), None):
        raise UnusableError(f"{bad} is {str(path[bad])!r}")
    return template.format_map({name: quote(str(value), safe="/" if name == "path" else "") for name, value in path.items()})


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _problem(read: bytes, status: int) -> FoldspaceError:
    try:
        return of_problem(json.loads(read))
    except (ValueError, KeyError, TypeError):
        return FoldspaceError(f"the server answered with {status}")


async def events_of(response: aiohttp.ClientResponse) -> AsyncIterator[StreamEvent]:
    """Yields the events of a stream."""
    rest = b""
    async for piece in response.content.iter_any():
        *blocks, rest = (rest + piece).split(b"\n\n")
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if ": " in line)
            # A keep-alive comment has no data.
            if "data" in fields:
                yield StreamEvent(fields.get("event", "message"), fields.get("id", ""), json.loads(fields["data"]))
