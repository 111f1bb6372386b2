"""The same client without asyncio. Made by generate.py from the asyncio client, which has the logic."""

# ruff: noqa: E501
# pyright: reportPrivateUsage=false
from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from foldspace import _absolute, _client, _files, _models, _past, _process, _session
from foldspace._background import LOOP
from foldspace._models import Annotation, Bisect, CallOutcome, EntryAtPath, Event, Merge, Rerun, Rewind
from foldspace.results import CommandResult, Diff, Entries, Log, Tree
from foldspace.types import Ask, Command, Data, Identified, Output, PositionLike


class AbsoluteFiles:
    """Files by the absolute paths that commands of a session know. Those outside of the workspace, such as in /tmp,
    are read and written by commands."""

    def __init__(self, core: _absolute.AbsoluteFiles) -> None:
        self._core: _absolute.AbsoluteFiles = core

    def root(self) -> str:
        """Returns the absolute path of the workspace."""
        return LOOP.wait(self._core.root())

    def inside(self, path: str) -> str | None:
        """Returns the path in the workspace: empty for its root, nothing for one outside."""
        return LOOP.wait(self._core.inside(path))

    def resolved(self, path: str) -> str:
        """Returns the path without symbolic links."""
        return LOOP.wait(self._core.resolved(path))

    def command_in(self, directory: str, command: Sequence[str]) -> tuple[str, list[str]]:
        """Returns the directory and the command for ``run``, so that it begins in any directory."""
        return LOOP.wait(self._core.command_in(directory, command))

    def read(self, path: str) -> bytes:
        """Returns the contents of a file; links are followed."""
        return LOOP.wait(self._core.read(path))

    def write(self, path: str, data: bytes, *, executable: bool | None=None) -> None:
        """Writes a file, with the directories above it; links are followed."""
        LOOP.wait(self._core.write(path, data, executable=executable))


class SessionPast:
    """What a session did. Nothing here changes it."""

    def __init__(self, core: _past.SessionPast) -> None:
        self._core: _past.SessionPast = core

    def log(self, start: int=1, *, limit: int | None=None) -> Log:
        """Returns its events from a position on."""
        return LOOP.wait(self._core.log(start, limit=limit))

    def calls(self, start: int=1, *, limit: int | None=None, tool: str | None=None, agent: str | None=None, failed: bool=False, changed: bool=False, path: str | None=None, text: str | None=None) -> list[_models.ListedCall]:
        """Lists its calls from a position on, in the order in which they began: those that fit all that is given.
        ``path`` is a glob of what they changed, ``text`` stands in the tool, the parameters, the result or the error."""
        return LOOP.wait(self._core.calls(start, limit=limit, tool=tool, agent=agent, failed=failed, changed=changed, path=path, text=text))

    def show_call(self, call: int) -> _models.WholeCall:
        """Describes a call, with its result."""
        return LOOP.wait(self._core.show_call(call))

    def output(self, call: int) -> Iterator[tuple[str, bytes]]:
        """Gives what the command of a call in flight prints from now on, with the stream's name, until the call ends.
        It raises ``NotFoundError`` where no such call is in flight."""
        return LOOP.iterate(self._core.output(call))

    def timeline(self, *, buckets: int | None=None, tool: str | None=None, agent: str | None=None, failed: bool=False, changed: bool=False, path: str | None=None, text: str | None=None) -> _models.Timeline:
        """Counts its calls in buckets, from its beginning to its end: those that fit all that is given."""
        return LOOP.wait(self._core.timeline(buckets=buckets, tool=tool, agent=agent, failed=failed, changed=changed, path=path, text=text))

    def until(self, *conditions: str, start: PositionLike | None=None, backward: bool=False) -> _models.Stop | None:
        """Finds the next event that meets one of the conditions, after ``start`` or before it; none where there is
        none. A condition is ``path GLOB``, ``kind KIND``, ``agent NAME``, ``tool NAME``, ``failed``, ``/REGEX/``, or a
        predicate over slices, such as ``Usage.calls > 5``."""
        return LOOP.wait(self._core.until(*conditions, start=start, backward=backward))

    def diff(self, start: PositionLike | None=None, end: PositionLike | None=None, *, path: str | None=None) -> Diff:
        """Shows what changed between two positions: by default from the beginning to now."""
        return LOOP.wait(self._core.diff(start, end, path=path))

    def changes(self, start: PositionLike | None=None, end: PositionLike | None=None) -> _models.ChangeList:
        """Lists what changed between two positions, without contents."""
        return LOOP.wait(self._core.changes(start, end))

    def blame(self, path: str, at: PositionLike | None=None) -> _models.Blame:
        """Tells which call wrote each line of a file."""
        return LOOP.wait(self._core.blame(path, at))

    def align(self, other: str | Identified, *, end: PositionLike | None=None, other_end: PositionLike | None=None) -> _models.Alignment:
        """Puts its calls beside those of another session, up to a position of each."""
        return LOOP.wait(self._core.align(other, end=end, other_end=other_end))

    def family(self) -> _models.Family:
        """Lists the sessions that it comes from and that come from it, with their merges."""
        return LOOP.wait(self._core.family())


