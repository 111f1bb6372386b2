"""The documents of the API. Made by generate.py from docs/openapi.json."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Any, Literal, TypedDict, Union

from typing_extensions import NotRequired

from foldspace.types import Limits


class AlignedCall(TypedDict):
    """A call and its outcome."""

    call: int
    finished: int | None
    tool: str
    summary: str
    status: str
    exit_code: int | None
    micros: int | None


class AlignedRow(TypedDict):
    """A pair of matching calls, or an unmatched call."""

    left: AlignedCall | None
    right: AlignedCall | None
    same: bool
    result_differs: bool


class Alignment(TypedDict):
    """The aligned calls of two sessions."""

    rows: list[AlignedRow]
    more: bool


class Annotation(TypedDict):
    """A score, a note or a value for a position."""

    seq: int
    agent: str
    name: str
    at: int
    score: float | None
    note: str | None
    value: Any


class Applied(TypedDict):
    """The outcome of applying changes to a directory."""

    child: str
    child_name: str
    base: int
    child_at: int
    outcome: str
    seq: int | None
    merged: list[dict[str, Any]]
    conflicts: list[dict[str, Any]]
    left_out: list[str]
    generated: list[str]
    slices: list[str]
    unused: list[str]
    into: str
    into_name: str
    dry_run: bool
    hunks: NotRequired[list[ConflictHunk] | None]
    directory: str


class ApplyRequest(TypedDict):
    """Merges a session's changes into the directory that it started from, with a three-way merge against the directory's current state."""

    to: NotRequired[str | None]
    take: NotRequired[list[str]]
    keep: NotRequired[list[str]]
    generated: NotRequired[list[str]]
    dry_run: NotRequired[bool]
    agent: NotRequired[str | None]
    allow_roots: NotRequired[list[str]]


class AtMostRule(TypedDict):
    """A limit for the calls of a tool."""

    tool: str
    n: int


class AttachDirectory(TypedDict):
    """Attaches a directory."""

    directory: str
    include: NotRequired[list[str]]
    transcripts: NotRequired[bool]
    keep_ignored: NotRequired[bool | None]
    keep_secrets: NotRequired[bool | None]
    own_copy: NotRequired[int | None]


class AttachedDirectory(TypedDict):
    """A directory with agents that report to a session."""

    directory: str
    session: str
    transcripts: bool
    include: NotRequired[list[str]]
    keep_ignored: bool
    keep_secrets: bool
    own_copy: int
    worktree_of: NotRequired[str | None]


class AttachedDocument(TypedDict):
    """An attached directory, with a summary of its recorded files."""

    directory: str
    session: str
    name: str
    files: int
    borrowed: int
    not_kept: list[str]
    ignored: NotRequired[IgnoredLeftOut | None]
    keep_ignored: bool
    keep_secrets: bool
    own_copy: int


class BadChange(TypedDict):
    """A change that made the position bad."""

    seq: int
    agent: str
    time: str
    call: Any
    changes: list[Change]


class Bisect(TypedDict):
    """The result of a bisection."""

    good: int
    first_bad: int | None
    bad: list[BadChange]
    ends: BisectEnds
    between: NotRequired[int | None]
    checks: NotRequired[list[Probe] | None]
    probes: NotRequired[list[Probe] | None]
    several: NotRequired[bool | None]
    left_out: NotRequired[list[str] | None]
    environment: NotRequired[list[EnvironmentDifference] | None]
    looks: NotRequired[list[SliceLook] | None]
    predicate: NotRequired[str | None]


class BisectEnds(TypedDict):
    """The searched range of positions."""

    good: int
    bad: int


class BisectRequest(TypedDict):
    """Finds the first change in a session's history after which a command fails or a predicate over slices holds."""

    command: NotRequired[ProbeCommand | None]
    slice: NotRequired[str | None]
    good: NotRequired[Position | None]
    bad: NotRequired[Position | None]
    jobs: NotRequired[int]
    timeout_seconds: NotRequired[float | None]
    allow: NotRequired[list[str]]
    auto_confirm: NotRequired[bool]


