"""A sandbox client and sessions for openai-agents.

``RunConfig(sandbox=SandboxRunConfig(client=FoldspaceSandboxClient()))``.
"""

# pyright: basic
from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any, Literal

from agents.items import TResponseInputItem
from agents.memory.session_settings import SessionSettings
from agents.sandbox.errors import ExecTimeoutError, ExecTransportError, WorkspaceReadNotFoundError
from agents.sandbox.manifest import Manifest
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.session.sandbox_session import SandboxSession
from agents.sandbox.session.sandbox_session_state import SandboxSessionState
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult

import foldspace
from foldspace import FoldspaceError, NotFoundError
from foldspace._packing import quoted
from foldspace._thread import ThreadLog, Turn
from foldspace.types import PositionLike


class FoldspaceSandboxClientOptions(BaseSandboxClientOptions):
    """The options of a new sandbox."""

    type: Literal["foldspace"] = "foldspace"
    """The kind of sandbox."""
    backend: str = "container"
    """The backend: ``container`` is the engine that works."""
    image: str | None = None
    """The container's image."""
    name: str | None = None
    """The session's name; the beginning of its id by default."""
    auto_confirm: bool | None = None
    """Allows all commands without a question; by default only in containers."""


class FoldspaceSandboxSessionState(SandboxSessionState):
    """The state for resuming a sandbox."""

    type: Literal["foldspace"] = "foldspace"
    """The kind of sandbox."""
    foldspace_session: str
    """The session's id."""
    auto_confirm: bool = False
    """True to allow all commands without a question."""


