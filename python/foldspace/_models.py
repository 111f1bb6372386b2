"""The documents of the API. Made by generate.py from docs/openapi.json."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Any, Literal, TypedDict, Union

from typing_extensions import NotRequired

from foldspace.types import Limits


class AlignedCall(TypedDict):
    """A call and its outcome."""

    call: int
    """The position of its intent."""
    finished: int | None
    """The position of its outcome."""
    tool: str
    """The tool."""
    summary: str
    """Its command, path or pattern, in one line. Misleading characters are escaped."""
    status: str
    """`ok`, `error`, `interrupted` or `running`."""
    exit_code: int | None
    """The exit code in its result."""
    micros: int | None
    """Its duration in microseconds."""


class AlignedRow(TypedDict):
    """A pair of matching calls, or an unmatched call."""

    left: AlignedCall | None
    """The session's call; null if only the other session made it."""
    right: AlignedCall | None
    """The other session's call; null if it did not make it."""
    same: bool
    """True if both sessions made the call."""
    result_differs: bool
    """True if both sessions made the call, with different outcomes."""


class Alignment(TypedDict):
    """The aligned calls of two sessions."""

    rows: list[AlignedRow]
    """The rows, in the order of both sessions."""
    more: bool
    """True if either session has more calls than were compared."""


class Annotation(TypedDict):
    """A score, a note or a value for a position."""

    seq: int
    """The position of its event."""
    agent: str
    """The agent or program that made it; empty for none."""
    name: str
    """The subject, such as `reward`."""
    at: int
    """The annotated position."""
    score: float | None
    """The score, or null."""
    note: str | None
    """The text, or null."""
    value: Any
    """The value for programs, or null."""


class Applied(TypedDict):
    """The outcome of applying changes to a directory."""

    child: str
    """Child session."""
    child_name: str
    """Name of the child."""
    base: int
    """Position in the child's history before the merged changes."""
    child_at: int
    """Position of the last merged changes."""
    outcome: str
    """Outcome of the merge: `nothing`, `merged` or `conflicted`."""
    seq: int | None
    """Position of the merge's event in the parent; null if nothing was recorded."""
    merged: list[dict[str, Any]]
    """Entries written and removed, in a preview the planned ones: `path`, `from`, `both`, `change`."""
    conflicts: list[dict[str, Any]]
    """Entries that both sides changed: `path`, `kind`, `base`, `ours`, `theirs`, `resolved`."""
    left_out: list[str]
    """Sockets and devices of the child, which are not merged; and entries that could not be made for it, which stay."""
    generated: list[str]
    """Generated files that both sides changed: the parent's versions stay."""
    slices: list[str]
    """Declared slices with the child's changes."""
    unused: list[str]
    """Paths, globs and hunks with a chosen side but without a conflict."""
    repeated: NotRequired[bool]
    """True if an earlier request with the same `call_id` made the merge. `left_out`, `generated`, `unused`, and `merged` of a conflict are then empty, because they are not recorded."""
    into: str
    """The session merged into."""
    into_name: str
    """Its name."""
    dry_run: bool
    """True if it was a dry run."""
    hunks: NotRequired[list[ConflictHunk] | None]
    """The lines in conflict, with `patch`."""
    directory: str
    """The directory."""


class ApplyRequest(TypedDict):
    """Merges a session's changes into the directory that it started from, with a three-way merge against the directory's current state."""

    to: NotRequired[str | None]
    """Another directory: existing, not empty, and below a directory that the server allows."""
    take: NotRequired[list[str]]
    """Paths and globs where the session's side wins conflicts, also below them; `/` for all. A path or glob that matches no entry of either side is an error."""
    keep: NotRequired[list[str]]
    """Paths and globs where the directory's side wins conflicts, also below them."""
    generated: NotRequired[list[str]]
    """Globs of additional generated files. If both sides changed one, the directory's version stays, as in `merge`."""
    dry_run: NotRequired[bool]
    """True to only report what would be done. The directory's current state is recorded nevertheless."""
    agent: NotRequired[str | None]
    """The agent who applies the changes."""
    allow_roots: NotRequired[list[str]]
    """Host directories that may contain `to`, instead of the server's. Only for clients on the unix socket, from the server's sandbox."""


class AtMostRule(TypedDict):
    """A limit for the calls of a tool."""

    tool: str
    """The tool."""
    n: int
    """The number of calls since the policy was set. A refused call does not count."""


class AttachDirectory(TypedDict):
    """Attaches a directory."""

    directory: str
    """The directory. Inside a git repository, the whole worktree is attached."""
    include: NotRequired[list[str]]
    """Paths below it to record, with everything below them, even if git ignores them."""
    transcripts: NotRequired[bool]
    """True to store agents' prompts and tool outputs in full, instead of the first line and a digest of each."""
    keep_ignored: NotRequired[bool | None]
    """True to record small ignored files, except in generated directories. Default: the current setting, or else true."""
    keep_secrets: NotRequired[bool | None]
    """True to store, on this machine only, the contents of files that look like secrets. Default: the current setting, or else true."""
    own_copy: NotRequired[int | None]
    """Limit for copies of contents that exist only in git, in bytes; 0 disables them. Default: the current setting, or else 1 GiB."""


class AttachedDirectory(TypedDict):
    """A directory with agents that report to a session."""

    directory: str
    """The directory."""
    session: str
    """The session."""
    transcripts: bool
    """True if agents' prompts and tool outputs are stored in full, not just the first line and a digest of each."""
    include: NotRequired[list[str]]
    """Paths that are recorded, with everything below them, even if git ignores them."""
    keep_ignored: bool
    """True if small ignored files are recorded, except in generated directories."""
    keep_secrets: bool
    """True if the contents of files that look like secrets are stored, on this machine only."""
    own_copy: int
    """Limit for copies of contents that exist only in git, in bytes; 0 disables them."""
    worktree_of: NotRequired[str | None]
    """For an additional worktree, the attached directory of the same repository. The worktree's session is a fork."""


class AttachedDocument(TypedDict):
    """An attached directory, with a summary of its recorded files."""

    directory: str
    """The directory."""
    session: str
    """The session."""
    name: str
    """Its name."""
    files: int
    """The number of recorded files."""
    borrowed: int
    """The number of recorded files with borrowed contents, which git has."""
    not_kept: list[str]
    """Files recorded only by digest, since they are large or look like secrets."""
    ignored: NotRequired[IgnoredLeftOut | None]
    """Ignored entries that exceed a limit."""
    keep_ignored: bool
    """True if small ignored files are recorded."""
    keep_secrets: bool
    """True if the contents of files that look like secrets are stored, on this machine only."""
    own_copy: int
    """Limit for copies of contents that exist only in git, in bytes; 0 disables them."""


class BadChange(TypedDict):
    """A change that made the position bad."""

    seq: int
    """Its position."""
    agent: str
    """The agent that made it."""
    time: str
    """The time, in UTC."""
    call: Any
    """The `CallStarted` event of its call, with long texts in full; null if no call made it."""
    merged: BadMerge | None
    """The merge that made it, if it is one."""
    changes: list[Change]
    """Its file changes."""


class BadMerge(TypedDict):
    """A merge of a child that made a position bad."""

    child: str
    """The child."""
    name: str
    """The child's name."""
    seqs: list[int]
    """The child's changes that were merged, by position in its history."""


class Bisect(TypedDict):
    """The result of a bisection."""

    good: int
    """The last position known to be good."""
    first_bad: int | None
    """The first bad position; null if skipped positions hide it."""
    bad: list[BadChange]
    """The first bad change, or all candidates for it."""
    ends: BisectEnds
    """The ends of the search."""
    between: NotRequired[int | None]
    """The number of changes between them."""
    checks: NotRequired[list[Probe] | None]
    """The probes of the ends."""
    probes: NotRequired[list[Probe] | None]
    """The probes of the search."""
    several: NotRequired[bool | None]
    """True if a good position was found after a bad one."""
    left_out: NotRequired[list[str] | None]
    """Paths that existed in the session but were missing from the probes."""
    environment: NotRequired[list[EnvironmentDifference] | None]
    """Differences between the session's container at the bad end and the probes' container."""
    looks: NotRequired[list[SliceLook] | None]
    """The positions where the predicate was evaluated."""
    predicate: NotRequired[str | None]
    """The predicate."""


class BisectEnds(TypedDict):
    """The searched range of positions."""

    good: int
    """The good one."""
    bad: int
    """The bad one."""


class BisectRequest(TypedDict):
    """Finds the first change in a session's history after which a command fails or a predicate over slices holds."""

    command: NotRequired[ProbeCommand | None]
    """The command, which succeeds at the good position and fails at the bad one: a script for /bin/sh, or a program with its arguments. Exit code 125 skips a position. The command policy must allow it, once for all runs. Copies of a session with the `memory` backend run on the server's machine, without a sandbox."""
    slice: NotRequired[str | None]
    """Instead of a command, a predicate over slices, such as `count(VirtualFileSystem) > 10`."""
    good: NotRequired[Position | None]
    """A good position; by default before the first call, or for a predicate before the first event."""
    bad: NotRequired[Position | None]
    """A later, bad position; the last one by default."""
    jobs: NotRequired[int]
    """The number of concurrent probes, from 1 to 64."""
    timeout_seconds: NotRequired[float | None]
    """Time limit of each run, 0.1 to 600 seconds; 600 by default, 120 for a model."""
    allow: NotRequired[list[str]]
    """Programs that the command may run without a question."""
    auto_confirm: NotRequired[bool]
    """True to answer every question about the command with yes."""


class Blame(TypedDict):
    """A file with the change that wrote each line."""

    path: str
    """The path."""
    at: int
    """The position."""
    changes: list[dict[str, Any]]
    """The changes that wrote these lines, with session, position, path, cause, agent and time; across moves and merges."""
    observed: list[ObservedChange]
    """The changes among them that observed calls made, or that existed before a directory was attached."""
    lines: list[BlamedLine]
    """The lines."""
    unknown: list[int]
    """Positions of versions without known lines; all lines of the next version count as written by that version."""
    coarse: bool
    """True if versions differed in so many lines that some lines count as written later than they were."""