class Blame(TypedDict):
    """A file with the change that wrote each line."""

    path: str
    at: int
    changes: list[dict[str, Any]]
    observed: list[ObservedChange]
    lines: list[BlamedLine]
    unknown: list[int]
    coarse: bool


class BlamedLine(TypedDict):
    """A line with the event that wrote it."""

    line_number: int
    line: str
    session: str
    seq: int


class CallChanges(TypedDict):
    """The numbers of entries that a call added, changed and removed, all in all."""

    added: int
    changed: int
    removed: int


class CallInFlight(TypedDict):
    """A call in flight."""

    session: str
    name: str
    call: int
    seconds: int
    question: Any


class CallOutcome(TypedDict):
    """Outcome of a call; a tool's own failure is an outcome, too."""

    call: int
    finished: int
    status: str
    result: Any
    text: str
    micros: int
    reason: str | None
    ran: NotRequired[RanCommand | None]


class CallRequest(TypedDict):
    """Makes a tool call and waits for its outcome."""

    tool: str
    params: NotRequired[dict[str, Any]]
    agent: NotRequired[str | None]
    timeout_seconds: NotRequired[float | None]
    allow: NotRequired[list[str]]
    deny: NotRequired[list[str]]
    max_timeout_seconds: NotRequired[float | None]
    no_time_limit: NotRequired[bool]
    auto_confirm: NotRequired[bool]
    start_docker: NotRequired[str | None]
    python: NotRequired[PythonPlace | None]
    python_chars: NotRequired[int | None]
    text_chars: NotRequired[int | None]
    command_chars: NotRequired[int | None]
    keep_file_bytes: NotRequired[int | None]
    keep_step_bytes: NotRequired[int | None]
    on_failure: NotRequired[OnFailure]
    all_output: NotRequired[bool]
    no_output: NotRequired[bool]


class CallsPage(TypedDict):
    """A page of calls."""

    head: int
    next: int | None
    calls: list[ListedCall]


class Change(TypedDict):
    """A change of an entry with its patch."""

    change: str
    path: str
    before: NotRequired[Entry | None]
    after: NotRequired[Entry | None]
    binary: bool
    lines_added: int
    lines_removed: int
    patch: str


ChangeList = TypedDict('ChangeList', {'from': 'int', 'to': 'int', 'changes': 'list[ListedChange]', 'more': 'bool', 'live_at': 'NotRequired[int | None]'})
"""The entries that differ between two positions."""


class Child(TypedDict):
    """A child of a session."""

    session: str
    name: str
    isolation: str
    at: int | None
    asked: int | None
    parent: str
    parent_name: str
    agent: str
    backend: str
    limits: Any
    left: list[str]


class ChildRequest(TypedDict):
    """Clones a session."""

    isolation: NotRequired[Literal['fork', 'full', 'shared']]
    at: NotRequired[Position | None]
    name: NotRequired[str | None]
    agent: NotRequired[str | None]
    limits: NotRequired[Limits]
    policy: NotRequired[ToolPolicy | None]
    max_calls: NotRequired[int | None]
    max_seconds: NotRequired[int | None]
    max_bytes: NotRequired[int | None]
    depth: NotRequired[int | None]
    tools: NotRequired[list[str] | None]
    deny: NotRequired[list[str]]
    allow_roots: NotRequired[list[str]]


class ClaimEvidence(TypedDict):
    """A claim of success, and the failed command that it follows."""

    sentence: str
    call: int
    tool: str
    command: str
    ended: str
    exit_code: int | None


class ClientStatus(TypedDict):
    """A client that stays connected."""

    process: int
    command: str
    seconds: int


class ComparedBranch(TypedDict):
    """Calls that the same runs made."""

    parent: int | None
    runs: int
    calls: int
    differing: int
    first: AlignedCall | None
    session: str
    scores: dict[str, ScoreRange]
    ended: list[ComparedRun]


class ComparedRun(TypedDict):
    """A run, and its end."""

    session: str
    name: str
    calls: int
    failed: int
    micros: int
    last: AlignedCall | None
    scores: dict[str, RunScore]