class Snapshot:
    """A session as it was at a position."""

    def __init__(self, core: _session.Snapshot) -> None:
        self._core: _session.Snapshot = core

    @property
    def files(self) -> ReadFiles:
        """Returns the files as they were."""
        return ReadFiles(self._core.files)

    def state(self, slice: str | None=None, *, pointer: str | None=None) -> Any:
        """Returns the state as it was: its slices, or one of them, or a part of one."""
        return LOOP.wait(self._core.state(slice, pointer=pointer))


class Session(SessionPast):
    """A session: a workspace with its history."""

    def __init__(self, core: _session.Session) -> None:
        super().__init__(core)
        self._own: _session.Session = core

    @property
    def id(self) -> str:
        """Returns its identity: 32 hexadecimal digits."""
        return self._own.id

    @property
    def name(self) -> str:
        """Returns its name."""
        return self._own.name

    @property
    def backend(self) -> str:
        """Returns the backend of its workspace."""
        return self._own.backend

    @property
    def files(self) -> Files:
        """Returns its files as they are now."""
        return Files(self._own.files)

    @property
    def absolute(self) -> AbsoluteFiles:
        """Returns files by the absolute paths that commands know, also outside of the workspace."""
        return AbsoluteFiles(self._own.absolute)

    def show(self) -> _models.Session:
        """Describes it as it is now."""
        return LOOP.wait(self._own.show())

    def head(self) -> int:
        """Returns the position of its last event."""
        return LOOP.wait(self._own.head())

    def at(self, position: PositionLike) -> Snapshot:
        """Returns the session as it was at a position."""
        return Snapshot(self._own.at(position))

    def run(self, command: Command, *, cwd: str='', env: Mapping[str, str] | None=None, stdin: str | bytes=b'', timeout: float | None=None, check: bool=False, on_output: Output | None=None, merge_output: bool=False) -> CommandResult:
        """Runs a command to its end. It has no time limit unless ``timeout`` gives one in seconds.

        A command that fails has a result, with ``check`` it raises ``CommandFailedError``. A failure that is not the
        command's own raises ``InfrastructureError``, a refusal ``RefusedError``. ``merge_output`` puts standard error
        in standard output. Who cancels the task cancels the command.
        """
        return LOOP.wait(self._own.run(command, cwd=cwd, env=env, stdin=stdin, timeout=timeout, check=check, on_output=on_output, merge_output=merge_output))

    def start(self, command: Command, *, cwd: str='', env: Mapping[str, str] | None=None, stdin: str='', input: bool=False, window: tuple[int, int] | None=None, timeout: float | None=None) -> Process:
        """Starts a command that runs on in the background. ``input`` keeps its standard input open; ``window``, rows
        and columns, gives it a terminal."""
        return Process(LOOP.wait(self._own.start(command, cwd=cwd, env=env, stdin=stdin, input=input, window=window, timeout=timeout)))

    def processes(self) -> list[Process]:
        """Lists the processes in the background, and those that ended lately."""
        return [Process(each) for each in LOOP.wait(self._own.processes())]

    def process(self, number: int) -> Process:
        """Returns a process by its number."""
        return Process(LOOP.wait(self._own.process(number)))

    def call(self, tool: str, params: Mapping[str, Any] | None=None, *, on_output: Output | None=None, timeout: float | None=None) -> CallOutcome:
        """Makes a tool call, and raises when it fails."""
        return LOOP.wait(self._own.call(tool, params, on_output=on_output, timeout=timeout))

    def tools(self) -> list[_models.Tool]:
        """Lists the tools that it has."""
        return LOOP.wait(self._own.tools())

    def cancel(self, call: int) -> None:
        """Cancels a call in flight."""
        LOOP.wait(self._own.cancel(call))

    def fork(self, *, count: int=1, at: PositionLike | None=None, name: str | None=None, agent: str | None=None, limits: Mapping[str, Any] | None=None) -> list[Session]:
        """Forks it ``count`` times, as it is now or was at a position: all or none begin."""
        return [Session(each) for each in LOOP.wait(self._own.fork(count=count, at=at, name=name, agent=agent, limits=limits))]

    def clone(self, *, isolation: str='fork', at: PositionLike | None=None, name: str | None=None, agent: str | None=None) -> Session:
        """Clones it: a ``fork``, its mounts afresh (``full``), or itself for another agent (``shared``)."""
        return Session(LOOP.wait(self._own.clone(isolation=isolation, at=at, name=name, agent=agent)))

    def merge(self, child: str | Identified, *, theirs: Sequence[str]=(), ours: Sequence[str]=(), generated: Sequence[str]=(), dry_run: bool=False) -> Merge:
        """Merges what a child changed. ``theirs`` and ``ours`` are paths and globs (``src``, ``*.lock``) at or below
        which conflicts are decided for that side; one that fits no entry is an error. Undecided conflicts leave the
        session as it is, with ``outcome`` ``conflicted``.

        Generated files don't conflict: the session's own stay. They are ``__pycache__`` and other caches of tools,
        what ``.gitignore`` files ignore, and what the globs of ``generated`` fit.
        """
        return LOOP.wait(self._own.merge(child, theirs=theirs, ours=ours, generated=generated, dry_run=dry_run))

    def apply(self, to: str | None=None, *, take: Sequence[str]=(), keep: Sequence[str]=(), generated: Sequence[str]=(), dry_run: bool=False) -> _models.Applied:
        """Merges what it changed into a directory of this machine: by default the one that it began from.

        ``take`` and ``keep`` decide conflicts for the session's side and the directory's, as in ``merge``.
        """
        return LOOP.wait(self._own.apply(to, take=take, keep=keep, generated=generated, dry_run=dry_run))

    def rewind(self, to: PositionLike, *, force: bool=False, keep_earlier: bool=False, dry_run: bool=False) -> Rewind:
        """Takes log and files back to a position. The rewind is an event, and can be undone."""
        return LOOP.wait(self._own.rewind(to, force=force, keep_earlier=keep_earlier, dry_run=dry_run))

    def undo(self, *, call: int | None=None, run: str | None=None, to: PositionLike | None=None, external: bool | int | None=None, redo: bool=False, overwrite: bool=False, force: bool=False, dry_run: bool=False) -> _models.Undone:
        """Takes back what calls changed in the files, and keeps what others changed: one call, those of an agent's run,
        or all after a position; without any the latest call that is not undone. `external` takes changes from outside of
        any call, `redo` the latest undo. What stays is listed in `left`, each path with its reason.
        """
        return LOOP.wait(self._own.undo(call=call, run=run, to=to, external=external, redo=redo, overwrite=overwrite, force=force, dry_run=dry_run))

    def revert(self, paths: list[str], at: PositionLike, *, force: bool=False, dry_run: bool=False) -> _models.Undone:
        """Gives paths, and all below them, the entries that they had at a position. What is there only now stays."""
        return LOOP.wait(self._own.revert(paths, at, force=force, dry_run=dry_run))

    def bisect(self, command: Command | None=None, *, slice: str | None=None, good: PositionLike | None=None, bad: PositionLike | None=None, jobs: int=1, timeout: float | None=None) -> Bisect:
        """Finds the first change after which a command fails, or a predicate over slices holds."""
        return LOOP.wait(self._own.bisect(command, slice=slice, good=good, bad=bad, jobs=jobs, timeout=timeout))

    def rerun(self, *, until: PositionLike | None=None, backend: str | None=None, options: Mapping[str, Any] | None=None, keep: str | None=None, rules: Mapping[str, Any] | None=None) -> Rerun:
        """Runs its recorded calls again in a fresh session, and tells every difference. The fresh session has a
        workspace like this one's, unless ``backend`` says otherwise, and is thrown away, unless ``keep`` names it.
        ``rules`` describe accepted differences: ``texts``, ``ignore_fields``, ``ignore_paths``, ``text_files``."""
        return LOOP.wait(self._own.rerun(until=until, backend=backend, options=options, keep=keep, rules=rules))

    def events(self, start: int | None=None) -> Iterator[Event]:
        """Gives its events from a position on, and those that come, until it is removed. It reconnects."""
        return LOOP.iterate(self._own.events(start))

    def state(self, slice: str | None=None, *, pointer: str | None=None) -> Any:
        """Returns its state: its slices, or one of them, or a part of one."""
        return LOOP.wait(self._own.state(slice, pointer=pointer))

    def annotate(self, name: str, *, score: float | None=None, note: str | None=None, value: Any=None, at: PositionLike | None=None) -> int:
        """Records a score, a note or a value for a position, and returns the position of that."""
        return LOOP.wait(self._own.annotate(name, score=score, note=note, value=value, at=at))

    def annotations(self, name: str | None=None) -> list[Annotation]:
        """Lists the annotations."""
        return LOOP.wait(self._own.annotations(name))

    def tag(self, name: str, at: PositionLike | None=None) -> int:
        """Names a position; ``"tag:NAME"`` is a position from then on."""
        return LOOP.wait(self._own.tag(name, at))

    def tags(self) -> dict[str, int]:
        """Lists the names of positions."""
        return LOOP.wait(self._own.tags())

    def untag(self, name: str) -> None:
        """Removes the name of a position."""
        LOOP.wait(self._own.untag(name))

    def mount(self, host_path: str, mount_path: str | None=None, *, exclude: Sequence[str]=()) -> Any:
        """Copies a directory of this machine into the workspace."""
        return LOOP.wait(self._own.mount(host_path, mount_path, exclude=exclude))

    def verify(self) -> _models.Verification:
        """Folds its history again, and compares."""
        return LOOP.wait(self._own.verify())

    def remove(self) -> None:
        """Removes it, with its history."""
        LOOP.wait(self._own.remove())

    def __repr__(self) -> str:
        return self._own.__repr__()

    def _repr_html_(self) -> str:
        return self._own._repr_html_()