class BlamedLine(TypedDict):
    """A line with the event that wrote it."""

    line_number: int
    """Its number, from 1."""
    line: str
    """The line without its end."""
    session: str
    """The session of the event."""
    seq: int
    """Its position there."""


class CallChanges(TypedDict):
    """The numbers of entries that a call added, changed and removed, all in all."""

    added: int
    """New entries."""
    changed: int
    """Changed entries."""
    removed: int
    """Removed entries."""


class CallInFlight(TypedDict):
    """A call in flight."""

    session: str
    """The session."""
    name: str
    """The session's name."""
    call: int
    """The position of its intent, to cancel it with."""
    seconds: int
    """Seconds since it began."""
    question: Any
    """The pending question, as in the event `question` of its stream; null without one."""


class CallOutcome(TypedDict):
    """Outcome of a call; a tool's own failure is an outcome, too."""

    call: int
    """The call's id: the position of its intent."""
    finished: int
    """The position of its outcome."""
    status: str
    """Status of the call: `ok`, `error` or `interrupted`."""
    result: Any
    """The result of a success, else null."""
    text: str
    """The result or the error, as text for a model."""
    micros: int
    """Duration, in microseconds."""
    reason: str | None
    """The reason for a failure, else null: `invalid`, `not_found`, `refused`, `over_limit`, `too_large`, `timed_out`, `cancelled`; or `failed` if the store, the workspace or its backend failed."""
    ran: NotRequired[RanCommand | None]
    """The command that a success of `shell_execute` or `execute_script` ran to its end."""
    limit: NotRequired[UsedLimit | None]
    """The limit that a failure with the reason `over_limit` exceeded. It is not part of the record."""
    repeated: NotRequired[bool]
    """True if an earlier request with the same `call_id` made the call. `text` is then the result as JSON."""


class CallRequest(TypedDict):
    """Makes a tool call and waits for its outcome."""

    tool: str
    """The tool."""
    params: NotRequired[dict[str, Any]]
    """Its parameters."""
    agent: NotRequired[str | None]
    """The agent that makes the call; none by default."""
    timeout_seconds: NotRequired[float | None]
    """The time limit of the whole call in seconds, from 0.1 to 86,400. Default: 180 s plus the command's own timeout; 120 s for tools that run no command."""
    allow: NotRequired[list[str]]
    """Programs, or programs with their first arguments, that this call's command may run without a question."""
    deny: NotRequired[list[str]]
    """Programs, or programs with their first arguments, that this call's command may not run, whatever allows them."""
    max_timeout_seconds: NotRequired[float | None]
    """The largest `timeout_seconds` that its command may request, from 1 to 86,400; by default the server's `--max-timeout`, which is 600 unless set."""
    no_time_limit: NotRequired[bool]
    """Runs its command without a time limit unless it requests one, as for a command that a person typed."""
    auto_confirm: NotRequired[bool]
    """Approves every question about a command."""
    start_docker: NotRequired[str | None]
    """Text for the host's shell that starts the Docker daemon when the call's command runs `docker` on the host and no daemon answers; the server's `--start-docker` by default. It does not run what the policy denies."""
    python: NotRequired[PythonPlace | None]
    """The place where `evaluate_python` runs code: `in-process` or `container`. Default: the server's choice; without one, the session's container if it has one, else in process."""
    python_chars: NotRequired[int | None]
    """The most characters of code that runs in process, at most 48,000; 2,000 by default."""
    text_chars: NotRequired[int | None]
    """The most characters of a text that `write_file` or `edit_file` takes; 48,000 by default."""
    command_chars: NotRequired[int | None]
    """The most characters of its command, all arguments together; 1,048,576 by default. Linux accepts 131,071 bytes in one argument or script."""
    keep_file_bytes: NotRequired[int | None]
    """The most bytes to keep of each file that its command wrote, at most 4 GiB. A server keeps no more than its own default."""
    keep_step_bytes: NotRequired[int | None]
    """The most bytes to keep of all files that its command wrote, at most 4 GiB. A server keeps no more than its own default."""
    on_failure: NotRequired[OnFailure]
    """Treatment of the changes of a call that fails, or whose command exits non-zero: `keep`, the default, or `undo`."""
    call_id: NotRequired[str | None]
    """An id for retries, 1 to 200 bytes. A second request with the same id waits for the first call and returns its outcome with `repeated`. The session recognises the ids of its last 1,024 requests with an id."""
    all_output: NotRequired[bool]
    """Streaming only: block the command rather than drop output for a slow client. A client that reads nothing for 30 s is disconnected."""
    no_output: NotRequired[bool]
    """Streaming only: send no command output before the outcome."""


class CallsPage(TypedDict):
    """A page of calls."""

    head: int
    """The position of the session's last event."""
    next: int | None
    """The start of the next page; null at the end."""
    calls: list[ListedCall]
    """The calls."""


class Change(TypedDict):
    """A change of an entry with its patch."""

    change: str
    """`added`, `removed` or `changed`."""
    path: str
    """The path."""
    before: NotRequired[Entry | None]
    """The entry before."""
    after: NotRequired[Entry | None]
    """The entry after."""
    binary: bool
    """True if binary contents differ."""
    lines_added: int
    """The number of lines added."""
    lines_removed: int
    """The number of lines removed."""
    patch: str
    """The patch, for `git apply` and `patch -p1`."""


ChangeList = TypedDict('ChangeList', {'from': 'int', 'to': 'int', 'changes': 'list[ListedChange]', 'more': 'bool', 'live_at': 'NotRequired[int | None]'})
"""The entries that differ between two positions."""


class Child(TypedDict):
    """A child of a session."""

    session: str
    """The child; for a shared child, the parent itself."""
    name: str
    """Its name."""
    isolation: str
    """`shared`, `fork` or `full`."""
    at: int | None
    """The last position of the parent's history that it contains."""
    asked: int | None
    """The requested event, if it is inside a commit, so that the fork is at the commit's end; otherwise null."""
    parent: str
    """The parent."""
    parent_name: str
    """The parent's name."""
    agent: str
    """The agent who works in it."""
    backend: str
    """The backend of its workspace."""
    limits: Any
    """Its limits, if any: `calls`, `wall_millis`, `bytes_written`, `depth`, `tools`, `deny`."""
    left: list[str]
    """Past paths that a fork lacks: their contents were never stored, or they are sockets or devices."""
    effects: list[EffectEntry]
    """Effects of its parent outside of the workspace that a fork's history lacks."""


class ChildRequest(TypedDict):
    """Clones a session."""

    isolation: NotRequired[Literal['fork', 'full', 'shared']]
    """The part of the session that the clone gets: `fork` (the default), the history and files up to a position; `full`, only fresh copies of the mounts; `shared`, everything: the same session, under another agent name."""
    at: NotRequired[Position | None]
    """The position to fork at; the current state by default."""
    mount: NotRequired[bool]
    """True for a fork of a session on the host with its files in a mount, which shares files with other such forks instead of copying them. The server must be root."""
    name: NotRequired[str | None]
    """The clone's name; by default the session's name with a number."""
    agent: NotRequired[str | None]
    """The agent who works in it; required for a shared clone."""
    limits: NotRequired[Limits]
    """Limits of the clone: `calls`, `wall_millis`, `bytes_written`, `depth`, `tools`, `deny`."""
    policy: NotRequired[ToolPolicy | None]
    """A policy for tools that binds the clone, in addition to the session's. Not for a shared clone."""
    max_calls: NotRequired[int | None]
    """Limit for its calls."""
    max_seconds: NotRequired[int | None]
    """Limit for the total duration of its calls, in seconds."""
    max_bytes: NotRequired[int | None]
    """Limit for the bytes that it writes to files."""
    depth: NotRequired[int | None]
    """Limit for generations of clones below it."""
    tools: NotRequired[list[str] | None]
    """The only tools that it may use."""
    deny: NotRequired[list[str]]
    """Programs that its commands may not run."""
    allow_roots: NotRequired[list[str]]
    """For `full`: host directories that mounts may be copied from again, instead of the server's. Only for clients on the unix socket, from the server's sandbox."""


class ClaimEvidence(TypedDict):
    """A claim of success, and the failed command that it follows."""

    sentence: str
    """The sentence."""
    call: int
    """The call of the agent's last command, which failed."""
    tool: str
    """Its tool."""
    command: str
    """Its command, in one line."""
    ended: str
    """Its end: `exit 1`, `timed out`, `refused`, or the status of a call without an exit code."""
    exit_code: int | None
    """The exit code; null without one."""


class ClientStatus(TypedDict):
    """A client that stays connected."""

    process: int
    """Its process."""
    command: str
    """Its command line, cut at 200 characters."""
    seconds: int
    """Seconds since it connected."""


class ComparedBranch(TypedDict):
    """Calls that the same runs made."""

    parent: int | None
    """The index of the branch that it continues; null for the first branch."""
    runs: int
    """The number of runs that made these calls."""
    calls: int
    """The number of calls."""
    differing: int
    """The number of calls for which runs got different outcomes."""
    first: AlignedCall | None
    """The first call, as one of the runs made it: where the runs part. Null if no call is common to all runs."""
    session: str
    """The session of that call."""
    scores: dict[str, ScoreRange]
    """The scores of the runs, by name."""
    ended: list[ComparedRun]
    """The runs that end with this branch."""


class ComparedRun(TypedDict):
    """A run, and its end."""

    session: str
    """The session."""
    name: str
    """Its name."""
    calls: int
    """The number of its calls, including inherited calls."""
    failed: int
    """The number of calls that failed, or with a command that did."""
    micros: int
    """The total duration of its calls in microseconds."""
    last: AlignedCall | None
    """Its last call; null if it made none."""
    scores: dict[str, RunScore]
    """The latest annotation of each name, at most 20. A fork's annotations do not include its parent's."""


class ComparedRuns(TypedDict):
    """Runs, compared as a tree."""

    runs: int
    """The number of runs."""
    branches: list[ComparedBranch]
    """The branches. The first one has the calls that all runs made first; each other one follows its parent."""