class ComparedRuns(TypedDict):
    """Runs, compared as a tree."""

    runs: int
    branches: list[ComparedBranch]


class ConflictHunk(TypedDict):
    """Lines that both sides changed."""

    path: str
    hunk: int
    ours: HunkSide
    base: HunkSide
    theirs: HunkSide


class CopiedMounts(TypedDict):
    """The mounts that were copied."""

    copied: list[Any]


class CopyMounts(TypedDict):
    """Copies host directories into a session's workspace if it is still empty."""

    mounts: list[NewMount]
    allow_roots: NotRequired[list[str]]


class DeclareSlice(TypedDict):
    """Declares a slice of your own for a session, or changes its declaration, and folds the session's past into it once."""

    rules: list[FoldRule]
    merge: NotRequired[SliceMergePolicy]
    on_rewind: NotRequired[str | None]
    agent: NotRequired[str | None]


class DeclaredSlice(TypedDict):
    """A declared slice."""

    name: str
    rules: list[FoldRule]
    merge: SliceMergePolicy
    on_rewind: str
    version: int
    since: int
    skipped: int
    value: NotRequired[Any]


class DetachDirectory(TypedDict):
    """Detaches a directory."""

    directory: str
    purge: NotRequired[bool]


Diff = TypedDict('Diff', {'session': 'str', 'name': 'str', 'from': 'int', 'to': 'int', 'changes': 'list[Change]', 'live_at': 'NotRequired[int | None]'})
"""The difference in the files between two positions."""


class DispatchRequest(TypedDict):
    """Creates a batch of children, makes the given calls in each, several children at a time, and returns the result of each child."""

    children: list[NewSubagent]
    parallel: NotRequired[int]
    merge: NotRequired[bool]
    theirs: NotRequired[list[str]]
    ours: NotRequired[list[str]]
    allow: NotRequired[list[str]]
    deny: NotRequired[list[str]]
    auto_confirm: NotRequired[bool]


class Dispatched(TypedDict):
    """The results of a batch."""

    children: list[DispatchedChild]


class DispatchedCall(TypedDict):
    """A call of a child, and its outcome."""

    call: int
    tool: str
    status: str
    exit_code: int | None
    failed: bool
    text: str
    micros: int


class DispatchedChild(TypedDict):
    """The result of a child."""

    session: str | None
    name: str
    status: str
    reason: str | None
    calls: list[DispatchedCall]
    changed: list[str]
    more: bool
    merge: str | None
    conflicts: list[str]


Divergence = TypedDict('Divergence', {'differs': 'str', 'at': 'NotRequired[str | None]', 'was': 'NotRequired[Any]', 'is': 'NotRequired[Any]', 'change': 'NotRequired[str]', 'path': 'NotRequired[str]', 'before': 'NotRequired[Entry | None]', 'after': 'NotRequired[Entry | None]', 'binary': 'NotRequired[bool]', 'lines_added': 'NotRequired[int]', 'lines_removed': 'NotRequired[int]', 'patch': 'NotRequired[str]'})
"""A difference between two runs."""


class Entry(TypedDict):
    """The JSON form of an entry."""

    node: str
    content: NotRequired[str | None]
    size: NotRequired[int | None]
    executable: NotRequired[bool | None]
    permissions: NotRequired[str | None]
    text: NotRequired[bool | None]
    incomplete: NotRequired[bool | None]
    target: NotRequired[str | None]
    special: NotRequired[str | None]
    version: int
    created_at: str
    updated_at: str


class EntryAtPath(TypedDict):
    """An entry with its path."""

    path: str
    node: str
    content: NotRequired[str | None]
    size: NotRequired[int | None]
    executable: NotRequired[bool | None]
    permissions: NotRequired[str | None]
    text: NotRequired[bool | None]
    incomplete: NotRequired[bool | None]
    target: NotRequired[str | None]
    special: NotRequired[str | None]
    version: int
    created_at: str
    updated_at: str
    live_at: NotRequired[int | None]


