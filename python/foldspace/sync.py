"""The same client without asyncio. Made by generate.py from the asyncio client, which has the logic."""

# ruff: noqa: E501
# pyright: reportPrivateUsage=false
from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

from foldspace import _absolute, _client, _files, _models, _past, _process, _rollouts, _selection, _session, _slices
from foldspace._background import LOOP, in_thread
from foldspace._models import Annotation, Bisect, CallOutcome, DeclaredSlice, EntryAtPath, Event, Merge, Rerun, Rewind
from foldspace.results import CommandResult, Diff, Entries, Log, Tree
from foldspace.types import Ask, Call, Command, Data, Identified, Limits, Options, Output, PositionLike, Run

T = TypeVar("T")


class AbsoluteFiles:
    """Files by the absolute paths that commands of a session use. Files outside of the workspace, such as in /tmp, are
    read and written by commands."""

    def __init__(self, core: _absolute.AbsoluteFiles) -> None:
        self._core: _absolute.AbsoluteFiles = core

    def root(self) -> str:
        """Returns the absolute path of the workspace."""
        return LOOP.wait(self._core.root())

    def inside(self, path: str) -> str | None:
        """Returns the path in the workspace: empty for its root, ``None`` for a path outside."""
        return LOOP.wait(self._core.inside(path))

    def resolved(self, path: str) -> str:
        """Returns the path without symbolic links."""
        return LOOP.wait(self._core.resolved(path))

    def command_in(self, directory: str, command: Sequence[str]) -> tuple[str, list[str]]:
        """Returns the directory and the command for ``run``, to run a command in any directory."""
        return LOOP.wait(self._core.command_in(directory, command))

    def read(self, path: str) -> bytes:
        """Returns the contents of a file. Follows links."""
        return LOOP.wait(self._core.read(path))

    def write(self, path: str, data: bytes, *, executable: bool | None=None) -> None:
        """Writes a file, and creates its missing parent directories. Follows links."""
        LOOP.wait(self._core.write(path, data, executable=executable))


class SessionPast:
    """The history of a session, read-only."""

    def __init__(self, core: _past.SessionPast) -> None:
        self._core: _past.SessionPast = core

    def log(self, start: int=1, *, limit: int | None=None, kind: str | None=None) -> Log:
        """Returns its events from a position on, at most ``limit``. ``kind`` (several with commas) selects kinds."""
        return LOOP.wait(self._core.log(start, limit=limit, kind=kind))

    def calls(self, start: int=1, *, limit: int | None=None, tool: str | None=None, agent: str | None=None, failed: bool=False, changed: bool=False, path: str | None=None, text: str | None=None) -> list[_models.ListedCall]:
        """Lists its calls from a position on that match all filters, in the order in which they started. ``path`` is a
        glob of changed paths; ``text`` occurs in the tool, the parameters, the result or the error."""
        return LOOP.wait(self._core.calls(start, limit=limit, tool=tool, agent=agent, failed=failed, changed=changed, path=path, text=text))

    def messages(self, start: int=1, *, run: str | None=None, claims: bool=False, whole: bool=False) -> list[_models.Message]:
        """Returns the prompts, answers and reasoning of agents' runs from a position on. ``claims`` keeps only messages
        that speak of success after their agent's last command failed. Without ``whole`` long texts are cut."""
        return LOOP.wait(self._core.messages(start, run=run, claims=claims, whole=whole))

    def search(self, pattern: str, *, start: int=1, ignore_case: bool=False, place: Literal['parameters', 'output', 'file', 'event'] | None=None, path: str | None=None, limit: int | None=None) -> list[_models.SearchMatch]:
        """Finds lines that match a regular expression (in Rust's syntax) from a position on: in the parameters and output
        of calls, in lines that files gained, and in other events, in order. ``path`` is a glob that keeps only matches
        in files."""
        return LOOP.wait(self._core.search(pattern, start=start, ignore_case=ignore_case, place=place, path=path, limit=limit))

    def show_call(self, call: int) -> _models.WholeCall:
        """Describes a call, with its result."""
        return LOOP.wait(self._core.show_call(call))

    def output(self, call: int) -> Iterator[tuple[str, bytes]]:
        """Yields the output of a call in flight from now on, with the stream's name, until the call ends. Raises
        ``NotFoundError`` if no such call is in flight."""
        return LOOP.iterate(self._core.output(call))

    def timeline(self, *, buckets: int | None=None, tool: str | None=None, agent: str | None=None, failed: bool=False, changed: bool=False, path: str | None=None, text: str | None=None) -> _models.Timeline:
        """Counts the calls that match all filters in buckets, from the start of the session to its end.

        ``buckets`` is their number, from 1 to 2,000; at most the number of calls.
        """
        return LOOP.wait(self._core.timeline(buckets=buckets, tool=tool, agent=agent, failed=failed, changed=changed, path=path, text=text))

    def until(self, *conditions: str, start: PositionLike | None=None, backward: bool=False) -> _models.Stop | None:
        """Finds the next event that meets one of the conditions, after ``start`` or before it; ``None`` if there is no
        such event. A condition is ``path GLOB``, ``kind KIND``, ``agent NAME``, ``tool NAME``, ``failed``, ``/REGEX/``,
        or a predicate over slices, such as ``Usage.calls > 5``."""
        return LOOP.wait(self._core.until(*conditions, start=start, backward=backward))

    def diff(self, start: PositionLike | None=None, end: PositionLike | None=None, *, path: str | None=None) -> Diff:
        """Returns the changes between two positions, by default from the start to now."""
        return LOOP.wait(self._core.diff(start, end, path=path))

    def changes(self, start: PositionLike | None=None, end: PositionLike | None=None, *, live: bool=False) -> _models.ChangeList:
        """Lists the changes between two positions, without contents.

        ``live=True`` lists the changes on the disk that are not recorded yet, also while a command runs.
        """
        return LOOP.wait(self._core.changes(start, end, live=live))

    def effects(self) -> list[_models.EffectEntry]:
        """Lists the effects of its calls outside of the workspace, such as pushes, which no rewind takes back: the last
        1,000."""
        return LOOP.wait(self._core.effects())

    def blame(self, path: str, at: PositionLike | None=None) -> _models.Blame:
        """Returns the call that wrote each line of a file."""
        return LOOP.wait(self._core.blame(path, at))

    def align(self, other: str | Identified, *, end: PositionLike | None=None, other_end: PositionLike | None=None) -> _models.Alignment:
        """Aligns its calls with the calls of another session, up to a position of each."""
        return LOOP.wait(self._core.align(other, end=end, other_end=other_end))

    def family(self) -> _models.Family:
        """Lists all sessions of its family, siblings included, with their merges."""
        return LOOP.wait(self._core.family())


