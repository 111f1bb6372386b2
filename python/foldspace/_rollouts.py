"""Rollouts: scored runs of a session in forks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TYPE_CHECKING, Any

from foldspace import _models
from foldspace._http import Connection, events_of
from foldspace._progress import Progress
from foldspace.errors import ConnectionLostError, of_problem
from foldspace.types import Call, Run

if TYPE_CHECKING:
    from foldspace._session import Session


@dataclasses.dataclass
class Rollout:
    """A rollout of ``Session.rollouts``."""

    number: int
    """Its number, from 0."""
    session: Session
    """Its fork. It was removed if ``kept`` is false."""
    status: str
    """``done``, ``failed`` or ``cancelled``."""
    reason: str | None
    """The reason for a failure or a missing score."""
    calls: Sequence[_models.DispatchedCall]
    """The calls that ended, in order; the score's call last."""
    changed: Sequence[str]
    """At most 1,000 paths that its calls changed, sorted."""
    more: bool
    """True if its calls changed more paths."""
    score: float | None
    """The score; ``None`` without one."""
    kept: bool
    """False if its session was removed. The value is final after the last rollout, because a better one may still come."""


def call_of(call: Call) -> _models.SubagentCall:
    """Returns the document of a call."""
    return {"tool": "shell_execute", "params": {"command": call}} if isinstance(call, str) else call


def lists_of(run: Run) -> list[list[_models.SubagentCall]]:
    """Returns the calls of each rollout, or one list for all."""
    if isinstance(run, (str, dict)):
        return [[call_of(run)]]
    for_all = [each for each in run if isinstance(each, (str, dict))]
    if for_all:
        return [[call_of(each) for each in for_all]]
    return [[call_of(call) for call in each] for each in run]


async def rollouts_of(
    connection: Connection, session: str, body: dict[str, Any], fork_of: Callable[[_models.Rollout], Session]
) -> AsyncGenerator[Rollout, None]:
    """Yields rollouts as they end, then sets ``kept`` of each."""
    ended: dict[int, Rollout] = {}
    outcome: _models.RolloutsDocument | None = None

    def rollout_of(document: _models.Rollout) -> Rollout:
        rollout = Rollout(
            number=document["number"],
            session=fork_of(document),
            status=document["status"],
            reason=document["reason"],
            calls=document["calls"],
            changed=document["changed"],
            more=document["more"],
            score=document["score"],
            kept=document["kept"],
        )
        return ended.setdefault(rollout.number, rollout)

    line = Progress("rollouts", connection.progress)
    try:
        path = "/v1/sessions/{session}/rollouts"
        headers = {"accept": "text/event-stream"}
        async with connection.response("POST", path, body=body, headers=headers, session=session) as response:
            if response.content_type != "text/event-stream":
                # All ended before the first event.
                outcome = json.loads(await response.read())
            async for event in events_of(response):
                if event.name == "progress":
                    line.say(str(event.data.get("text", "")))
                elif event.name == "result":
                    line.close()
                    yield rollout_of(event.data)
                elif event.name == "outcome":
                    outcome = event.data
                elif event.name == "problem":
                    raise of_problem(event.data)
    finally:
        line.close()
    if outcome is None:
        raise ConnectionLostError("the server hung up before the outcome")
    late = [rollout_of(each) for each in outcome["rollouts"] if each["number"] not in ended]
    for document in outcome["rollouts"]:
        ended[document["number"]].kept = document["kept"]
    for rollout in late:
        yield rollout
