"""Passes connections on to a port of a session's container."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from foldspace._http import Connection
from foldspace.errors import FoldspaceError, RefusedError

_PIECE = 1 << 16


@asynccontextmanager
async def forwarded(
    connection: Connection, session: str, port: int, local_port: int, *, on_host: bool
) -> AsyncGenerator[str, None]:
    """Listens on 127.0.0.1 and yields the address. Ends the listener and all its connections on exit."""
    closings = connection.closings
    passing: set[asyncio.Task[None]] = set()

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await connection.upgraded("/v1/port", "foldspace-port", {"session": session, "port": port}, closings)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A connection that the port refuses is closed.
        with contextlib.closing(writer), contextlib.suppress(FoldspaceError, OSError):
            far_reader, far_writer = await connect()
            with contextlib.closing(far_writer):
                await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(pass_on(reader, writer))
        passing.add(task)
        task.add_done_callback(passing.discard)

    try:
        (await connect())[1].close()
    except RefusedError:
        if not on_host:
            raise
        # The request has started the services that should run.
        yield f"127.0.0.1:{port}"
        return
    server = await asyncio.start_server(accept, "127.0.0.1", local_port)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        await writer.drain()
    writer.write_eof()