class TypedSlice(Generic[T]):
    """A declared slice whose events and values have a type; ``Session.slice`` makes it."""

    def __init__(self, core: _slices.TypedSlice[T]) -> None:
        self._core: _slices.TypedSlice[T] = core

    @property
    def name(self) -> str:
        """The name of the slice."""
        return self._core.name

    def __call__(self, *args: Any, **fields: Any) -> T:
        """Makes an item, as the class does."""
        return self._core.__call__(*args, **fields)

    def declare(self) -> None:
        """Declares the slice, unless that is done."""
        LOOP.wait(self._core.declare())

    def emit(self, item: T | None=None, /, **fields: Any) -> int:
        """Records an item, or one with these fields, and returns the position of its event."""
        return LOOP.wait(self._core.emit(item, **fields))

    def get(self, at: Any=None) -> Any:
        """Returns the value: a list of items, a dict of items by their keys, or the latest item (None without one)."""
        return LOOP.wait(self._core.get(at))


class Snapshot:
    """A session as it was at a position; ``Session.at`` makes it.

        session.files.write("a.txt", "one")
        before = session.at(session.head())
        session.files.write("a.txt", "two")
        assert before.files.read("a.txt") == b"one"

    Its files and its state are read-only.
    """

    def __init__(self, core: _session.Snapshot) -> None:
        self._core: _session.Snapshot = core

    @property
    def files(self) -> ReadFiles:
        """The files as they were."""
        return ReadFiles(self._core.files)

    def state(self, slice: str | None=None, *, pointer: str | None=None) -> Any:
        """Returns the state as it was: all slices, one slice, or a part of one."""
        return LOOP.wait(self._core.state(slice, pointer=pointer))