EnvironmentDifference = TypedDict('EnvironmentDifference', {'differs': 'str', 'was': 'str', 'is': 'str'})
"""A difference between the container of a recorded run and the present one."""


class Event(TypedDict):
    """An event: its session, position, time, agent and content."""

    session: str
    seq: int
    time: str
    call: int | None
    agent: str
    kind: str
    version: int
    event: Any


class Family(TypedDict):
    """A tree of sessions."""

    root: str
    sessions: list[FamilyMember]
    more: bool


class FamilyMember(TypedDict):
    """A session of a tree."""

    session: str
    name: str
    parent: str | None
    at: int | None
    isolation: str | None
    agent: str
    head: int
    calls: int | None
    merges: list[FamilyMerge]


class FamilyMerge(TypedDict):
    """An attempt to merge a child."""

    at: int
    child: str
    child_at: int
    outcome: str
    conflicts: int


class FoldRule(TypedDict):
    """A rule that folds events of some kinds."""

    kinds: list[str]
    where: NotRequired[str | None]
    fold: DeclaredFold
    key: NotRequired[str | None]
    value: NotRequired[str | None]
    max: NotRequired[int | None]


class ForkRequest(TypedDict):
    """Forks a session several times at one position."""

    count: NotRequired[int]
    at: NotRequired[Position | None]
    name: NotRequired[str | None]
    agent: NotRequired[str | None]
    limits: NotRequired[Limits]
    policy: NotRequired[ToolPolicy | None]
    create_id: NotRequired[str | None]


class Forks(TypedDict):
    """The created forks."""

    children: list[Child]


class Health(TypedDict):
    """The health of the server."""

    status: str
    version: str


class HookMessage(TypedDict):
    """A report of an agent's hook, as sent to the owner or spooled."""

    id: NotRequired[ReportId | None]
    agent: str
    name: NotRequired[str | None]
    event: NotRequired[str | None]
    directory: str
    process: NotRequired[str | None]
    payload: Any


class HostStatus(TypedDict):
    """A host of a shared store."""

    name: str
    at: str | None
    lease_seconds: float
    waited_seconds: float | None


class HunkSide(TypedDict):
    """Lines of one side of a conflict."""

    first: int
    text: str


class IgnoredLeftOut(TypedDict):
    """The number of ignored entries that exceed a limit, with the limits."""

    left_out: int
    file_bytes: int
    entries: int
    bytes: int


class ListedCall(TypedDict):
    """A call in a list."""

    call: int
    tool: str
    agent: str
    started_at: str
    status: str
    exit_code: Any
    timed_out: Any
    finished: int | None
    micros: int | None
    message: str
    params: Any
    events: list[int]
    paths: list[str]
    changed: CallChanges
    shared: list[SharedPaths]
    not_kept: list[str]
    lost: list[str]
    summary: str


class ListedChange(TypedDict):
    """A changed entry."""

    change: str
    path: str
    before: NotRequired[Entry | None]
    after: NotRequired[Entry | None]
    kind: str
    size: int


class MakeDirectory(TypedDict):
    """Makes a directory and its missing parents."""

    path: str
    agent: NotRequired[str | None]


class MaterialiseRequest(TypedDict):
    """Returns the files of a session at a position as a tar stream."""

    at: NotRequired[Position | None]
    below: NotRequired[str | None]


class Merge(TypedDict):
    """The outcome of a merge, done or not."""

    child: str
    child_name: str
    base: int
    child_at: int
    outcome: str
    seq: int | None
    merged: list[dict[str, Any]]
    conflicts: list[dict[str, Any]]
    left_out: list[str]
    generated: list[str]
    slices: list[str]
    unused: list[str]
    into: str
    into_name: str
    dry_run: bool
    hunks: NotRequired[list[ConflictHunk] | None]


class MergeRequest(TypedDict):
    """Merges a clone's changes since its beginning or last merge into the session that it was cloned from: files by path, text by line."""

    child: str
    theirs: NotRequired[list[str]]
    ours: NotRequired[list[str]]
    generated: NotRequired[list[str]]
    dry_run: NotRequired[bool]
    patch: NotRequired[bool]
    agent: NotRequired[str | None]