class FoldspaceSandboxSession(BaseSandboxSession):
    """A session as a sandbox: commands and file operations are calls in its log."""

    state: FoldspaceSandboxSessionState
    """The state for resuming it."""

    def __init__(self, state: FoldspaceSandboxSessionState, session: foldspace.Session) -> None:
        self.state = state
        self.session = session
        """The session."""

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        env = await self.state.manifest.environment.resolve()
        argv = [str(each) for each in command]
        try:
            # The server's shortest limit is a second.
            limit = None if timeout is None else max(1.0, timeout)
            ran = await self.session.run(argv, cwd="/", env=env, timeout=limit)
        except FoldspaceError as error:
            raise ExecTransportError(command=command, cause=error) from error
        if ran.timed_out:
            raise ExecTimeoutError(command=command, timeout_s=timeout)
        return ExecResult(stdout=ran.stdout_bytes, stderr=ran.stderr_bytes, exit_code=ran.exit_code)

    async def read(self, path: Path, *, user: Any = None) -> io.IOBase:
        """Reads a file."""
        del user
        place = await self._validate_path_access(path)
        try:
            return io.BytesIO(await self.session.absolute.read(str(place)))
        except NotFoundError as error:
            raise WorkspaceReadNotFoundError(path=Path(path), cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: Any = None) -> None:
        """Writes a file."""
        del user
        place = await self._validate_path_access(path, for_write=True)
        contents = data.read()
        await self.session.absolute.write(str(place), contents.encode() if isinstance(contents, str) else contents)

    async def running(self) -> bool:
        """Returns true if the session exists."""
        try:
            await self.session.show()
        except FoldspaceError:
            return False
        return True

    async def persist_workspace(self) -> io.IOBase:
        """Returns the workspace as a tar archive."""
        return io.BytesIO(await self.session.files.download())

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Unpacks a tar archive in the workspace."""
        await self.session.files.upload(data.read())


class FoldspaceSandboxClient(BaseSandboxClient[FoldspaceSandboxClientOptions | None]):
    """Makes sandboxes from sessions. ``delete`` removes a session, with its history, only if ``remove`` is set."""

    backend_id = "foldspace"
    """The kind of sandbox."""
    supports_default_options = True
    """True: ``create`` needs no options."""

    def __init__(self, data: str | None = None, *, remove: bool = False) -> None:
        self._client = foldspace.Client(data, progress=False)
        self._remove = remove

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: FoldspaceSandboxClientOptions | None = None,
    ) -> SandboxSession:
        """Starts a session."""
        chosen = options or FoldspaceSandboxClientOptions()
        manifest = self._validate_manifest_for_create(manifest or Manifest())
        confirm = chosen.backend != "host" if chosen.auto_confirm is None else chosen.auto_confirm
        session = await self._client.create(
            chosen.name, backend=chosen.backend, image=chosen.image, auto_confirm=confirm, agent="openai-agents"
        )
        # The backend determines its directory.
        manifest = manifest.model_copy(update={"root": await session.absolute.root()}, deep=True)
        state = FoldspaceSandboxSessionState(
            snapshot=resolve_snapshot(snapshot, session.id),
            manifest=manifest,
            foldspace_session=session.id,
            auto_confirm=confirm,
        )
        return self._wrap_session(FoldspaceSandboxSession(state, session))

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Opens the session of a state."""
        if not isinstance(state, FoldspaceSandboxSessionState):
            raise TypeError("the state belongs to another sandbox client")
        session = await self._client.open(
            state.foldspace_session, auto_confirm=state.auto_confirm, agent="openai-agents"
        )
        return self._wrap_session(FoldspaceSandboxSession(state, session))

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Releases a session. The session stays, unless ``remove`` is set."""
        inner = session._inner
        if not isinstance(inner, FoldspaceSandboxSession):
            raise TypeError("the session belongs to another sandbox client")
        if self._remove:
            await inner.session.remove()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """Returns a state from its document."""
        return self._deserialize_session_state_payload(payload, FoldspaceSandboxSessionState)

    async def close(self) -> None:
        """Closes the connection."""
        await self._client.close()


class FoldspaceSession:
    """A conversation, stored in a session: each change is a call in its log, so older states remain available."""

    session_settings: SessionSettings | None = None
    """Settings of the runner: the limit of ``get_items``."""

    def __init__(
        self, session_id: str, client: foldspace.Client, *, name: str = "openai-agents-conversations"
    ) -> None:
        self.session_id = session_id
        """The id of the conversation."""
        self._client = client
        self._name = name
        self._path = f"{quoted(session_id)}.jsonl"
        self._lock = asyncio.Lock()

    async def _files(self) -> foldspace.Files:
        kept = await self._client.create(self._name, backend="memory", create_id=f"openai-agents:{self._name}")
        return kept.files

    async def _read(self) -> list[TResponseInputItem]:
        try:
            text = await (await self._files()).read_text(self._path)
        except NotFoundError:
            return []
        # Texts may contain other line separators.
        return [json.loads(line) for line in text.split("\n") if line]

    async def _write(self, items: list[TResponseInputItem]) -> None:
        text = "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items)
        await (await self._files()).write(self._path, text)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Returns the items; with ``limit``, the latest items."""
        return _latest(await self._read(), limit, self.session_settings)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Adds items."""
        if items:
            async with self._lock:
                await self._write([*await self._read(), *items])

    async def pop_item(self) -> TResponseInputItem | None:
        """Removes the latest item, and returns it."""
        async with self._lock:
            items = await self._read()
            if not items:
                return None
            await self._write(items[:-1])
            return items[-1]

    async def clear_session(self) -> None:
        """Removes all items."""
        async with self._lock:
            await self._write([])


class FoldspaceThread:
    """A conversation in the log of the session with its files, so that rewinds and forks apply to both.

        thread = FoldspaceThread(session)
        await Runner.run(agent, "write a note", session=thread, context=session)
        await Runner.run(agent, "write it again", session=thread, context=session)
        other = await thread.fork()
        await thread.rewind(turns=1)

    The agent's tools work in ``session``. Its own ``rewind`` and ``fork`` take the conversation with them, too. A session
    may have several threads, each with its own ``session_id``.
    """

    session_settings: SessionSettings | None = None
    """The framework's settings: the usual limit of ``get_items``."""

    def __init__(self, session: foldspace.Session, session_id: str = "main") -> None:
        self.session = session
        """The session with the files and the conversation."""
        self.session_id = session_id
        """The name of the conversation in the session."""
        self._log = ThreadLog(session)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Returns the items; with ``limit``, the latest items."""
        items = [entry.value for entry in await self._log.entries(self.session_id)]
        return _latest(items, limit, self.session_settings)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Adds items. A turn starts where the runner adds a user's input."""
        has_input = any(item.get("role") == "user" for item in items)
        await self._log.add(self.session_id, items, lambda index, _: has_input and index == 0)

    async def pop_item(self) -> TResponseInputItem | None:
        """Removes the latest item, and returns it."""
        popped = await self._log.pop(self.session_id)
        return popped.value if popped else None

    async def clear_session(self) -> None:
        """Removes all items. Earlier positions keep them."""
        await self._log.clear(self.session_id)

    async def turns(self) -> list[Turn]:
        """Returns the turns, oldest first, each with the position before it."""
        return await self._log.turns(self.session_id)

    async def rewind(self, turns: int | None = None, *, to: PositionLike | None = None, force: bool = False) -> Any:
        """Rewinds conversation and files by a number of turns, one by default, or to a position. The rewind is an event,
        and can be undone. ``force`` works as in ``Session.rewind``.

        Raises ``NotFoundError`` if there are fewer turns or no such position, ``RefusedError`` if it would lose files.
        """
        return await self._log.rewind(self.session_id, turns, to, force=force)

    async def fork(self, *, at: PositionLike | None = None, name: str | None = None) -> FoldspaceThread:
        """Forks conversation and files, now or at a position, such as a turn's."""
        (fork,) = await self.session.fork(at=at, name=name)
        return FoldspaceThread(fork, self.session_id)

    async def merge(self, fork: FoldspaceThread, **options: Any) -> Any:
        """Merges a fork's files, then appends the items of the fork that this thread lacks, as one turn. ``options`` are
        those of ``Session.merge``, which merges only files. Conflicts leave both unchanged."""
        return await self._log.merge(self.session_id, fork._log, **options)


def _latest(
    items: list[TResponseInputItem], limit: int | None, settings: SessionSettings | None
) -> list[TResponseInputItem]:
    limit = settings.limit if limit is None and settings is not None else limit
    return items if limit is None else items[len(items) - min(max(limit, 0), len(items)) :]
