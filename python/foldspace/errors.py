"""Errors: a class for each kind of problem, with the server's advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foldspace._models import CallOutcome, Problem, UsedLimit
    from foldspace.results import CommandResult


class FoldspaceError(Exception):
    """An error of foldspace. ``hint`` advises what to do, if known."""

    kind = "error"
    """The kind of the problem."""

    def __init__(self, detail: str, *, hint: str | None = None) -> None:
        super().__init__(f"{detail} ({hint})" if hint else detail)
        self.detail = detail
        """The problem, without advice."""
        self.hint = hint
        """Advice, if the server has any."""
        self.problem: Problem | None = None
        """The server's problem document; ``None`` if it sent none."""
        self.position: int | None = None
        """The position of the problem, if it has one."""
        self.head: int | None = None
        """The session's last position, if a request named a position beyond it or expected another one."""
        self.outcome: CallOutcome | None = None
        """The outcome of the call that failed; ``None`` if no call did."""


class InfrastructureError(FoldspaceError):
    """A failure of the store, the workspace or its backend, not of the request."""

    kind = "failed"


class StartError(InfrastructureError):
    """The server failed to start."""

    kind = "start"


class ConnectionLostError(InfrastructureError):
    """The server ended, or hung up, before it answered."""

    kind = "connection"


class ClientClosedError(FoldspaceError):
    """The client was closed while it waited."""

    kind = "closed"


class BackendError(InfrastructureError):
    """The workspace's backend refused."""

    kind = "backend"


class StoreError(InfrastructureError):
    """The store failed."""

    kind = "broken"


class DiskFullError(InfrastructureError):
    """The disk is full."""

    kind = "full"


class OtherHostError(InfrastructureError):
    """Another host owns the session."""

    kind = "other_host"


class EndingError(InfrastructureError):
    """The server is ending."""

    kind = "ending"


class StoreFailedError(InfrastructureError):
    """A write to the store has failed. The server stops recording and exits."""

    kind = "store_failed"


class ClusterLostError(InfrastructureError):
    """The host has waited for its cluster longer than its lease."""

    kind = "cluster_lost"


class TooSlowError(InfrastructureError):
    """The request took too long to arrive."""

    kind = "too_slow"


class BadRequestError(FoldspaceError):
    """The request can't be read."""

    kind = "bad_request"


class UnauthorizedError(FoldspaceError):
    """A token is needed."""

    kind = "unauthorized"


class ForbiddenError(FoldspaceError):
    """The request is not allowed."""

    kind = "forbidden"


class NotFoundError(FoldspaceError):
    """No such session, path, event or tool."""

    kind = "not_found"


class NoRouteError(FoldspaceError):
    """The server does not know the path: it is another version."""

    kind = "no_route"


class MethodError(FoldspaceError):
    """The path does not take this method: the server is another version."""

    kind = "method"


class ConflictError(FoldspaceError):
    """State conflict, such as a name that is taken."""

    kind = "conflict"


class OtherVersionError(FoldspaceError):
    """Another version of foldspace has the store."""

    kind = "other_version"


class UnreadableError(FoldspaceError):
    """The session was started by a newer foldspace."""

    kind = "unreadable"


class RefusedError(FoldspaceError):
    """Refused by a policy, a person or a limit, or in the present state."""

    kind = "refused"


class TooLargeError(FoldspaceError):
    """The request is too large."""

    kind = "too_large"


class HeadTooLargeError(TooLargeError):
    """The request's head is too large."""

    kind = "head_too_large"


class MediaTypeError(FoldspaceError):
    """The server does not accept the body's media type."""

    kind = "media_type"


class UnusableError(FoldspaceError):
    """A value in the request is invalid."""

    kind = "unusable"


class InvalidCallError(UnusableError):
    """The parameters of a call are invalid."""

    kind = "invalid"


class OverLimitError(RefusedError):
    """The call exceeds a limit of the session."""

    kind = "over_limit"

    @property
    def limit(self) -> UsedLimit | None:
        """The limit: its ``name`` (``calls``, ``wall_millis``, ``bytes_written``...), the ``limit``, and what was ``used``."""
        return self.outcome.get("limit") if self.outcome else None


class IsDirectoryError(UnusableError):
    """A directory is where a file is expected."""

    kind = "is_directory"


class CallTimedOutError(FoldspaceError):
    """The call exceeded its time limit."""

    kind = "timed_out"


class CallCancelledError(FoldspaceError):
    """The call was cancelled by another client."""

    kind = "cancelled"


class CommandFailedError(FoldspaceError):
    """A command with ``check`` ended with another status than 0."""

    kind = "command"

    def __init__(self, result: CommandResult) -> None:
        lines = (result.stderr or result.stdout).strip().splitlines()
        said = f": {lines[-1][:200]}" if lines else ""
        super().__init__(f"the command ended with {result.exit_code}{said}")
        self.result = result
        """The result of the command, with its output."""


def _kinds(of: type[FoldspaceError]) -> dict[str, type[FoldspaceError]]:
    found = {of.kind: of}
    for below in of.__subclasses__():
        found |= _kinds(below)
    return found


BY_KIND = _kinds(FoldspaceError)
"""The class of each kind of problem, and of each reason for a call's failure."""


def of_problem(problem: Problem) -> FoldspaceError:
    """Returns the error of a problem document."""
    error = BY_KIND.get(problem["kind"], FoldspaceError)(problem["detail"], hint=problem.get("hint"))
    error.problem = problem
    error.position, error.head = problem.get("position"), problem.get("head")
    return error


def of_outcome(outcome: CallOutcome) -> FoldspaceError:
    """Returns the error of a call that did not succeed."""
    reason: Any = outcome.get("reason")
    error = BY_KIND.get(reason or "error", FoldspaceError)(outcome["text"])
    error.outcome = outcome
    return error