class Message(TypedDict):
    """A message of a run."""

    seq: int
    time: str
    agent: str
    run: str
    role: MessageRole
    text: str
    cut: bool
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None
    claim: ClaimEvidence | None


class MessagesPage(TypedDict):
    """A page of messages."""

    head: int
    next: int | None
    messages: list[Message]


MoveEntry = TypedDict('MoveEntry', {'from': 'str', 'to': 'str', 'replace': 'NotRequired[bool]', 'agent': 'NotRequired[str | None]'})
"""Moves an entry; a directory with its contents."""


class MoveSession(TypedDict):
    """Moves a session to another host of a shared store: waits for its calls, closes its workspace, and opens it there."""

    host: str


class MovedSession(TypedDict):
    """The new place of a moved session."""

    session: str
    host: str
    millis: int


class NewAnnotation(TypedDict):
    """Records a score, a note or a value for a position of a session."""

    name: str
    at: NotRequired[Position | None]
    score: NotRequired[float | None]
    note: NotRequired[str | None]
    value: NotRequired[Any]
    agent: NotRequired[str | None]


class NewAnswer(TypedDict):
    """Answers the question that a call waits for."""

    answer: Choice
    reason: NotRequired[str | None]


class NewEvent(TypedDict):
    """An event to record."""

    kind: str
    data: NotRequired[Any]


class NewEvents(TypedDict):
    """Records events of your own kinds, in one commit: one event (`kind` and `data`), or several (`events`)."""

    kind: NotRequired[str | None]
    data: NotRequired[Any]
    events: NotRequired[list[NewEvent]]
    call: NotRequired[int | None]
    agent: NotRequired[str | None]
    commit_id: NotRequired[str | None]


class NewMount(TypedDict):
    """A host directory, or a single file, to copy into a workspace."""

    host_path: str
    mount_path: NotRequired[str | None]
    include_glob: NotRequired[list[str]]
    exclude_glob: NotRequired[list[str]]
    max_bytes: NotRequired[int | None]
    follow_symlinks: NotRequired[bool]


class NewProcess(TypedDict):
    """Starts a command in the background, while other calls run."""

    command: Any
    cwd: NotRequired[str]
    env: NotRequired[dict[str, str]]
    stdin: NotRequired[str]
    input: NotRequired[bool]
    window: NotRequired[WindowSize | None]
    timeout_seconds: NotRequired[float | None]
    agent: NotRequired[str | None]
    allow: NotRequired[list[str]]
    deny: NotRequired[list[str]]
    auto_confirm: NotRequired[bool]


class NewSession(TypedDict):
    """Creates a session and copies its mounts."""

    name: NotRequired[str | None]
    backend: NotRequired[str | None]
    options: NotRequired[dict[str, Any]]
    mounts: NotRequired[list[NewMount]]
    allow_roots: NotRequired[list[str]]
    policy: NotRequired[ToolPolicy | None]
    create_id: NotRequired[str | None]


class NewSubagent(TypedDict):
    """A child to create, and its calls."""

    isolation: NotRequired[Literal['fork', 'full', 'shared']]
    at: NotRequired[Position | None]
    name: NotRequired[str | None]
    agent: NotRequired[str | None]
    limits: NotRequired[Limits]
    calls: NotRequired[list[SubagentCall]]
    go_on: NotRequired[bool]
    annotations: NotRequired[list[NewAnnotation]]


class NewTag(TypedDict):
    """Tags a position with a name."""

    name: str
    at: NotRequired[Position | None]


class ObservedChange(TypedDict):
    """A change of a directory that is only watched."""

    seq: int
    by: list[RunMention]


class OpenPage(TypedDict):
    """Opens a listener for pages in a browser on this machine, unless it is open already, and makes a code for a page to get its token with: valid once, for 60 seconds."""

    read_only: NotRequired[bool]


