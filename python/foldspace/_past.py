"""The history of a session: its calls, their changes, and its family."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

from foldspace import _models
from foldspace._files import relative, resumed
from foldspace._http import Connection
from foldspace._process import decoded
from foldspace.results import Diff, Log
from foldspace.types import Identified, PositionLike

_SESSION = "/v1/sessions/{session}"
_PAGE = 1000


class SessionPast:
    """The history of a session, read-only."""

    def __init__(self, connection: Connection, session: str) -> None:
        self._connection = connection
        self._session = session

    async def log(self, start: int = 1, *, limit: int | None = None, kind: str | None = None) -> Log:
        """Returns its events from a position on, at most ``limit``. ``kind`` (several with commas) selects kinds."""
        log = Log()
        at: int | None = start
        while at is not None and (limit is None or len(log) < limit):
            query = {"from": at, "limit": _PAGE if limit is None else min(_PAGE, limit - len(log)), "kind": kind}
            page: _models.Page = await self._connection.document(
                "GET", _SESSION + "/events", query=query, session=self._session
            )
            log += page["events"]
            at = page["next"]
        return log

    async def calls(
        self,
        start: int = 1,
        *,
        limit: int | None = None,
        tool: str | None = None,
        agent: str | None = None,
        failed: bool = False,
        changed: bool = False,
        path: str | None = None,
        text: str | None = None,
    ) -> list[_models.ListedCall]:
        """Lists its calls from a position on that match all filters, in the order in which they started. ``path`` is a
        glob of changed paths; ``text`` occurs in the tool, the parameters, the result or the error."""
        found: list[_models.ListedCall] = []
        wanted = _filters(tool, agent, failed, changed, path, text)
        at: int | None = start
        while at is not None and (limit is None or len(found) < limit):
            query = wanted | {"from": at, "limit": _PAGE if limit is None else min(_PAGE, limit - len(found))}
            page: _models.CallsPage = await self._connection.document(
                "GET", _SESSION + "/calls", query=query, session=self._session
            )
            found += page["calls"]
            at = page["next"]
        return found

    async def messages(
        self, start: int = 1, *, run: str | None = None, claims: bool = False, whole: bool = False
    ) -> list[_models.Message]:
        """Returns the prompts, answers and reasoning of agents' runs from a position on. ``claims`` keeps only messages
        that speak of success after their agent's last command failed. Without ``whole`` long texts are cut."""
        found: list[_models.Message] = []
        wanted = {"run": run, "claims": claims or None, "whole": whole or None, "limit": _PAGE}
        at: int | None = start
        while at is not None:
            page: _models.MessagesPage = await self._connection.document(
                "GET", _SESSION + "/messages", query=wanted | {"from": at}, session=self._session
            )
            found += page["messages"]
            at = page["next"]
        return found

    async def search(
        self,
        pattern: str,
        *,
        start: int = 1,
        ignore_case: bool = False,
        place: Literal["parameters", "output", "file", "event"] | None = None,
        path: str | None = None,
        limit: int | None = None,
    ) -> list[_models.SearchMatch]:
        """Finds lines that match a regular expression (in Rust's syntax) from a position on: in the parameters and output
        of calls, in lines that files gained, and in other events, in order. ``path`` is a glob that keeps only matches
        in files."""
        found: list[_models.SearchMatch] = []
        wanted = {"pattern": pattern, "ignore_case": ignore_case or None, "in": place, "path": path}
        at: int | None = start
        while at is not None and (limit is None or len(found) < limit):
            query = wanted | {"from": at, "limit": _PAGE if limit is None else min(_PAGE, limit - len(found))}
            page: _models.SearchPage = await self._connection.document(
                "GET", _SESSION + "/search", query=query, session=self._session
            )
            found += page["hits"]
            at = page["next"]
        return found if limit is None else found[:limit]

    async def show_call(self, call: int) -> _models.WholeCall:
        """Describes a call, with its result."""
        return await self._connection.document("GET", _SESSION + "/calls/{call}", session=self._session, call=call)

    async def output(self, call: int) -> AsyncIterator[tuple[str, bytes]]:
        """Yields the output of a call in flight from now on, with the stream's name, until the call ends. Raises
        ``NotFoundError`` if no such call is in flight."""
        template = _SESSION + "/calls/{call}/output"
        async for name, event in resumed(self._connection, template, {}, session=self._session, call=call):
            if name == "output":
                yield event["stream"], decoded(event)

    async def timeline(
        self,
        *,
        buckets: int | None = None,
        tool: str | None = None,
        agent: str | None = None,
        failed: bool = False,
        changed: bool = False,
        path: str | None = None,
        text: str | None = None,
    ) -> _models.Timeline:
        """Counts the calls that match all filters in buckets, from the start of the session to its end.

        ``buckets`` is their number, from 1 to 2,000; at most the number of calls.
        """
        query = _filters(tool, agent, failed, changed, path, text) | {"buckets": buckets}
        return await self._connection.document("GET", _SESSION + "/timeline", query=query, session=self._session)

    async def until(
        self, *conditions: str, start: PositionLike | None = None, backward: bool = False
    ) -> _models.Stop | None:
        """Finds the next event that meets one of the conditions, after ``start`` or before it; ``None`` if there is no
        such event. A condition is ``path GLOB``, ``kind KIND``, ``agent NAME``, ``tool NAME``, ``failed``, ``/REGEX/``,
        or a predicate over slices, such as ``Usage.calls > 5``."""
        at: PositionLike | None = start
        while True:
            query = {"conditions": "\n".join(conditions), "from": at, "backward": backward}
            found: _models.Stop = await self._connection.document(
                "GET", _SESSION + "/until", query=query, session=self._session
            )
            at = found["next"]
            if at is None:
                return None if found["seq"] is None else found

    async def diff(self, start: PositionLike | None = None, end: PositionLike | None = None, *, path: str | None = None) -> Diff:
        """Returns the changes between two positions, by default from the start to now."""
        query = {"from": start, "to": end, "path": path}
        found: Any = await self._connection.document("GET", _SESSION + "/diff", query=query, session=self._session)
        return Diff(found["changes"], found["from"], found["to"])

    async def changes(
        self, start: PositionLike | None = None, end: PositionLike | None = None, *, live: bool = False
    ) -> _models.ChangeList:
        """Lists the changes between two positions, without contents.

        ``live=True`` lists the changes on the disk that are not recorded yet, also while a command runs.
        """
        query = {"from": start, "to": end, "live": live or None}
        return await self._connection.document("GET", _SESSION + "/changes", query=query, session=self._session)

    async def effects(self) -> list[_models.EffectEntry]:
        """Lists the effects of its calls outside of the workspace, such as pushes, which no rewind takes back: the last
        1,000."""
        return await self._connection.document("GET", _SESSION + "/effects", session=self._session)

    async def blame(self, path: str, at: PositionLike | None = None) -> _models.Blame:
        """Returns the call that wrote each line of a file."""
        template = _SESSION + "/blame/{path}"
        return await self._connection.document("GET", template, query={"at": at}, session=self._session, path=relative(path))

    async def align(
        self, other: str | Identified, *, end: PositionLike | None = None, other_end: PositionLike | None = None
    ) -> _models.Alignment:
        """Aligns its calls with the calls of another session, up to a position of each."""
        query = {"other": other if isinstance(other, str) else other.id, "to": end, "other_to": other_end}
        return await self._connection.document("GET", _SESSION + "/alignment", query=query, session=self._session)

    async def family(self) -> _models.Family:
        """Lists all sessions of its family, siblings included, with their merges."""
        return await self._connection.document("GET", _SESSION + "/family", session=self._session)


def _filters(
    tool: str | None, agent: str | None, failed: bool, changed: bool, path: str | None, text: str | None
) -> dict[str, Any]:
    flags = {"failed": failed or None, "changed": changed or None}
    return {"tool": tool, "agent": agent, "path": path, "text": text} | flags
