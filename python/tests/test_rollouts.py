"""Tests of rollouts."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import foldspace
import foldspace.sync
import pytest
from conftest import until
from foldspace import Client, Session
from foldspace.types import Call
from test_examples import example, run_example


async def test_the_best_rollouts_stay(client: Client, session: Session) -> None:
    await session.files.write("base.txt", "1\n2\n")
    before = await session.head()
    await session.files.remove("base.txt")
    lists = [[f"seq {lines} >> base.txt", f"echo {lines}"] for lines in (1, 4, 2, 3)]
    rollouts = session.rollouts(lists, at=before, score="wc -l < base.txt", keep=2, parallel=2, name="try", agent="coder")
    rolled = sorted([each async for each in rollouts], key=lambda each: each.number)
    assert [each.score for each in rolled] == [3, 6, 4, 5]
    assert [each.kept for each in rolled] == [False, True, False, True]
    assert {(each.status, each.reason, each.more) for each in rolled} == {("done", None, False)}
    assert [list(each.changed) for each in rolled] == [["base.txt"]] * 4
    best = rolled[1]
    assert [(call["text"].split("\n")[0], call["exit_code"]) for call in best.calls][1:] == [("4", 0), ("6", 0)]
    assert (best.session.name, best.session.agent, best.session.parent) == ("try-2", "coder", session.id)
    assert await best.session.files.read("base.txt") == b"1\n2\n1\n2\n3\n4\n"
    assert [each["score"] for each in await best.session.annotations("score")] == [6]
    assert (await best.session.calls())[-1]["agent"] == "coder"
    assert sorted(each["name"] for each in await client.sessions()) == ["demo", "try-2", "try-4"]
    with pytest.raises(foldspace.NotFoundError):
        await rolled[0].session.show()


async def test_failed_rollouts_have_reasons(session: Session) -> None:
    write: Call = {"tool": "write_file", "params": {"file_path": "once", "content": "1"}}
    calls: list[Call] = ["test ! -e once", write, "exit 3", "touch never"]
    failed = [each async for each in session.rollouts(calls, count=2)]
    assert {(each.status, each.reason, each.score, each.kept) for each in failed} == {
        ("failed", "call 3 (shell_execute) failed: exit 3", 0, True)
    }
    assert [call["tool"] for call in failed[0].calls] == ["shell_execute", "write_file", "shell_execute"]
    (unscored,) = [each async for each in session.rollouts("true", score="echo high", keep=0)]
    assert (unscored.status, unscored.score, unscored.kept) == ("done", None, False)
    assert unscored.reason and "no number: high" in unscored.reason
    limited = [each async for each in session.rollouts(["true", "true"], limits={"calls": 1}, keep=0)]
    assert "1 call" in (limited[0].reason or "")
    writing: Call = {"tool": "write_file", "params": {"file_path": "a.txt", "content": "1"}}
    (refused,) = [each async for each in session.rollouts(writing, policy={"write": ["src/**"]}, score="echo 7")]
    assert (refused.status, refused.score, list(refused.changed)) == ("failed", 7, [])


async def test_requests_that_do_not_fit_leave_no_forks(session: Session) -> None:
    wrong = {
        "it needs 1 or 3": session.rollouts([[], []], count=3),
        "0 lists": session.rollouts([]),
        "the limit is 10000": session.rollouts(["true"] * 101, count=100),
    }
    for said, rollouts in wrong.items():
        with pytest.raises(foldspace.UnusableError, match=said):
            await anext(rollouts)
    with pytest.raises(foldspace.NotFoundError):
        await anext(session.rollouts("true", at=10_000))
    assert await session.children() == []


async def test_policy_asks_nobody(client: Client, session: Session) -> None:
    careful = await client.open(session.id)
    (asked,) = [each async for each in careful.rollouts("rm -rf /tmp/nothing")]
    assert asked.status == "failed"
    allowed = await client.open(session.id, allow=["touch"])
    (touched,) = [each async for each in allowed.rollouts("touch a.txt")]
    assert (touched.status, list(touched.changed)) == ("done", ["a.txt"])


async def calls_of_children(session: Session) -> list[Any]:
    """Returns the calls of all children."""
    return [call for child in await session.children() for call in await child.calls()]


async def are_running(session: Session, count: int) -> bool:
    return sum(call["status"] == "running" for call in await calls_of_children(session)) == count


async def test_a_closed_generator_cancels_the_others(client: Client, session: Session) -> None:
    lists = [["true"], *[["sleep 60"]] * 3]
    async with contextlib.aclosing(session.rollouts(lists, parallel=4)) as rollouts:
        assert (await anext(rollouts)).number == 0
        await until(lambda: are_running(session, 3))
    await until(lambda: are_running(session, 0))
    assert (await client.server())["calls"] == []
    assert [call["status"] for call in await calls_of_children(session)] == ["ok", *["interrupted"] * 3]


async def test_a_cancelled_task_cancels_all(client: Client, session: Session) -> None:
    async def work() -> list[foldspace.Rollout]:
        return [each async for each in session.rollouts("sleep 60", count=8, parallel=2)]

    working = asyncio.create_task(work())
    await until(lambda: are_running(session, 2))
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    await until(lambda: are_running(session, 0))
    # Waiting rollouts made no call.
    assert (len(await session.children()), len(await calls_of_children(session))) == (8, 2)


def test_rollouts_work_without_asyncio(sync_session: foldspace.sync.Session) -> None:
    rolled = list(sync_session.rollouts([["echo 1 > a"], ["echo 2 > a"]], score="cat a", keep=1))
    assert sorted((each.number, each.score, each.kept) for each in rolled) == [(0, 1, False), (1, 2, True)]
    (best,) = [each.session for each in rolled if each.kept]
    assert isinstance(best, foldspace.sync.Session) and best.files.read("a") == b"2\n"
    for rollout in sync_session.rollouts([["true"], ["sleep 60"]]):
        # The end of the loop cancels the other one.
        assert rollout.number == 0
        break


async def test_the_example_of_rollouts_works(session: Session) -> None:
    await run_example(example(Session.rollouts), {"session": session})
    assert await session.files.read("list.txt") == b"1\n2\n3\n"


def test_the_example_works_without_asyncio(sync_session: foldspace.sync.Session) -> None:
    exec(example(foldspace.sync.Session.rollouts), {"session": sync_session})