class ReadFiles:
    """Files that are only read."""

    def __init__(self, core: _files.ReadFiles) -> None:
        self._core: _files.ReadFiles = core

    def read(self, path: str) -> bytes:
        """Returns the contents of a file."""
        return LOOP.wait(self._core.read(path))

    def read_text(self, path: str, encoding: str='utf-8') -> str:
        """Returns the contents of a file as text."""
        return LOOP.wait(self._core.read_text(path, encoding))

    def stream(self, path: str) -> Iterator[bytes]:
        """Gives the contents of a file piece by piece."""
        return LOOP.iterate(self._core.stream(path))

    def list(self, path: str='', *, depth: int=1) -> Entries:
        """Lists the entries of a directory; more levels of it with ``depth``."""
        return LOOP.wait(self._core.list(path, depth=depth))

    def tree(self, path: str='') -> Tree:
        """Lists all entries below a directory."""
        return LOOP.wait(self._core.tree(path))

    def stat(self, path: str) -> EntryAtPath:
        """Describes an entry."""
        return LOOP.wait(self._core.stat(path))

    def exists(self, path: str) -> bool:
        """Tells whether there is an entry."""
        return LOOP.wait(self._core.exists(path))

    def download(self, path: str='') -> bytes:
        """Returns a directory as a tar archive."""
        return LOOP.wait(self._core.download(path))


