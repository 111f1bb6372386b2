"""A program of a user, which mypy and pyright check in their strict modes, and `test_typed_program.py` runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from typing_extensions import assert_type

import foldspace
import foldspace.sync
from foldspace import Limits
from foldspace.types import Answer, Call


@dataclass
class Step:
    """A step of a plan."""

    id: int
    status: str


def allow(question: foldspace.Question) -> Answer:
    """Answers the policy's questions."""
    return "once" if question.programs == ["seq"] else "refuse"


async def attempt(fork: foldspace.Session) -> None:
    """Works in a fork."""
    await fork.run(["seq", fork.name[-1]], check=True)
    await fork.files.write("name.txt", fork.name)


async def size(fork: foldspace.Session) -> float:
    """Returns the score of a fork."""
    return len(await fork.files.read("name.txt"))


async def asynchronous(data: Path) -> list[str]:
    """Works with asyncio."""
    limits: Limits = {"calls": 20}
    streams: list[str] = []
    async with foldspace.session("one", backend="host", data=data, on_question=allow) as session:
        ran = await session.run("seq 3", on_output=lambda stream, part: streams.append(f"{stream} {len(part)}"))
        assert_type(ran, foldspace.CommandResult)
        assert_type(ran.stdout, str)
        step = session.slice(fold="latest_by", key="/id")(Step)
        assert_type(step, foldspace.TypedSlice[Step])
        assert_type(await step.emit(id=1, status="open"), int)
        (child,) = await session.fork(limits=limits)
        assert_type(child, foldspace.Session)
        chosen = await foldspace.fork_and_select(session, 2, attempt, size)
        assert_type(chosen.best.score, float | None)
        tries: list[list[Call]] = [["seq 3"], [{"tool": "ls"}]]
        async for rollout in session.rollouts(tries, score="seq 2", keep=0):
            assert_type(rollout.session, foldspace.Session)
            assert_type(rollout.score, float | None)
        assert_type([each.agent for each in await session.children()], list[str | None])
        assert_type((await session.diff()).patch, str)
        assert_type([call["tool"] for call in await session.calls()], list[str])
        async for event in session.events(kind="WriteFile,Merge"):
            assert_type(event["seq"], int)
            break
        rewound = await session.rewind(ran.finished)
        assert_type(rewound["to"], int)
    return streams


def synchronous(data: Path) -> list[str]:
    """Works without asyncio."""
    with foldspace.sync.Client(data) as client:
        session = client.create("two", backend="host", on_question=allow)
        ran = session.run("seq 3")
        assert_type(ran, foldspace.CommandResult)

        def written(fork: foldspace.sync.Session) -> None:
            fork.files.write("name.txt", fork.name)

        chosen = foldspace.sync.fork_and_select(session, 2, written, lambda fork: len(fork.files.read("name.txt")))
        assert_type(chosen.best.session, foldspace.sync.Session)
        assert_type([each.session for each in session.rollouts("seq 3", count=2, keep=0)], list[foldspace.sync.Session])
        try:
            session.run("seq 3", timeout=0.1)
        except foldspace.InvalidCallError as error:
            assert_type(error.hint, str | None)
        return [each["name"] for each in client.sessions()]