class Session(SessionPast):
    """A session: a workspace with its history. ``Client.create`` and ``Client.open`` make it.

        ran = session.run("echo one > a.txt; cat a.txt", check=True)
        assert ran.stdout == "one\\n"
        (child,) = session.fork(name="try", limits={"calls": 5})
        child.run("echo two > a.txt", check=True)
        assert (session.merge(child))["outcome"] == "merged"
        session.rewind(ran.finished)
        assert session.files.read("a.txt") == b"one\\n"

    A position is an event number, -5 for five events ago, "10m" for ten minutes ago, or "tag:NAME". Errors are classes of
    ``foldspace.errors``: ``RefusedError`` for what may not be done, ``NotFoundError``, ``ConflictError`` and
    ``UnusableError`` for requests that don't fit, ``InfrastructureError`` for failures of the workspace or the server.
    """

    def __init__(self, core: _session.Session) -> None:
        super().__init__(core)
        self._own: _session.Session = core

    @property
    def id(self) -> str:
        """The session's id: 32 hexadecimal digits."""
        return self._own.id

    @property
    def name(self) -> str:
        """The session's name."""
        return self._own.name

    @property
    def backend(self) -> str:
        """The backend of its workspace."""
        return self._own.backend

    @property
    def parent(self) -> str | None:
        """The id of the session that it is a child of; ``None`` for a root."""
        return self._own.parent

    @property
    def agent(self) -> str | None:
        """The agent that its calls name; ``None`` without one."""
        return self._own.agent

    @property
    def files(self) -> Files:
        """Its present files."""
        return Files(self._own.files)

    @property
    def absolute(self) -> AbsoluteFiles:
        """Files by the absolute paths that commands use, inside and outside of the workspace."""
        return AbsoluteFiles(self._own.absolute)

    def show(self) -> _models.Session:
        """Returns its present description."""
        return LOOP.wait(self._own.show())

    def head(self) -> int:
        """Returns the position of its last event."""
        return LOOP.wait(self._own.head())

    def at(self, position: PositionLike) -> Snapshot:
        """Returns the session as it was at a position."""
        return Snapshot(self._own.at(position))

    def run(self, command: Command, *, cwd: str='', env: Mapping[str, str] | None=None, stdin: str | bytes=b'', timeout: float | None=None, check: bool=False, on_output: Output | None=None, merge_output: bool=False) -> CommandResult:
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
        return LOOP.wait(self._own.run(command, cwd=cwd, env=env, stdin=stdin, timeout=timeout, check=check, on_output=on_output, merge_output=merge_output))

    def start(self, command: Command, *, cwd: str='', env: Mapping[str, str] | None=None, stdin: str='', input: bool=False, window: tuple[int, int] | None=None, timeout: float | None=None) -> Process:
        """Starts a command in the background, and returns at once.

        - ``stdin``: the beginning of its standard input, at most 48,000 characters.
        - ``input``: true to keep its standard input open for ``Process.send``.
        - ``window``: rows and columns, to run it in a terminal.
        - ``timeout``: its time limit in seconds, from 1 to 86,400; without one it has no limit.

        Raises ``RefusedError`` if the policy refuses it, ``UnusableError`` for parameters out of range.
        """
        return Process(LOOP.wait(self._own.start(command, cwd=cwd, env=env, stdin=stdin, input=input, window=window, timeout=timeout)))

    def processes(self) -> list[Process]:
        """Lists background processes that are running or ended recently."""
        return [Process(each) for each in LOOP.wait(self._own.processes())]

    def process(self, number: int) -> Process:
        """Returns a process by its number."""
        return Process(LOOP.wait(self._own.process(number)))

    def start_service(self, name: str, command: Command, *, port: int | None=None, prints: str | None=None, after: Sequence[str]=(), restart: bool=False, ready_seconds: float=30.0, cwd: str='', env: Mapping[str, str] | None=None) -> Process:
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
        return Process(LOOP.wait(self._own.start_service(name, command, port=port, prints=prints, after=after, restart=restart, ready_seconds=ready_seconds, cwd=cwd, env=env)))

    def services(self) -> list[_models.Service]:
        """Lists the services that were started and not stopped, in the order of their starts."""
        return LOOP.wait(self._own.services())

    def stop_service(self, name: str) -> None:
        """Stops a service for good: SIGTERM, and SIGKILL after 10 seconds. Raises ``NotFoundError`` if there is none."""
        LOOP.wait(self._own.stop_service(name))

    def forward(self, port: int, *, local_port: int=0) -> AbstractContextManager[str]:
        """Makes a TCP port of its container available on this machine, and yields the address, such as
        ``"127.0.0.1:40001"``. The container needs no network for it.

            with session.forward(8000) as address:
                page.goto(f"http://{address}/")

        ``local_port`` is the port of 127.0.0.1 to listen at; a free one by default. Commands of the backend ``host`` use
        this machine's own ports: there the address is 127.0.0.1 and ``port``, and ``local_port`` is ignored.

        Raises ``RefusedError`` if nothing listens at the port of the container, or the session runs no commands.
        """
        return LOOP.enter(self._own.forward(port, local_port=local_port))

    def mounted(self, *, at: PositionLike | None=None, all: bool=False) -> AbstractContextManager[Path]:
        """Mounts its files as a read-only directory on the server's machine, and yields the directory.

            with session.mounted(at="tag:before") as before:
                subprocess.run(["diff", "-r", before, "."])

        - ``at``: a fixed position of the session. By default the directory follows the session.
        - ``all``: true for the hidden directories ``.at/POSITION``, ``.call/N/before``, ``.call/N/after`` and
          ``.sessions/NAME`` in it.

        Equal mounts share one directory. The last context of the client unmounts it at its end, also for other programs
        that use it. Processes keep their open files. A mount that existed before the client's first context
        stays.

        Raises ``NotFoundError`` if there is no such position, ``BackendError`` if the machine has no FUSE.
        """
        return LOOP.enter(self._own.mounted(at=at, all=all))

    def mounts(self) -> list[_models.Mount]:
        """Lists all mounts of the session, including those that other programs made."""
        return LOOP.wait(self._own.mounts())

    def unmount(self, directory: str | Path, *, lazy: bool=False) -> None:
        """Unmounts a mount of the session. With ``lazy``, processes may use it; they keep their open files.

        Raises ``NotFoundError`` if the session has no mount there, ``RefusedError`` if a process uses it.
        """
        LOOP.wait(self._own.unmount(directory, lazy=lazy))

    def call(self, tool: str, params: Mapping[str, Any] | None=None, *, on_output: Output | None=None, timeout: float | None=None, on_failure: Literal['keep', 'undo']='keep') -> CallOutcome:
        """Makes a tool call, and raises if it fails. ``timeout`` is the time limit of the whole call in seconds, from 0.1
        to 86,400; the tool's own by default.

        With ``on_failure="undo"`` a call that fails, or whose command exits non-zero, leaves the files as they were.
        """
        return LOOP.wait(self._own.call(tool, params, on_output=on_output, timeout=timeout, on_failure=on_failure))

    def tools(self) -> list[_models.Tool]:
        """Lists its tools."""
        return LOOP.wait(self._own.tools())

    def cancel(self, call: int) -> None:
        """Cancels a call in flight."""
        LOOP.wait(self._own.cancel(call))

    def fork(self, *, count: int | None=None, at: PositionLike | None=None, name: str | None=None, agent: str | None=None, limits: Limits | None=None, policy: _models.ToolPolicy | None=None, mount: bool=False) -> list[Session]:
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
        return [Session(each) for each in LOOP.wait(self._own.fork(count=count, at=at, name=name, agent=agent, limits=limits, policy=policy, mount=mount))]

    def clone(self, *, isolation: Literal['fork', 'full', 'shared']='fork', at: PositionLike | None=None, name: str | None=None, agent: str | None=None, limits: Limits | None=None, policy: _models.ToolPolicy | None=None, mount: bool=False) -> Session:
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
        return Session(LOOP.wait(self._own.clone(isolation=isolation, at=at, name=name, agent=agent, limits=limits, policy=policy, mount=mount)))

    def children(self) -> list[Session]:
        """Lists its children, oldest first: forks and full clones that were not removed. ``agent`` of each is the agent
        that it was created for. A shared clone is not a child: it is the session itself."""
        return [Session(each) for each in LOOP.wait(self._own.children())]

    def merge(self, child: str | Identified, *, theirs: Sequence[str]=(), ours: Sequence[str]=(), generated: Sequence[str]=(), dry_run: bool=False) -> Merge:
        """Merges a child's changes. ``theirs`` and ``ours`` are paths and globs (``src``, ``*.lock``) that resolve
        conflicts at or below them for that side; a path or glob without a match is an error. Open conflicts leave the
        session unchanged, with ``outcome`` ``conflicted``.

        Generated files don't conflict: the session's version stays. They are ``__pycache__`` and other caches of tools,
        files that ``.gitignore`` files ignore, and files that match the globs of ``generated``. ``dry_run`` only reports.

        Raises ``NotFoundError`` if there is no such child, ``UnusableError`` for a path or glob without a match.
        """
        return LOOP.wait(self._own.merge(child, theirs=theirs, ours=ours, generated=generated, dry_run=dry_run))

    def dispatch(self, children: Sequence[_models.NewSubagent], *, parallel: int | None=None, merge: bool=False, theirs: Sequence[str]=(), ours: Sequence[str]=()) -> _models.Dispatched:
        """Makes calls in a batch of new children, ``parallel`` children at a time, and returns the result of each.

        - ``children``: 1 to 100 dicts with ``calls`` (a list of ``{"tool": ..., "params": {...}}``), ``name``,
          ``isolation``, ``at``, ``agent``, ``limits``, ``go_on`` (to continue after a failed call) and ``annotations``.
        - ``parallel``: the number of children that work at the same time, from 1 to 16; 4 by default.
        - ``merge``: true to merge the children that are done, in their order.
        - ``theirs``, ``ours``: paths and globs for conflicts, as in ``merge()``.

        A child that fails raises nothing: its ``status`` and ``reason`` say so. Cancelling the task cancels all children.
        """
        return LOOP.wait(self._own.dispatch(children, parallel=parallel, merge=merge, theirs=theirs, ours=ours))

    def rollouts(self, run: Run, *, count: int | None=None, at: PositionLike | None=None, score: Call | None=None, keep: int | None=None, parallel: int | None=None, name: str | None=None, agent: str | None=None, limits: Limits | None=None, policy: _models.ToolPolicy | None=None, mount: bool=False) -> Generator[Rollout, None, None]:
        """Forks it at one position, makes calls in each fork, and yields each rollout as it ends. The score is recorded as
        the fork's annotation ``score``.

            tries = [["seq 2 > list.txt"], ["seq 3 > list.txt"]]
            rolled = [each for each in session.rollouts(tries, score="wc -l < list.txt", keep=1)]
            (best,) = [each for each in rolled if each.kept]
            assert best.score == 3
            session.merge(best.session)

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
        return (Rollout(each) for each in LOOP.iterate(self._own.rollouts(run, count=count, at=at, score=score, keep=keep, parallel=parallel, name=name, agent=agent, limits=limits, policy=policy, mount=mount)))

    def apply(self, to: str | None=None, *, take: Sequence[str]=(), keep: Sequence[str]=(), generated: Sequence[str]=(), dry_run: bool=False) -> _models.Applied:
        """Merges its changes into a directory of this machine, by default the directory that it started from.

        ``take`` resolves conflicts for the session's side, ``keep`` for the directory's, as in ``merge``.
        """
        return LOOP.wait(self._own.apply(to, take=take, keep=keep, generated=generated, dry_run=dry_run))

    def rewind(self, to: PositionLike, *, force: bool=False, keep_earlier: bool=False, git: bool=False, dry_run: bool=False) -> Rewind:
        """Rewinds state and files to a position. The rewind is an event, and can be undone.

        - ``force``: true to proceed where it would refuse: external changes are recorded first, entries that can't be
          restored stay, and files that were in a directory of yours before the session began are removed.
        - ``keep_earlier``: true to protect the latter, even with ``force``.
        - ``git``: true to also rewind the ``.git`` of a directory of yours, with the commits made since.
        - ``dry_run``: true to only report what would happen.

        Raises ``NotFoundError`` if there is no such position, ``RefusedError`` if it would lose files: ``problem`` of the
        error has these entries in ``rewind``.
        """
        return LOOP.wait(self._own.rewind(to, force=force, keep_earlier=keep_earlier, git=git, dry_run=dry_run))

    def undo(self, *, call: int | None=None, run: str | None=None, to: PositionLike | None=None, external: bool | int | None=None, redo: bool=False, overwrite: bool=False, force: bool=False, dry_run: bool=False) -> _models.Undone:
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
        return LOOP.wait(self._own.undo(call=call, run=run, to=to, external=external, redo=redo, overwrite=overwrite, force=force, dry_run=dry_run))

    def revert(self, paths: list[str], at: PositionLike, *, force: bool=False, dry_run: bool=False) -> _models.Undone:
        """Restores paths, and everything below them, as of a position. Newer entries stay."""
        return LOOP.wait(self._own.revert(paths, at, force=force, dry_run=dry_run))

    def bisect(self, command: Command | None=None, *, slice: str | None=None, good: PositionLike | None=None, bad: PositionLike | None=None, jobs: int=1, timeout: float | None=None) -> Bisect:
        """Finds the first change after which a command fails, or a predicate over slices holds.

        - ``command``: succeeds at the good position and fails at the bad one; exit code 125 skips a position.
        - ``slice``: instead of a command, a predicate such as ``count(VirtualFileSystem) > 10``.
        - ``good``, ``bad``: the ends of the search; by default before the first call, and the present.
        - ``jobs``: the number of concurrent runs, from 1 to 64.
        - ``timeout``: the time limit of each run in seconds, from 0.1 to 600, the default.

        Raises ``RefusedError`` if the ends are not good and bad, or the policy refuses the command.
        """
        return LOOP.wait(self._own.bisect(command, slice=slice, good=good, bad=bad, jobs=jobs, timeout=timeout))

    def rerun(self, *, until: PositionLike | None=None, backend: str | None=None, options: Options | None=None, keep: str | None=None, rules: Mapping[str, Any] | None=None, repeat_effects: bool=False, offline: bool=False) -> Rerun:
        """Reruns its recorded calls in a fresh session, and returns every difference. The fresh session has the same
        kind of workspace, unless ``backend`` selects another, and is discarded, unless ``keep`` names it. ``rules``
        describe accepted differences: ``texts``, ``ignore_fields``, ``ignore_paths``, ``text_files``. Raises
        ``RefusedError`` if effects outside of the workspace would take place again, unless ``repeat_effects`` is true.
        ``offline`` replays recorded HTTP responses, and refuses all other connections."""
        return LOOP.wait(self._own.rerun(until=until, backend=backend, options=options, keep=keep, rules=rules, repeat_effects=repeat_effects, offline=offline))

    def events(self, start: int | None=None, *, kind: str | None=None, agent: str | None=None, tool: str | None=None, path: str | None=None) -> Iterator[Event]:
        """Yields its events from a position on, then new events until it is removed. Reconnects if necessary.

        ``kind`` (several with commas), ``agent``, ``tool`` and ``path`` (a glob) select events.
        """
        return LOOP.iterate(self._own.events(start, kind=kind, agent=agent, tool=tool, path=path))

    def state(self, slice: str | None=None, *, pointer: str | None=None) -> Any:
        """Returns its state: all slices, one slice, or a part of one."""
        return LOOP.wait(self._own.state(slice, pointer=pointer))

    def emit(self, kind: str, data: Any=None, *, call: int | None=None, call_id: str | None=None) -> int:
        """Records an event of a kind of your own, and returns its position.

        ``kind`` has letters, digits, ``.``, ``_``, ``-`` or ``/``, and begins with a lower-case letter. ``data`` is
        JSON of at most 1 MiB, not counting long strings. ``call`` names the call that the event belongs to. A second
        event with the same ``call_id`` (1 to 200 bytes) is not recorded.
        """
        return LOOP.wait(self._own.emit(kind, data, call=call, call_id=call_id))

    def emit_all(self, events: Sequence[tuple[str, Any]], *, call: int | None=None) -> tuple[int, int]:
        """Records events, each a kind and its data, in one commit; returns the first and the last position."""
        return LOOP.wait(self._own.emit_all(events, call=call))

    def declare(self, name: str, *rules: Mapping[str, Any], merge: Literal['ours', 'theirs', 'union', 'refuse']='ours', on_rewind: Literal['restore', 'keep']='restore') -> DeclaredSlice:
        """Declares a slice of your own, and folds the past into it; the same declaration again changes nothing.

        Each rule is a mapping such as ``{"kinds": ["plan.step"], "fold": "latest_by", "key": "/id"}``. ``state(name)``
        then returns the slice's value, also at earlier positions since.
        """
        return LOOP.wait(self._own.declare(name, *rules, merge=merge, on_rewind=on_rewind))

    def declared(self) -> list[DeclaredSlice]:
        """Lists the declared slices, without their values."""
        return LOOP.wait(self._own.declared())

    def undeclare(self, name: str) -> None:
        """Removes a declared slice; earlier positions keep it."""
        LOOP.wait(self._own.undeclare(name))

    def set_policy(self, policy: _models.ToolPolicy) -> _models.Policies:
        """Sets its policy for tools: which tools may run, on which paths, in which order and how often.

        A call that breaks a rule raises ``RefusedError``, whose text names the rule.
        """
        return LOOP.wait(self._own.set_policy(policy))

    def policy(self) -> _models.Policies:
        """Returns its policy for tools, and those of its ancestors."""
        return LOOP.wait(self._own.policy())

    def remove_policy(self) -> None:
        """Removes its policy for tools; those of its ancestors stay."""
        LOOP.wait(self._own.remove_policy())

    def slice(self, *, fold: Literal['append', 'latest', 'latest_by']='append', key: str | None=None, kind: str | None=None, name: str | None=None, max: int | None=None, merge: Literal['ours', 'theirs', 'union', 'refuse']='ours') -> Callable[[type[T]], TypedSlice[T]]:
        """Makes a class the type of a slice of your own. It is declared with its first use.

            @session.slice(fold="latest_by", key="/id")
            @dataclass
            class Step:
                id: int
                status: str

            Step.emit(id=1, status="open")
            Step.get()        # {"1": Step(id=1, status="open")}

        The class is a dataclass, a pydantic model, or any class that takes the fields by name. ``kind`` is the name of
        the events, by default ``own.`` with the name of the class.
        """
        return lambda item: TypedSlice(self._own.slice(fold=fold, key=key, kind=kind, name=name, max=max, merge=merge)(item))

    def record_effect(self, what: str, target: str='', *, outcome: Literal['done', 'failed', 'unknown']='done', undo: str='', call: int | None=None) -> int:
        """Records an effect outside of the workspace, which no rewind takes back, and returns its position.

            session.record_effect("deploy", "staging", call=ran.call)

        - ``what``: the action, such as ``"git push"``; 1 to 200 characters.
        - ``target``: the place, such as a remote or a URL; at most 1,000 characters.
        - ``outcome``: ``unknown`` if it may have taken place.
        - ``undo``: advice about undoing it; at most 1,000 characters.
        - ``call``: the call that made it. A second record for this call, with the same ``what`` and ``target``, settles an
          unknown outcome.

        Raises ``NotFoundError`` if there is no such call, ``UnusableError`` for parameters out of range.
        """
        return LOOP.wait(self._own.record_effect(what, target, outcome=outcome, undo=undo, call=call))

    def annotate(self, name: str, *, score: float | None=None, note: str | None=None, value: Any=None, at: PositionLike | None=None) -> int:
        """Records a score, a note or a value for a position, and returns the annotation's own position.

        At least one of the three is required. ``at`` is the present by default.
        """
        return LOOP.wait(self._own.annotate(name, score=score, note=note, value=value, at=at))

    def annotations(self, name: str | None=None) -> list[Annotation]:
        """Lists the annotations."""
        return LOOP.wait(self._own.annotations(name))

    def tag(self, name: str, at: PositionLike | None=None) -> int:
        """Names a position, by default the present; then ``"tag:NAME"`` works as a position. An existing name moves."""
        return LOOP.wait(self._own.tag(name, at))

    def tags(self) -> dict[str, int]:
        """Lists the names of positions."""
        return LOOP.wait(self._own.tags())

    def untag(self, name: str) -> None:
        """Removes the name of a position."""
        LOOP.wait(self._own.untag(name))

    def mount(self, host_path: str, mount_path: str | None=None, *, exclude: Sequence[str]=()) -> Any:
        """Copies a directory of this machine into the workspace, if that is still empty.

        ``exclude`` has globs of entries to leave out.
        """
        return LOOP.wait(self._own.mount(host_path, mount_path, exclude=exclude))

    def verify(self) -> _models.Verification:
        """Folds its history again, and compares with everything stored."""
        return LOOP.wait(self._own.verify())

    def remove(self) -> None:
        """Removes it, with its history."""
        LOOP.wait(self._own.remove())

    def __repr__(self) -> str:
        return self._own.__repr__()

    def _repr_html_(self) -> str:
        return self._own._repr_html_()


class ReadFiles:
    """Read-only files.

    ``live=True`` reads the workspace's disk as it is now, also while a command runs. Without it, the files are as
    recorded: the changes of a command are recorded at its end.
    """

    def __init__(self, core: _files.ReadFiles) -> None:
        self._core: _files.ReadFiles = core

    def read(self, path: str, *, live: bool=False) -> bytes:
        """Returns the contents of a file."""
        return LOOP.wait(self._core.read(path, live=live))

    def read_text(self, path: str, encoding: str='utf-8', *, live: bool=False) -> str:
        """Returns the contents of a file as text."""
        return LOOP.wait(self._core.read_text(path, encoding, live=live))

    def stream(self, path: str, *, live: bool=False) -> Iterator[bytes]:
        """Yields the contents of a file piece by piece."""
        return LOOP.iterate(self._core.stream(path, live=live))

    def list(self, path: str='', *, depth: int=1, live: bool=False) -> Entries:
        """Lists the entries of a directory, ``depth`` levels deep."""
        return LOOP.wait(self._core.list(path, depth=depth, live=live))

    def tree(self, path: str='') -> Tree:
        """Lists all entries below a directory."""
        return LOOP.wait(self._core.tree(path))

    def stat(self, path: str, *, live: bool=False) -> EntryAtPath:
        """Returns the metadata of an entry."""
        return LOOP.wait(self._core.stat(path, live=live))

    def exists(self, path: str) -> bool:
        """Returns true if an entry exists."""
        return LOOP.wait(self._core.exists(path))

    def download(self, path: str='') -> bytes:
        """Returns a directory as a tar archive."""
        return LOOP.wait(self._core.download(path))


class Files(ReadFiles):
    """The present files of a session. Each change is a call in its log. Paths are relative to the workspace.

        session.files.write("src/a.txt", "one")
        assert session.files.read_text("src/a.txt") == "one"
        assert [entry["path"] for entry in session.files.list("src")] == ["src/a.txt"]

    Methods raise ``NotFoundError`` for a missing entry, and ``RefusedError`` if an entry of the wrong kind is there, such as
    a directory in place of a file.
    """

    def __init__(self, core: _files.Files) -> None:
        super().__init__(core)
        self._own: _files.Files = core

    def write(self, path: str, data: Data, *, executable: bool | None=None, create: bool=False) -> CallOutcome:
        """Writes a file of at most 1 GiB, and creates its missing parent directories. Follows links.

        - ``executable``: the executable bit; by default it is unchanged, and not set on a new file.
        - ``create``: true to fail if the path exists.
        """
        return LOOP.wait(self._own.write(path, data, executable=executable, create=create))

    def remove(self, path: str, *, recursive: bool=False) -> CallOutcome:
        """Removes a file, a link or a directory; a directory with entries only if ``recursive`` is set."""
        return LOOP.wait(self._own.remove(path, recursive=recursive))

    def move(self, source: str, target: str, *, replace: bool=False) -> CallOutcome:
        """Moves an entry. ``replace`` allows it to replace a file at ``target``."""
        return LOOP.wait(self._own.move(source, target, replace=replace))

    def mkdir(self, path: str) -> CallOutcome:
        """Creates a directory and its missing parents. The directory may exist."""
        return LOOP.wait(self._own.mkdir(path))

    def upload(self, data: Data, path: str='') -> CallOutcome:
        """Unpacks a tar archive of at most 1 GiB in a directory, as one call. Files at its paths are replaced, others stay."""
        return LOOP.wait(self._own.upload(data, path))

    def watch(self, path: str='', *, recursive: bool=True) -> Iterator[dict[str, Any]]:
        """Yields the changes below a directory as they come: ``path``, ``kind`` and ``seq``."""
        return LOOP.iterate(self._own.watch(path, recursive=recursive))


class Process:
    """A background process, running or ended. ``Session.start`` makes it.

        process = session.start("read name; echo hello $name", input=True)
        process.send("world\\n", end=True)
        assert (process.collect()).stdout == "hello world\\n"

    It runs while other calls of the session run, and ends with the server.
    """

    def __init__(self, core: _process.Process) -> None:
        self._core: _process.Process = core

    @property
    def number(self) -> int:
        """Its number: the position of the call that started it."""
        return self._core.number

    def show(self) -> _models.Process:
        """Returns its present description."""
        return LOOP.wait(self._core.show())

    def wait(self, timeout: float | None=None) -> _models.Process:
        """Waits for its end, or ``timeout`` seconds, and returns its description."""
        return LOOP.wait(self._core.wait(timeout))

    def send(self, data: str | bytes=b'', *, end: bool=False) -> None:
        """Sends standard input, and closes it if ``end`` is true. Waits while the process does not read."""
        LOOP.wait(self._core.send(data, end=end))

    def resize(self, rows: int, columns: int) -> None:
        """Changes the size of its terminal."""
        LOOP.wait(self._core.resize(rows, columns))

    def signal(self, signal: str | int='TERM') -> None:
        """Sends a signal to it and its group, by name (``"INT"``) or number."""
        LOOP.wait(self._core.signal(signal))

    def kill(self) -> None:
        """Kills it, and everything that it has started."""
        LOOP.wait(self._core.kill())

    def output(self, start: int=0) -> Iterator[tuple[str, bytes]]:
        """Yields its output with the stream's name: the stored output (the last MiB), then new output, until it ends.

        ``start`` is the number of bytes to skip.
        """
        return LOOP.iterate(self._core.output(start))

    def collect(self, on_output: Output | None=None) -> CommandResult:
        """Waits for its end, and returns its result with all output."""
        return LOOP.wait(self._core.collect(on_output))

    def feed_and_collect(self, data: bytes, on_output: Output | None=None) -> CommandResult:
        """Sends all standard input, and collects the output at the same time."""
        return LOOP.wait(self._core.feed_and_collect(data, on_output))


class Rollout:
    """A rollout of ``Session.rollouts``."""

    def __init__(self, core: _rollouts.Rollout) -> None:
        self._core: _rollouts.Rollout = core

    @property
    def number(self) -> int:
        """Its number, from 0."""
        return self._core.number

    @property
    def session(self) -> Session:
        """Its fork. It was removed if ``kept`` is false."""
        return Session(self._core.session)

    @property
    def status(self) -> str:
        """``done``, ``failed`` or ``cancelled``."""
        return self._core.status

    @property
    def reason(self) -> str | None:
        """The reason for a failure or a missing score."""
        return self._core.reason

    @property
    def calls(self) -> Sequence[_models.DispatchedCall]:
        """The calls that ended, in order; the score's call last."""
        return self._core.calls

    @property
    def changed(self) -> Sequence[str]:
        """At most 1,000 paths that its calls changed, sorted."""
        return self._core.changed

    @property
    def more(self) -> bool:
        """True if its calls changed more paths."""
        return self._core.more

    @property
    def score(self) -> float | None:
        """The score; ``None`` without one."""
        return self._core.score

    @property
    def kept(self) -> bool:
        """False if its session was removed. The value is final after the last rollout, because a better one may still come."""
        return self._core.kept