class Files(ReadFiles):
    """Files of a session as they are now. Each change is a call of its log."""

    def __init__(self, core: _files.Files) -> None:
        super().__init__(core)
        self._own: _files.Files = core

    def write(self, path: str, data: Data, *, executable: bool | None=None, create: bool=False) -> CallOutcome:
        """Writes a file, with the directories above it. With ``create`` it must not be there yet."""
        return LOOP.wait(self._own.write(path, data, executable=executable, create=create))

    def remove(self, path: str, *, recursive: bool=False) -> CallOutcome:
        """Removes a file, a link or a directory; one that is not empty with ``recursive``."""
        return LOOP.wait(self._own.remove(path, recursive=recursive))

    def move(self, source: str, target: str, *, replace: bool=False) -> CallOutcome:
        """Moves an entry."""
        return LOOP.wait(self._own.move(source, target, replace=replace))

    def mkdir(self, path: str) -> CallOutcome:
        """Makes a directory, with those above it; one that is there is fine."""
        return LOOP.wait(self._own.mkdir(path))

    def upload(self, data: Data, path: str='') -> CallOutcome:
        """Unpacks a tar archive in a directory, as one call."""
        return LOOP.wait(self._own.upload(data, path))

    def watch(self, path: str='', *, recursive: bool=True) -> Iterator[dict[str, Any]]:
        """Gives the changes below a directory as they come: ``path``, ``kind`` and ``seq``."""
        return LOOP.iterate(self._own.watch(path, recursive=recursive))


