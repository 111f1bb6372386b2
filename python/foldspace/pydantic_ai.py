"""A workspace and a conversation store for pydantic-ai."""

# pyright: basic
from __future__ import annotations

import asyncio
import posixpath
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry, ConversationRecord, ConversationStore
from pydantic_ai.workspaces import CommandResult, FileEntry, Workspace, WorkspaceCommand, WorkspaceRef
from pydantic_ai.workspaces.protocol import WorkspaceTimeoutError, WorkspaceUnavailableError, validate_timeout

import foldspace
from foldspace import FoldspaceError, NotFoundError, RefusedError
from foldspace._packing import quoted, tar, untar

PROVIDER = "foldspace"
"""The provider in a workspace's reference."""
_TRIES = 100


class FoldspaceBackend:
    """A session as a workspace: ``Workspace(FoldspaceBackend(backend="podman"))``.

    The session starts with the first operation; with ``ref`` an existing session is used. Commands and file operations
    are calls in its log. The session stays when a run ends.
    """

    def __init__(
        self,
        ref: WorkspaceRef | None = None,
        *,
        backend: str = "container",
        data: str | None = None,
        auto_confirm: bool | None = None,
        allow: Sequence[str] = (),
        **options: Any,
    ) -> None:
        if ref is not None and ref.provider != PROVIDER:
            raise ValueError(f"the workspace belongs to {ref.provider}, not to {PROVIDER}")
        self._ref = ref
        self._client = foldspace.Client(data, progress=False)
        self._rules: dict[str, Any] = {"allow": allow, "agent": "pydantic-ai"}
        self._rules["auto_confirm"] = backend != "host" if auto_confirm is None else auto_confirm
        self._options: dict[str, Any] = {"backend": backend, "create_id": f"pydantic-ai:{uuid.uuid4()}"} | options
        self._destroyed = False
        self._opening: asyncio.Task[foldspace.Session] | None = None
        self._shell = Workspace(_Commands(self))

    @property
    def ref(self) -> WorkspaceRef | None:
        """The session's identity; ``None`` before it has started."""
        return self._ref

    async def session(self) -> foldspace.Session:
        """Returns the session, and starts it if necessary."""
        if self._opening is None or (self._opening.done() and (self._opening.cancelled() or self._opening.exception())):
            self._opening = asyncio.create_task(self._open())
        # A cancelled caller must not lose the session and its ref.
        return await asyncio.shield(self._opening)

    async def _open(self) -> foldspace.Session:
        if self._ref is not None:
            try:
                return await self._client.open(self._ref.id, **self._rules)
            except NotFoundError as error:
                raise WorkspaceUnavailableError(str(error)) from error
        session = await self._client.create(**self._options, **self._rules)
        self._ref = WorkspaceRef(provider=PROVIDER, id=session.id)
        return session

    async def close(self) -> None:
        """Closes the connection. The session stays."""
        await self._client.close()

    async def destroy(self) -> None:
        """Removes the session, with its history. Kills its running commands, which fail as unavailable."""
        session = await self.session()
        self._destroyed = True
        for _ in range(_TRIES):
            for process in await session.processes():
                if (await process.show())["running"]:
                    await process.kill()
            try:
                return await session.remove()
            except RefusedError:
                # A process or a call is still ending.
                await asyncio.sleep(0.05)
        await session.remove()

    async def working_dir(self) -> str:
        """Returns the directory of the workspace."""
        session = await self.session()
        try:
            return await session.absolute.root()
        except NotFoundError as error:
            raise WorkspaceUnavailableError(str(error)) from error

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Runs a command."""
        validate_timeout(timeout)
        if isinstance(command, str) != shell:
            raise TypeError("a text needs shell=True, a list of arguments shell=False")
        session = await self.session()
        # A process instead of a call, so that other operations of the workspace continue.
        process: foldspace.Process | None = None
        try:
            process = await session.start(command if shell else list(command), cwd="/", env=env)
            ran = await asyncio.wait_for(process.collect(), timeout)
        except asyncio.TimeoutError as error:
            assert process is not None
            await process.kill()
            ended = await process.collect()
            said = f"the command timed out after {timeout} seconds"
            raise WorkspaceTimeoutError(said, stdout=ended.stdout, stderr=ended.stderr) from error
        except asyncio.CancelledError:
            if process is not None:
                await asyncio.shield(process.kill())
            raise
        except FoldspaceError as error:
            raise await self._gone(session, error) from error
        if self._destroyed:
            raise WorkspaceUnavailableError(f"the session {session.id} was removed")
        return CommandResult(exit_code=ran.exit_code, stdout=ran.stdout, stderr=ran.stderr)

    async def _gone(self, session: foldspace.Session, error: FoldspaceError) -> Exception:
        """Returns the error, or an unavailable error if the session was removed."""
        try:
            await session.show()
        except NotFoundError:
            return WorkspaceUnavailableError(f"the session {session.id} was removed")
        except FoldspaceError:
            pass
        return error

    # -- files: plain files through the API; behind links, or outside of the workspace, with commands

    async def _find(self, path: str) -> tuple[foldspace.Session, str | None, Any]:
        """Returns the path in the workspace and its entry, if it is a plain path."""
        session = await self.session()
        await self.working_dir()
        inside = await session.absolute.inside(path)
        if not inside or posixpath.normpath(path) != path:
            return session, None, None
        try:
            return session, inside, await session.files.stat(inside)
        except NotFoundError as error:
            gone = await self._gone(session, error)
            if isinstance(gone, WorkspaceUnavailableError):
                raise gone from error
            return session, inside, None

    async def read_bytes(self, path: str) -> bytes:
        """Reads a file."""
        session, inside, entry = await self._find(path)
        if inside and entry and entry["node"] == "file" and not entry.get("incomplete"):
            return await session.files.read(inside)
        return await self._shell.read_bytes(path)

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Writes a file."""
        session, inside, entry = await self._find(path)
        if inside and entry and entry["node"] == "file":
            await session.files.write(inside, data)
            return
        if inside and not entry:
            _, above, directory = await self._find(posixpath.dirname(path))
            if directory and directory["node"] == "directory":
                await session.files.write(inside, data)
                return
        await self._shell.write_bytes(path, data)

    async def stat(self, path: str) -> FileEntry:
        """Describes a file or directory."""
        _, _, entry = await self._find(path)
        if entry and entry["node"] in ("file", "directory"):
            return _entry(path, entry)
        return await self._shell.stat(path)

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        """Lists a directory."""
        session, inside, entry = await self._find(path)
        if inside and entry and entry["node"] == "directory":
            entries = await session.files.list(inside)
            if all(each["node"] in ("file", "directory") for each in entries):
                return [_entry(posixpath.join(path, each["path"].rsplit("/", 1)[-1]), each) for each in entries]
        return await self._shell.list_dir(path)

    async def make_dir(self, path: str) -> None:
        """Creates a directory and its missing parents."""
        await self._shell.make_dir(path)

    async def remove(self, path: str) -> None:
        """Removes a file, or a directory with its contents."""
        session, inside, entry = await self._find(path)
        if inside and entry and entry["node"] in ("file", "directory", "symlink"):
            await session.files.remove(inside, recursive=True)
        else:
            await self._shell.remove(path)

    async def exists(self, path: str) -> bool:
        """Returns true if a file or directory exists."""
        _, _, entry = await self._find(path)
        return bool(entry and entry["node"] in ("file", "directory")) or await self._shell.exists(path)

    async def realpath(self, path: str) -> str:
        """Resolves links."""
        return await self._shell.realpath(path)