class Client:
    """A client of the server of a data directory. Starts the server if none runs.

    ``data`` is the data directory, by default ``FOLDSPACE_DATA``, else the command line's. ``progress=False`` hides the
    progress of long work. A client belongs to one event loop.

        with foldspace.sync.Client() as client:
            made = client.create("work", backend="host", auto_confirm=True)
            made.run("echo hello", check=True)
            again = client.open("work")
            assert [call["tool"] for call in again.calls()] == ["shell_execute"]

    Methods raise ``StartError`` if the server can't be started, ``ConnectionLostError`` if it ends during a request, and
    ``ClientClosedError`` after ``close``.
    """

    def __init__(self, data: str | os.PathLike[str] | None=None, *, progress: bool | None=None) -> None:
        self._core: _client.Client = _client.Client(data, progress=progress)

    @property
    def data(self) -> Path:
        """The data directory."""
        return self._core.data

    def __enter__(self) -> Client:
        LOOP.wait(self._core.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        LOOP.wait(self._core.__aexit__(kind, error, trace))

    def close(self) -> None:
        """Closes its connections. The server keeps running until it is unused."""
        LOOP.wait(self._core.close())

    def create(self, name: str | None=None, *, backend: str | None=None, mount: str | os.PathLike[str] | None=None, mounts: Mapping[str, str] | None=None, exclude: Sequence[str]=(), directory: str | os.PathLike[str] | None=None, image: str | None=None, options: Options | None=None, env: Mapping[str, str] | None=None, workdir: str | None=None, create_id: str | None=None, policy: _models.ToolPolicy | None=None, allow: Sequence[str]=(), deny: Sequence[str]=(), auto_confirm: bool=False, on_question: Ask | None=None, agent: str | None=None) -> Session:
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
        return Session(LOOP.wait(self._core.create(name, backend=backend, mount=mount, mounts=mounts, exclude=exclude, directory=directory, image=image, options=options, env=env, workdir=workdir, create_id=create_id, policy=policy, allow=allow, deny=deny, auto_confirm=auto_confirm, on_question=on_question, agent=agent)))

    def open(self, session: str, *, allow: Sequence[str]=(), deny: Sequence[str]=(), auto_confirm: bool=False, on_question: Ask | None=None, agent: str | None=None) -> Session:
        """Opens an existing session, by its name or the beginning of its id.

        ``allow``, ``deny``, ``auto_confirm``, ``on_question`` and ``agent`` are those of ``Client.create``. Raises
        ``NotFoundError`` if there is no such session.
        """
        return Session(LOOP.wait(self._core.open(session, allow=allow, deny=deny, auto_confirm=auto_confirm, on_question=on_question, agent=agent)))

    def sessions(self) -> list[_models.Session]:
        """Lists all sessions, oldest first."""
        return LOOP.wait(self._core.sessions())

    def sql(self, query: str, *, limit: int | None=None, timeout: int | None=None) -> list[dict[str, Any]]:
        """Returns the rows of an SQL query over all sessions, as dictionaries; docs/sql.md has the tables.

        At most ``limit`` rows (10,000 by default), within ``timeout`` seconds (30 by default).
        """
        return LOOP.wait(self._core.sql(query, limit=limit, timeout=timeout))

    def compare(self, *sessions: str | Identified) -> _models.ComparedRuns:
        """Compares sessions as a tree: the calls that all made first, where they part, how each ends, and its scores.

        A session is given as itself, by its name, by the beginning of its id, or by a glob of names (``rollout-*``).
        """
        return LOOP.wait(self._core.compare(*sessions))

    def tools(self) -> list[_models.Tool]:
        """Lists the tools of all sessions."""
        return LOOP.wait(self._core.tools())

    def server(self) -> _models.ServerStatus:
        """Returns the status of the server."""
        return LOOP.wait(self._core.server())

    def health(self) -> _models.Health:
        """Returns the health of the server."""
        return LOOP.wait(self._core.health())

    def metrics(self) -> str:
        """Returns the server's metrics, in Prometheus' format."""
        return LOOP.wait(self._core.metrics())

    def stop_server(self) -> None:
        """Ends the server, after a grace period for calls in flight."""
        LOOP.wait(self._core.stop_server())


@contextmanager
def session(name: str | None=None, *, backend: str | None=None, mount: str | os.PathLike[str] | None=None, mounts: Mapping[str, str] | None=None, exclude: Sequence[str]=(), directory: str | os.PathLike[str] | None=None, image: str | None=None, options: Options | None=None, env: Mapping[str, str] | None=None, workdir: str | None=None, create_id: str | None=None, allow: Sequence[str]=(), deny: Sequence[str]=(), auto_confirm: bool=False, on_question: Ask | None=None, agent: str | None=None, data: str | os.PathLike[str] | None=None, progress: bool | None=None, remove: bool=False) -> Generator[Session, None, None]:
    """Starts a session, and closes the connection at the end. The session stays, with its history, unless ``remove``
    is set. Takes the parameters of ``Client`` and ``Client.create``."""
    with LOOP.enter(_client.session(name, backend=backend, mount=mount, mounts=mounts, exclude=exclude, directory=directory, image=image, options=options, env=env, workdir=workdir, create_id=create_id, allow=allow, deny=deny, auto_confirm=auto_confirm, on_question=on_question, agent=agent, data=data, progress=progress, remove=remove)) as core:
        yield Session(core)


@contextmanager
def attach(session: str, *, allow: Sequence[str]=(), deny: Sequence[str]=(), auto_confirm: bool=False, on_question: Ask | None=None, agent: str | None=None, data: str | os.PathLike[str] | None=None, progress: bool | None=None) -> Generator[Session, None, None]:
    """Opens an existing session, by its name or the beginning of its id, and closes the connection at the end. Takes the
    parameters of ``Client`` and ``Client.open``."""
    with LOOP.enter(_client.attach(session, allow=allow, deny=deny, auto_confirm=auto_confirm, on_question=on_question, agent=agent, data=data, progress=progress)) as core:
        yield Session(core)


class Candidate:
    """A fork of ``fork_and_select``."""

    def __init__(self, core: _selection.Candidate) -> None:
        self._core: _selection.Candidate = core

    @property
    def session(self) -> Session:
        """The fork."""
        return Session(self._core.session)

    @property
    def score(self) -> float | None:
        """Its score; ``None`` if it failed."""
        return self._core.score

    @property
    def result(self) -> Any:
        """The return value of ``run``."""
        return self._core.result

    @property
    def error(self) -> Exception | None:
        """The exception of ``run`` or ``score``; ``None`` if it has a score."""
        return self._core.error


class Selection:
    """The outcome of ``fork_and_select``."""

    def __init__(self, core: _selection.Selection) -> None:
        self._core: _selection.Selection = core

    @property
    def best(self) -> Candidate:
        """The candidate with the highest score."""
        return Candidate(self._core.best)

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All candidates in the order of their forks. The sessions of the others were removed, unless ``keep`` is set."""
        return [Candidate(each) for each in self._core.candidates]

    @property
    def merged(self) -> _models.Merge | None:
        """The merge of the best; ``None`` without ``merge``. Conflicts leave the session unchanged."""
        return self._core.merged


def fork_and_select(session: Session, count: int, run: Callable[[Session], Any], score: Callable[[Session], float], *, parallel: int=4, merge: bool=True, keep: bool=False, name: str='score') -> Selection:
    """Forks a session, works in each fork, and merges the fork with the highest score.

        def attempt(fork):
            fork.run(f"seq {len(fork.name)} > list.txt", check=True)

        def lines(fork):
            return (fork.files.read("list.txt")).count(b"\\n")

        selection = foldspace.sync.fork_and_select(session, 4, attempt, lines)
        assert session.files.read("list.txt") == selection.best.session.files.read("list.txt")

    - ``count``: the number of forks, from 1 to 1,000; ``parallel`` of them work at the same time.
    - ``run``: works in a fork. An exception makes it a failed candidate.
    - ``score``: returns a fork's score; the first of equal scores wins.
    - ``merge``: false to only return the best.
    - ``keep``: true to keep the other forks.
    - ``name``: the name of the annotations with the scores, which the session and the forks get.

    Raises ``FoldspaceError``, with the first failure as its cause, if all candidates fail. Cancelling the task before
    the merge removes all forks, unless ``keep`` is set.
    """
    return Selection(LOOP.wait(_selection.fork_and_select(session._own, count, lambda fork: in_thread(lambda: run(Session(fork))), lambda fork: in_thread(lambda: score(Session(fork))), parallel=parallel, merge=merge, keep=keep, name=name)))
