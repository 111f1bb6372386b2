"""A session service and an environment for Google's ADK, so that conversation and files are one.

``EnvironmentToolset(environment=FoldspaceEnvironment(session))`` for the agent, and
``Runner(session_service=FoldspaceSessionService(session), ...)``.
"""

# pyright: basic
from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.adk.environment import BaseEnvironment, ExecutionResult
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions import BaseSessionService, Session, State
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from pydantic_core import to_jsonable_python

import foldspace
from foldspace import NotFoundError
from foldspace._thread import Entry, ThreadLog, Turn
from foldspace.types import PositionLike


class FoldspaceEnvironment(BaseEnvironment):
    """The workspace of a session, for ADK's toolset of environments. Commands and file operations are calls in its log."""

    def __init__(self, session: foldspace.Session) -> None:
        self.session = session
        """The session."""
        self._root: Path | None = None

    async def initialize(self) -> None:
        """Finds the directory of the workspace."""
        self._root = Path(await self.session.absolute.root())
        self.is_initialized = True

    @property
    def working_dir(self) -> Path:
        """The directory of the workspace."""
        if self._root is None:
            raise RuntimeError("the environment is not initialized: call initialize()")
        return self._root

    async def execute(self, command: str, *, timeout: float | None = None) -> ExecutionResult:
        """Runs a command."""
        # The server's shortest limit is a second.
        ran = await self.session.run(command, timeout=None if timeout is None else max(1.0, timeout))
        return ExecutionResult(ran.exit_code, ran.stdout, ran.stderr, ran.timed_out)

    async def read_file(self, path: str | Path) -> bytes:
        """Reads a file."""
        try:
            return await self.session.absolute.read(str(self.working_dir / path))
        except NotFoundError as error:
            raise FileNotFoundError(f"no such file: {path}") from error

    async def write_file(self, path: str | Path, content: str | bytes) -> None:
        """Writes a file, and creates its missing parent directories."""
        data = content.encode() if isinstance(content, str) else content
        await self.session.absolute.write(str(self.working_dir / path), data)


