"""Requests to the server: documents, bytes and streams, with its problems as errors."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
from httpx_sse import EventSource

from foldspace import _owner
from foldspace._progress import Progress
from foldspace.errors import ConnectionLostError, FoldspaceError, of_problem

_STREAM = {"accept": "text/event-stream"}
# The server ends a request that takes too long; a call may take a day.
_NO_LIMIT = httpx.Timeout(None, connect=30.0)


class StreamEvent(NamedTuple):
    """An event of a stream."""

    name: str
    id: str
    data: Any


class Connection:
    """Connections to the server of a data directory, of one event loop."""

    def __init__(self, data: str | os.PathLike[str] | None, progress: bool | None) -> None:
        self.directory: Path = _owner.data_directory(data)
        self.progress = progress
        self._attendance: _owner.Attendance | None = None
        transport = httpx.AsyncHTTPTransport(uds=_owner.socket_of(self.directory), limits=httpx.Limits(max_connections=None))
        self._http = httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=_NO_LIMIT, trust_env=False)

    async def attend(self) -> None:
        """Connects, or connects again where the server has ended since."""
        if self._attendance is None or self._attendance.is_over():
            self.leave()
            self._attendance = await _owner.attend(self.directory)

    def leave(self) -> None:
        """Lets the server end when it wants."""
        if self._attendance is not None:
            self._attendance.close()
            self._attendance = None

    async def close(self) -> None:
        """Closes all connections."""
        self.leave()
        await self._http.aclose()

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
    ) -> Any:
        """Makes a request and returns its document. Its progress is shown where ``what`` names the work."""
        line = Progress(what, self.progress) if what else None
        try:
            wanted = dict(headers or {}) | (_STREAM if line and line.shown else {})
            async with self.response(method, template, query=query, body=body, content=content, headers=wanted, **path) as response:
                if response.headers.get("content-type", "").startswith("text/event-stream"):
                    return await self._outcome(response, line)
                read = await response.aread()
                return json.loads(read) if read else None
        finally:
            if line:
                line.close()

    async def _outcome(self, response: httpx.Response, line: Progress | None) -> Any:
        async for event in events_of(response):
            if event.name == "progress" and line:
                line.say(str(event.data.get("text", "")))
            elif event.name == "outcome":
                return event.data
            elif event.name == "problem":
                raise of_problem(event.data)
        raise ConnectionLostError("the server hung up before the outcome")

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
    ) -> AsyncGenerator[httpx.Response, None]:
        """Makes a request and gives its response, of which nothing is read yet."""
        await self.attend()
        request = self._http.build_request(
            method,
            filled(template, path),
            params={name: _text(value) for name, value in (query or {}).items() if value is not None},
            content=content if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json" if content is None else "application/octet-stream", **(headers or {})},
        )
        response = await self._send(request, is_repeatable=content is None)
        try:
            if response.is_error:
                raise _problem(await response.aread(), response)
            yield response
        except httpx.TransportError as error:
            raise ConnectionLostError(f"the server hung up: {error!r}") from error
        finally:
            await response.aclose()

    async def _send(self, request: httpx.Request, is_repeatable: bool) -> httpx.Response:
        try:
            return await self._http.send(request, stream=True)
        except httpx.ConnectError:
            # The server has ended since, and saw nothing of the request.
            self.leave()
            await self.attend()
            if not is_repeatable:
                raise ConnectionLostError("the server was gone; it runs again", hint="send the contents again") from None
        except httpx.TransportError as error:
            raise ConnectionLostError(f"the server hung up: {error!r}") from error
        try:
            return await self._http.send(request, stream=True)
        except httpx.TransportError as error:
            raise ConnectionLostError(f"the server hung up: {error!r}") from error


def filled(template: str, path: Mapping[str, str | int]) -> str:
    """Returns the path of a template of the API's description."""
    return template.format_map({name: quote(str(value), safe="/" if name == "path" else "") for name, value in path.items()})


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _problem(read: bytes, response: httpx.Response) -> FoldspaceError:
    try:
        return of_problem(json.loads(read))
    except (ValueError, KeyError, TypeError):
        return FoldspaceError(f"the server answered with {response.status_code}")


async def events_of(response: httpx.Response) -> AsyncIterator[StreamEvent]:
    """Gives the events of a stream."""
    async for event in EventSource(response).aiter_sse():
        # A comment that keeps the connection alive comes as an event without data.
        if event.data:
            yield StreamEvent(event.event, event.id, json.loads(event.data))