class OrderRule(TypedDict):
    """A tool that must succeed before another."""

    first: str
    before: str
    same_path: NotRequired[bool]


class Page(TypedDict):
    """A page of the log."""

    events: list[Event]
    next: int | None
    head: int


class PageAddress(TypedDict):
    """The address of the page, with a code."""

    address: str
    code: str


class PassedCall(TypedDict):
    """A call that can't be undone now."""

    call: int
    tool: str
    subject: str
    agent: str
    started_at: str
    left: list[dict[str, Any]]


class Policies(TypedDict):
    """The policies that bind a session's calls."""

    policy: ToolPolicy | None
    inherited: list[ToolPolicy]


class PositionRange(TypedDict):
    """A range of positions, both ends included."""

    first: int
    last: int


class Probe(TypedDict):
    """A command's run at a position."""

    seq: int
    verdict: str
    exit_code: int
    timed_out: bool
    micros: int
    stdout: str
    stderr: str


class Problem(TypedDict):
    """A problem with a request (RFC 9457)."""

    type: str
    kind: str
    title: str
    status: int
    detail: str
    hint: NotRequired[str | None]
    advice: NotRequired[dict[str, Any] | None]
    rewind: NotRequired[RewindRefusal | None]


class Process(TypedDict):
    """A background process, running or ended."""

    process: int
    command: Any
    cwd: str
    running: bool
    exit_code: int | None
    signal: int | None
    timed_out: bool
    cancelled: bool
    problem: str | None
    stdout_bytes: int
    stderr_bytes: int
    micros: int
    call: int | None


class ProcessInput(TypedDict):
    """Sends input to a process: `text` or `base64`, at most 4 MiB."""

    text: NotRequired[str | None]
    base64: NotRequired[str | None]
    end: NotRequired[bool]
    window: NotRequired[WindowSize | None]


class ProcessSignal(TypedDict):
    """Sends a signal to a process and its group."""

    signal: Any


class RanCommand(TypedDict):
    """The command of a call that ended, beside its result."""

    command: Any
    directory: str
    success: bool
    signal: int | None


class RecordedFrames(TypedDict):
    """Frames of a terminal's recording."""

    frames: list[ScreenFrame]
    next: int | None
    truncated: bool


class RecordedRange(TypedDict):
    """The positions of recorded events."""

    first: int
    last: int


class RecordedSeq(TypedDict):
    """The position of a recorded event."""

    seq: int


class ReplicationStatus(TypedDict):
    """A copy of the journal in object storage."""

    to: str
    segment: int
    offset: int
    until: str | None
    lag_seconds: float | None
    lag_bytes: int
    git_repositories: list[str]
    problem: str | None
    stopped: bool


class ReportDocument(TypedDict):
    """The outcome of a report."""

    outcome: ReportOutcome


class ReportId(TypedDict):
    """Id of a report: start time and process of its hook."""

    at: int
    process: int


class Rerun(TypedDict):
    """The result of a rerun."""

    recorded: str
    session: str | None
    name: str | None
    start: int
    end: int
    calls: int
    diverged: int
    skipped: int
    same: bool
    differing: list[RerunCall]
    files: list[Change]
    more: bool
    missing: list[str]
    environment: list[EnvironmentDifference]


class RerunCall(TypedDict):
    """A call that was made again."""

    call: int | None
    rerun: int | None
    tool: str
    agent: str
    summary: str
    verdict: str
    reason: str | None
    divergences: list[Divergence]


class RerunRequest(TypedDict):
    """Reruns a session's recorded calls, in order, in a throw-away session with a fresh workspace, and reports every difference."""

    until: NotRequired[Position | None]
    backend: NotRequired[str | None]
    options: NotRequired[dict[str, Any]]
    keep: NotRequired[str | None]
    rules: NotRequired[dict[str, Any]]
    no_default_rules: NotRequired[bool]
    allow: NotRequired[list[str]]
    auto_confirm: NotRequired[bool]


