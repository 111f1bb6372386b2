"""Types of parameters."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, Protocol, TypedDict, Union

if TYPE_CHECKING:
    from foldspace._models import SubagentCall

PositionLike = Union[int, str]
"""A position: an event number, -5 for five events ago, "10m" for ten minutes ago, or "tag:NAME"."""

Command = Union[str, Sequence[str]]
"""A command line for ``/bin/sh -c``, or a program with its arguments."""

Call = Union[str, "SubagentCall"]
"""A call to make in a fork: a command line for ``/bin/sh -c``, or ``{"tool": ..., "params": {...}}``."""

Run = Union[Call, Sequence[Call], Sequence[Sequence[Call]]]
"""The calls of rollouts: a call, or a list of calls, for all; or a list of calls for each."""

Data = Union[str, bytes, bytearray, memoryview, BinaryIO, AsyncIterable[bytes]]
"""The contents of a file."""

Output = Callable[[str, bytes], None]
"""Receives output as it comes: ``"stdout"`` or ``"stderr"``, and the bytes."""


class Question(NamedTuple):
    """A command that needs an approval."""

    command: str
    """The command."""
    programs: list[str]
    """The programs in it that need the approval."""
    call: int
    """The position of its call."""
    document: dict[str, Any]
    """The server's document of the question."""


Answer = Literal["once", "session", "everything", "refuse"]
"""An answer: yes for this call, for its programs in this session, for everything in this session that is not denied; or no."""

Ask = Callable[[Question], Answer]
"""Answers a question."""


class Identified(Protocol):
    """A session of either client."""

    @property
    def id(self) -> str:
        """The session's id."""
        ...


class Limits(TypedDict, total=False):
    """Limits of a child. A missing field means unlimited; a grandchild has the narrower of both limits."""

    calls: int
    """The most tool calls."""
    wall_millis: int
    """The most milliseconds of all its calls together."""
    bytes_written: int
    """The most bytes written to files; every write counts."""
    depth: int
    """The most generations of children below it; 0 for none."""
    tools: list[str]
    """The only tools that it may use."""
    deny: list[str]
    """Programs, optionally with their first words, that its commands may not run."""


class CommandOptions(TypedDict, total=False):
    """Options of all commands of a session, for every backend that runs commands."""

    environment: Mapping[str, str]
    """Variables of all commands, at most 64."""
    record_environment: bool
    """True to record the values of ``environment``, not only their digests."""
    workdir: str
    """The default working directory, created if missing."""
    output_bytes: int
    """Bytes of each stream that a tool returns: 1 KiB to 1 MiB."""
    keep_output_bytes: int
    """Bytes of each stream that are recorded: 1 KiB to 8 MiB."""
    merge_output: bool
    """True to merge standard error into standard output."""
    generated: Sequence[str]
    """Globs of files that commands generate, at most 64. A merge never conflicts over these files."""


class HostOptions(CommandOptions, total=False):
    """Options of the backend ``host``."""

    directory: str
    """The directory of this machine that is the workspace, as ``directory`` of ``create``."""
    files_only: bool
    """True to only read and write files; no command runs."""
    gitignore: bool
    """True to leave out git's own files and files that git ignores."""
    include: Sequence[str]
    """Paths below the directory that are always recorded."""
    keep_ignored: bool
    """True to record small files that git ignores, too, except in build and dependency directories."""
    keep_secrets: bool
    """True to store the contents of files that look like secrets."""
    mount: bool
    """True for files in a mount that forks share; ``backend="mount"`` sets it. Needs root, and no directory."""


class NetworkRules(TypedDict, total=False):
    """Rules for the hosts that commands may reach: ``example.com``, ``*.example.com``, ``10.0.0.0/8``, ``*``, each with a
    port or not (``example.com:443``). The most specific one decides."""

    allow: Sequence[str]
    """The hosts that they may reach; all public ones if there are none."""
    deny: Sequence[str]
    """The hosts that they may not reach."""
    public_only: bool
    """True to refuse private addresses even if a rule names them."""
    record_http: Sequence[str]
    """The hosts to record HTTP and HTTPS with; none by default."""
    mask: Sequence[str]
    """Regular expressions of text to mask in recorded requests and responses, besides well-known secrets."""


class ContainerOptions(CommandOptions, total=False):
    """Options of the backends ``podman``, ``docker`` and ``container``."""

    image: str
    """The image, as ``image`` of ``create``."""
    pull: bool
    """True to pull a missing image; otherwise a missing image is an error."""
    directory: str
    """The directory of this machine that is the workspace, as ``directory`` of ``create``."""
    copy_on_write: bool
    """True to work in a copy of ``directory``; ``apply`` merges the changes back."""
    memory_bytes: int
    """The limit for memory, in bytes. Swap is disabled."""
    cpus: float
    """The limit for processors."""
    pids: int
    """The limit for processes and threads."""
    tmp_bytes: int
    """The size of the memory file system at ``/tmp``, in bytes."""
    reserve_bytes: int
    """Bytes that stay free on the disk of the files."""
    also_at: str
    """A second path in the container for the workspace, such as ``/app``, which commands start in."""
    writable_root: bool
    """True to run commands as root of a user namespace, with a writable root file system. Podman only."""
    network: bool | Literal["engine"] | NetworkRules
    """True or rules to give commands a network whose connections are recorded; ``"engine"`` for the engine's own."""
    public_ports: list[int]
    """The ports that anyone may reach through ``foldspace serve --http``, without a token."""
    idle_seconds: int
    """Seconds without a call until the container is stopped; 0 for never."""
    uptime_seconds: int
    """Seconds after its start until the container is removed; 0 for never."""
    name_prefix: str
    """The beginning of the container's name."""
    overlay: Literal["auto", "never"]
    """Use of an overlay for the files."""
    connection: str
    """The engine's address, such as ``unix:///run/podman/podman.sock``; detected by default."""


class MockRule(TypedDict, total=False):
    """An answer of the backend ``mock``; ``command`` is required."""

    command: str
    """A glob over the command's text."""
    exit_code: int
    """Its exit code; 0 by default."""
    stdout: str
    """Its standard output."""
    stderr: str
    """Its standard error."""
    millis: int
    """Its running time in milliseconds."""
    failure: str
    """The reason that the shell itself fails, if it does."""


class MockOptions(CommandOptions, total=False):
    """Options of the backend ``mock``."""

    answers: Sequence[MockRule]
    """The answers; the first match is used."""


Options = Union[ContainerOptions, HostOptions, MockOptions]
"""Options of a backend. The API refuses unknown names."""
