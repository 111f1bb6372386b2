"""The client of a server: its sessions."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from foldspace import _models
from foldspace._http import Connection
from foldspace._session import Rules, Session, all_sessions, mount_of
from foldspace.types import Ask, Identified, Options


class Client:
    """A client of the server of a data directory. Starts the server if none runs.

    ``data`` is the data directory, by default ``FOLDSPACE_DATA``, else the command line's. ``progress=False`` hides the
    progress of long work. A client belongs to one event loop.

        async with foldspace.Client() as client:
            made = await client.create("work", backend="host", auto_confirm=True)
            await made.run("echo hello", check=True)
            again = await client.open("work")
            assert [call["tool"] for call in await again.calls()] == ["shell_execute"]

    Methods raise ``StartError`` if the server can't be started, ``ConnectionLostError`` if it ends during a request, and
    ``ClientClosedError`` after ``close``.
    """

    def __init__(self, data: str | os.PathLike[str] | None = None, *, progress: bool | None = None) -> None:
        self._connection = Connection(data, progress)

    @property
    def data(self) -> Path:
        """The data directory."""
        return self._connection.directory

    async def __aenter__(self) -> Client:
        await self._connection.attend()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes its connections. The server keeps running until it is unused."""
        await self._connection.close()

    async def create(
        self,
        name: str | None = None,
        *,
        backend: str | None = None,
        mount: str | os.PathLike[str] | None = None,
        mounts: Mapping[str, str] | None = None,
        exclude: Sequence[str] = (),
        directory: str | os.PathLike[str] | None = None,
        image: str | None = None,
        options: Options | None = None,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        create_id: str | None = None,
        policy: _models.ToolPolicy | None = None,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        auto_confirm: bool = False,
        on_question: Ask | None = None,
        agent: str | None = None,
    ) -> Session:
        """Starts a session.

        - ``name``: 1 to 80 letters, digits, dots, underscores or hyphens; the beginning of its id by default.
        - ``backend``: ``memory`` (the default, which runs no commands), ``host``, ``mount`` (as ``host``, in an overlay
          that forks share), ``podman``, ``docker``, ``mock`` or ``container``, which is the engine that works.
        - ``mount``: a directory of this machine to copy into it; ``mounts`` several ({place: directory}), except for
          entries that match the globs of ``exclude``.
        - ``directory``: a directory of this machine to work in, without a copy.
        - ``image``, ``env``, ``workdir``: the container's image, variables of all commands, and their directory.
        - ``options``: other options of the backend (``ContainerOptions``, ``HostOptions``, ``MockOptions``), such as
          ``{"memory_bytes": 1 << 30}``.
        - ``create_id``: a key for retries. The same key again returns the session that was started with it.
        - ``policy``: the policy for its tools.
        - ``allow``, ``deny``: programs, or programs with their first words, that commands may run without a question, or
          not at all. ``auto_confirm`` answers every question with yes, ``on_question`` is a function that answers.
        - ``agent``: the agent that calls of this object name.

        Raises ``ConflictError`` if the name is taken, ``UnusableError`` for invalid options, ``BackendError`` if the
        backend can't be used.
        """
        copied: list[tuple[str, str | None]] = [(os.path.abspath(each), place) for place, each in (mounts or {}).items()]
        copied += [(os.path.abspath(mount), None)] if mount is not None else []
        roots = [host for host, _ in copied]
        chosen: dict[str, Any] = dict(options or {})
        if directory is not None:
            chosen["directory"] = os.path.abspath(directory)
            roots.append(chosen["directory"])
        given = {"image": image, "environment": dict(env) if env else None, "workdir": workdir}
        chosen |= {option: value for option, value in given.items() if value is not None}
        body: dict[str, Any] = {"name": name, "backend": backend, "options": chosen, "create_id": create_id}
        body["policy"] = policy
        body |= {"mounts": [mount_of(host, place, exclude) for host, place in copied], "allow_roots": roots}
        document = await self._connection.document("POST", "/v1/sessions", body=body, what="create")
        return Session(self._connection, document, Rules(allow, deny, auto_confirm, on_question, agent))

    async def open(
        self,
        session: str,
        *,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        auto_confirm: bool = False,
        on_question: Ask | None = None,
        agent: str | None = None,
    ) -> Session:
        """Opens an existing session, by its name or the beginning of its id.

        ``allow``, ``deny``, ``auto_confirm``, ``on_question`` and ``agent`` are those of ``Client.create``. Raises
        ``NotFoundError`` if there is no such session.
        """
        document = await self._connection.document("GET", "/v1/sessions/{session}", session=session)
        return Session(self._connection, document, Rules(allow, deny, auto_confirm, on_question, agent))

    async def sessions(self) -> list[_models.Session]:
        """Lists all sessions, oldest first."""
        return await all_sessions(self._connection)

    async def sql(
        self, query: str, *, limit: int | None = None, timeout: int | None = None
    ) -> list[dict[str, Any]]:
        """Returns the rows of an SQL query over all sessions, as dictionaries; docs/sql.md has the tables.

        At most ``limit`` rows (10,000 by default), within ``timeout`` seconds (30 by default).
        """
        body = {"query": query, "limit": limit, "timeout_seconds": timeout}
        found: Any = await self._connection.document("POST", "/v1/sql", body=body)
        return [dict(zip(found["columns"], row)) for row in found["rows"]]

    async def compare(self, *sessions: str | Identified) -> _models.ComparedRuns:
        """Compares sessions as a tree: the calls that all made first, where they part, how each ends, and its scores.

        A session is given as itself, by its name, by the beginning of its id, or by a glob of names (``rollout-*``).
        """
        names = [each if isinstance(each, str) else each.id for each in sessions]
        return await self._connection.document("GET", "/v1/compare", query={"sessions": ",".join(names)})

    async def tools(self) -> list[_models.Tool]:
        """Lists the tools of all sessions."""
        return await self._connection.document("GET", "/v1/tools")

    async def server(self) -> _models.ServerStatus:
        """Returns the status of the server."""
        return await self._connection.document("GET", "/v1/server")

    async def health(self) -> _models.Health:
        """Returns the health of the server."""
        return await self._connection.document("GET", "/healthz")

    async def metrics(self) -> str:
        """Returns the server's metrics, in Prometheus' format."""
        async with self._connection.response("GET", "/metrics") as response:
            return await response.text()

    async def stop_server(self) -> None:
        """Ends the server, after a grace period for calls in flight."""
        await self._connection.document("POST", "/v1/server/stop")
        self._connection.leave()


