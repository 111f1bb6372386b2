"""A session: a workspace with its history."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Literal, TypeVar

from foldspace import _models
from foldspace._absolute import AbsoluteFiles
from foldspace._http import Connection, events_of
from foldspace._progress import Progress
from foldspace._models import Annotation, Bisect, CallOutcome, DeclaredSlice, Event, Merge, Rerun, Rewind
from foldspace.errors import (
    BackendError,
    CommandFailedError,
    ConflictError,
    ConnectionLostError,
    EndingError,
    NotFoundError,
    OtherHostError,
    of_outcome,
    of_problem,
)
from foldspace._files import Files, ReadFiles, resumed, succeeded
from foldspace._mounts import mounted, mounts_of, unmount
from foldspace._past import SessionPast
from foldspace._ports import forwarded
from foldspace._process import Process, decoded
from foldspace._rollouts import Rollout, call_of, lists_of, rollouts_of
from foldspace._slices import TypedSlice
from foldspace.results import CommandResult
from foldspace.types import Ask, Call, Command, Identified, Limits, Options, Output, PositionLike, Question, Run

T = TypeVar("T")

_SESSION = "/v1/sessions/{session}"
# The limits of a `shell_execute` call; a process takes more. Linux limits one argument to 131,071 bytes.
_COMMAND_BYTES = 131_071
_STDIN_CHARS = 48_000
_DAY = 86_400.0
_PAGE = 500
# The pauses in seconds before a call is repeated after its answer was lost.
_PAUSES = (0.1, 0.5, 2.0)


class Rules:
    """Rules for the commands of a session's client."""

    def __init__(
        self,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        auto_confirm: bool = False,
        on_question: Ask | None = None,
        agent: str | None = None,
    ) -> None:
        self.allow = list(allow)
        self.deny = list(deny)
        self.auto_confirm = auto_confirm
        self.on_question = on_question
        self.agent = agent

    def document(self) -> dict[str, Any]:
        """Returns the fields of a request."""
        return {"allow": self.allow, "deny": self.deny, "auto_confirm": self.auto_confirm, "agent": self.agent}


class Snapshot:
    """A session as it was at a position; ``Session.at`` makes it.

        await session.files.write("a.txt", "one")
        before = session.at(await session.head())
        await session.files.write("a.txt", "two")
        assert await before.files.read("a.txt") == b"one"

    Its files and its state are read-only.
    """

    def __init__(self, connection: Connection, session: str, at: PositionLike) -> None:
        self._connection = connection
        self._session = session
        self._at = at

    @property
    def files(self) -> ReadFiles:
        """The files as they were."""
        return ReadFiles(self._connection, self._session, self._at)

    async def state(self, slice: str | None = None, *, pointer: str | None = None) -> Any:
        """Returns the state as it was: all slices, one slice, or a part of one."""
        return await _state(self._connection, self._session, slice, pointer, self._at)