class ConflictHunk(TypedDict):
    """Lines that both sides changed."""

    path: str
    """The path of the file."""
    hunk: int
    """The number of the hunk in the file, from 1."""
    ours: HunkSide
    """The parent's lines."""
    base: HunkSide
    """The lines before both changes."""
    theirs: HunkSide
    """The child's lines."""


class CopiedMounts(TypedDict):
    """The mounts that were copied."""

    copied: list[Any]
    """The mounts as recorded; empty if the workspace was not empty."""


class CopyMounts(TypedDict):
    """Copies host directories into a session's workspace if it is still empty."""

    mounts: list[NewMount]
    """The directories."""
    allow_roots: NotRequired[list[str]]
    """Host directories that mounts may come from, instead of the server's. Only for clients on the unix socket, from the server's sandbox."""


class DeclareSlice(TypedDict):
    """Declares a slice of your own for a session, or changes its declaration, and folds the session's past into it once."""

    rules: list[FoldRule]
    """The rules that fold events into it, 1 to 32."""
    merge: NotRequired[SliceMergePolicy]
    """Its value after a merge of a child: `ours` by default."""
    on_rewind: NotRequired[str | None]
    """Its value after a rewind: `restore`, the default, or `keep`."""
    agent: NotRequired[str | None]
    """The agent or program that declares it; none by default."""


class DeclaredSlice(TypedDict):
    """A declared slice."""

    name: str
    """The name: a letter, then up to 79 letters, digits, `_` or `-`."""
    rules: list[FoldRule]
    """The rules, 1 to 32."""
    merge: SliceMergePolicy
    """The value after a merge of a child: `ours` by default."""
    on_rewind: str
    """The value after a rewind: `restore`, the default, or `keep`."""
    version: int
    """The number of its declaration: 1 for the first of that name."""
    since: int
    """The position of the event that declared it, or set its value."""
    skipped: int
    """The number of events since then that fitted a rule and could not be folded: a pointer found nothing, a patch failed, or the slice was full (1 MiB)."""
    value: NotRequired[Any]
    """Its value; omitted in lists."""


class DetachDirectory(TypedDict):
    """Detaches a directory."""

    directory: str
    """The directory, or a path in it."""
    purge: NotRequired[bool]
    """True to also remove its session and the sessions of its other worktrees."""


Diff = TypedDict('Diff', {'session': 'str', 'name': 'str', 'from': 'int', 'to': 'int', 'changes': 'list[Change]', 'live_at': 'NotRequired[int | None]'})
"""The difference in the files between two positions."""


class DispatchRequest(TypedDict):
    """Creates a batch of children, makes the given calls in each, several children at a time, and returns the result of each child."""

    children: list[NewSubagent]
    """From 1 to 100 children, with at most 10,000 calls together."""
    parallel: NotRequired[int]
    """The number of children that work at the same time, from 1 to 16."""
    merge: NotRequired[bool]
    """True to merge the children that are done and have their own session, one after the other, in this order."""
    theirs: NotRequired[list[str]]
    """Paths and globs where the child's side wins conflicts, as for a merge."""
    ours: NotRequired[list[str]]
    """Paths and globs where the parent's side wins conflicts, as for a merge."""
    allow: NotRequired[list[str]]
    """Programs, or programs with their first arguments, that commands may run without a question."""
    deny: NotRequired[list[str]]
    """Programs, or programs with their first arguments, that commands may not run."""
    auto_confirm: NotRequired[bool]
    """True to answer every question about a command with yes."""


class Dispatched(TypedDict):
    """The results of a batch."""

    children: list[DispatchedChild]
    """The results, in the order of the children."""


class DispatchedCall(TypedDict):
    """A call of a child, and its outcome."""

    call: int
    """The position of its intent in the child's session."""
    tool: str
    """The tool."""
    status: str
    """`ok`, `error` or `interrupted`."""
    exit_code: int | None
    """The exit code in its result."""
    failed: bool
    """True if the call failed, or its command did."""
    text: str
    """The result or the error, as text for a model, cut at 4 KiB; shorter in batches of more than 1,024 calls."""
    micros: int
    """Its duration in microseconds."""


class DispatchedChild(TypedDict):
    """The result of a child."""

    session: str | None
    """The child's session; with shared isolation the parent's; null if it was not created."""
    name: str
    """The name of the session; empty if it was not created."""
    status: str
    """`done`; `failed`, at a call or an annotation; `not_started`, because it could not be created; or `cancelled`."""
    reason: str | None
    """The reason if it is not done; the reason if its merge failed."""
    calls: list[DispatchedCall]
    """The calls that ended, in order."""
    changed: list[str]
    """At most 1,000 paths that its calls changed, sorted."""
    more: bool
    """True if its calls changed more paths."""
    merge: str | None
    """`merged`, `nothing` if there was nothing to merge, `conflicted` or `failed`; null if it was not to be merged."""
    conflicts: list[str]
    """The paths in conflict, at most 1,000."""


Divergence = TypedDict('Divergence', {'differs': 'str', 'at': 'NotRequired[str | None]', 'was': 'NotRequired[Any]', 'is': 'NotRequired[Any]', 'change': 'NotRequired[str]', 'path': 'NotRequired[str]', 'before': 'NotRequired[Entry | None]', 'after': 'NotRequired[Entry | None]', 'binary': 'NotRequired[bool]', 'lines_added': 'NotRequired[int]', 'lines_removed': 'NotRequired[int]', 'patch': 'NotRequired[str]'})
"""A difference between two runs."""


class EffectEntry(TypedDict):
    """An effect."""

    seq: int
    """The position of its first event."""
    call: int | None
    """The call that made it, or null."""
    time: str
    """Its time, in UTC."""
    agent: str
    """The agent that made it; empty if unnamed."""
    what: str
    """The action, such as `git push`."""
    target: str
    """The place, such as a remote or a URL."""
    outcome: str
    """`done`, `failed`, or `unknown` if it may have taken place."""
    undo: str
    """Advice about undoing it; empty if there is none."""
    by: str
    """`command`, if a rule found it, `network`, if it is a recorded request, or `report`."""


class Entry(TypedDict):
    """The JSON form of an entry."""

    node: str
    """`file`, `symlink`, `directory` or `special`."""
    content: NotRequired[str | None]
    """The digest of a file's contents: 64 hexadecimal digits of BLAKE3."""
    size: NotRequired[int | None]
    """A file's size in bytes."""
    executable: NotRequired[bool | None]
    """True if a file is executable."""
    permissions: NotRequired[str | None]
    """The permission bits of a file or directory: four octal digits."""
    text: NotRequired[bool | None]
    """True if a file is text."""
    incomplete: NotRequired[bool | None]
    """True if a file's contents were not stored."""
    target: NotRequired[str | None]
    """The target of a symbolic link."""
    special: NotRequired[str | None]
    """`fifo`, `socket` or `device`."""
    version: int
    """The number of times that it was written."""
    created_at: str
    """Its creation time, in UTC."""
    updated_at: str
    """The time of its last write, in UTC."""


class EntryAtPath(TypedDict):
    """An entry with its path."""

    path: str
    """Its path from the workspace root, without a leading slash."""
    node: str
    """`file`, `symlink`, `directory` or `special`."""
    content: NotRequired[str | None]
    """The digest of a file's contents: 64 hexadecimal digits of BLAKE3."""
    size: NotRequired[int | None]
    """A file's size in bytes."""
    executable: NotRequired[bool | None]
    """True if a file is executable."""
    permissions: NotRequired[str | None]
    """The permission bits of a file or directory: four octal digits."""
    text: NotRequired[bool | None]
    """True if a file is text."""
    incomplete: NotRequired[bool | None]
    """True if a file's contents were not stored."""
    target: NotRequired[str | None]
    """The target of a symbolic link."""
    special: NotRequired[str | None]
    """`fifo`, `socket` or `device`."""
    version: int
    """The number of times that it was written."""
    created_at: str
    """Its creation time, in UTC."""
    updated_at: str
    """The time of its last write, in UTC."""
    live_at: NotRequired[int | None]
    """For an entry that was read from the disk: the last recorded position at that time."""


EnvironmentDifference = TypedDict('EnvironmentDifference', {'differs': 'str', 'was': 'str', 'is': 'str'})
"""A difference between the container of a recorded run and the present one."""


class Event(TypedDict):
    """An event: its session, position, time, agent and content."""

    session: str
    """The session: 32 hexadecimal digits."""
    seq: int
    """Its position, from 1."""
    time: str
    """Its time, in UTC."""
    call: int | None
    """The call id of its call."""
    agent: str
    """The agent that made the call; empty if none was named."""
    kind: str
    """Its type."""
    version: int
    """The version of its encoding."""
    event: Any
    """Its content; the shape depends on the kind."""


class Family(TypedDict):
    """A tree of sessions."""

    root: str
    """The root session of the tree."""
    sessions: list[FamilyMember]
    """At most 2,000 sessions, each after its parent, and each generation in order of creation."""
    more: bool
    """True if there are more sessions, or more events to search for merges."""


class FamilyMember(TypedDict):
    """A session of a tree."""

    session: str
    """Its identity: 32 hexadecimal digits."""
    name: str
    """Its name."""
    parent: str | None
    """Its parent, which may have been removed; null for a root."""
    at: int | None
    """The parent's position where it began."""
    isolation: str | None
    """`fork`, with the parent's history, or `full`, without."""
    agent: str
    """The agent that works in it, or else created it; empty if unnamed."""
    head: int
    """The position of its last event."""
    calls: int | None
    """The number of calls in its history; null if it can't be read."""
    merges: list[FamilyMerge]
    """The merges of its children into it, in order."""


class FamilyMerge(TypedDict):
    """An attempt to merge a child."""

    at: int
    """The position of its event."""
    child: str
    """The child."""
    child_at: int
    """The child's last position that was merged."""
    outcome: str
    """`merged`, or `conflicted`, if nothing was written."""
    conflicts: int
    """The number of conflicts, including conflicts with a chosen side."""