class FoldspaceSessionService(BaseSessionService):
    """Stores conversations in the log of the session with the agent's files, so that rewinds and forks apply to both.

        service = FoldspaceSessionService(session)
        runner = Runner(app_name="notes", agent=agent, session_service=service)
        conversation = await service.create_session(app_name="notes", user_id="ann")

    The agent's tools work in ``session``. ``runner.rewind_async`` rewinds the files, too: the log has a rewind in place of
    ADK's event. State of users and of the app is rewound with the conversations. Use the runner's ``run_async`` in the event
    loop of the client: its ``run`` starts another one.
    """

    def __init__(self, session: foldspace.Session) -> None:
        self.session = session
        """The session with the files and the conversations."""
        self._log = ThreadLog(session)

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Starts a conversation."""
        session_id = session_id and session_id.strip() or str(uuid.uuid4())
        thread = (app_name, user_id, session_id)
        if await self._entries(thread):
            raise AlreadyExistsError(f"session {session_id} already exists")
        given = to_jsonable_python(state or {})
        await self._add(thread, {"created": time.time(), "state": _own(given)}, given)
        return await self._load(thread)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Returns a conversation; ``None`` if there is no such conversation."""
        thread = (app_name, user_id, session_id.strip())
        if not await self._entries(thread):
            return None
        found = await self._load(thread)
        if config and config.num_recent_events is not None:
            found.events = found.events[max(0, len(found.events) - config.num_recent_events) :]
        if config and config.after_timestamp is not None:
            found.events = [event for event in found.events if event.timestamp >= config.after_timestamp]
        return found

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Lists the conversations of a user or an app, latest last, without their events."""
        found: list[Session] = []
        for name in await self._log.threads():
            thread: tuple[str, ...] = tuple(json.loads(name))
            if len(thread) == 3 and thread[0] == app_name and user_id in (None, thread[1]):
                found.append(await self._load(thread))
                found[-1].events = []
        return ListSessionsResponse(sessions=sorted(found, key=lambda each: (each.last_update_time, each.user_id, each.id)))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Removes a conversation. Earlier positions keep it."""
        await self._log.clear(json.dumps([app_name, user_id, session_id.strip()]))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Returns the state of a user."""
        shared = await self._shared(app_name, user_id)
        return {key.removeprefix(State.USER_PREFIX): value for key, value in shared.items()}

    async def append_event(self, session: Session, event: Event) -> Event:
        """Adds an event. A turn starts with the first event of an invocation. An event that rewinds is not added: it
        rewinds conversation and files.

        Raises ``NotFoundError`` if the invocation to rewind is not in the log, ``RefusedError`` if a rewind would lose files.
        """
        if event.partial:
            return event
        thread = _of(session)
        entries = await self._entries(thread)
        if not entries:
            raise SessionNotFoundError(f"session {session.id} not found")
        before = event.actions.rewind_before_invocation_id
        same = [each for each in entries if each.value.get("invocation_id") == (before or event.invocation_id)]
        if before and not same:
            raise NotFoundError(f"no invocation {before} in session {session.id}")
        if before:
            await self.rewind(session, to=same[0].position)
            return event
        event = await super().append_event(session, event)
        session.last_update_time = event.timestamp
        await self._add(thread, event.model_dump(mode="json", exclude_none=True), event.actions.state_delta, not same)
        return event

    async def turns(self, session: Session) -> list[Turn]:
        """Returns the turns of a conversation, oldest first, each with the position before it."""
        return await self._log.turns(json.dumps(_of(session)))

    async def rewind(
        self, session: Session, turns: int | None = None, *, to: PositionLike | None = None, force: bool = False
    ) -> Any:
        """Rewinds all conversations and files by a number of turns of this conversation, one by default, or to a position,
        and updates ``session``. The rewind is an event, and can be undone. ``force`` works as in ``Session.rewind``.

        Raises ``NotFoundError`` if there are fewer turns or no such position, ``RefusedError`` if it would lose files.
        """
        rewound = await self._log.rewind(json.dumps(_of(session)), turns, to, force=force)
        fresh = await self._load(_of(session))
        session.events, session.state, session.last_update_time = fresh.events, fresh.state, fresh.last_update_time
        return rewound

    async def fork(self, *, at: PositionLike | None = None, name: str | None = None) -> FoldspaceSessionService:
        """Forks conversations and files, now or at a position, such as a turn's. Conversations keep their ids."""
        (fork,) = await self.session.fork(at=at, name=name)
        return FoldspaceSessionService(fork)

    # -- threads: a conversation's, the user's (its first two names) and the app's (its first name)

    async def _entries(self, thread: Sequence[str]) -> list[Entry]:
        return await self._log.entries(json.dumps(thread))

    async def _add(self, thread: Sequence[str], value: Any, state: dict[str, Any], starts_turn: bool = False) -> None:
        """Adds an entry, and its changes of shared state."""
        await self._log.add(json.dumps(thread), [value], lambda *_: starts_turn)
        for names, prefix in ((1, State.APP_PREFIX), (2, State.USER_PREFIX)):
            shared = {key: each for key, each in to_jsonable_python(state).items() if key.startswith(prefix)}
            if shared:
                await self._log.add(json.dumps(thread[:names]), [shared], lambda *_: False)

    async def _shared(self, *thread: str) -> dict[str, Any]:
        return {key: value for each in await self._entries(thread) for key, value in each.value.items()}

    async def _load(self, thread: Sequence[str]) -> Session:
        """Returns a conversation; an empty one if the log has none."""
        values = [each.value for each in await self._entries(thread)] or [{"created": 0.0, "state": {}}]
        first, events = values[0], [Event.model_validate(each) for each in values[1:]]
        state = dict(first["state"])
        for event in events:
            state |= _own(event.actions.state_delta)
        app, user, id = thread
        state |= await self._shared(app) | await self._shared(app, user)
        updated = events[-1].timestamp if events else first["created"]
        return Session(id=id, app_name=app, user_id=user, state=state, events=events, last_update_time=updated)


def _of(session: Session) -> list[str]:
    return [session.app_name, session.user_id, session.id]


def _own(state: dict[str, Any]) -> dict[str, Any]:
    """Returns the state of a conversation itself."""
    other = (State.APP_PREFIX, State.USER_PREFIX, State.TEMP_PREFIX)
    return {key: value for key, value in state.items() if not key.startswith(other)}