@asynccontextmanager
async def session(
    name: str | None = None,
    *,
    backend: str | None = None,
    mount: str | os.PathLike[str] | None = None,
    mounts: Mapping[str, str] | None = None,
    exclude: Sequence[str] = (),
    directory: str | os.PathLike[str] | None = None,
    image: str | None = None,
    options: Options | None = None,
    env: Mapping[str, str] | None = None,
    workdir: str | None = None,
    create_id: str | None = None,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    auto_confirm: bool = False,
    on_question: Ask | None = None,
    agent: str | None = None,
    data: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    remove: bool = False,
) -> AsyncGenerator[Session, None]:
    """Starts a session, and closes the connection at the end. The session stays, with its history, unless ``remove``
    is set. Takes the parameters of ``Client`` and ``Client.create``."""
    async with Client(data, progress=progress) as client:
        begun = await client.create(
            name,
            backend=backend,
            mount=mount,
            mounts=mounts,
            exclude=exclude,
            directory=directory,
            image=image,
            options=options,
            env=env,
            workdir=workdir,
            create_id=create_id,
            allow=allow,
            deny=deny,
            auto_confirm=auto_confirm,
            on_question=on_question,
            agent=agent,
        )
        try:
            yield begun
        finally:
            if remove:
                await begun.remove()


@asynccontextmanager
async def attach(
    session: str,
    *,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    auto_confirm: bool = False,
    on_question: Ask | None = None,
    agent: str | None = None,
    data: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> AsyncGenerator[Session, None]:
    """Opens an existing session, by its name or the beginning of its id, and closes the connection at the end. Takes the
    parameters of ``Client`` and ``Client.open``."""
    async with Client(data, progress=progress) as client:
        yield await client.open(
            session, allow=allow, deny=deny, auto_confirm=auto_confirm, on_question=on_question, agent=agent
        )