class FoldRule(TypedDict):
    """A rule that folds events of some kinds."""

    kinds: list[str]
    """The kinds of events, 1 to 64: own kinds such as `plan.step`, or built-in ones such as `CommandResult`."""
    where: NotRequired[str | None]
    """A condition on the event: a predicate over `data`, `kind`, `agent`, `call` and `seq`."""
    fold: DeclaredFold
    """The effect on the slice."""
    key: NotRequired[str | None]
    """A JSON pointer (RFC 6901) to the key in the event's data; required for `latest_by`, `remove_by`, `count_by` and `sum_by`. The key is a string, a number or a Boolean."""
    value: NotRequired[str | None]
    """A JSON pointer to the value in the event's data; the whole data by default. Required for `sum_by`."""
    max: NotRequired[int | None]
    """The most items of the list; only for `append`. The oldest are dropped."""


class ForkRequest(TypedDict):
    """Forks a session several times at one position."""

    count: NotRequired[int]
    """The number of forks, from 1 to 1,000; 1 by default."""
    at: NotRequired[Position | None]
    """The position to fork at; the current state by default."""
    mount: NotRequired[bool]
    """True for forks of a session on the host with their files in mounts, which share files instead of copying them. The server must be root."""
    name: NotRequired[str | None]
    """Name prefix; the forks are numbered from 1. Default: the session's name and free numbers."""
    agent: NotRequired[str | None]
    """The agent who works in the forks."""
    limits: NotRequired[Limits]
    """Limits of each fork: `calls`, `wall_millis`, `bytes_written`, `depth`, `tools`, `deny`."""
    policy: NotRequired[ToolPolicy | None]
    """A policy for tools that binds each fork, in addition to the session's."""
    create_id: NotRequired[str | None]
    """An idempotency key of at most 200 bytes. A retry with the same key returns the forks that the first request created."""


class Forks(TypedDict):
    """The created forks."""

    children: list[Child]
    """The forks."""


class Health(TypedDict):
    """The health of the server."""

    status: str
    """`ok`, or `ending` while it shuts down."""
    version: str
    """The program's version."""


class HookMessage(TypedDict):
    """A report of an agent's hook, as sent to the owner or spooled."""

    id: NotRequired[ReportId | None]
    """Id of the report. The owner records each report once, even if it is both sent and spooled."""
    agent: str
    """The kind of agent: `claude`, `codex`, `gemini`, `copilot` or `opencode`."""
    name: NotRequired[str | None]
    """The recorded agent name; by default that of the agent's kind."""
    event: NotRequired[str | None]
    """The hook's event, if the payload does not name it."""
    directory: str
    """The agent's working directory, or its project directory."""
    process: NotRequired[str | None]
    """The agent's process, as found by the hook."""
    payload: Any
    """The hook's payload. Null only makes the owner scan the disk."""


class HostStatus(TypedDict):
    """A host of a shared store."""

    name: str
    """Its name."""
    at: str | None
    """The URL for other hosts; null if they can't reach it."""
    lease_seconds: float
    """Seconds of silence before other hosts consider it dead."""
    waited_seconds: float | None
    """Seconds that it has been waiting for the store's cluster; null if it is not waiting."""


class HunkSide(TypedDict):
    """Lines of one side of a conflict."""

    first: int
    """The number of the first line, from 1; if there are no lines, they would begin there."""
    text: str
    """The lines, with their ends."""


class IgnoredLeftOut(TypedDict):
    """The number of ignored entries that exceed a limit, with the limits."""

    left_out: int
    """The number of files and directories that are not recorded. A directory counts as one."""
    file_bytes: int
    """Bytes of a file (exclusive)."""
    entries: int
    """Files and directories; at most half of them are directories or in ignored directories."""
    bytes: int
    """Total bytes of the files; at most half of them in ignored directories."""


class ListedCall(TypedDict):
    """A call in a list."""

    call: int
    """The call id: the position of its intent."""
    tool: str
    """The tool."""
    agent: str
    """The agent that made it; empty if none was named."""
    started_at: str
    """Its start time, in UTC."""
    status: str
    """`ok`, `error`, `interrupted` or `running`."""
    exit_code: Any
    """The exit code in its result; null without one."""
    timed_out: Any
    """True if its result reports a command that timed out; null without that field."""
    finished: int | None
    """The position of its outcome."""
    micros: int | None
    """Its duration in microseconds."""
    message: str
    """The error's text; empty after a success."""
    params: Any
    """Its parameters, with `{ "$content": digest, "bytes": n }` in place of a long text."""
    events: list[int]
    """The positions of its events."""
    paths: list[str]
    """The paths that it changed."""
    changed: CallChanges
    """The numbers of its changes."""
    shared: list[SharedPaths]
    """Changes that this call, another open call or, in doubt, a person may have made."""
    not_kept: list[str]
    """Changed paths with entries that can't be recreated: their contents were not stored, or they are sockets or devices."""
    lost: list[str]
    """Entries not made by the call that it removed or replaced and that can't be recreated. Entries that were never recorded are not listed."""
    summary: str
    """Its command, path or pattern, in one line. Misleading characters are escaped."""


class ListedChange(TypedDict):
    """A changed entry."""

    change: str
    """`added`, `removed` or `changed`."""
    path: str
    """The path."""
    before: NotRequired[Entry | None]
    """The entry before."""
    after: NotRequired[Entry | None]
    """The entry after."""
    kind: str
    """The kind of the entry after the change, or before it if removed: `file`, `symlink`, `directory` or `special`."""
    size: int
    """Its size in bytes."""


class MakeDirectory(TypedDict):
    """Makes a directory and its missing parents."""

    path: str
    """The directory, from the workspace root."""
    agent: NotRequired[str | None]
    """The agent that makes the change; none by default."""


class MaterialiseRequest(TypedDict):
    """Returns the files of a session at a position as a tar stream."""

    at: NotRequired[Position | None]
    """The position; the head by default."""
    below: NotRequired[str | None]
    """The directory to archive, with paths relative to it; the root by default."""


class Merge(TypedDict):
    """The outcome of a merge, done or not."""

    child: str
    """Child session."""
    child_name: str
    """Name of the child."""
    base: int
    """Position in the child's history before the merged changes."""
    child_at: int
    """Position of the last merged changes."""
    outcome: str
    """Outcome of the merge: `nothing`, `merged` or `conflicted`."""
    seq: int | None
    """Position of the merge's event in the parent; null if nothing was recorded."""
    merged: list[dict[str, Any]]
    """Entries written and removed, in a preview the planned ones: `path`, `from`, `both`, `change`."""
    conflicts: list[dict[str, Any]]
    """Entries that both sides changed: `path`, `kind`, `base`, `ours`, `theirs`, `resolved`."""
    left_out: list[str]
    """Sockets and devices of the child, which are not merged; and entries that could not be made for it, which stay."""
    generated: list[str]
    """Generated files that both sides changed: the parent's versions stay."""
    slices: list[str]
    """Declared slices with the child's changes."""
    unused: list[str]
    """Paths, globs and hunks with a chosen side but without a conflict."""
    repeated: NotRequired[bool]
    """True if an earlier request with the same `call_id` made the merge. `left_out`, `generated`, `unused`, and `merged` of a conflict are then empty, because they are not recorded."""
    into: str
    """The session merged into."""
    into_name: str
    """Its name."""
    dry_run: bool
    """True if it was a dry run."""
    hunks: NotRequired[list[ConflictHunk] | None]
    """The lines in conflict, with `patch`."""


class MergeRequest(TypedDict):
    """Merges a clone's changes since its beginning or last merge into the session that it was cloned from: files by path, text by line."""

    child: str
    """The child, by name or id prefix."""
    theirs: NotRequired[list[str]]
    """Paths and globs (`src`, `*.lock`, `docs/**`) where the child's side wins conflicts, also below them; `/` for all. `PATH:2` is the second hunk of a text file alone. A path or glob that matches no entry of either side is an error."""
    ours: NotRequired[list[str]]
    """Paths, globs and hunks where the parent's side wins conflicts, also below them."""
    generated: NotRequired[list[str]]
    """Globs of additional generated files. If both sides changed one, the parent's version stays without a conflict, as for `__pycache__`, other tool caches, and paths that the parent's `.gitignore` files ignore."""
    dry_run: NotRequired[bool]
    """True to only report what would be merged."""
    patch: NotRequired[bool]
    """True to return the lines in conflict, hunk by hunk."""
    agent: NotRequired[str | None]
    """The agent who merges."""
    call_id: NotRequired[str | None]
    """An id for retries, 1 to 200 bytes. A second request with the same id returns the recorded merge."""


class Message(TypedDict):
    """A message of a run."""

    seq: int
    """The position of its event."""
    time: str
    """Its time, in UTC."""
    agent: str
    """The agent, as in the session."""
    run: str
    """The agent's id of the run."""
    role: MessageRole
    """`user`, `assistant`, `reasoning` or `system`."""
    text: str
    """The text; in a list, at most its first 2000 characters."""
    cut: bool
    """True if the text is longer, or was not stored in full."""
    model: str | None
    """The model."""
    input_tokens: int | None
    """The input tokens, including cached ones."""
    output_tokens: int | None
    """The output tokens."""
    cost: float | None
    """The cost in US dollars."""
    claim: ClaimEvidence | None
    """The claim of success after a failed command; null without one."""


class MessagesPage(TypedDict):
    """A page of messages."""

    head: int
    """The position of the session's last event."""
    next: int | None
    """The start of the next page; null at the end."""
    messages: list[Message]
    """The messages."""


class Mount(TypedDict):
    """A mount: the files of a session as a read-only directory."""

    directory: str
    """The directory."""
    session: str
    """The session."""
    name: str
    """The session's name."""
    at: int | None
    """The position; null for a mount that follows the present."""
    all: bool
    """True if its root has the hidden directories `.at`, `.call` and `.sessions`."""
    process: int
    """The process that serves it."""
    trouble: str | None
    """The reason why its files can't be read; null if they can be."""


class MountSession(TypedDict):
    """Mounts the session's files as a read-only directory of the server's machine, which the server chooses."""

    at: NotRequired[Position | None]
    """The position; by default the mount follows the session."""
    all: NotRequired[bool]
    """True for the hidden directories `.at`, `.call` and `.sessions` in its root, which have all positions, calls and sessions."""


