"""Mounts the files of a session as a directory."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from foldspace import _models
from foldspace._http import Connection
from foldspace.errors import NotFoundError
from foldspace.types import PositionLike

_MOUNTED = "/v1/sessions/{session}/mounted"


async def mounts_of(connection: Connection, session: str) -> list[_models.Mount]:
    """Lists the mounts of a session."""
    return await connection.document("GET", _MOUNTED, session=session)


async def unmount(connection: Connection, session: str, directory: str | Path, lazy: bool) -> None:
    """Ends the mount at a directory."""
    await connection.document("DELETE", _MOUNTED, query={"directory": directory, "lazy": lazy}, session=session)


@asynccontextmanager
async def mounted(
    connection: Connection, session: str, at: PositionLike | None, all: bool
) -> AsyncGenerator[Path, None]:
    """Yields the directory of a mount. The last context of the client unmounts it, unless it is older than the first."""
    users = connection.mount_users
    async with connection.mounting:
        earlier = [mount["directory"] for mount in await mounts_of(connection, session)]
        mount: _models.Mount = await connection.document("POST", _MOUNTED, body={"at": at, "all": all}, session=session)
        directory = mount["directory"]
        is_own = directory in users or directory not in earlier
        if is_own:
            users[directory] += 1
    try:
        yield Path(directory)
    finally:
        if is_own:
            async with connection.mounting:
                users[directory] -= 1
                if not users[directory]:
                    del users[directory]
                    # It may have been unmounted, or its session removed.
                    with contextlib.suppress(NotFoundError):
                        await unmount(connection, session, directory, lazy=True)
