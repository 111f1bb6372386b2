"""Conversations in a session's log, next to its calls and files."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from foldspace import _models
from foldspace._session import Session
from foldspace.errors import NotFoundError, UnusableError
from foldspace.types import PositionLike

ADDED, POPPED, CLEARED, STARTED = "thread.added", "thread.popped", "thread.cleared", "thread.turn"
_KINDS = f"{ADDED},{POPPED},{CLEARED},{STARTED},SessionRewound"
# The server stores longer strings apart from their events, and events have at most 1 MiB.
_PIECE = 16_000
_PIECES = 50
# Below the server's limits for a commit, with space for one more entry: 10,000 events and 64 MiB.
_BATCH = 8_000
_BATCH_BYTES = 16 << 20


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry of a thread."""

    id: str | None
    """An id that copies in other sessions share; ``None`` for the start of a turn, which is not an entry itself."""
    value: Any
    position: int
    """The position before it, and before the merge that it came with."""
    starts_turn: bool
    time: str


@dataclasses.dataclass(frozen=True)
class Turn:
    """A turn of a conversation: an input, and all that follows it."""

    position: int
    """The position before the turn: ``rewind(to=turn.position)`` takes it back."""
    input: Any
    """The first entry of its input, or the first 4,000 characters of a prompt of the Claude Agent SDK."""


class _Node:
    """The last entry of a thread, and the thread before it."""

    def __init__(self, entry: Entry, before: _Node | None) -> None:
        self.entry, self.before = entry, before


class ThreadLog:
    """The threads of a session: a fold of its log. A rewind restores each thread as of its position."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._reading, self._popping = asyncio.Lock(), asyncio.Lock()
        self._next = 1
        # The last node of each thread, after each position that changed it.
        self._changes: dict[str, list[tuple[int, _Node | None]]] = {}
        # The pieces of an entry that is being read, and the position before it. Its events are in one commit.
        self._pieces: list[str] = []
        self._before: int | None = None

    async def entries(self, thread: str) -> list[Entry]:
        """Returns the entries of a thread."""
        return [each for each in await self._all(thread) if each.id is not None]

    async def _all(self, thread: str) -> list[Entry]:
        await self._update()
        node, found = self._last(thread), list[Entry]()
        while node:
            found.append(node.entry)
            node = node.before
        return found[::-1]

    async def threads(self) -> dict[str, Entry]:
        """Returns the last entry, or start of a turn, of each thread that has entries."""
        await self._update()
        last = {name: node for name in self._changes if (node := self._last(name))}
        return {name: node.entry for name, node in last.items() if node.before or node.entry.id is not None}

    async def add(self, thread: str, values: Sequence[Any], starts_turn: Callable[[int, Any], bool]) -> None:
        """Adds entries. ``starts_turn`` takes the index and the value of each."""
        await self._add(thread, [(uuid.uuid4().hex, each, starts_turn(at, each)) for at, each in enumerate(values)])

    async def _add(
        self, thread: str, entries: Iterable[tuple[str | None, Any, bool]], *, position: int | None = None
    ) -> None:
        batch: list[tuple[str, Any]] = []
        size = 0
        for id_, value, starts_turn in entries:
            data: dict[str, Any] = {"thread": thread, "id": id_, "turn": starts_turn}
            data |= {"position": position} if position is not None else {}
            text = json.dumps(value)
            size += len(text)
            if len(text) <= _PIECE and '"$' not in text:
                batch.append((ADDED, data | {"entry": value}))
            else:
                pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
                for at in range(0, len(pieces), _PIECES):
                    more = at + _PIECES < len(pieces)
                    batch.append((ADDED, data | {"pieces": pieces[at : at + _PIECES], "more": more}))
            if size > _BATCH_BYTES or len(batch) > _BATCH:
                await self.session.emit_all(batch)
                batch, size = [], 0
        if batch:
            await self.session.emit_all(batch)

    async def start_turn(self, thread: str, prompt: str) -> None:
        """Starts a turn before its first entry is added."""
        await self.session.emit(STARTED, {"thread": thread, "input": prompt[:4000]})

    async def pop(self, thread: str) -> Entry | None:
        """Removes the last entry, and returns it."""
        async with self._popping:
            await self._update()
            node = self._last(thread)
            if node is None:
                return None
            await self.session.emit(POPPED, {"thread": thread})
            return node.entry

    async def clear(self, *threads: str) -> None:
        """Removes all entries of threads."""
        if threads:
            await self.session.emit_all([(CLEARED, {"thread": thread}) for thread in threads])

    async def turns(self, thread: str) -> list[Turn]:
        """Returns the turns of a thread, oldest first."""
        return [Turn(each.position, each.value) for each in await self._all(thread) if each.starts_turn]

    async def rewind(
        self, thread: str, turns: int | None, to: PositionLike | None, *, force: bool = False
    ) -> _models.Rewind:
        """Rewinds threads and files."""
        if turns is not None and to is not None:
            raise UnusableError("rewind takes turns or to, not both")
        if to is None:
            count, known = 1 if turns is None else turns, await self.turns(thread)
            if not 1 <= count <= len(known):
                raise NotFoundError(f"turns is {count}; the thread has {len(known)}")
            to = known[-count].position
        return await self.session.rewind(to, force=force)

    async def merge(self, thread: str, child: ThreadLog, **options: Any) -> _models.Merge:
        """Merges a child's files, then appends the child's entries that the thread lacks, as one turn."""
        merged = await self.session.merge(child.session, **options)
        if merged["outcome"] != "conflicted" and not merged["dry_run"]:
            has = {each.id for each in await self.entries(thread)}
            lacking = [each for each in await child.entries(thread) if each.id not in has]
            added = ((each.id, each.value, at == 0) for at, each in enumerate(lacking))
            await self._add(thread, added, position=merged["seq"] and merged["seq"] - 1)
        return merged

    # -- the fold

    async def _update(self) -> None:
        async with self._reading:
            for event in await self.session.log(self._next, kind=_KINDS):
                self._fold(event["seq"], event["kind"], event["event"], event["time"])
                self._next = event["seq"] + 1

    def _last(self, thread: str) -> _Node | None:
        return self._changes[thread][-1][1] if thread in self._changes else None

    def _fold(self, seq: int, kind: str, data: Any, time: str) -> None:
        if kind == "SessionRewound":
            for changes in self._changes.values():
                at = bisect_right(changes, data["to"], key=lambda change: change[0])
                changes.append((seq, changes[at - 1][1] if at else None))
            return
        before = self._last(data["thread"])
        node: _Node | None = None
        if kind == POPPED:
            node = before and before.before
        elif kind == STARTED:
            node = _Node(Entry(None, data["input"], seq - 1, True, time), before)
        elif kind == ADDED:
            position: int = data.get("position", seq - 1) if self._before is None else self._before
            self._before = position
            self._pieces += data.get("pieces", ())
            if data.get("more"):
                return
            value = json.loads("".join(self._pieces)) if self._pieces else data["entry"]
            node = _Node(Entry(data["id"], value, position, data["turn"], time), before)
            self._pieces, self._before = [], None
        self._changes.setdefault(data["thread"], []).append((seq, node))