MoveEntry = TypedDict('MoveEntry', {'from': 'str', 'to': 'str', 'replace': 'NotRequired[bool]', 'agent': 'NotRequired[str | None]'})
"""Moves an entry; a directory with its contents."""


class MoveSession(TypedDict):
    """Moves a session to another host of a shared store: waits for its calls, closes its workspace, and opens it there."""

    host: str
    """The host's name."""


class MovedSession(TypedDict):
    """The new place of a moved session."""

    session: str
    """The session."""
    host: str
    """The host that has it now."""
    millis: int
    """Milliseconds that it took."""


class NewAnnotation(TypedDict):
    """Records a score, a note or a value for a position of a session."""

    name: str
    """The subject, such as `reward`: 1 to 80 letters, digits, dots, underscores or hyphens."""
    at: NotRequired[Position | None]
    """The annotated position; the last one by default."""
    score: NotRequired[float | None]
    """A number that rates the position."""
    note: NotRequired[str | None]
    """Text for people, at most 64 KiB."""
    value: NotRequired[Any]
    """A value for programs, at most 64 KiB as JSON."""
    agent: NotRequired[str | None]
    """The agent or program that annotates; none by default."""
    call_id: NotRequired[str | None]
    """An id for retries, 1 to 200 bytes. A second request with the same id returns the position of the first one."""


class NewAnswer(TypedDict):
    """Answers the question that a call waits for."""

    answer: Choice
    """The decision about the command."""
    reason: NotRequired[str | None]
    """The reason of a refusal, for the author of the command. Its first 1,000 characters are stored."""


class NewEffect(TypedDict):
    """Records an effect outside of the workspace."""

    what: str
    """The action, such as `git push`; 1 to 200 characters."""
    target: NotRequired[str]
    """The place, such as a remote or a URL; at most 1,000 characters."""
    outcome: str
    """`done`, `failed`, or `unknown` if it may have taken place."""
    undo: NotRequired[str]
    """Advice about undoing it; at most 1,000 characters."""
    call: NotRequired[int | None]
    """The call that made it; none by default."""
    agent: NotRequired[str | None]
    """The agent or program that made it; none by default."""


class NewEvent(TypedDict):
    """An event to record."""

    kind: str
    """The kind."""
    data: NotRequired[Any]
    """The data."""


class NewEvents(TypedDict):
    """Records events of your own kinds, in one commit: one event (`kind` and `data`), or several (`events`)."""

    kind: NotRequired[str | None]
    """The kind of the only event: 1 to 100 letters, digits, `.`, `_`, `-` or `/`. The first is a lower-case letter: built-in kinds begin with an upper-case one."""
    data: NotRequired[Any]
    """The data of the only event: JSON of at most 1 MiB, not counting strings of more than 16 KiB, which are stored as contents."""
    events: NotRequired[list[NewEvent]]
    """Several events, at most 10,000."""
    call: NotRequired[int | None]
    """The call that the events belong to; none by default."""
    agent: NotRequired[str | None]
    """The agent or program that records them; none by default."""
    call_id: NotRequired[str | None]
    """An id for retries, 1 to 200 bytes. A second request with the same id returns the positions of the first one."""


class NewMount(TypedDict):
    """A host directory, or a single file, to copy into a workspace."""

    host_path: str
    """The directory or file on the server's machine, below a directory that the server allows."""
    mount_path: NotRequired[str | None]
    """The destination in the workspace; by default the root, for a file its name there."""
    include_glob: NotRequired[list[str]]
    """Copies only files that match one of these globs, by their path below the directory."""
    exclude_glob: NotRequired[list[str]]
    """Leaves out entries that match one of these globs."""
    max_bytes: NotRequired[int | None]
    """Limit for the total size in bytes; if it is exceeded, nothing is copied."""
    follow_symlinks: NotRequired[bool]
    """True to copy the targets of links inside the directory."""


class NewProcess(TypedDict):
    """Starts a command in the background, while other calls run."""

    command: Any
    """A script for `/bin/sh -c`, or a list of a program and its arguments. Each has at most 131,071 bytes."""
    cwd: NotRequired[str]
    """The directory to run it in, as for `shell_execute`."""
    env: NotRequired[dict[str, str]]
    """Additional environment variables."""
    stdin: NotRequired[str]
    """Standard input, at most 48,000 characters; more may come with `input`."""
    input: NotRequired[bool]
    """True to keep standard input open for `send_input`. By default it ends after `stdin`."""
    window: NotRequired[WindowSize | None]
    """The size of its terminal; its input stays open. No terminal by default."""
    timeout_seconds: NotRequired[float | None]
    """Its time limit in seconds, from 1 to 86,400; none by default."""
    service: NotRequired[ServiceOptions | None]
    """Makes it a service. The answer comes when it is ready, or after `ready_seconds`."""
    agent: NotRequired[str | None]
    """The agent that starts it; none by default."""
    allow: NotRequired[list[str]]
    """Programs, or programs with their first arguments, that it may run without a question."""
    deny: NotRequired[list[str]]
    """Programs, or programs with their first arguments, that it may not run, whatever allows them."""
    auto_confirm: NotRequired[bool]
    """Approves every question about it."""


class NewSession(TypedDict):
    """Creates a session and copies its mounts."""

    name: NotRequired[str | None]
    """Its name: 1 to 80 letters, digits, dots, underscores or hyphens; a prefix of its id by default."""
    backend: NotRequired[str | None]
    """`memory` (the default, without commands), `host`, `mount` (as `host`, in an overlay that forks share), `podman`, `docker`, `mock`, or `container`: whichever engine works."""
    options: NotRequired[dict[str, Any]]
    """Backend options of the workspace. Containers have the image (default: the server's FOLDSPACE_IMAGE), limits, `name_prefix`, `uptime_seconds` and so on. A `directory`, for `host` and containers, must be below a directory that the server allows. Backends with commands also have `environment` (an object of strings, recorded as digests unless `record_environment` is set), `workdir`, `output_bytes`, `keep_output_bytes`, `merge_output` and `generated` (globs of generated files)."""
    mounts: NotRequired[list[NewMount]]
    """Host directories to copy into the workspace."""
    allow_roots: NotRequired[list[str]]
    """Host directories that may contain mounts and the directory, instead of the server's. Only for clients on the unix socket, from the server's sandbox."""
    policy: NotRequired[ToolPolicy | None]
    """The policy for the session's tools."""
    create_id: NotRequired[str | None]
    """An idempotency key of at most 200 bytes. A retry with the same key returns the session that the first request created."""


class NewSubagent(TypedDict):
    """A child to create, and its calls."""

    isolation: NotRequired[Literal['fork', 'full', 'shared']]
    """The part of the session that the child gets: `fork` (the default), the history and files up to a position; `full`, only fresh copies of the mounts; `shared`, everything: the same session, under another agent name."""
    at: NotRequired[Position | None]
    """The position to fork at; the current state by default."""
    name: NotRequired[str | None]
    """The child's name; by default the session's name with a number."""
    agent: NotRequired[str | None]
    """The agent who works in it; required for a shared child."""
    limits: NotRequired[Limits]
    """Limits of the child: `calls`, `wall_millis`, `bytes_written`, `depth`, `tools`, `deny`."""
    calls: NotRequired[list[SubagentCall]]
    """The calls to make, in order."""
    go_on: NotRequired[bool]
    """True to continue after a failed call. Otherwise the child fails, and its other calls are not made. A command fails if it exits non-zero or times out."""
    annotations: NotRequired[list[NewAnnotation]]
    """Annotations of the child's session, recorded before its calls."""


class NewTag(TypedDict):
    """Tags a position with a name."""

    name: str
    """The name: 1 to 80 letters, digits, dots, underscores or hyphens."""
    at: NotRequired[Position | None]
    """The position; the last one by default."""


class ObservedChange(TypedDict):
    """A change of a directory that is only watched."""

    seq: int
    """Its position."""
    by: list[RunMention]
    """The call that made it, or all calls that may have made it; empty for a change that existed before."""


class OpenPage(TypedDict):
    """Opens a listener for pages in a browser on this machine, unless it is open already, and makes a code for a page to get its token with: valid once, for 60 seconds."""

    read_only: NotRequired[bool]
    """True for a listener that refuses requests that change anything."""


class OrderRule(TypedDict):
    """A tool that must succeed before another."""

    first: str
    """The tool that must succeed first."""
    before: str
    """The tool that is refused until then."""
    same_path: NotRequired[bool]
    """True to require it for each existing file that a call of `before` changes: `first` must have succeeded with that path."""


class Page(TypedDict):
    """A page of the log."""

    events: list[Event]
    """The events, in order. Large events may make a page shorter than its limit."""
    next: int | None
    """The start of the next page; null at the end."""
    head: int
    """The position of the session's last event."""


class PageAddress(TypedDict):
    """The address of the page, with a code."""

    address: str
    """The address, without the code: `http://127.0.0.1:PORT/`."""
    code: str
    """The code, to append to the address after `#code=`."""


class PassedCall(TypedDict):
    """A call that can't be undone now."""

    call: int
    """The position of its intent."""
    tool: str
    """The tool."""
    subject: str
    """Its command, path or pattern, in one line."""
    agent: str
    """The agent that made it; empty if unnamed."""
    started_at: str
    """Its start, in UTC."""
    left: list[dict[str, Any]]
    """Its changes, by path, each with its `reason` as in the undo's `left`."""


class Policies(TypedDict):
    """The policies that bind a session's calls."""

    policy: ToolPolicy | None
    """The session's own policy, or null."""
    inherited: list[ToolPolicy]
    """The policies of the session's ancestors, outermost first."""


class PortLink(TypedDict):
    """A link to a port of a session."""

    port: int
    """The port in the container."""
    label: str
    """The part of the host before the name of the server."""
    token: str
    """The token for this port of the session."""


class PositionRange(TypedDict):
    """A range of positions, both ends included."""

    first: int
    """The first."""
    last: int
    """The last."""


class Probe(TypedDict):
    """A command's run at a position."""

    seq: int
    """The position."""
    verdict: str
    """`good`, `bad` or `skip`."""
    exit_code: int
    """The exit code of the command."""
    timed_out: bool
    """True if it exceeded the time limit."""
    micros: int
    """Its duration in microseconds."""
    stdout: str
    """Its output, cut at 4 KiB."""
    stderr: str
    """Its error output, cut at 4 KiB."""


