"""A session store for the Claude Agent SDK: ``ClaudeAgentOptions(session_store=store, hooks=store.hooks())``."""

# pyright: basic
from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from claude_agent_sdk import (
    HookContext,
    HookMatcher,
    SessionKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
    fold_session_summary,
    project_key_for_directory,
)
from claude_agent_sdk.types import SessionListSubkeysKey, SyncHookJSONOutput

import foldspace
from foldspace import NotFoundError
from foldspace._thread import ThreadLog, Turn
from foldspace.types import PositionLike


class FoldspaceSessionStore(SessionStore):
    """Stores transcripts in the log of the session with the agent's files, so that rewinds and forks apply to both.

        store = FoldspaceSessionStore(session)
        options = ClaudeAgentOptions(session_store=store, hooks=store.hooks(), mcp_servers=..., tools=[])

    The agent's tools work in ``session``. After ``rewind`` or ``fork``, ``resume=session_id`` continues the conversation
    from there. The SDK stores the entries of a turn after the turn's calls, so a hook records where the turn starts.
    Without ``hooks`` there are no turns.
    """

    def __init__(self, session: foldspace.Session) -> None:
        self.session = session
        """The session with the files and the transcripts."""
        self._log = ThreadLog(session)

    def hooks(self) -> dict[Any, list[HookMatcher]]:
        """Returns the hooks that record where turns start."""
        return {"UserPromptSubmit": [HookMatcher(hooks=[self._start_turn])]}

    async def _start_turn(self, given: Any, tool_use_id: str | None, context: HookContext) -> SyncHookJSONOutput:
        del tool_use_id, context
        key = {"project_key": project_key_for_directory(given["cwd"]), "session_id": given["session_id"]}
        await self._log.start_turn(_thread(key), given["prompt"])
        return {}

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Adds entries, except those whose ``uuid`` the transcript has."""
        thread = _thread(key)
        has = {entry.value.get("uuid") for entry in await self._log.entries(thread)} - {None}
        lacking = [entry for entry in entries if entry.get("uuid") not in has]
        await self._log.add(thread, lacking, lambda *_: False)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Returns the entries of a transcript; ``None`` if it has none."""
        return [entry.value for entry in await self._log.entries(_thread(key))] or None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Lists the conversations of a project."""
        return [
            {"session_id": session, "mtime": int(datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp() * 1000)}
            for (project, session, subpath), time in await self._keys()
            if project == project_key and not subpath
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Summarizes the conversations of a project."""
        found: list[SessionSummaryEntry] = []
        for listed in await self.list_sessions(project_key):
            key: SessionKey = {"project_key": project_key, "session_id": listed["session_id"]}
            summary = fold_session_summary(None, key, await self.load(key) or [])
            found.append({**summary, "mtime": listed["mtime"]})
        return found

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Lists the transcripts of a conversation's subagents."""
        wanted = (key["project_key"], key["session_id"])
        return [subpath for (*of, subpath), _ in await self._keys() if tuple(of) == wanted and subpath]

    async def delete(self, key: SessionKey) -> None:
        """Removes a transcript; a conversation's own with those of its subagents. Earlier positions keep them."""
        keys = [_thread(key)]
        if not key.get("subpath"):
            keys += [_thread({**key, "subpath": subpath}) for subpath in await self.list_subkeys(key)]
        await self._log.clear(*keys)

    async def turns(self, session_id: str) -> list[Turn]:
        """Returns the turns of a conversation, oldest first, each with the position before it."""
        return await self._log.turns(await self._find(session_id))

    async def rewind(
        self, session_id: str, turns: int | None = None, *, to: PositionLike | None = None, force: bool = False
    ) -> Any:
        """Rewinds all conversations and files by a number of turns of this conversation, one by default, or to a position.
        The rewind is an event, and can be undone. ``force`` works as in ``Session.rewind``.

        Raises ``NotFoundError`` if there are fewer turns or no such position, ``RefusedError`` if it would lose files.
        """
        return await self._log.rewind(await self._find(session_id), turns, to, force=force)

    async def fork(self, *, at: PositionLike | None = None, name: str | None = None) -> FoldspaceSessionStore:
        """Forks conversations and files, now or at a position, such as a turn's. Conversations keep their ids."""
        (fork,) = await self.session.fork(at=at, name=name)
        return FoldspaceSessionStore(fork)

    async def _keys(self) -> list[tuple[list[str], str]]:
        return [(json.loads(thread), last.time) for thread, last in (await self._log.threads()).items()]

    async def _find(self, session_id: str) -> str:
        for (project, session, subpath), _ in await self._keys():
            if session == session_id and not subpath:
                return _thread({"project_key": project, "session_id": session})
        raise NotFoundError(f"no conversation {session_id} in session {self.session.name}")


def _thread(key: Any) -> str:
    return json.dumps([key["project_key"], key["session_id"], key.get("subpath", "")])
