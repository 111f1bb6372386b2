"""A checkpointer for LangGraph that records file positions: ``graph.compile(checkpointer=FoldspaceSaver(...))``."""

# pyright: basic
from __future__ import annotations

import asyncio
import builtins
import json
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

import foldspace.sync
from foldspace import NotFoundError
from foldspace._packing import quoted, tar, unquoted, untar

# The position at the end of a step. LangGraph saves a checkpoint in the background, while the next step runs, in a copy
# of the context that called `get_next_version`.
_step_end: ContextVar[tuple[str, int] | None] = ContextVar("foldspace_step_end", default=None)

POSITION = "foldspace"
"""The field of a checkpoint's metadata: ``{"session": id, "position": seq}``."""


class FoldspaceSaver(BaseCheckpointSaver[int]):
    """Stores checkpoints in a separate session, each with the position of the agent's session.

    ``session`` has the files that the graph's tools change. ``rewind(config)`` takes its files back to a checkpoint,
    before the graph is invoked from there; ``fork(config)`` returns a session with the files as they were.
    """

    def __init__(
        self,
        client: foldspace.sync.Client,
        session: foldspace.sync.Session | None = None,
        *,
        name: str = "langgraph-checkpoints",
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self.session = session
        """The agent's session; ``None`` to store checkpoints only."""
        self._store = client.create(name, backend="memory", create_id=f"langgraph:{name}")
        # Held between the check for earlier writes and the write.
        self._lock = threading.Lock()

    # -- the agent's files

    def position(self, config: RunnableConfig) -> int:
        """Returns the position of the agent's session at a checkpoint."""
        found = self.get_tuple(config)
        known: Any = found.metadata.get(POSITION) if found else None
        if not known or self.session is None or known["session"] != self.session.id:
            raise NotFoundError("the checkpoint has no position of this session")
        return int(known["position"])

    def rewind(self, config: RunnableConfig) -> RunnableConfig:
        """Rewinds the agent's files to a checkpoint, and returns its config. The rewind is an event, and can be
        undone."""
        position = self.position(config)
        assert self.session is not None
        if position < self.session.head():
            self.session.rewind(f"@{position}")
        return config

    def fork(self, config: RunnableConfig, name: str | None = None) -> foldspace.sync.Session:
        """Forks the agent's session as it was at a checkpoint."""
        position = self.position(config)
        assert self.session is not None
        return self.session.fork(at=f"@{position}", name=name)[0]

    # -- checkpoints

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Returns the checkpoint that the config names, else the latest."""
        given = _given(config)
        thread, ns = given["thread_id"], given.get("checkpoint_ns", "")
        wanted = get_checkpoint_id(config) or max(self._ids(thread, ns), default=None)
        return self._load(thread, ns, wanted) if wanted else None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Lists checkpoints of each thread, latest first."""
        given = _given(config) if config else {}
        threads = [given["thread_id"]] if config else self._names("")
        only, until = (get_checkpoint_id(config) if config else None), (get_checkpoint_id(before) if before else None)
        for thread in threads:
            spaces = [given["checkpoint_ns"]] if "checkpoint_ns" in given else self._names(_place(thread))
            for ns in spaces:
                for each in sorted(self._ids(thread, ns), reverse=True):
                    if (only and each != only) or (until and each >= until):
                        continue
                    if limit is not None and limit <= 0:
                        return
                    found = self._load(thread, ns, each)
                    if found is None or any(found.metadata.get(key) != value for key, value in (filter or {}).items()):
                        continue
                    limit = limit - 1 if limit is not None else None
                    yield found

    def get_next_version(self, current: int | None, channel: None) -> int:
        """Returns a channel's next version. LangGraph calls this between two steps."""
        if self.session is not None:
            _step_end.set((self.session.id, self.session.head()))
        return super().get_next_version(current, channel)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint, with the position of the agent's session."""
        del new_versions
        given = _given(config)
        thread, ns = given["thread_id"], given.get("checkpoint_ns", "")
        kept: dict[str, Any] = dict(get_checkpoint_metadata(config, metadata))
        if self.session is not None:
            known = _step_end.get()
            position = known[1] if known and known[0] == self.session.id else self.session.head()
            kept[POSITION] = {"session": self.session.id, "position": position}
        files = {
            "checkpoint": self._packed(checkpoint),
            "metadata": self._packed(kept),
            "parent": (given.get("checkpoint_id") or "").encode(),
        }
        self._store.files.upload(tar(files), _place(thread, ns, checkpoint["id"]))
        return _config(thread, ns, checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Stores the writes of a task."""
        given = _given(config)
        place = _place(given["thread_id"], given.get("checkpoint_ns", ""), given["checkpoint_id"], "writes", task_id)
        with self._lock:
            known = {entry["path"].rsplit("/", 1)[-1] for entry in self._entries(place)}
            files: dict[str, bytes] = {}
            for number, (channel, value) in enumerate(writes):
                index = WRITES_IDX_MAP.get(channel, number)
                # A rerun task does not write twice, but replaces its errors and interrupts.
                if index < 0 or str(index) not in known:
                    files[str(index)] = self._packed([task_id, channel, task_path], value)
            if files:
                self._store.files.upload(tar(files), place)

    def delete_thread(self, thread_id: str) -> None:
        """Removes a thread."""
        self._remove(_place(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Removes the checkpoints of runs."""
        for found in builtins.list(self.list(None)):
            if found.metadata.get("run_id") in set(run_ids):
                given = _given(found.config)
                self._remove(_place(given["thread_id"], given["checkpoint_ns"], given["checkpoint_id"]))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies a thread."""
        if self._entries(_place(source_thread_id)):
            self._store.files.upload(self._store.files.download(_place(source_thread_id)), _place(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Removes all but the latest checkpoints of threads, or all with ``delete``."""
        for thread in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread)
                continue
            for ns in self._names(_place(thread)):
                for each in sorted(self._ids(thread, ns))[:-1]:
                    self._remove(_place(thread, ns, each))

    # -- the same for asyncio

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Returns a checkpoint."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Lists checkpoints."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (each := await asyncio.to_thread(next, found, None)) is not None:
            yield each

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Stores the writes of a task."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Removes a thread."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Removes the checkpoints of runs."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies a thread."""
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Removes all but the latest checkpoints of threads."""
        await asyncio.to_thread(lambda: self.prune(thread_ids, strategy=strategy))

    # -- the store: a directory for each thread, namespace and checkpoint

    def _load(self, thread: str, ns: str, checkpoint_id: str) -> CheckpointTuple | None:
        try:
            files = untar(self._store.files.download(_place(thread, ns, checkpoint_id)))
        except NotFoundError:
            return None
        if "checkpoint" not in files:
            return None
        parent = files["parent"].decode()
        writes: builtins.list[tuple[Any, tuple[str, str, Any]]] = []
        for path, packed in files.items():
            if path.startswith("writes/"):
                (task, channel, task_path), value = self._unpacked(packed)
                key = writes_sort_key(task_path, task, int(path.rsplit("/", 1)[-1]))
                writes.append((key, (task, channel, value)))
        return CheckpointTuple(
            config=_config(thread, ns, checkpoint_id),
            checkpoint=self._unpacked(files["checkpoint"])[1],
            metadata=self._unpacked(files["metadata"])[1],
            parent_config=_config(thread, ns, parent) if parent else None,
            pending_writes=[write for _, write in sorted(writes, key=lambda each: each[0])],
        )

    def _packed(self, head: Any, *value: Any) -> bytes:
        """Returns a value as bytes, with a JSON header."""
        head, value_ = (head, value[0]) if value else (None, head)
        kind, dumped = self.serde.dumps_typed(value_)
        return json.dumps([head, kind]).encode() + b"\n" + dumped

    def _unpacked(self, packed: bytes) -> tuple[Any, Any]:
        first, _, dumped = packed.partition(b"\n")
        head, kind = json.loads(first)
        return head, self.serde.loads_typed((kind, dumped))

    def _entries(self, place: str) -> builtins.list[Any]:
        try:
            return self._store.files.list(place)
        except NotFoundError:
            return []

    def _names(self, place: str) -> builtins.list[str]:
        return [unquoted(entry["path"].rsplit("/", 1)[-1]) for entry in self._entries(place)]

    def _ids(self, thread: str, ns: str) -> builtins.list[str]:
        # Writes may be stored before their checkpoint, so an id may have no checkpoint yet.
        return self._names(_place(thread, ns))

    def _remove(self, place: str) -> None:
        try:
            self._store.files.remove(place, recursive=True)
        except NotFoundError:
            pass


def _given(config: RunnableConfig) -> dict[str, Any]:
    return config.get("configurable", {})


def _config(thread: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


def _place(*parts: str) -> str:
    """Returns a directory for any texts: texts that are not valid names are encoded in base 32."""
    return "/".join(quoted(part) for part in parts)