class Problem(TypedDict):
    """A problem with a request (RFC 9457)."""

    type: str
    """`urn:foldspace:problem:` and the kind."""
    kind: str
    """The kind of the problem: `not_found`, `bad_request`, `conflict`, ..."""
    title: str
    """A short text, the same for all problems of the kind."""
    status: int
    """The status code."""
    detail: str
    """The details of this problem."""
    hint: NotRequired[str | None]
    """Advice on how to resolve it."""
    advice: NotRequired[dict[str, Any] | None]
    """The advice of `hint` as data: its `kind`, such as `list_sessions`, and values for some kinds. A client can have its own texts for it."""
    rewind: NotRequired[RewindRefusal | None]
    """The entries that block a rewind."""
    position: NotRequired[int | None]
    """The position of the problem: a requested position beyond the end, the expected end of the session, or the first event of the other request with the same `call_id`."""
    head: NotRequired[int | None]
    """The session's last position, if a request named a position beyond it or expected another one."""


class Process(TypedDict):
    """A background process, running or ended."""

    process: int
    """Its number: the position of the call that started it."""
    command: Any
    """The command: a string, or a list of a program and its arguments."""
    cwd: str
    """The directory that it started in."""
    service: str | None
    """The name of the service that it is, if it is one."""
    port: int | None
    """The port of the service."""
    ready: bool | None
    """True if the service was ready in time; null for another process."""
    running: bool
    """True until it ends."""
    exit_code: int | None
    """0 on success, 124 on timeout, 127 if the program was not found; null while it runs, or if it could not be run."""
    signal: int | None
    """The signal that ended it."""
    timed_out: bool
    """True if it was ended by its time limit."""
    cancelled: bool
    """True if it was cancelled."""
    problem: str | None
    """The reason that it could not be run or that its end is unknown; not a failure of the command itself."""
    stdout_bytes: int
    """Bytes written to standard output so far."""
    stderr_bytes: int
    """Bytes written to standard error so far."""
    micros: int
    """Its duration so far, in microseconds."""
    call: int | None
    """The call that recorded its end and its changes."""


class ProcessInput(TypedDict):
    """Sends input to a process: `text` or `base64`, at most 4 MiB."""

    text: NotRequired[str | None]
    """Text."""
    base64: NotRequired[str | None]
    """Bytes, as base64."""
    end: NotRequired[bool]
    """True to end the input afterwards; on a terminal, like Ctrl-D."""
    window: NotRequired[WindowSize | None]
    """The new size of its terminal."""


class ProcessSignal(TypedDict):
    """Sends a signal to a process and its group."""

    signal: Any
    """The signal: a name such as `TERM`, or a number."""


class RanCommand(TypedDict):
    """The command of a call that ended, beside its result."""

    command: Any
    """The command: a text, a list of arguments, or an object with `interpreter` and `script`."""
    directory: str
    """The directory that it ran in, as commands see it: below the workspace's directory on the host, below `/workspace` in a container."""
    success: bool
    """True if its exit code is 0."""
    signal: int | None
    """The signal that ended it, else null."""


class Readiness(TypedDict):
    """The readiness of the server."""

    status: str
    """`ready`."""
    version: str
    """The program's version."""


class RecordedFrames(TypedDict):
    """Frames of a terminal's recording."""

    frames: list[ScreenFrame]
    """The frames. Frame 0 has the size and every line that is not blank."""
    next: int | None
    """The number of the next frame; null at the end."""
    truncated: bool
    """True if the recording was cut short."""


class RecordedRange(TypedDict):
    """The positions of recorded events."""

    first: int
    """The position of the first event."""
    last: int
    """The position of the last event."""
    repeated: NotRequired[bool]
    """True if an earlier request with the same `call_id` recorded them."""


class RecordedSeq(TypedDict):
    """The position of a recorded event."""

    seq: int
    """The position."""
    repeated: NotRequired[bool]
    """True if an earlier request with the same `call_id` recorded it."""


class ReplicationStatus(TypedDict):
    """A copy of the journal in object storage."""

    to: str
    """Its address."""
    segment: int
    """The last segment in it; 0 before the first."""
    offset: int
    """The end of the copy in that segment's file, in bytes."""
    until: str | None
    """The time of the copy: everything recorded earlier is in it; null at first."""
    lag_seconds: float | None
    """Seconds since then."""
    lag_bytes: int
    """Bytes of the journal that are not yet in it."""
    git_repositories: list[str]
    """Git repositories that hold contents: the copy lacks contents that only git has."""
    problem: str | None
    """The reason why the last attempt failed; null if it succeeded."""
    stopped: bool
    """True if it is not retried."""


class ReportDocument(TypedDict):
    """The outcome of a report."""

    outcome: ReportOutcome
    """The outcome."""


class ReportId(TypedDict):
    """Id of a report: start time and process of its hook."""

    at: int
    """Start time of the hook, in nanoseconds since 1970."""
    process: int
    """The hook's process."""


class Rerun(TypedDict):
    """The result of a rerun."""

    recorded: str
    """The recorded session."""
    session: str | None
    """The fresh session, if it was kept."""
    name: str | None
    """Its name, if it was kept."""
    start: int
    """The position of the files that it started with."""
    end: int
    """The position of the files that its end was compared with."""
    calls: int
    """The number of calls."""
    diverged: int
    """The number of calls that differed."""
    skipped: int
    """The number of calls that were skipped."""
    same: bool
    """True if no call and no file differed."""
    differing: list[RerunCall]
    """The calls that differed or were skipped, with texts and patches cut at 4 KiB."""
    files: list[Change]
    """Differences in the final files, likewise cut."""
    more: bool
    """True if more differed than the 500 differences returned."""
    missing: list[str]
    """Entries that the fresh workspace lacked, since their contents were never stored."""
    environment: list[EnvironmentDifference]
    """Differences of the container, which may explain the others."""


class RerunCall(TypedDict):
    """A call that was made again."""

    call: int | None
    """The call in the recorded session."""
    rerun: int | None
    """The call in the fresh session; null if it was not made."""
    tool: str
    """The tool."""
    agent: str
    """The agent that made it."""
    summary: str
    """Its subject in one line: a command, a path, a pattern. Misleading characters are escaped."""
    verdict: str
    """`same`, `diverged`, `skipped` or, for a call of a script, `made`."""
    reason: str | None
    """The reason why it was skipped."""
    divergences: list[Divergence]
    """The differences."""


class RerunRequest(TypedDict):
    """Reruns a session's recorded calls, in order, in a throw-away session with a fresh workspace, and reports every difference."""

    until: NotRequired[Position | None]
    """Runs only the calls that began at or before this position."""
    backend: NotRequired[str | None]
    """The backend of the workspace, as for a new session; by default like the recorded session's."""
    options: NotRequired[dict[str, Any]]
    """Options of that backend, as for a new session, except `directory`."""
    keep: NotRequired[str | None]
    """Keeps the fresh session under this name instead of discarding it."""
    rules: NotRequired[dict[str, Any]]
    """Accepted differences in addition to the normal rules: `texts`, `ignore_fields`, `ignore_paths` and `text_files`."""
    no_default_rules: NotRequired[bool]
    """True to disable the normal rules, which cover times, durations, addresses and the like."""
    allow: NotRequired[list[str]]
    """Programs that commands may run without a question."""
    auto_confirm: NotRequired[bool]
    """True to answer every question about a command with yes."""
    repeat_effects: NotRequired[bool]
    """True to make effects outside of the workspace again. Without it, a rerun that may repeat some is refused."""
    offline: NotRequired[bool]
    """True to replay recorded HTTP responses, and to refuse all other connections. It needs a container with `record_http`."""


Rewind = TypedDict('Rewind', {'session': 'str', 'to': 'int', 'asked': 'int | None', 'from': 'int', 'dry_run': 'bool', 'refused': 'str | None', 'recorded': 'PositionRange | None', 'changes': 'list[dict[str, Any]]', 'slices': 'list[str]', 'drift': 'list[str]', 'left': 'list[str]', 'lost': 'list[str]', 'apart': 'list[str]', 'effects': 'list[EffectEntry]', 'repeated': 'NotRequired[bool]'})
"""The changes of a rewind, done or not."""


class RewindRefusal(TypedDict):
    """The reason why a rewind is refused, and the entries that block it."""

    refused: str
    """`changed_outside`, `not_kept` or `earlier`."""
    entries: list[str]
    """The entries, or the first of them."""
    count: int
    """The number of all entries."""


class RewindRequest(TypedDict):
    """Rewinds a session's files and state to an earlier position."""

    to: Position
    """The position to rewind to."""
    force: NotRequired[bool]
    """True to proceed where it would refuse: external changes are recorded first, entries that can't be restored stay, and files that were in a person's own directory before the session began are removed. A model may not remove the latter; only the person can."""
    keep_earlier: NotRequired[bool]
    """True to protect files that were in a person's own directory before the session began, even with `force`: a rewind that would remove them is refused."""
    git: NotRequired[bool]
    """True to also rewind the existing `.git` of a person's own directory, and with it the commits made since. Without it, `.git` stays as it is. Only a person can do that, not a model."""
    dry_run: NotRequired[bool]
    """True to only report what would happen."""
    call_id: NotRequired[str | None]
    """An id for retries, 1 to 200 bytes. A second request with the same id returns the recorded rewind."""


class Rollout(TypedDict):
    """A rollout."""

    number: int
    """Its number, from 0."""
    session: str
    """The fork."""
    name: str
    """The fork's name."""
    status: str
    """`done`, `failed` or `cancelled`."""
    reason: str | None
    """The reason for a failure or a missing score."""
    calls: list[DispatchedCall]
    """The calls that ended, in order; the score's call last."""
    changed: list[str]
    """At most 1,000 paths that its calls changed, sorted."""
    more: bool
    """True if its calls changed more paths."""
    score: float | None
    """The score."""
    kept: bool
    """False if the fork was removed. In an event `result` it may still become false."""


