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
from foldspace._session import Rules, Session, mount_of
from foldspace.types import Ask


class Client:
    """A client of the server that has the data, which is started where none runs.

    ``data`` is the directory of the data; by default ``FOLDSPACE_DATA``, else that of the command line. ``progress``
    set to false shows nothing about long work. A client belongs to one event loop.
    """

    def __init__(self, data: str | os.PathLike[str] | None = None, *, progress: bool | None = None) -> None:
        self._connection = Connection(data, progress)

    @property
    def data(self) -> Path:
        """Returns the directory of the data."""
        return self._connection.directory

    async def __aenter__(self) -> Client:
        await self._connection.attend()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes its connections. The server goes on, and ends when nobody uses it."""
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
        options: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        create_id: str | None = None,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        auto_confirm: bool = False,
        on_question: Ask | None = None,
        agent: str | None = None,
    ) -> Session:
        """Begins a session.

        ``backend``: ``memory`` (the default, where nothing can run), ``host``, ``podman``, ``docker``, ``mock`` or
        ``container``. ``mount`` copies a directory of this machine into it, ``mounts`` several ({place: directory}),
        without what ``exclude`` matches; ``directory`` works in a directory itself. Commands that the policy does not
        allow are allowed by ``allow``, ``auto_confirm`` or ``on_question``. ``create_id``: the same again gives the
        session that has begun by it.
        """
        copied = [(os.path.abspath(each), place) for place, each in (mounts or {}).items()]
        copied += [(os.path.abspath(mount), None)] if mount is not None else []
        roots = [host for host, _ in copied]
        chosen: dict[str, Any] = dict(options or {})
        if directory is not None:
            chosen["directory"] = os.path.abspath(directory)
            roots.append(chosen["directory"])
        given = {"image": image, "environment": dict(env) if env else None, "workdir": workdir}
        chosen |= {option: value for option, value in given.items() if value is not None}
        body: dict[str, Any] = {"name": name, "backend": backend, "options": chosen, "create_id": create_id}
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
        """Returns a session that is there, by its name or the beginning of its id."""
        document = await self._connection.document("GET", "/v1/sessions/{session}", session=session)
        return Session(self._connection, document, Rules(allow, deny, auto_confirm, on_question, agent))

    async def sessions(self) -> list[_models.Session]:
        """Lists all sessions, the oldest first."""
        found: list[_models.Session] = []
        while True:
            query = {"limit": _PAGE, "after": found[-1]["session"] if found else None}
            page = await self._connection.document("GET", "/v1/sessions", query=query)
            found += page
            if len(page) < _PAGE:
                return found

    async def tools(self) -> list[_models.Tool]:
        """Lists the tools of all sessions."""
        return await self._connection.document("GET", "/v1/tools")

    async def server(self) -> _models.ServerStatus:
        """Tells what the server does."""
        return await self._connection.document("GET", "/v1/server")

    async def health(self) -> _models.Health:
        """Tells whether the server is well."""
        return await self._connection.document("GET", "/healthz")

    async def metrics(self) -> str:
        """Returns the server's figures, as Prometheus reads them."""
        async with self._connection.response("GET", "/metrics") as response:
            return await response.text()

    async def stop_server(self) -> None:
        """Ends the server: calls in flight get some time."""
        await self._connection.document("POST", "/v1/server/stop")
        self._connection.leave()


_PAGE = 500


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
    options: Mapping[str, Any] | None = None,
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
    """Begins a session, and closes the connection at the end. The session stays, with its history, unless ``remove``
    is set. The parameters are those of ``Client`` and ``Client.create``."""
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
    """Opens a session that is there, by its name or the beginning of its id."""
    async with Client(data, progress=progress) as client:
        yield await client.open(
            session, allow=allow, deny=deny, auto_confirm=auto_confirm, on_question=on_question, agent=agent
        )