class Process:
    """A process that runs in the background, or has ended."""

    def __init__(self, core: _process.Process) -> None:
        self._core: _process.Process = core

    @property
    def number(self) -> int:
        """Returns its number: the position of the call that started it."""
        return self._core.number

    def show(self) -> _models.Process:
        """Describes it as it is now."""
        return LOOP.wait(self._core.show())

    def wait(self, timeout: float | None=None) -> _models.Process:
        """Waits for its end, or for the time to pass, and describes it."""
        return LOOP.wait(self._core.wait(timeout))

    def send(self, data: str | bytes=b'', *, end: bool=False) -> None:
        """Sends standard input, and ends it with ``end``."""
        LOOP.wait(self._core.send(data, end=end))

    def resize(self, rows: int, columns: int) -> None:
        """Changes the size of its terminal."""
        LOOP.wait(self._core.resize(rows, columns))

    def signal(self, signal: str | int='TERM') -> None:
        """Sends it a signal."""
        LOOP.wait(self._core.signal(signal))

    def kill(self) -> None:
        """Kills it."""
        LOOP.wait(self._core.kill())

    def output(self, start: int=0) -> Iterator[tuple[str, bytes]]:
        """Gives what it prints, with the stream's name: what is kept of it, then what comes, until it ends."""
        return LOOP.iterate(self._core.output(start))

    def collect(self, on_output: Output | None=None) -> CommandResult:
        """Waits for its end, and returns all that it printed."""
        return LOOP.wait(self._core.collect(on_output))

    def feed_and_collect(self, data: bytes, on_output: Output | None=None) -> CommandResult:
        """Sends standard input to its end, while what it prints is collected."""
        return LOOP.wait(self._core.feed_and_collect(data, on_output))