class Session(SessionPast):
    """A session: a workspace with its history. ``Client.create`` and ``Client.open`` make it.

        ran = await session.run("echo one > a.txt; cat a.txt", check=True)
        assert ran.stdout == "one\\n"
        (child,) = await session.fork(name="try", limits={"calls": 5})
        await child.run("echo two > a.txt", check=True)
        assert (await session.merge(child))["outcome"] == "merged"
        await session.rewind(ran.finished)
        assert await session.files.read("a.txt") == b"one\\n"

    A position is an event number, -5 for five events ago, "10m" for ten minutes ago, or "tag:NAME". Errors are classes of
    ``foldspace.errors``: ``RefusedError`` for what may not be done, ``NotFoundError``, ``ConflictError`` and
    ``UnusableError`` for requests that don't fit, ``InfrastructureError`` for failures of the workspace or the server.
    """

    def __init__(self, connection: Connection, document: _models.Session, rules: Rules) -> None:
        super().__init__(connection, document["session"])
        self._document = document
        self._rules = rules
        self._absolute: AbsoluteFiles | None = None

    @property
    def id(self) -> str:
        """The session's id: 32 hexadecimal digits."""
        return self._document["session"]

    @property
    def name(self) -> str:
        """The session's name."""
        return self._document["name"]

    @property
    def backend(self) -> str:
        """The backend of its workspace."""
        return self._document["backend"]

    @property
    def parent(self) -> str | None:
        """The id of the session that it is a child of; ``None`` for a root."""
        return self._document["parent"]

    @property
    def agent(self) -> str | None:
        """The agent that its calls name; ``None`` without one."""
        return self._rules.agent

    @property
    def files(self) -> Files:
        """Its present files."""
        return Files(self._connection, self.id, self._rules.agent)

    @property
    def absolute(self) -> AbsoluteFiles:
        """Files by the absolute paths that commands use, inside and outside of the workspace."""
        if self._absolute is None:
            self._absolute = AbsoluteFiles(self)
        return self._absolute

    async def show(self) -> _models.Session:
        """Returns its present description."""
        self._document = await self._connection.document("GET", _SESSION, session=self.id)
        return self._document

    async def head(self) -> int:
        """Returns the position of its last event."""
        return (await self.show())["events"]

    def at(self, position: PositionLike) -> Snapshot:
        """Returns the session as it was at a position."""
        return Snapshot(self._connection, self.id, position)

    async def run(
        self,
        command: Command,
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        stdin: str | bytes = b"",
        timeout: float | None = None,
        check: bool = False,
        on_output: Output | None = None,
        merge_output: bool = False,
    ) -> CommandResult:
        """Runs a command to its end. Cancelling the task cancels the command.

        - ``command``: a command line for ``/bin/sh -c``, or a program with its arguments.
        - ``cwd``: the directory, relative to the workspace; its root by default.
        - ``env``: additional environment variables.
        - ``stdin``: its standard input; without it standard input is empty.
        - ``timeout``: its time limit in seconds, from 1 to 86,400; without one it has no limit. After it the result has
          ``timed_out`` and the exit code 124.
        - ``check``: true to raise ``CommandFailedError`` if it fails. Otherwise a failed command has a result, too.
        - ``on_output``: receives output as it comes: ``"stdout"`` or ``"stderr"``, and the bytes.
        - ``merge_output``: true to merge standard error into standard output.

        Raises ``RefusedError`` if the policy or a person refuses it, its subclass ``OverLimitError`` if a limit of the
        session is used up, ``InvalidCallError`` for parameters out of range, and ``InfrastructureError`` if the
        workspace, the server or the store fails.
        """
        data = stdin.encode() if isinstance(stdin, str) else stdin
        if merge_output:
            command = _merged(command)
        text = _as_text(data)
        words = command if isinstance(command, str) else " ".join(command)
        if len(words.encode()) > _COMMAND_BYTES:
            (command, data), text = _by_input(command, data), None
        if text is None:
            process = await self.start(command, cwd=cwd, env=env, timeout=timeout, input=True)
            result = await process.feed_and_collect(data, on_output)
        else:
            params: dict[str, Any] = {"command": command if isinstance(command, str) else list(command), "cwd": cwd}
            params |= {"env": dict(env or {}), "stdin": text}
            result = await self._shell(params, timeout, on_output)
        if check and not result.ok:
            raise CommandFailedError(result)
        return result

    async def _shell(self, params: dict[str, Any], timeout: float | None, on_output: Output | None) -> CommandResult:
        if timeout is not None:
            params["timeout_seconds"] = timeout
        streams: dict[str, list[bytes]] = {"stdout": [], "stderr": []}

        def take(stream: str, data: bytes) -> None:
            streams[stream].append(data)
            if on_output:
                on_output(stream, data)

        body = {"tool": "shell_execute", "params": params, "all_output": True, "max_timeout_seconds": _DAY}
        outcome = await self._stream(body | {"no_time_limit": timeout is None, "timeout_seconds": _DAY}, take, "run")
        if outcome["status"] != "ok":
            raise of_outcome(outcome)
        ran: dict[str, Any] = outcome["result"]
        if ran.get("lost"):
            raise BackendError("the container ended under the command")
        return CommandResult(
            stdout_bytes=b"".join(streams["stdout"]),
            stderr_bytes=b"".join(streams["stderr"]),
            exit_code=ran["exit_code"],
            timed_out=ran["timed_out"],
            signal=ran.get("signal"),
            call=outcome["call"],
            finished=outcome["finished"],
            seconds=ran["duration_seconds"],
            note=ran.get("note"),
        )

    async def _stream(self, body: dict[str, Any], take: Output, what: str) -> CallOutcome:
        """Makes a call, and repeats the request if its answer is lost: the server makes the call once."""
        body = {"call_id": str(uuid.uuid4())} | body
        shown: Counter[str] = Counter()
        for pause in (*_PAUSES, None):
            begun = dict(shown)

            def rest(stream: str, data: bytes, begun: dict[str, int] = begun) -> None:
                # The recorded output begins with what was shown.
                known = min(begun.get(stream, 0), len(data))
                begun[stream] = begun.get(stream, 0) - known
                shown[stream] += len(data) - known
                if data[known:]:
                    take(stream, data[known:])

            closings = self._connection.closings
            try:
                return await self._stream_once(body, rest, what)
            except (ConnectionLostError, OtherHostError, EndingError):
                self._connection.check_open(closings)
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        raise AssertionError

    async def _stream_once(self, body: dict[str, Any], take: Output, what: str) -> CallOutcome:
        """Makes a call, answers its questions, and streams its output to ``take``."""
        line = Progress(what, self._connection.progress)
        headers = {"accept": "text/event-stream"}
        body = self._rules.document() | body
        outcome: CallOutcome | None = None
        try:
            async with self._connection.response(
                "POST", _SESSION + "/calls", body=body, headers=headers, session=self.id
            ) as response:
                # Reads to the end, so that the connection can be reused.
                async for event in events_of(response):
                    if event.name == "output":
                        line.close()
                        take(event.data["stream"], decoded(event.data))
                    elif event.name == "progress":
                        line.say(str(event.data.get("text", "")))
                    elif event.name == "question":
                        await self._answer(event.data)
                    elif event.name == "outcome":
                        outcome = event.data
                    elif event.name == "problem":
                        raise of_problem(event.data)
        finally:
            line.close()
        if outcome is None:
            raise ConnectionLostError("the server hung up before the outcome")
        return outcome

    async def _answer(self, asked: dict[str, Any]) -> None:
        ask = self._rules.on_question
        reason = "the client does not ask: pass allow=[...], auto_confirm=True or on_question"
        body = {"answer": "refuse", "reason": reason}
        if ask:
            question = Question(asked["command"], asked["programs"], asked["call"], asked)
            body = {"answer": ask(question)}
        template = _SESSION + "/calls/{call}/answer"
        # Another client may have answered first, or the call may have ended.
        with contextlib.suppress(ConflictError, NotFoundError):
            await self._connection.document("POST", template, body=body, session=self.id, call=asked["call"])

    async def start(
        self,
        command: Command,
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        input: bool = False,
        window: tuple[int, int] | None = None,
        timeout: float | None = None,
    ) -> Process:
        """Starts a command in the background, and returns at once.

        - ``stdin``: the beginning of its standard input, at most 48,000 characters.
        - ``input``: true to keep its standard input open for ``Process.send``.
        - ``window``: rows and columns, to run it in a terminal.
        - ``timeout``: its time limit in seconds, from 1 to 86,400; without one it has no limit.

        Raises ``RefusedError`` if the policy refuses it, ``UnusableError`` for parameters out of range.
        """
        body: dict[str, Any] = {"stdin": stdin, "input": input, "timeout_seconds": timeout}
        if window is not None:
            body["window"] = {"rows": window[0], "columns": window[1]}
        return await self._start(command, cwd, env, body)

    async def _start(
        self, command: Command, cwd: str, env: Mapping[str, str] | None, body: dict[str, Any]
    ) -> Process:
        body |= {"command": command if isinstance(command, str) else list(command), "cwd": cwd, "env": dict(env or {})}
        document = await self._connection.document(
            "POST", _SESSION + "/processes", body=self._rules.document() | body, session=self.id
        )
        return Process(self._connection, self.id, document)

    async def processes(self) -> list[Process]:
        """Lists background processes that are running or ended recently."""
        documents = await self._connection.document("GET", _SESSION + "/processes", session=self.id)
        return [Process(self._connection, self.id, document) for document in documents]

    async def process(self, number: int) -> Process:
        """Returns a process by its number."""
        template = _SESSION + "/processes/{process}"
        document = await self._connection.document("GET", template, session=self.id, process=number)
        return Process(self._connection, self.id, document)

    async def start_service(
        self,
        name: str,
        command: Command,
        *,
        port: int | None = None,
        prints: str | None = None,
        after: Sequence[str] = (),
        restart: bool = False,
        ready_seconds: float = 30.0,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Process:
        """Starts a command with a name in the background, such as a database, and waits until it is ready.

        - ``name``: 1 to 64 letters, digits, ``-``, ``_`` and ``.``. Only one process of that name runs.
        - ``port``: it is ready when this TCP port accepts a connection.
        - ``prints``: it is ready when it has printed this text. Without both, it is ready if it still runs after 0.2 s.
        - ``after``: names of services that must run before it.
        - ``restart``: true to start it again for the next command after a rewind, in a fork, and after a restart of the
          server.
        - ``ready_seconds``: the longest wait, from 0 to 300. A service that is not ready by then runs on:
          ``ready`` of its document is false.

        Raises ``RefusedError`` if it ends before it is ready, with the last of its output, if a service of that name
        runs, if the port is taken, if a service of ``after`` does not run, or if the policy refuses it.
        """
        service = {"name": name, "port": port, "prints": prints, "after": list(after), "restart": restart}
        return await self._start(command, cwd, env, {"service": service | {"ready_seconds": ready_seconds}})

    async def services(self) -> list[_models.Service]:
        """Lists the services that were started and not stopped, in the order of their starts."""
        return await self._connection.document("GET", _SESSION + "/services", session=self.id)

    async def stop_service(self, name: str) -> None:
        """Stops a service for good: SIGTERM, and SIGKILL after 10 seconds. Raises ``NotFoundError`` if there is none."""
        await self._connection.document("DELETE", _SESSION + "/services/{name}", session=self.id, name=name)

    @contextlib.asynccontextmanager
    async def forward(self, port: int, *, local_port: int = 0) -> AsyncGenerator[str, None]:
        """Makes a TCP port of its container available on this machine, and yields the address, such as
        ``"127.0.0.1:40001"``. The container needs no network for it.

            async with session.forward(8000) as address:
                await page.goto(f"http://{address}/")

        ``local_port`` is the port of 127.0.0.1 to listen at; a free one by default. Commands of the backend ``host`` use
        this machine's own ports: there the address is 127.0.0.1 and ``port``, and ``local_port`` is ignored.

        Raises ``RefusedError`` if nothing listens at the port of the container, or the session runs no commands.
        """
        on_host = self.backend == "host"
        async with forwarded(self._connection, self.id, port, local_port, on_host=on_host) as address:
            yield address

    @contextlib.asynccontextmanager
    async def mounted(self, *, at: PositionLike | None = None, all: bool = False) -> AsyncGenerator[Path, None]:
        """Mounts its files as a read-only directory on the server's machine, and yields the directory.

            async with session.mounted(at="tag:before") as before:
                subprocess.run(["diff", "-r", before, "."])

        - ``at``: a fixed position of the session. By default the directory follows the session.
        - ``all``: true for the hidden directories ``.at/POSITION``, ``.call/N/before``, ``.call/N/after`` and
          ``.sessions/NAME`` in it.

        Equal mounts share one directory. The last context of the client unmounts it at its end, also for other programs
        that use it. Processes keep their open files. A mount that existed before the client's first context
        stays.

        Raises ``NotFoundError`` if there is no such position, ``BackendError`` if the machine has no FUSE.
        """
        async with mounted(self._connection, self.id, at, all) as directory:
            yield directory

    async def mounts(self) -> list[_models.Mount]:
        """Lists all mounts of the session, including those that other programs made."""
        return await mounts_of(self._connection, self.id)

    async def unmount(self, directory: str | Path, *, lazy: bool = False) -> None:
        """Unmounts a mount of the session. With ``lazy``, processes may use it; they keep their open files.

        Raises ``NotFoundError`` if the session has no mount there, ``RefusedError`` if a process uses it.
        """
        await unmount(self._connection, self.id, directory, lazy)

    async def call(
        self,
        tool: str,
        params: Mapping[str, Any] | None = None,
        *,
        on_output: Output | None = None,
        timeout: float | None = None,
        on_failure: Literal["keep", "undo"] = "keep",
    ) -> CallOutcome:
        """Makes a tool call, and raises if it fails. ``timeout`` is the time limit of the whole call in seconds, from 0.1
        to 86,400; the tool's own by default.

        With ``on_failure="undo"`` a call that fails, or whose command exits non-zero, leaves the files as they were.
        """
        body: dict[str, Any] = {"tool": tool, "params": dict(params or {}), "timeout_seconds": timeout, "all_output": True}
        body["on_failure"] = on_failure
        return succeeded(await self._stream(body, on_output or _ignore, tool))

    async def tools(self) -> list[_models.Tool]:
        """Lists its tools."""
        return await self._connection.document("GET", "/v1/tools", query={"session": self.id})

    async def cancel(self, call: int) -> None:
        """Cancels a call in flight."""
        await self._connection.document("DELETE", _SESSION + "/calls/{call}", session=self.id, call=call)

    async def fork(
        self,
        *,
        count: int | None = None,
        at: PositionLike | None = None,
        name: str | None = None,
        agent: str | None = None,
        limits: Limits | None = None,
        policy: _models.ToolPolicy | None = None,
        mount: bool = False,
    ) -> list[Session]:
        """Forks it, now or at a position, and returns the forks. If one fork fails, none is created.

        - ``count``: the number of forks, from 1 to 1,000; one by default.
        - ``at``: the position; the present by default.
        - ``name``: the name of the only fork. With ``count`` it is a prefix: the forks are numbered from 1. By default
          they have the session's name and free numbers.
        - ``agent``: the agent that works in the forks, by default the one of this session. Their calls name it.
        - ``limits``: limits of each fork, such as ``{"calls": 20}``.
        - ``policy``: a policy for the forks' tools, in addition to the session's own.
        - ``mount``: true for forks of a session on the host with their files in mounts, which share files instead of
          copying them. The server must be root.

        Raises ``ConflictError`` if a name is taken, ``NotFoundError`` if there is no such position.
        """
        if count is None and name is not None:
            return [await self.clone(at=at, name=name, agent=agent, limits=limits, policy=policy, mount=mount)]
        agent = agent or self._rules.agent
        body = {"count": count or 1, "at": at, "name": name, "agent": agent, "limits": limits or {}, "policy": policy}
        body["mount"] = mount
        forks: _models.Forks = await self._connection.document(
            "POST", _SESSION + "/forks", body=body, what="fork", session=self.id
        )
        return [await self._child(child) for child in forks["children"]]

    async def clone(
        self,
        *,
        isolation: Literal["fork", "full", "shared"] = "fork",
        at: PositionLike | None = None,
        name: str | None = None,
        agent: str | None = None,
        limits: Limits | None = None,
        policy: _models.ToolPolicy | None = None,
        mount: bool = False,
    ) -> Session:
        """Clones it.

        - ``isolation``: ``fork``, with its history and files; ``full``, with fresh copies of its mounts only; ``shared``,
          the session itself for another agent. A shared clone has the same log and files, and the calls of a session run
          one after another, so commands of its agents never run at the same time; with forks they do.
        - ``at``: the position to fork at; the present by default.
        - ``name``: the clone's name; by default the session's name and a free number.
        - ``agent``: the agent that works in it; required for ``shared``.
        - ``limits``: its limits, such as ``{"calls": 20}``.
        - ``policy``: a policy for its tools, in addition to the session's own; not for ``shared``.
        - ``mount``: true for a fork of a session on the host with its files in a mount; see ``fork``.

        Raises ``ConflictError`` if the name is taken, ``UnusableError`` for parameters that don't fit together.
        """
        body = {"isolation": isolation, "at": at, "name": name, "agent": agent, "limits": limits or {}, "policy": policy}
        body["mount"] = mount
        child = await self._connection.document("POST", _SESSION + "/children", body=body, what="clone", session=self.id)
        return await self._child(child)

    async def children(self) -> list[Session]:
        """Lists its children, oldest first: forks and full clones that were not removed. ``agent`` of each is the agent
        that it was created for. A shared clone is not a child: it is the session itself."""
        started = await self.log(kind="ChildStarted")
        agents: dict[str, str] = {each["event"]["child"]: each["event"].get("agent", "") for each in started}
        listed = await all_sessions(self._connection)
        return [self._related(each, agents.get(each["session"])) for each in listed if each["parent"] == self.id]

    def _related(self, document: _models.Session, agent: str | None) -> Session:
        rules = self._rules
        own = Rules(rules.allow, rules.deny, rules.auto_confirm, rules.on_question, agent or rules.agent)
        return Session(self._connection, document, own)

    async def _child(self, child: _models.Child) -> Session:
        return self._fork(child["session"], child["name"], child["backend"], child["at"] or 0, child["agent"])

    def _fork(self, id: str, name: str, backend: str, events: int, agent: str | None) -> Session:
        document: _models.Session = {
            "session": id,
            "name": name,
            "parent": self.id,
            "backend": backend,
            "events": events,
            "calls": None,
            "created": "",
            "updated": "",
        }
        return self._related(document, agent)

    async def merge(
        self,
        child: str | Identified,
        *,
        theirs: Sequence[str] = (),
        ours: Sequence[str] = (),
        generated: Sequence[str] = (),
        dry_run: bool = False,
    ) -> Merge:
        """Merges a child's changes. ``theirs`` and ``ours`` are paths and globs (``src``, ``*.lock``) that resolve
        conflicts at or below them for that side; a path or glob without a match is an error. Open conflicts leave the
        session unchanged, with ``outcome`` ``conflicted``.

        Generated files don't conflict: the session's version stays. They are ``__pycache__`` and other caches of tools,
        files that ``.gitignore`` files ignore, and files that match the globs of ``generated``. ``dry_run`` only reports.

        Raises ``NotFoundError`` if there is no such child, ``UnusableError`` for a path or glob without a match.
        """
        name = child if isinstance(child, str) else child.id
        body = {"child": name, "theirs": list(theirs), "ours": list(ours), "dry_run": dry_run, "agent": self._rules.agent}
        body["generated"] = list(generated)
        return await self._connection.document("POST", _SESSION + "/merge", body=body, what="merge", session=self.id)

    async def dispatch(
        self,
        children: Sequence[_models.NewSubagent],
        *,
        parallel: int | None = None,
        merge: bool = False,
        theirs: Sequence[str] = (),
        ours: Sequence[str] = (),
    ) -> _models.Dispatched:
        """Makes calls in a batch of new children, ``parallel`` children at a time, and returns the result of each.

        - ``children``: 1 to 100 dicts with ``calls`` (a list of ``{"tool": ..., "params": {...}}``), ``name``,
          ``isolation``, ``at``, ``agent``, ``limits``, ``go_on`` (to continue after a failed call) and ``annotations``.
        - ``parallel``: the number of children that work at the same time, from 1 to 16; 4 by default.
        - ``merge``: true to merge the children that are done, in their order.
        - ``theirs``, ``ours``: paths and globs for conflicts, as in ``merge()``.

        A child that fails raises nothing: its ``status`` and ``reason`` say so. Cancelling the task cancels all children.
        """
        body: dict[str, Any] = {"children": list(children), "merge": merge}
        body |= {"theirs": list(theirs), "ours": list(ours)} | ({"parallel": parallel} if parallel is not None else {})
        rules = self._rules
        body |= {"allow": rules.allow, "deny": rules.deny, "auto_confirm": rules.auto_confirm}
        return await self._connection.document(
            "POST", _SESSION + "/subagents", body=body, what="dispatch", session=self.id
        )

    async def rollouts(
        self,
        run: Run,
        *,
        count: int | None = None,
        at: PositionLike | None = None,
        score: Call | None = None,
        keep: int | None = None,
        parallel: int | None = None,
        name: str | None = None,
        agent: str | None = None,
        limits: Limits | None = None,
        policy: _models.ToolPolicy | None = None,
        mount: bool = False,
    ) -> AsyncGenerator[Rollout, None]:
        """Forks it at one position, makes calls in each fork, and yields each rollout as it ends. The score is recorded as
        the fork's annotation ``score``.

            tries = [["seq 2 > list.txt"], ["seq 3 > list.txt"]]
            rolled = [each async for each in session.rollouts(tries, score="wc -l < list.txt", keep=1)]
            (best,) = [each for each in rolled if each.kept]
            assert best.score == 3
            await session.merge(best.session)

        - ``run``: a command or a call, or a list of these, for all rollouts; or a list of lists, one for each. A rollout
          fails at its first failed call, or at a command that exits non-zero or times out.
        - ``count``: the number of rollouts, from 1 to 1,000; by default the number of lists in ``run``.
        - ``at``: the position to fork at; the present by default.
        - ``score``: a command that prints the score as the last line of its output; made after the calls, also if one
          failed. Without it the score is 1 if all calls succeeded, else 0.
        - ``keep``: the number of rollouts with the highest scores whose sessions stay; all by default. 0 removes all.
        - ``parallel``: the number of rollouts that work at the same time, from 1 to 64; 4 by default.
        - ``name``: the beginning of the forks' names; ``agent``, ``limits``, ``policy`` and ``mount`` are as in ``fork``.

        A rollout that fails raises nothing: its ``status`` and ``reason`` say so. Closing the generator, or cancelling
        the task, cancels the other rollouts. Forks of rollouts that ended stay, as far as ``keep`` allows.

        Raises ``UnusableError`` for parameters that don't fit, ``ConflictError`` if a name is taken, ``NotFoundError`` if
        there is no such position; then there are no forks.
        """
        rules = self._rules
        body: dict[str, Any] = {"run": lists_of(run), "count": count, "at": at, "keep": keep, "name": name, "agent": agent}
        body |= {"limits": limits or {}, "policy": policy, "mount": mount, "score": score and call_of(score)}
        body |= {"allow": rules.allow, "deny": rules.deny, "auto_confirm": rules.auto_confirm}
        body |= {"parallel": parallel} if parallel is not None else {}

        def fork_of(document: _models.Rollout) -> Session:
            return self._fork(document["session"], document["name"], self.backend, 0, agent)

        async with contextlib.aclosing(rollouts_of(self._connection, self.id, body, fork_of)) as ended:
            async for rollout in ended:
                yield rollout

    async def apply(
        self,
        to: str | None = None,
        *,
        take: Sequence[str] = (),
        keep: Sequence[str] = (),
        generated: Sequence[str] = (),
        dry_run: bool = False,
    ) -> _models.Applied:
        """Merges its changes into a directory of this machine, by default the directory that it started from.

        ``take`` resolves conflicts for the session's side, ``keep`` for the directory's, as in ``merge``.
        """
        body: dict[str, Any] = {"to": to, "take": list(take), "keep": list(keep), "dry_run": dry_run}
        body["generated"] = list(generated)
        if to is not None:
            body["allow_roots"] = [to]
        return await self._connection.document("POST", _SESSION + "/apply", body=body, what="apply", session=self.id)

    async def rewind(
        self, to: PositionLike, *, force: bool = False, keep_earlier: bool = False, git: bool = False, dry_run: bool = False
    ) -> Rewind:
        """Rewinds state and files to a position. The rewind is an event, and can be undone.

        - ``force``: true to proceed where it would refuse: external changes are recorded first, entries that can't be
          restored stay, and files that were in a directory of yours before the session began are removed.
        - ``keep_earlier``: true to protect the latter, even with ``force``.
        - ``git``: true to also rewind the ``.git`` of a directory of yours, with the commits made since.
        - ``dry_run``: true to only report what would happen.

        Raises ``NotFoundError`` if there is no such position, ``RefusedError`` if it would lose files: ``problem`` of the
        error has these entries in ``rewind``.
        """
        body = {"to": to, "force": force, "keep_earlier": keep_earlier, "git": git, "dry_run": dry_run}
        return await self._connection.document("POST", _SESSION + "/rewind", body=body, what="rewind", session=self.id)

    async def undo(
        self,
        *,
        call: int | None = None,
        run: str | None = None,
        to: PositionLike | None = None,
        external: bool | int | None = None,
        redo: bool = False,
        overwrite: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> _models.Undone:
        """Takes back changes that calls made to files, and keeps all other changes; by default of the latest call that is
        not undone. ``left`` of the result lists changes that stay, with a reason for each path.

        - ``call``: the call to undo.
        - ``run``: an agent's run whose calls to undo: its id, the beginning of it, or ``last``.
        - ``to``: a position; all calls after it are undone.
        - ``external``: true for the latest changes made outside of any call, or a position among such changes.
        - ``redo``: true to undo the latest undo.
        - ``overwrite``: true to restore entries even if others have changed them since.
        - ``force``: true to also remove entries that can't be restored later.
        - ``dry_run``: true to only report what would happen.
        """
        subject = {"call": call, "run": run, "to": to, "external": external, "redo": redo}
        body = {**subject, "overwrite": overwrite, "force": force, "dry_run": dry_run}
        return await self._connection.document("POST", _SESSION + "/undo", body=body, what="undo", session=self.id)

    async def revert(
        self, paths: list[str], at: PositionLike, *, force: bool = False, dry_run: bool = False
    ) -> _models.Undone:
        """Restores paths, and everything below them, as of a position. Newer entries stay."""
        body = {"paths": paths, "to": at, "force": force, "dry_run": dry_run}
        return await self._connection.document("POST", _SESSION + "/undo", body=body, what="undo", session=self.id)

    async def bisect(
        self,
        command: Command | None = None,
        *,
        slice: str | None = None,
        good: PositionLike | None = None,
        bad: PositionLike | None = None,
        jobs: int = 1,
        timeout: float | None = None,
    ) -> Bisect:
        """Finds the first change after which a command fails, or a predicate over slices holds.

        - ``command``: succeeds at the good position and fails at the bad one; exit code 125 skips a position.
        - ``slice``: instead of a command, a predicate such as ``count(VirtualFileSystem) > 10``.
        - ``good``, ``bad``: the ends of the search; by default before the first call, and the present.
        - ``jobs``: the number of concurrent runs, from 1 to 64.
        - ``timeout``: the time limit of each run in seconds, from 0.1 to 600, the default.

        Raises ``RefusedError`` if the ends are not good and bad, or the policy refuses the command.
        """
        probe = command if command is None or isinstance(command, str) else list(command)
        body: dict[str, Any] = {"command": probe, "slice": slice, "good": good, "bad": bad, "jobs": jobs}
        body |= {"timeout_seconds": timeout, "allow": self._rules.allow, "auto_confirm": self._rules.auto_confirm}
        return await self._connection.document("POST", _SESSION + "/bisect", body=body, what="bisect", session=self.id)

    async def rerun(
        self,
        *,
        until: PositionLike | None = None,
        backend: str | None = None,
        options: Options | None = None,
        keep: str | None = None,
        rules: Mapping[str, Any] | None = None,
        repeat_effects: bool = False,
        offline: bool = False,
    ) -> Rerun:
        """Reruns its recorded calls in a fresh session, and returns every difference. The fresh session has the same
        kind of workspace, unless ``backend`` selects another, and is discarded, unless ``keep`` names it. ``rules``
        describe accepted differences: ``texts``, ``ignore_fields``, ``ignore_paths``, ``text_files``. Raises
        ``RefusedError`` if effects outside of the workspace would take place again, unless ``repeat_effects`` is true.
        ``offline`` replays recorded HTTP responses, and refuses all other connections."""
        body: dict[str, Any] = {"until": until, "backend": backend, "options": dict(options or {}), "keep": keep}
        body |= {"rules": dict(rules or {}), "allow": self._rules.allow, "auto_confirm": self._rules.auto_confirm}
        body |= {"repeat_effects": repeat_effects, "offline": offline}
        return await self._connection.document("POST", _SESSION + "/rerun", body=body, what="rerun", session=self.id)

    async def events(
        self,
        start: int | None = None,
        *,
        kind: str | None = None,
        agent: str | None = None,
        tool: str | None = None,
        path: str | None = None,
    ) -> AsyncIterator[Event]:
        """Yields its events from a position on, then new events until it is removed. Reconnects if necessary.

        ``kind`` (several with commas), ``agent``, ``tool`` and ``path`` (a glob) select events.
        """
        query = {"from": start, "kind": kind, "agent": agent, "tool": tool, "path": path}
        async for name, event in resumed(self._connection, _SESSION + "/events/stream", query, session=self.id):
            if name != "end":
                yield event

    async def state(self, slice: str | None = None, *, pointer: str | None = None) -> Any:
        """Returns its state: all slices, one slice, or a part of one."""
        return await _state(self._connection, self.id, slice, pointer, None)

    async def emit(
        self, kind: str, data: Any = None, *, call: int | None = None, call_id: str | None = None
    ) -> int:
        """Records an event of a kind of your own, and returns its position.

        ``kind`` has letters, digits, ``.``, ``_``, ``-`` or ``/``, and begins with a lower-case letter. ``data`` is
        JSON of at most 1 MiB, not counting long strings. ``call`` names the call that the event belongs to. A second
        event with the same ``call_id`` (1 to 200 bytes) is not recorded.
        """
        body = {"kind": kind, "data": data, "call": call, "agent": self._rules.agent, "call_id": call_id}
        recorded: _models.RecordedRange
        recorded = await self._connection.document("POST", _SESSION + "/events", body=body, session=self.id)
        return recorded["last"]

    async def emit_all(self, events: Sequence[tuple[str, Any]], *, call: int | None = None) -> tuple[int, int]:
        """Records events, each a kind and its data, in one commit; returns the first and the last position."""
        listed = [{"kind": kind, "data": data} for kind, data in events]
        body = {"events": listed, "call": call, "agent": self._rules.agent}
        recorded = await self._connection.document("POST", _SESSION + "/events", body=body, session=self.id)
        return recorded["first"], recorded["last"]

    async def declare(
        self,
        name: str,
        *rules: Mapping[str, Any],
        merge: Literal["ours", "theirs", "union", "refuse"] = "ours",
        on_rewind: Literal["restore", "keep"] = "restore",
    ) -> DeclaredSlice:
        """Declares a slice of your own, and folds the past into it; the same declaration again changes nothing.

        Each rule is a mapping such as ``{"kinds": ["plan.step"], "fold": "latest_by", "key": "/id"}``. ``state(name)``
        then returns the slice's value, also at earlier positions since.
        """
        body = {"rules": [dict(rule) for rule in rules], "merge": merge, "on_rewind": on_rewind, "agent": self._rules.agent}
        path = _SESSION + "/reducers/{name}"
        return await self._connection.document("PUT", path, body=body, session=self.id, name=name)

    async def declared(self) -> list[DeclaredSlice]:
        """Lists the declared slices, without their values."""
        return await self._connection.document("GET", _SESSION + "/reducers", session=self.id)

    async def undeclare(self, name: str) -> None:
        """Removes a declared slice; earlier positions keep it."""
        await self._connection.document("DELETE", _SESSION + "/reducers/{name}", session=self.id, name=name)

    async def set_policy(self, policy: _models.ToolPolicy) -> _models.Policies:
        """Sets its policy for tools: which tools may run, on which paths, in which order and how often.

        A call that breaks a rule raises ``RefusedError``, whose text names the rule.
        """
        return await self._connection.document("PUT", _SESSION + "/policy", body=policy, session=self.id)

    async def policy(self) -> _models.Policies:
        """Returns its policy for tools, and those of its ancestors."""
        return await self._connection.document("GET", _SESSION + "/policy", session=self.id)

    async def remove_policy(self) -> None:
        """Removes its policy for tools; those of its ancestors stay."""
        await self._connection.document("DELETE", _SESSION + "/policy", session=self.id)

    def slice(
        self,
        *,
        fold: Literal["append", "latest", "latest_by"] = "append",
        key: str | None = None,
        kind: str | None = None,
        name: str | None = None,
        max: int | None = None,
        merge: Literal["ours", "theirs", "union", "refuse"] = "ours",
    ) -> Callable[[type[T]], TypedSlice[T]]:
        """Makes a class the type of a slice of your own. It is declared with its first use.

            @session.slice(fold="latest_by", key="/id")
            @dataclass
            class Step:
                id: int
                status: str

            await Step.emit(id=1, status="open")
            await Step.get()        # {"1": Step(id=1, status="open")}

        The class is a dataclass, a pydantic model, or any class that takes the fields by name. ``kind`` is the name of
        the events, by default ``own.`` with the name of the class.
        """

        def typed(item: type[T]) -> TypedSlice[T]:
            called = name or item.__name__
            rule = {"kinds": [kind or f"own.{item.__name__}"], "fold": fold, "key": key, "max": max}
            return TypedSlice(self, item, called, {field: value for field, value in rule.items() if value is not None}, merge)

        return typed

    async def record_effect(
        self,
        what: str,
        target: str = "",
        *,
        outcome: Literal["done", "failed", "unknown"] = "done",
        undo: str = "",
        call: int | None = None,
    ) -> int:
        """Records an effect outside of the workspace, which no rewind takes back, and returns its position.

            await session.record_effect("deploy", "staging", call=ran.call)

        - ``what``: the action, such as ``"git push"``; 1 to 200 characters.
        - ``target``: the place, such as a remote or a URL; at most 1,000 characters.
        - ``outcome``: ``unknown`` if it may have taken place.
        - ``undo``: advice about undoing it; at most 1,000 characters.
        - ``call``: the call that made it. A second record for this call, with the same ``what`` and ``target``, settles an
          unknown outcome.

        Raises ``NotFoundError`` if there is no such call, ``UnusableError`` for parameters out of range.
        """
        body = {"what": what, "target": target, "outcome": outcome, "undo": undo, "call": call, "agent": self._rules.agent}
        recorded: _models.RecordedSeq
        recorded = await self._connection.document("POST", _SESSION + "/effects", body=body, session=self.id)
        return recorded["seq"]

    async def annotate(
        self,
        name: str,
        *,
        score: float | None = None,
        note: str | None = None,
        value: Any = None,
        at: PositionLike | None = None,
    ) -> int:
        """Records a score, a note or a value for a position, and returns the annotation's own position.

        At least one of the three is required. ``at`` is the present by default.
        """
        body = {"name": name, "score": score, "note": note, "value": value, "at": at, "agent": self._rules.agent}
        recorded: _models.RecordedSeq
        recorded = await self._connection.document("POST", _SESSION + "/annotations", body=body, session=self.id)
        return recorded["seq"]

    async def annotations(self, name: str | None = None) -> list[Annotation]:
        """Lists the annotations."""
        return await self._connection.document("GET", _SESSION + "/annotations", query={"name": name}, session=self.id)

    async def tag(self, name: str, at: PositionLike | None = None) -> int:
        """Names a position, by default the present; then ``"tag:NAME"`` works as a position. An existing name moves."""
        body = {"name": name, "at": at}
        recorded: _models.RecordedSeq
        recorded = await self._connection.document("POST", _SESSION + "/tags", body=body, session=self.id)
        return recorded["seq"]

    async def tags(self) -> dict[str, int]:
        """Lists the names of positions."""
        return await self._connection.document("GET", _SESSION + "/tags", session=self.id)

    async def untag(self, name: str) -> None:
        """Removes the name of a position."""
        await self._connection.document("DELETE", _SESSION + "/tags/{name}", session=self.id, name=name)

    async def mount(self, host_path: str, mount_path: str | None = None, *, exclude: Sequence[str] = ()) -> Any:
        """Copies a directory of this machine into the workspace, if that is still empty.

        ``exclude`` has globs of entries to leave out.
        """
        body = {"mounts": [mount_of(host_path, mount_path, exclude)], "allow_roots": [host_path]}
        return await self._connection.document("POST", _SESSION + "/mounts", body=body, what="mount", session=self.id)

    async def verify(self) -> _models.Verification:
        """Folds its history again, and compares with everything stored."""
        return await self._connection.document("POST", _SESSION + "/verify", what="verify", session=self.id)

    async def remove(self) -> None:
        """Removes it, with its history."""
        await self._connection.document("DELETE", _SESSION, session=self.id)

    def __repr__(self) -> str:
        return f"<foldspace session {self.name} ({self.backend}) {self.id[:12]}>"

    def _repr_html_(self) -> str:
        shown = self._document
        return (
            f"<p><b>{escape(shown['name'])}</b> <code>{escape(shown['session'][:12])}</code> "
            f"{escape(shown['backend'])}, {shown['events']} events when last asked</p>"
        )


async def all_sessions(connection: Connection) -> list[_models.Session]:
    """Lists the sessions of a server, oldest first."""
    found: list[_models.Session] = []
    while True:
        query = {"limit": _PAGE, "after": found[-1]["session"] if found else None}
        page: list[_models.Session] = await connection.document("GET", "/v1/sessions", query=query)
        found += page
        if len(page) < _PAGE:
            return found


def mount_of(host_path: str, mount_path: str | None, exclude: Sequence[str]) -> dict[str, Any]:
    """Returns the document of a mount."""
    return {"host_path": host_path, "mount_path": mount_path, "exclude_glob": list(exclude)}


async def _state(
    connection: Connection, session: str, slice: str | None, pointer: str | None, at: PositionLike | None
) -> Any:
    query = {"slice": slice, "pointer": pointer, "at": at}
    found = await connection.document("GET", _SESSION + "/state", query=query, session=session)
    return found if slice is None else found["value"]


def _as_text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) <= _STDIN_CHARS else None


def _by_input(command: Command, data: bytes) -> tuple[Command, bytes]:
    """Returns a command that reads the given command, then that command's input, from standard input."""
    text = (command if isinstance(command, str) else f"exec {shlex.join(command)}").encode()
    # Reads byte by byte, so that it takes nothing of the command's input.
    script = f'c=$(dd bs=1 count={len(text)} 2>/dev/null; echo x); eval "${{c%x}}"'
    return ["/bin/sh", "-c", script], text + data


def _merged(command: Command) -> Command:
    if isinstance(command, str):
        return f"exec 2>&1\n{command}"
    return ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *command]


def _ignore(stream: str, data: bytes) -> None:
    del stream, data