class _Commands:
    """The same workspace, with only commands."""

    def __init__(self, backend: FoldspaceBackend) -> None:
        self._backend = backend
        self.run = backend.run
        self.working_dir = backend.working_dir

    @property
    def ref(self) -> WorkspaceRef | None:
        return self._backend.ref


def _entry(path: str, entry: Any) -> FileEntry:
    return FileEntry(name=posixpath.basename(path), path=path, is_dir=entry["node"] == "directory", size=entry.get("size"))


class FoldspaceConversationStore(ConversationStore):
    """Stores conversations in a session: each save is a call in its log, so older states remain available.

    Only one process may write a conversation at a time: revisions are compared within a process. Unreachable entries
    are retained.
    """

    def __init__(self, client: foldspace.Client, *, name: str = "pydantic-ai-conversations") -> None:
        self._client = client
        self._name = name
        self._lock = asyncio.Lock()
        self._records = TypeAdapter(ConversationRecord)
        self._entries = TypeAdapter(ConversationEntry)

    async def _files(self) -> foldspace.Files:
        session = await self._client.create(self._name, backend="memory", create_id=f"pydantic-ai:{self._name}")
        return session.files

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Returns the record of a conversation."""
        files = await self._files()
        try:
            return self._records.validate_json(await files.read(f"records/{quoted(conversation_id)}"))
        except NotFoundError:
            return None

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Returns the records, newest first."""
        files = await self._files()
        try:
            kept = untar(await files.download("records"))
        except NotFoundError:
            return []
        records = [self._records.validate_json(each) for each in kept.values()]
        records = [each for each in records if scope is None or each.scope == scope]
        return sorted(records, key=lambda each: each.updated_at, reverse=True)[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Stores a record with its new entries, in one call."""
        files = await self._files()
        async with self._lock:
            stored = await self.read_record(record.conversation_id)
            if (stored.revision if stored else None) != expected_revision:
                raise ConversationConflict(record.conversation_id)
            new = {f"entries/{quoted(each.id)}": self._entries.dump_json(each) for each in new_entries}
            head = record.head_id and f"entries/{quoted(record.head_id)}"
            if head and head not in new and not await files.exists(head):
                raise ConversationConflict(record.conversation_id)
            new[f"records/{quoted(record.conversation_id)}"] = self._records.dump_json(record)
            await files.upload(tar(new))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Removes the record of a conversation."""
        files = await self._files()
        async with self._lock:
            stored = await self.read_record(conversation_id)
            if stored is None or stored.revision != expected_revision:
                raise ConversationConflict(conversation_id)
            await files.remove(f"records/{quoted(conversation_id)}")

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Returns an entry."""
        files = await self._files()
        try:
            return self._entries.validate_json(await files.read(f"entries/{quoted(entry_id)}"))
        except NotFoundError as error:
            raise KeyError(entry_id) from error