Rewind = TypedDict('Rewind', {'session': 'str', 'to': 'int', 'asked': 'int | None', 'from': 'int', 'dry_run': 'bool', 'refused': 'str | None', 'recorded': 'PositionRange | None', 'changes': 'list[dict[str, Any]]', 'slices': 'list[str]', 'drift': 'list[str]', 'left': 'list[str]', 'lost': 'list[str]', 'apart': 'list[str]'})
"""The changes of a rewind, done or not."""


class RewindRefusal(TypedDict):
    """The reason why a rewind is refused, and the entries that block it."""

    refused: str
    entries: list[str]
    count: int


class RewindRequest(TypedDict):
    """Rewinds a session's files and state to an earlier position."""

    to: Position
    force: NotRequired[bool]
    keep_earlier: NotRequired[bool]
    git: NotRequired[bool]
    dry_run: NotRequired[bool]


class RunMention(TypedDict):
    """An observed call, with its agent and run."""

    call: int
    agent: str
    run: str
    model: str | None
    prompt: str


class RunScore(TypedDict):
    """An annotation of a run."""

    at: int
    score: float | None
    note: str | None


class RunSql(TypedDict):
    """Runs an SQL query (SQLite, a single SELECT) over all recorded sessions; it can change nothing."""

    query: str
    limit: NotRequired[int | None]
    timeout_seconds: NotRequired[int | None]


class ScoreRange(TypedDict):
    """Scores of several runs."""

    runs: int
    mean: float
    min: float
    max: float


class ScreenFrame(TypedDict):
    """A change of a terminal's screen."""

    micros: int
    size: NotRequired[WindowSize | None]
    cursor: list[Any] | None
    rows: dict[str, list[ScreenText]]


class ScreenText(TypedDict):
    """A run of text in one style."""

    text: str
    foreground: NotRequired[str | None]
    background: NotRequired[str | None]
    style: NotRequired[list[str]]


class SearchMatch(TypedDict):
    """A line that matches."""

    seq: int
    call: int | None
    agent: str
    place: SearchPlace
    field: str | None
    path: str | None
    line_number: int
    line: str
    ranges: list[list[int]]


class SearchPage(TypedDict):
    """A page of matches."""

    head: int
    searched: int
    next: int | None
    hits: list[SearchMatch]
    more: bool


class SectionDocument(TypedDict):
    """The prompt section about a session's workspace."""

    text: str
    root: str | None


class ServerStatus(TypedDict):
    """The status of a server: its clients and its work."""

    process: int
    version: str
    seconds: int
    memory_bytes: int | None
    clients: list[ClientStatus]
    calls: list[CallInFlight]
    workspaces: list[WorkspaceStatus]
    read_only: bool
    replication: ReplicationStatus | None
    host: HostStatus | None


class Session(TypedDict):
    """A session in a list."""

    session: str
    name: str
    parent: str | None
    backend: str
    events: int
    calls: int | None
    created: str
    updated: str


SharedPaths = TypedDict('SharedPaths', {'with': 'list[int]', 'in_doubt': 'bool', 'paths': 'list[str]'})
"""Changes of files that one of several calls may have made."""


class SignIn(TypedDict):
    """Exchanges the code in a page's address for its token."""

    code: str


class SignedIn(TypedDict):
    """The token of a page."""

    token: str
    read_only: bool


class SliceLook(TypedDict):
    """An evaluation of the predicate."""

    seq: int
    holds: bool


class SliceSummary(TypedDict):
    """The summary of one slice."""

    slice: str
    version: int
    on_rewind: str
    json_bytes: int
    digest: str


class SqlAnswer(TypedDict):
    """The rows that a query returned."""

    columns: list[str]
    rows: list[list[str | float | None]]
    truncated: bool


class State(TypedDict):
    """A state, with the value of one slice if requested."""

    session: str
    name: str
    seq: int
    time: str | None
    unreadable: int
    slices: list[SliceSummary]
    value: NotRequired[Any]


class Stop(TypedDict):
    """The stop of a run through a history."""

    seq: int | None
    because: str | None
    call: int | None
    next: int | None


