"""Record, replay and fork everything that an AI agent does in its workspace.

    async with foldspace.session(backend="podman", mount=".") as s:
        result = await s.run("pytest -q")

``foldspace.sync`` has the same API without asyncio.
"""

from foldspace._binary import find_foldspace_bin
from foldspace._client import Client, attach, session
from foldspace._models import NewSubagent, SubagentCall, ToolPolicy
from foldspace.errors import (
    BackendError,
    CallCancelledError,
    CallTimedOutError,
    ClientClosedError,
    CommandFailedError,
    ConflictError,
    ConnectionLostError,
    FoldspaceError,
    ForbiddenError,
    InfrastructureError,
    InvalidCallError,
    NotFoundError,
    OverLimitError,
    RefusedError,
    StartError,
    UnusableError,
)
from foldspace._files import Files, ReadFiles
from foldspace._process import Process
from foldspace.results import CommandResult, Diff, Log, Tree
from foldspace._rollouts import Rollout
from foldspace._selection import Candidate, Selection, fork_and_select
from foldspace._session import Session, Snapshot
from foldspace._slices import TypedSlice
from foldspace.types import ContainerOptions, HostOptions, Limits, MockOptions, NetworkRules, Question

__all__ = [
    "BackendError",
    "CallCancelledError",
    "CallTimedOutError",
    "Candidate",
    "Client",
    "ClientClosedError",
    "CommandFailedError",
    "CommandResult",
    "ConflictError",
    "ConnectionLostError",
    "ContainerOptions",
    "Diff",
    "Files",
    "FoldspaceError",
    "ForbiddenError",
    "HostOptions",
    "InfrastructureError",
    "InvalidCallError",
    "Limits",
    "Log",
    "MockOptions",
    "NetworkRules",
    "NewSubagent",
    "NotFoundError",
    "OverLimitError",
    "Process",
    "Question",
    "ReadFiles",
    "RefusedError",
    "Rollout",
    "Selection",
    "Session",
    "Snapshot",
    "StartError",
    "SubagentCall",
    "ToolPolicy",
    "Tree",
    "TypedSlice",
    "UnusableError",
    "attach",
    "find_foldspace_bin",
    "fork_and_select",
    "session",
]