class Client:
    """A client of the server that has the data, which is started where none runs.

    ``data`` is the directory of the data; by default ``FOLDSPACE_DATA``, else that of the command line. ``progress``
    set to false shows nothing about long work. A client belongs to one event loop.
    """

    def __init__(self, data: str | os.PathLike[str] | None=None, *, progress: bool | None=None) -> None:
        self._core: _client.Client = _client.Client(data, progress=progress)

    @property
    def data(self) -> Path:
        """Returns the directory of the data."""
        return self._core.data

    def __enter__(self) -> Client:
        LOOP.wait(self._core.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        LOOP.wait(self._core.__aexit__(kind, error, trace))

    def close(self) -> None:
        """Closes its connections. The server goes on, and ends when nobody uses it."""
        LOOP.wait(self._core.close())

    def create(self, name: str | None=None, *, backend: str | None=None, mount: str | os.PathLike[str] | None=None, mounts: Mapping[str, str] | None=None, exclude: Sequence[str]=(), directory: str | os.PathLike[str] | None=None, image: str | None=None, options: Mapping[str, Any] | None=None, env: Mapping[str, str] | None=None, workdir: str | None=None, create_id: str | None=None, allow: Sequence[str]=(), deny: Sequence[str]=(), auto_confirm: bool=False, on_question: Ask | None=None, agent: str | None=None) -> Session:
        """Begins a session.

        ``backend``: ``memory`` (the default, where nothing can run), ``host``, ``podman``, ``docker``, ``mock`` or
        ``container``. ``mount`` copies a directory of this machine into it, ``mounts`` several ({place: directory}),
        without what ``exclude`` matches; ``directory`` works in a directory itself. Commands that the policy does not
        allow are allowed by ``allow``, ``auto_confirm`` or ``on_question``. ``create_id``: the same again gives the
        session that has begun by it.
        """
        return Session(LOOP.wait(self._core.create(name, backend=backend, mount=mount, mounts=mounts, exclude=exclude, directory=directory, image=image, options=options, env=env, workdir=workdir, create_id=create_id, allow=allow, deny=deny, auto_confirm=auto_confirm, on_question=on_question, agent=agent)))

    def open(self, session: str, *, allow: Sequence[str]=(), deny: Sequence[str]=(), auto_confirm: bool=False, on_question: Ask | None=None, agent: str | None=None) -> Session:
        """Returns a session that is there, by its name or the beginning of its id."""
        return Session(LOOP.wait(self._core.open(session, allow=allow, deny=deny, auto_confirm=auto_confirm, on_question=on_question, agent=agent)))

    def sessions(self) -> list[_models.Session]:
        """Lists all sessions, the oldest first."""
        return LOOP.wait(self._core.sessions())

    def tools(self) -> list[_models.Tool]:
        """Lists the tools of all sessions."""
        return LOOP.wait(self._core.tools())

    def server(self) -> _models.ServerStatus:
        """Tells what the server does."""
        return LOOP.wait(self._core.server())

    def health(self) -> _models.Health:
        """Tells whether the server is well."""
        return LOOP.wait(self._core.health())

    def metrics(self) -> str:
        """Returns the server's figures, as Prometheus reads them."""
        return LOOP.wait(self._core.metrics())

    def stop_server(self) -> None:
        """Ends the server: calls in flight get some time."""
        LOOP.wait(self._core.stop_server())


@contextmanager
def session(name: str | None=None, *, backend: str | None=None, mount: str | os.PathLike[str] | None=None, mounts: Mapping[str, str] | None=None, exclude: Sequence[str]=(), directory: str | os.PathLike[str] | None=None, image: str | None=None, options: Mapping[str, Any] | None=None, env: Mapping[str, str] | None=None, workdir: str | None=None, create_id: str | None=None, allow: Sequence[str]=(), deny: Sequence[str]=(), auto_confirm: bool=False, on_question: Ask | None=None, agent: str | None=None, data: str | os.PathLike[str] | None=None, progress: bool | None=None, remove: bool=False) -> Generator[Session, None, None]:
    """Begins a session, and closes the connection at the end. The session stays, with its history, unless ``remove``
    is set. The parameters are those of ``Client`` and ``Client.create``."""
    with LOOP.enter(_client.session(name, backend=backend, mount=mount, mounts=mounts, exclude=exclude, directory=directory, image=image, options=options, env=env, workdir=workdir, create_id=create_id, allow=allow, deny=deny, auto_confirm=auto_confirm, on_question=on_question, agent=agent, data=data, progress=progress, remove=remove)) as core:
        yield Session(core)


@contextmanager
def attach(session: str, *, allow: Sequence[str]=(), deny: Sequence[str]=(), auto_confirm: bool=False, on_question: Ask | None=None, agent: str | None=None, data: str | os.PathLike[str] | None=None, progress: bool | None=None) -> Generator[Session, None, None]:
    """Opens a session that is there, by its name or the beginning of its id."""
    with LOOP.enter(_client.attach(session, allow=allow, deny=deny, auto_confirm=auto_confirm, on_question=on_question, agent=agent, data=data, progress=progress)) as core:
        yield Session(core)
