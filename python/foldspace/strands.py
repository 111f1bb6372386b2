"""A sandbox and a session manager for Strands Agents, so that conversation and files are one.

``Agent(sandbox=FoldspaceSandbox(session), session_manager=FoldspaceSessionManager(session))``.
"""

# pyright: basic
from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from strands.sandbox import ExecutionResult, PosixShellSandbox, StreamChunk
from strands.sandbox.errors import SandboxTimeoutError
from strands.session.repository_session_manager import RepositorySessionManager
from strands.session.session_repository import SessionRepository
from strands.types.session import Session, SessionAgent, SessionMessage
from strands.types.tools import AgentTool
from strands.vended_tools.file_editor import make_file_editor
from strands.vended_tools.shell import make_shell
from strands.vended_tools.shell.types import SANDBOX_SHELL_DESCRIPTION

import foldspace.sync
from foldspace import FoldspaceError, InfrastructureError
from foldspace._background import LOOP
from foldspace._thread import ThreadLog, Turn
from foldspace.types import Command, PositionLike

if TYPE_CHECKING:
    from strands.multiagent.base import MultiAgentBase
    from strands.types.agent import LocalAgent


class FoldspaceSandbox(PosixShellSandbox):
    """The workspace of a session: commands and file operations are calls in its log. Agents get its shell and editor."""

    def __init__(self, session: foldspace.sync.Session) -> None:
        self.session = session
        """The session."""

    async def execute_streaming(
        self,
        command: str,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[StreamChunk | ExecutionResult, None]:
        """Runs a command, and yields its output at its end."""
        del kwargs
        core, place = self.session._own, ""
        words: Command = command
        if cwd:
            place, words = await LOOP.join(core.absolute.command_in(cwd, ["/bin/sh", "-c", command]))
        # The server's shortest limit is a second.
        limit = None if timeout is None else max(1.0, timeout)
        ran = await LOOP.join(core.run(words, cwd=place, env=env, timeout=limit))
        if ran.timed_out:
            raise SandboxTimeoutError(timeout, ran.stdout, ran.stderr)
        if ran.stdout:
            yield StreamChunk(ran.stdout)
        if ran.stderr:
            yield StreamChunk(ran.stderr, "stderr")
        yield ExecutionResult(ran.exit_code, ran.stdout, ran.stderr)

    async def read_file(self, path: str, **kwargs: Any) -> bytes:
        """Reads a file."""
        try:
            return await LOOP.join(self.session._own.absolute.read(path))
        except InfrastructureError:
            raise
        except FoldspaceError as error:
            raise FileNotFoundError(str(error)) from error

    async def write_file(self, path: str, content: bytes, **kwargs: Any) -> None:
        """Writes a file, and creates its missing parent directories."""
        try:
            await LOOP.join(self.session._own.absolute.write(path, content))
        except InfrastructureError:
            raise
        except FoldspaceError as error:
            raise OSError(str(error)) from error

    def get_tools(self) -> list[AgentTool]:
        """Returns a shell and an editor of the workspace, as other sandboxes of Strands do."""
        root = self.session.absolute.root()
        return [
            make_file_editor(sandbox=self, name="sandbox_file_editor"),
            make_shell(
                sandbox=self,
                name="sandbox_shell",
                description=f"{SANDBOX_SHELL_DESCRIPTION} Working directory: {root}.",
            ),
        ]


class FoldspaceSessionManager(RepositorySessionManager, SessionRepository):
    """Stores conversations in the log of the session with the agents' files, so that rewinds and forks apply to both.

        manager = FoldspaceSessionManager(session)
        agent = Agent(model=model, sandbox=FoldspaceSandbox(session), session_manager=manager)
        agent("write a note")
        agent("write it again")
        manager.rewind(turns=1)
        agent("write something else")

    A rewind also takes the agents of the manager back. A session may have several conversations, each with its own
    ``session_id`` and agents.
    """

    def __init__(self, workspace: foldspace.sync.Session, session_id: str = "main") -> None:
        self.workspace = workspace
        """The session with the files and the conversations. (``session`` is Strands' own document.)"""
        self._log = ThreadLog(workspace._own)
        self._agents: list[LocalAgent] = []
        super().__init__(session_id=session_id, session_repository=self)

    def initialize(self, agent: LocalAgent, **kwargs: Any) -> None:
        """Restores an agent, or stores a new one."""
        super().initialize(agent, **kwargs)
        self._agents.append(agent)

    def turns(self, agent_id: str = "default") -> list[Turn]:
        """Returns the turns of an agent, oldest first, each with the position before it."""
        return LOOP.wait(self._log.turns(_name(self.session_id, agent_id)))

    def rewind(
        self,
        turns: int | None = None,
        *,
        to: PositionLike | None = None,
        agent_id: str = "default",
        force: bool = False,
    ) -> Any:
        """Rewinds all conversations and files by a number of turns of an agent, one by default, or to a position. The
        rewind is an event, and can be undone. ``force`` works as in ``Session.rewind``.

        Raises ``NotFoundError`` if there are fewer turns or no such position, ``RefusedError`` if it would lose files.
        """
        rewound = LOOP.wait(self._log.rewind(_name(self.session_id, agent_id), turns, to, force=force))
        agents, self._agents = self._agents, []
        super().__init__(session_id=self.session_id, session_repository=self)
        for agent in agents:
            agent.messages = []
            self.initialize(agent)
        return rewound

    def fork(self, *, at: PositionLike | None = None, name: str | None = None) -> FoldspaceSessionManager:
        """Forks conversations and files, now or at a position, such as a turn's, for new agents."""
        (fork,) = self.workspace.fork(at=at, name=name)
        return FoldspaceSessionManager(fork, self.session_id)

    # -- the repository: an entry for each version of a document

    def _documents(self, kind: str, *names: str) -> list[Any]:
        entries = LOOP.wait(self._log.entries(_name(*names)))
        return [each.value[kind] for each in entries if kind in each.value]

    def _add(self, kind: str, document: Any, *names: str, starts_turn: bool = False) -> None:
        LOOP.wait(self._log.add(_name(*names), [{kind: document}], lambda *_: starts_turn))

    def create_session(self, session: Session, **kwargs: Any) -> Session:
        """Stores a new session."""
        self._add("session", session.to_dict(), session.session_id)
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:
        """Returns a session."""
        found = self._documents("session", session_id)
        return Session.from_dict(found[-1]) if found else None

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Stores a new agent."""
        self._add("agent", session_agent.to_dict(), session_id, session_agent.agent_id)

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:
        """Returns an agent."""
        found = self._documents("agent", session_id, agent_id)
        return SessionAgent.from_dict(found[-1]) if found else None

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Stores the present state of an agent."""
        self.create_agent(session_id, session_agent)

    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """Stores a new message. A turn starts with a user's message that is not a result of tools."""
        message = session_message.message
        starts_turn = message["role"] == "user" and not any("toolResult" in each for each in message["content"])
        self._add("message", session_message.to_dict(), session_id, agent_id, starts_turn=starts_turn)

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """Stores a redacted message. Earlier positions keep the original."""
        self._add("message", session_message.to_dict(), session_id, agent_id)

    def read_message(self, session_id: str, agent_id: str, message_id: int, **kwargs: Any) -> SessionMessage | None:
        """Returns a message."""
        return next((each for each in self.list_messages(session_id, agent_id) if each.message_id == message_id), None)

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **kwargs: Any
    ) -> list[SessionMessage]:
        """Lists messages of an agent."""
        latest = {each["message_id"]: each for each in self._documents("message", session_id, agent_id)}
        found = [SessionMessage.from_dict(latest[id]) for id in sorted(latest)]
        return found[offset : None if limit is None else offset + limit]

    def create_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:
        """Stores the state of a group of agents."""
        self._add("state", multi_agent.serialize_state(), session_id, "", multi_agent.id)

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **kwargs: Any) -> dict[str, Any] | None:
        """Returns the state of a group of agents."""
        found = self._documents("state", session_id, "", multi_agent_id)
        return found[-1] if found else None

    def update_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:
        """Stores the present state of a group of agents."""
        self.create_multi_agent(session_id, multi_agent)


def _name(*names: str) -> str:
    return json.dumps(names)