class RolloutsDocument(TypedDict):
    """The rollouts of a session."""

    rollouts: list[Rollout]
    """The rollouts, in the order of `run`."""


class RolloutsRequest(TypedDict):
    """Forks a session at one position and makes calls in each fork, several forks at a time."""

    run: list[list[SubagentCall]]
    """The calls to make: one list for all rollouts, or a list for each. A rollout fails at its first failed call, or at a command that exits non-zero or times out."""
    count: NotRequired[int | None]
    """The number of rollouts, from 1 to 1,000; by default the number of lists in `run`."""
    at: NotRequired[Position | None]
    """The position to fork at; the current state by default."""
    score: NotRequired[SubagentCall | None]
    """A command that prints the score as the last line of its output. It runs after the calls, even if one failed. By default the score is 1 if all calls succeeded, and 0 otherwise."""
    keep: NotRequired[int | None]
    """The number of best rollouts to keep; all by default. The sessions of the others are removed."""
    parallel: NotRequired[int]
    """The number of rollouts that work at the same time, from 1 to 64; 4 by default."""
    mount: NotRequired[bool]
    """True for forks of a session on the host with their files in mounts. The server must be root."""
    name: NotRequired[str | None]
    """Name prefix; the forks are numbered from 1. Default: the session's name and free numbers."""
    agent: NotRequired[str | None]
    """The agent who works in the forks."""
    limits: NotRequired[Limits]
    """Limits of each fork: `calls`, `wall_millis`, `bytes_written`, `depth`, `tools`, `deny`."""
    policy: NotRequired[ToolPolicy | None]
    """A policy for tools that binds each fork, in addition to the session's."""
    allow: NotRequired[list[str]]
    """Programs, or programs with their first arguments, that commands may run without a question."""
    deny: NotRequired[list[str]]
    """Programs, or programs with their first arguments, that commands may not run."""
    auto_confirm: NotRequired[bool]
    """True to answer every question about a command with yes."""


class RunMention(TypedDict):
    """An observed call, with its agent and run."""

    call: int
    """The call."""
    agent: str
    """The agent, as in the session."""
    run: str
    """The agent's id of the run."""
    model: str | None
    """The model; null if the agent does not report it."""
    prompt: str
    """The first line of the prompt that it served; empty if none was reported."""


class RunScore(TypedDict):
    """An annotation of a run."""

    at: int
    """The annotated position."""
    score: float | None
    """The score."""
    note: str | None
    """The note, in one line of at most 200 characters."""


class RunSql(TypedDict):
    """Runs an SQL query (SQLite, a single SELECT) over all recorded sessions; it can change nothing."""

    query: str
    """The query."""
    limit: NotRequired[int | None]
    """Limit for the returned rows, from 1 to 100000; 10000 by default."""
    timeout_seconds: NotRequired[int | None]
    """Limit for the time in seconds, from 1 to 300; 30 by default."""


class ScoreRange(TypedDict):
    """Scores of several runs."""

    runs: int
    """The number of runs with this score."""
    mean: float
    """The mean."""
    min: float
    """The lowest score."""
    max: float
    """The highest score."""


class ScreenFrame(TypedDict):
    """A change of a terminal's screen."""

    micros: int
    """Microseconds since the beginning."""
    size: NotRequired[WindowSize | None]
    """The size of the screen, if it has changed."""
    cursor: list[Any] | None
    """The cursor's column and line, from 0; null while it is hidden."""
    rows: dict[str, list[ScreenText]]
    """The lines that changed, by their numbers from 0, without trailing blanks."""


class ScreenText(TypedDict):
    """A run of text in one style."""

    text: str
    """The characters, without control characters."""
    foreground: NotRequired[str | None]
    """Its colour: `red` or another of the eight names, `bright-red` and so on, `#rrggbb`, or `ground`, the default background, of inverse text."""
    background: NotRequired[str | None]
    """The background colour; `ink`, the default foreground, of inverse text."""
    style: NotRequired[list[str]]
    """`bold`, `dim`, `italic`, `underline`, `struck`; `wide` if each character takes two columns."""


class SearchMatch(TypedDict):
    """A line that matches."""

    seq: int
    """The position of the event."""
    call: int | None
    """The call of the event; null for an event outside of calls."""
    agent: str
    """The agent that made the call."""
    place: SearchPlace
    """The place."""
    field: str | None
    """The kind of the event and its field, such as `CallStarted params.command`; null for files."""
    path: str | None
    """The path of the file; null for events."""
    line_number: int
    """The number of the line in its text, from 1."""
    line: str
    """The line. A long line is cut around its first match, with `…` at the cut."""
    ranges: list[list[int]]
    """The matches in the line: start and end in characters."""


class SearchPage(TypedDict):
    """A page of matches."""

    head: int
    """The position of the session's last event."""
    searched: int
    """The last position that was searched."""
    next: int | None
    """The start of the next page; null at the end."""
    hits: list[SearchMatch]
    """The matches, in order. A line that several events of a call repeat is returned once."""
    more: bool
    """True if a text had more than 1000 matches, and the further ones are missing."""


class SectionDocument(TypedDict):
    """The prompt section about a session's workspace."""

    text: str
    """The text for the model: the workspace's kind, tools, limits and mounts."""
    root: str | None
    """The workspace's directory as its commands see it; null without a directory."""


class ServerStatus(TypedDict):
    """The status of a server: its clients and its work."""

    process: int
    """Its process."""
    version: str
    """The program's version."""
    seconds: int
    """Seconds since it started."""
    memory_bytes: int | None
    """Bytes of memory that it uses; null if the kernel does not report it."""
    clients: list[ClientStatus]
    """Clients that stay connected, the oldest first."""
    calls: list[CallInFlight]
    """Calls in flight, the oldest first."""
    workspaces: list[WorkspaceStatus]
    """Open workspaces."""
    read_only: bool
    """True if this listener refuses requests that change anything."""
    replication: ReplicationStatus | None
    """The copy of the journal that it writes; null without one."""
    host: HostStatus | None
    """This host, if several share the store; null for a store of one machine."""


class Service(TypedDict):
    """A service: a process with a name."""

    name: str
    """Its name."""
    process: int
    """The number of its last process."""
    running: bool
    """True if that process runs."""
    port: int | None
    """The port that it listens at."""
    after: list[str]
    """The services that had to run before it started."""
    restart: bool
    """True to start it again after a rewind, in a fork, and when the workspace is opened again. If such a service does not run, the next command or connection starts it, unless it ended by itself."""
    agent: str
    """The agent that started it."""


class ServiceOptions(TypedDict):
    """A service."""

    name: str
    """Its name: at most 64 letters, digits, `-`, `_` and `.`, no `-` or `.` first. Only one process of that name runs."""
    port: NotRequired[int | None]
    """The TCP port that it listens at. It is ready when the port accepts a connection."""
    prints: NotRequired[str | None]
    """A text that it prints when it is ready."""
    ready_seconds: NotRequired[float | None]
    """Seconds to wait until it is ready, at most 300; 30 by default."""
    after: NotRequired[list[str]]
    """The services that must run before it."""
    restart: NotRequired[bool]
    """True to start it again for the next command after a rewind, in a fork, and after a restart of foldspace."""


class Session(TypedDict):
    """A session in a list."""

    session: str
    """Its identity: 32 hexadecimal digits."""
    name: str
    """Its name."""
    parent: str | None
    """Its parent; null for a root."""
    backend: str
    """The backend of its workspace."""
    events: int
    """The position of its last event."""
    calls: int | None
    """The number of its calls; null, in lists, if its state can't be read."""
    created: str
    """Its creation time, in UTC."""
    updated: str
    """The time of its last event, in UTC."""


SharedPaths = TypedDict('SharedPaths', {'with': 'list[int]', 'in_doubt': 'bool', 'paths': 'list[str]'})
"""Changes of files that one of several calls may have made."""


class SignIn(TypedDict):
    """Exchanges the code in a page's address for its token."""

    code: str
    """The code."""


class SignedIn(TypedDict):
    """The token of a page."""

    token: str
    """The token, for `Authorization: Bearer`."""
    read_only: bool
    """True if this listener refuses requests that change anything."""


class SliceLook(TypedDict):
    """An evaluation of the predicate."""

    seq: int
    """The position."""
    holds: bool
    """True if it holds."""


class SliceSummary(TypedDict):
    """The summary of one slice."""

    slice: str
    """Its name."""
    version: int
    """The version of its encoding."""
    on_rewind: str
    """Its handling on rewind: `restore` or `keep`."""
    json_bytes: int
    """Its size as JSON, in bytes."""
    digest: str
    """Its digest: 64 hexadecimal digits of BLAKE3."""


class SqlAnswer(TypedDict):
    """The rows that a query returned."""

    columns: list[str]
    """The names of the columns."""
    rows: list[list[str | float | None]]
    """The rows: a text, a number or null for each column; a blob as hexadecimal digits."""
    truncated: bool
    """True if there are more rows, over a limit."""


class State(TypedDict):
    """A state, with the value of one slice if requested."""

    session: str
    """The session: 32 hexadecimal digits."""
    name: str
    """The session's name."""
    seq: int
    """The position of the state; 0 is before the first event."""
    time: str | None
    """The time of the event at that position, in UTC."""
    unreadable: int
    """The number of lost or unreadable events. The state lacks their changes."""
    slices: list[SliceSummary]
    """Its slices."""
    value: NotRequired[Any]
    """The requested slice or part of it; omitted if none was requested."""


class Stop(TypedDict):
    """The stop of a run through a history."""

    seq: int | None
    """The position of the event; null if no condition was met."""
    because: str | None
    """The condition that was met."""
    call: int | None
    """The call that the event belongs to."""
    next: int | None
    """The position to continue from; null if the whole history was checked or a condition was met."""


class SubagentCall(TypedDict):
    """A call to make in a child."""

    tool: str
    """The tool."""
    params: NotRequired[dict[str, Any]]
    """Its parameters."""
    timeout_seconds: NotRequired[float | None]
    """The time limit of the whole call in seconds, from 0.1 to 86,400; by default the tool's."""