class SubagentCall(TypedDict):
    """A call to make in a child."""

    tool: str
    params: NotRequired[dict[str, Any]]
    timeout_seconds: NotRequired[float | None]


class Timeline(TypedDict):
    """A summary of a session's calls."""

    head: int
    calls: int
    started_at: str | None
    ended_at: str | None
    tools: dict[str, int]
    agents: dict[str, int]
    buckets: list[TimelineBucket]


TimelineBucket = TypedDict('TimelineBucket', {'from': 'int', 'at': 'str', 'ended_at': 'str', 'micros': 'int', 'calls': 'int', 'failed': 'int', 'changed': 'int'})
"""A run of consecutive calls."""


class Tool(TypedDict):
    """Description of a tool."""

    name: str
    description: str
    effect: str
    params: dict[str, Any]
    output: dict[str, Any]


class ToolPolicy(TypedDict):
    """A session's policy for tools."""

    tools: NotRequired[list[str] | None]
    read: NotRequired[list[str] | None]
    write: NotRequired[list[str] | None]
    order: NotRequired[list[OrderRule]]
    at_most: NotRequired[list[AtMostRule]]
    commands_outside: NotRequired[OutsideTreatment | None]
    on_failure: NotRequired[OnFailure | None]
    section_text: NotRequired[str | None]


class UndoRequest(TypedDict):
    """Undoes file changes: of a call, a run, an undo, all calls after a position, or external changes."""

    call: NotRequired[int | None]
    run: NotRequired[str | None]
    to: NotRequired[Position | None]
    external: NotRequired[ExternalChange | None]
    redo: NotRequired[bool]
    paths: NotRequired[list[str]]
    overwrite: NotRequired[bool]
    force: NotRequired[bool]
    dry_run: NotRequired[bool]
    seen: NotRequired[int | None]
    agent: NotRequired[str | None]


class Undone(TypedDict):
    """The changes of an undo, done or not."""

    session: str
    dry_run: bool
    calls: list[int]
    latest: UndoneCall | None
    redoes: bool
    undos: list[int]
    external: list[int]
    seen: int
    call: int | None
    changes: list[dict[str, Any]]
    left: list[dict[str, Any]]
    passed: list[PassedCall]
    apart: list[str]
    git: dict[str, Any] | None


class UndoneCall(TypedDict):
    """A call that an undo undoes."""

    call: int
    tool: str
    subject: str
    agent: str
    started_at: str


class Verification(TypedDict):
    """The outcome of a verification."""

    sessions: int
    events: int
    snapshots: int
    contents: int
    unreadable: int
    lost: int
    differences: list[dict[str, Any]]


class WaitRequest(TypedDict):
    """Waits for a process to end, at most `timeout_seconds`, and returns its status."""

    timeout_seconds: NotRequired[float | None]


class WholeCall(TypedDict):
    """A call with its result and events."""

    call: int
    tool: str
    agent: str
    started_at: str
    status: str
    exit_code: Any
    timed_out: Any
    finished: int | None
    micros: int | None
    message: str
    params: Any
    events: list[int]
    paths: list[str]
    changed: CallChanges
    shared: list[SharedPaths]
    not_kept: list[str]
    lost: list[str]
    result: Any
    recorded: dict[str, Event]


class WholeEntry(TypedDict):
    """An entry with its contents."""

    path: str
    node: str
    content: NotRequired[str | None]
    size: NotRequired[int | None]
    executable: NotRequired[bool | None]
    permissions: NotRequired[str | None]
    text: NotRequired[bool | None]
    incomplete: NotRequired[bool | None]
    target: NotRequired[str | None]
    special: NotRequired[str | None]
    version: int
    created_at: str
    updated_at: str
    live_at: NotRequired[int | None]
    contents_text: str | None
    contents_base64: str | None


class WindowSize(TypedDict):
    """The size of a terminal, in characters."""

    rows: int
    columns: int


class WorkspaceStatus(TypedDict):
    """An open workspace."""

    session: str
    name: str
    backend: str
    unused_seconds: int | None


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
