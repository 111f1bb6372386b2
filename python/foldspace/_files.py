"""The files of a session, now or at a position."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from foldspace._http import Connection, events_of
from foldspace._models import CallOutcome, EntryAtPath
from foldspace.errors import ConnectionLostError, FoldspaceError, NotFoundError, of_outcome
from foldspace.results import Entries, Tree
from foldspace.types import Data, PositionLike

_PIECE = 1 << 18
_TAR = {"content-type": "application/x-tar"}


def succeeded(outcome: CallOutcome) -> CallOutcome:
    """Returns a successful outcome, or raises the error of a failed one."""
    if outcome["status"] != "ok":
        raise of_outcome(outcome)
    return outcome


def relative(path: str) -> str:
    """Returns a path relative to the workspace root."""
    return path.lstrip("/")


class ReadFiles:
    """Read-only files.

    ``live=True`` reads the workspace's disk as it is now, also while a command runs. Without it, the files are as
    recorded: the changes of a command are recorded at its end.
    """

    def __init__(self, connection: Connection, session: str, at: PositionLike | None = None) -> None:
        self._connection = connection
        self._session = session
        self._at = at

    async def read(self, path: str, *, live: bool = False) -> bytes:
        """Returns the contents of a file."""
        pieces = [piece async for piece in self.stream(path, live=live)]
        return b"".join(pieces)

    async def read_text(self, path: str, encoding: str = "utf-8", *, live: bool = False) -> str:
        """Returns the contents of a file as text."""
        return (await self.read(path, live=live)).decode(encoding)

    async def stream(self, path: str, *, live: bool = False) -> AsyncIterator[bytes]:
        """Yields the contents of a file piece by piece."""
        template = "/v1/sessions/{session}/files/{path}"
        query = {"at": self._at, "live": live or None}
        async with self._connection.response("GET", template, query=query, session=self._session, path=relative(path)) as response:
            async for piece in response.content.iter_any():
                yield piece

    async def list(self, path: str = "", *, depth: int = 1, live: bool = False) -> Entries:
        """Lists the entries of a directory, ``depth`` levels deep."""
        query = {"at": self._at, "below": relative(path) or None, "depth": depth, "live": live or None}
        return await self._connection.document("GET", "/v1/sessions/{session}/files", query=query, session=self._session)

    async def tree(self, path: str = "") -> Tree:
        """Lists all entries below a directory."""
        query = {"at": self._at, "below": relative(path) or None}
        return Tree(await self._connection.document("GET", "/v1/sessions/{session}/files", query=query, session=self._session))

    async def stat(self, path: str, *, live: bool = False) -> EntryAtPath:
        """Returns the metadata of an entry."""
        template = "/v1/sessions/{session}/stat/{path}"
        query = {"at": self._at, "live": live or None}
        return await self._connection.document("GET", template, query=query, session=self._session, path=relative(path))

    async def exists(self, path: str) -> bool:
        """Returns true if an entry exists."""
        try:
            await self.stat(path)
        except NotFoundError:
            return False
        return True

    async def download(self, path: str = "") -> bytes:
        """Returns a directory as a tar archive."""
        template = "/v1/sessions/{session}/materialise"
        body = {"at": self._at, "below": relative(path) or None}
        async with self._connection.response("POST", template, body=body, session=self._session) as response:
            return await response.read()


class Files(ReadFiles):
    """The present files of a session. Each change is a call in its log. Paths are relative to the workspace.

        await session.files.write("src/a.txt", "one")
        assert await session.files.read_text("src/a.txt") == "one"
        assert [entry["path"] for entry in await session.files.list("src")] == ["src/a.txt"]

    Methods raise ``NotFoundError`` for a missing entry, and ``RefusedError`` if an entry of the wrong kind is there, such as
    a directory in place of a file.
    """

    def __init__(self, connection: Connection, session: str, agent: str | None = None) -> None:
        super().__init__(connection, session)
        self._agent = agent

    async def write(self, path: str, data: Data, *, executable: bool | None = None, create: bool = False) -> CallOutcome:
        """Writes a file of at most 1 GiB, and creates its missing parent directories. Follows links.

        - ``executable``: the executable bit; by default it is unchanged, and not set on a new file.
        - ``create``: true to fail if the path exists.
        """
        template = "/v1/sessions/{session}/files/{path}"
        query = {"executable": executable, "create": create or None, "agent": self._agent}
        outcome = await self._connection.document(
            "PUT", template, query=query, content=_content(data), session=self._session, path=relative(path)
        )
        return succeeded(outcome)

    async def remove(self, path: str, *, recursive: bool = False) -> CallOutcome:
        """Removes a file, a link or a directory; a directory with entries only if ``recursive`` is set."""
        template = "/v1/sessions/{session}/files/{path}"
        query = {"recursive": recursive or None, "agent": self._agent}
        return succeeded(
            await self._connection.document("DELETE", template, query=query, session=self._session, path=relative(path))
        )

    async def move(self, source: str, target: str, *, replace: bool = False) -> CallOutcome:
        """Moves an entry. ``replace`` allows it to replace a file at ``target``."""
        body = {"from": relative(source), "to": relative(target), "replace": replace, "agent": self._agent}
        return succeeded(await self._connection.document("POST", "/v1/sessions/{session}/move", body=body, session=self._session))

    async def mkdir(self, path: str) -> CallOutcome:
        """Creates a directory and its missing parents. The directory may exist."""
        body = {"path": relative(path), "agent": self._agent}
        return succeeded(
            await self._connection.document("POST", "/v1/sessions/{session}/directories", body=body, session=self._session)
        )

    async def upload(self, data: Data, path: str = "") -> CallOutcome:
        """Unpacks a tar archive of at most 1 GiB in a directory, as one call. Files at its paths are replaced, others stay."""
        query = {"below": relative(path) or None, "agent": self._agent}
        return succeeded(
            await self._connection.document(
                "PUT", "/v1/sessions/{session}/tar", query=query, content=_content(data), headers=_TAR, session=self._session
            )
        )

    async def watch(self, path: str = "", *, recursive: bool = True) -> AsyncIterator[dict[str, Any]]:
        """Yields the changes below a directory as they come: ``path``, ``kind`` and ``seq``."""
        query = {"below": relative(path) or None, "recursive": recursive}
        template = "/v1/sessions/{session}/watch"
        async for _, event in resumed(self._connection, template, query, session=self._session):
            yield event


async def resumed(
    connection: Connection, template: str, query: dict[str, Any], last: str = "", **path: str | int
) -> AsyncIterator[tuple[str, Any]]:
    """Yields the events of a stream. A broken stream resumes after the last event seen."""
    failures, is_over, closings = 0, False, connection.closings
    while True:
        connection.check_open(closings)
        headers = {"accept": "text/event-stream"} | ({"last-event-id": last} if last else {})
        try:
            async with connection.response("GET", template, query=query, headers=headers, **path) as response:
                async for event in events_of(response):
                    last = event.id or last
                    failures = 0
                    if event.name == "problem":
                        raise FoldspaceError(json.dumps(event.data))
                    is_over = is_over or event.name in ("end", "ended")
                    yield event.name, event.data
        except ConnectionLostError:
            pass
        # The stream was read to its end, so that the connection can be reused.
        if is_over:
            return
        failures += 1
        if failures > _RECONNECTS:
            raise ConnectionLostError("the server hung up repeatedly")


_RECONNECTS = 5


def _content(data: Data) -> Any:
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, bytes):
        return data
    read: Any = getattr(data, "read", None)
    return _pieces(read) if read is not None else data


async def _pieces(read: Any) -> AsyncIterator[bytes]:
    while piece := read(_PIECE):
        yield piece