class Timeline(TypedDict):
    """A summary of a session's calls."""

    head: int
    """The position of the session's last event."""
    calls: int
    """The number of calls."""
    started_at: str | None
    """The start of the first call, in UTC; null without calls."""
    ended_at: str | None
    """The end of the last call, or its start if it has not ended."""
    tools: dict[str, int]
    """Calls by tool."""
    agents: dict[str, int]
    """Calls by agent."""
    buckets: list[TimelineBucket]
    """The buckets, in order."""


TimelineBucket = TypedDict('TimelineBucket', {'from': 'int', 'at': 'str', 'ended_at': 'str', 'micros': 'int', 'calls': 'int', 'failed': 'int', 'changed': 'int'})
"""A run of consecutive calls."""


class Tool(TypedDict):
    """Description of a tool."""

    name: str
    """Its name."""
    description: str
    """Description for a model."""
    effect: str
    """Effect on the workspace: `read_only`, `additive` or `destructive`."""
    params: dict[str, Any]
    """JSON Schema of its parameters."""
    output: dict[str, Any]
    """JSON Schema of its result."""


class ToolPolicy(TypedDict):
    """A session's policy for tools."""

    tools: NotRequired[list[str] | None]
    """The only tools that calls may use; all by default."""
    read: NotRequired[list[str] | None]
    """Globs of the files that tools may read, at most 100; all files by default. `!` before a glob excludes."""
    write: NotRequired[list[str] | None]
    """Globs of the entries that calls may create, change and remove, at most 100; all entries by default. `!` before a glob excludes."""
    order: NotRequired[list[OrderRule]]
    """Tools that must succeed before others, at most 100."""
    at_most: NotRequired[list[AtMostRule]]
    """Limits for the calls of single tools, at most 100."""
    commands_outside: NotRequired[OutsideTreatment | None]
    """The treatment of changes that a command makes outside of `write`: `undo` by default."""
    on_failure: NotRequired[OnFailure | None]
    """The treatment of the changes of a call that fails: `keep` by default. `undo` also holds for calls that ask for `keep`."""
    section_text: NotRequired[str | None]
    """The text for the model in place of the usual prompt section, at most 16,384 bytes. `{tools}`, `{root}`, `{commands}` and `{mounts}` stand for these parts of the usual section, `{section}` for all of it."""


class UndoRequest(TypedDict):
    """Undoes file changes: of a call, a run, an undo, all calls after a position, or external changes."""

    call: NotRequired[int | None]
    """The call."""
    run: NotRequired[str | None]
    """The run, by its agent's id for it, a prefix of that, or `last`."""
    to: NotRequired[Position | None]
    """Undoes all calls after this position; with `paths`, restores their entries as of this position."""
    external: NotRequired[ExternalChange | None]
    """External changes: `true` for the latest, or a position among them."""
    redo: NotRequired[bool]
    """True to undo the latest undo."""
    paths: NotRequired[list[str]]
    """Paths to restore as of `to`; directories include everything below them. Newer entries stay."""
    overwrite: NotRequired[bool]
    """True to restore earlier entries even where others have since changed the same place, or may have. A redo restores the present entries."""
    force: NotRequired[bool]
    """True to also remove entries that can't be restored later, since their contents were not stored."""
    dry_run: NotRequired[bool]
    """True to only report what would happen."""
    seen: NotRequired[int | None]
    """The last position that the caller has seen. If files have changed after it, nothing is done."""
    agent: NotRequired[str | None]
    """The agent who undoes; none by default."""


class Undone(TypedDict):
    """The changes of an undo, done or not."""

    session: str
    """The session."""
    dry_run: bool
    """True if it was a dry run."""
    calls: list[int]
    """The undone calls, in order."""
    latest: UndoneCall | None
    """The latest of these calls; for an undo, the call that it undid. Null if no call was undone."""
    redoes: bool
    """True if an undo of `latest` is undone, so that `latest` is redone."""
    undos: list[int]
    """Undos of only these calls, and undos of those, which are undone along with them."""
    external: list[int]
    """The undone external changes, each by the position of its first event."""
    seen: int
    """The last position before the undo."""
    call: int | None
    """The call that records the undo; null if nothing was done."""
    changes: list[dict[str, Any]]
    """The file changes, without patches."""
    left: list[dict[str, Any]]
    """Changes that stay, by path, each with its `reason`: `changed_since`, `shared`, `doubtful`, `not_kept`, `not_recoverable`, `not_made` or `not_empty`."""
    passed: list[PassedCall]
    """Later calls that an undo without a choice skipped, the latest first: none of their changes can be undone."""
    apart: list[str]
    """Paths of hard links that became separate files: the file system can't link them."""
    git: dict[str, Any] | None
    """The state of the git worktree, if it differs from before the calls; otherwise null."""
    effects: list[EffectEntry]
    """Effects outside of the workspace that are not taken back."""


class UndoneCall(TypedDict):
    """A call that an undo undoes."""

    call: int
    """The position of its intent."""
    tool: str
    """The tool."""
    subject: str
    """Its command, path or pattern, in one line."""
    agent: str
    """The agent that made it; empty if unnamed."""
    started_at: str
    """Its start, in UTC."""


class UsedLimit(TypedDict):
    """Limit that a call exceeded, with its use before."""

    name: Literal['calls'] | Literal['wall_millis'] | Literal['bytes_written'] | Literal['processes'] | Literal['budget']
    """Its name: `calls`, `wall_millis` or `bytes_written` of a session or an agent; `processes`, running in the session; `budget`, the units of a [`WorkBudget`](super::work_budget::WorkBudget)."""
    limit: int
    """The most that is allowed."""
    used: int
    """The use before the call."""


class Verification(TypedDict):
    """The outcome of a verification."""

    sessions: int
    events: int
    snapshots: int
    contents: int
    unreadable: int
    """The number of unreadable events."""
    lost: int
    """The number of lost events."""
    differences: list[dict[str, Any]]
    """Each difference from the events: `session`, `seq`, `slice`, `what`."""


class WaitRequest(TypedDict):
    """Waits for a process to end, at most `timeout_seconds`, and returns its status."""

    timeout_seconds: NotRequired[float | None]
    """Seconds to wait, at most and by default 86,400."""


class WholeCall(TypedDict):
    """A call with its result and events."""

    call: int
    """The call id: the position of its intent."""
    tool: str
    """The tool."""
    agent: str
    """The agent that made it; empty if none was named."""
    started_at: str
    """Its start time, in UTC."""
    status: str
    """`ok`, `error`, `interrupted` or `running`."""
    exit_code: Any
    """The exit code in its result; null without one."""
    timed_out: Any
    """True if its result reports a command that timed out; null without that field."""
    finished: int | None
    """The position of its outcome."""
    micros: int | None
    """Its duration in microseconds."""
    message: str
    """The error's text; empty after a success."""
    params: Any
    """Its parameters, with `{ "$content": digest, "bytes": n }` in place of a long text."""
    events: list[int]
    """The positions of its events."""
    paths: list[str]
    """The paths that it changed."""
    changed: CallChanges
    """The numbers of its changes."""
    shared: list[SharedPaths]
    """Changes that this call, another open call or, in doubt, a person may have made."""
    not_kept: list[str]
    """Changed paths with entries that can't be recreated: their contents were not stored, or they are sockets or devices."""
    lost: list[str]
    """Entries not made by the call that it removed or replaced and that can't be recreated. Entries that were never recorded are not listed."""
    result: Any
    """The result if it succeeded; otherwise null."""
    recorded: dict[str, Event]
    """The events, by position."""


class WholeEntry(TypedDict):
    """An entry with its contents."""

    path: str
    """Its path from the workspace root, without a leading slash."""
    node: str
    """`file`, `symlink`, `directory` or `special`."""
    content: NotRequired[str | None]
    """The digest of a file's contents: 64 hexadecimal digits of BLAKE3."""
    size: NotRequired[int | None]
    """A file's size in bytes."""
    executable: NotRequired[bool | None]
    """True if a file is executable."""
    permissions: NotRequired[str | None]
    """The permission bits of a file or directory: four octal digits."""
    text: NotRequired[bool | None]
    """True if a file is text."""
    incomplete: NotRequired[bool | None]
    """True if a file's contents were not stored."""
    target: NotRequired[str | None]
    """The target of a symbolic link."""
    special: NotRequired[str | None]
    """`fifo`, `socket` or `device`."""
    version: int
    """The number of times that it was written."""
    created_at: str
    """Its creation time, in UTC."""
    updated_at: str
    """The time of its last write, in UTC."""
    live_at: NotRequired[int | None]
    """For an entry that was read from the disk: the last recorded position at that time."""
    contents_text: str | None
    """The contents of a file, if they are UTF-8."""
    contents_base64: str | None
    """The contents of a file, if they are not UTF-8."""


class WindowSize(TypedDict):
    """The size of a terminal, in characters."""

    rows: int
    """Lines."""
    columns: int
    """Characters in a line."""


class WorkspaceStatus(TypedDict):
    """An open workspace."""

    session: str
    """The session."""
    name: str
    """The session's name."""
    backend: str
    """The backend."""
    unused_seconds: int | None
    """Seconds since it was last used; null while it is in use."""


Choice = Union[Literal['once'], Literal['session'], Literal['everything'], Literal['refuse']]
DeclaredFold = Union[Literal['append'], Literal['latest'], Literal['latest_by'], Literal['remove_by'], Literal['count_by'], Literal['sum_by'], Literal['merge_patch'], Literal['json_patch']]
ExternalChange = Union[bool, int]
MessageRole = Union[Literal['user'], Literal['assistant'], Literal['reasoning'], Literal['system']]
OnFailure = Union[Literal['keep'], Literal['undo']]
OutsideTreatment = Union[Literal['undo'], Literal['report']]
Position = Union[int, str]
ProbeCommand = Union[str, 'list[str]']
PythonPlace = Union[Literal['in-process'], Literal['container']]
ReportOutcome = Union[Literal['recorded'], Literal['later'], Literal['unattached']]
SearchPlace = Union[Literal['parameters'], Literal['output'], Literal['file'], Literal['event']]
SliceMergePolicy = Union[Literal['ours'], Literal['theirs'], Literal['union'], Literal['refuse']]
