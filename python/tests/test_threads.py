"""Threads: conversations in the log of the session with the files, rewound, forked and merged as one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import foldspace
import pytest
from agents import Agent, Model, ModelResponse, Runner, RunContextWrapper, function_tool, set_tracing_disabled
from agents.memory.session import Session
from agents.memory.session_settings import SessionSettings
from agents.testing import ScriptedModel, assistant_message, function_call
from foldspace import NotFoundError, UnusableError
from foldspace.openai_agents import FoldspaceThread
from test_examples import example, run_example, section_examples

set_tracing_disabled(True)


@function_tool
async def run(context: RunContextWrapper[foldspace.Session], command: str) -> str:
    """Runs a command in the workspace."""
    return (await context.context.run(command, check=True)).stdout


class Writer(Model):
    """A model that calls the tool to append the last word of its input to a file, then says so."""

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **named: Any) -> ModelResponse:
        asked = [item["content"] for item in input if item.get("role") == "user"] if isinstance(input, list) else [input]
        is_done = isinstance(input, list) and input[-1].get("type") == "function_call_output"
        command = {"command": f"echo {asked[-1].split()[-1]} >> notes.txt"}
        step = assistant_message("written") if is_done else function_call("run", command, call_id=f"call-{len(input)}")
        return await ScriptedModel([[step]]).get_response(system_instructions, input, *args, **named)

    def stream_response(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError


AGENT = Agent(name="writer", model=Writer(), tools=[run])


async def turn(thread: FoldspaceThread, text: str) -> None:
    """Makes a turn in which the agent's tool writes the text into a file."""
    await Runner.run(AGENT, f"write {text}", session=thread, context=thread.session)


async def notes(thread: FoldspaceThread) -> list[str]:
    return (await thread.session.files.read("notes.txt")).decode().split()


async def inputs(thread: FoldspaceThread) -> list[object]:
    return [item.get("content") for item in await thread.get_items() if item.get("role") == "user"]


async def test_a_rewind_takes_back_items_and_files(session: foldspace.Session, data: Path) -> None:
    thread = FoldspaceThread(session)
    assert isinstance(thread, Session)
    await turn(thread, "one")
    after_one = await thread.get_items()
    assert [item.get("type", "message") for item in after_one] == [
        "message", "function_call", "function_call_output", "message"
    ]
    await turn(thread, "two")
    after_two = await thread.get_items()
    assert len(after_two) == 8 and await notes(thread) == ["one", "two"]
    before = await session.head()
    await thread.rewind()
    assert await thread.get_items() == after_one and await notes(thread) == ["one"]

    # Another client continues the thread.
    async with foldspace.Client(data) as client:
        again = FoldspaceThread(await client.open(session.id, auto_confirm=True))
        assert await again.get_items() == after_one
        await turn(again, "three")
    assert await inputs(thread) == ["write one", "write three"] and await notes(thread) == ["one", "three"]
    first, second = await thread.turns()
    assert first.input["content"] == "write one" and first.position < second.position

    # The rewind of a rewind.
    await session.rewind(before)
    assert await thread.get_items() == after_two and await notes(thread) == ["one", "two"]
    await thread.rewind(to=second.position)
    assert await thread.get_items() == after_one and await notes(thread) == ["one"]
    await turn(thread, "four")
    await thread.rewind(2)
    assert await thread.get_items() == [] and not await session.files.list()


async def test_a_rewind_past_the_first_turn_changes_nothing(session: foldspace.Session) -> None:
    thread = FoldspaceThread(session)
    with pytest.raises(NotFoundError, match="turns is 1; the thread has 0"):
        await thread.rewind()
    await turn(thread, "one")
    for turns in (0, -1, 2):
        with pytest.raises(NotFoundError, match=f"turns is {turns}; the thread has 1"):
            await thread.rewind(turns)
    with pytest.raises(NotFoundError):
        await thread.rewind(to=9999)
    with pytest.raises(UnusableError, match="not both"):
        await thread.rewind(1, to=1)
    assert await inputs(thread) == ["write one"] and await notes(thread) == ["one"]


async def test_forks_go_their_own_way_and_merge(session: foldspace.Session) -> None:
    thread = FoldspaceThread(session)
    await turn(thread, "one")
    fork = await thread.fork(name="try")
    await turn(fork, "two")
    assert await inputs(thread) == ["write one"] and await notes(thread) == ["one"]
    earlier = await fork.fork(at=(await fork.turns())[0].position)
    assert await earlier.get_items() == [] and not await earlier.session.files.list()

    merged = await thread.merge(fork)
    assert merged["outcome"] == "merged"
    assert await thread.get_items() == await fork.get_items() and await notes(thread) == ["one", "two"]
    # A second merge adds only the items since.
    await turn(fork, "three")
    await turn(fork, "four")
    await thread.merge(fork)
    # Items without changes to files.
    await fork.add_items([{"role": "user", "content": "only said"}])
    await thread.merge(fork)
    assert await thread.pop_item() == {"role": "user", "content": "only said"}
    await fork.session.remove()
    assert await inputs(thread) == ["write one", "write two", "write three", "write four"]
    assert await notes(thread) == ["one", "two", "three", "four"]
    # A merge is one turn.
    assert [each.input["content"] for each in await thread.turns()] == ["write one", "write two", "write three"]
    await thread.rewind()
    assert await inputs(thread) == ["write one", "write two"] and await notes(thread) == ["one", "two"]
    await thread.rewind()
    assert await inputs(thread) == ["write one"] and await notes(thread) == ["one"]
    with pytest.raises(NotFoundError, match="session"):
        await fork.get_items()
    with pytest.raises(NotFoundError, match="session"):
        await fork.add_items([{"role": "user", "content": "lost"}])


async def test_conflicts_leave_both_unchanged(session: foldspace.Session) -> None:
    thread = FoldspaceThread(session)
    fork = await thread.fork()
    await turn(fork, "theirs")
    await turn(thread, "ours")
    before = await thread.get_items()
    assert (await thread.merge(fork))["outcome"] == "conflicted"
    assert await thread.get_items() == before and await notes(thread) == ["ours"]
    await thread.merge(fork, theirs=["notes.txt"])
    assert await inputs(thread) == ["write ours", "write theirs"] and await notes(thread) == ["theirs"]


async def test_items_of_any_kind_and_size(session: foldspace.Session) -> None:
    thread, other = FoldspaceThread(session), FoldspaceThread(session, "other")
    items = [
        {"role": "user", "content": "x" * 2_000_000},
        {"role": "assistant", "content": "ü\u2028😀" * 9000},
        {"role": "user", "content": {"$content": "0" * 64}},
        {"role": "user", "content": "last"},
    ]
    await thread.add_items(items)  # type: ignore[arg-type]
    await thread.add_items([])
    await other.add_items([{"role": "user", "content": "other"}])
    assert await FoldspaceThread(session).get_items() == items
    assert await thread.get_items(1) == items[-1:] and await thread.get_items(0) == []
    thread.session_settings = SessionSettings(limit=2)
    assert await thread.get_items() == items[-2:]
    thread.session_settings = None
    assert await thread.pop_item() == items[-1]
    await thread.add_items([{"role": "user", "content": "again"}])
    assert len(await thread.turns()) == 2
    at = await session.head()
    await thread.clear_session()
    assert await thread.get_items() == [] and await thread.pop_item() is None and await inputs(other) == ["other"]
    await thread.rewind(to=at)
    assert await thread.get_items() == [*items[:-1], {"role": "user", "content": "again"}]


async def test_fork_and_select_merges_the_best(session: foldspace.Session) -> None:
    working = most = 0

    async def attempt(fork: foldspace.Session) -> str:
        nonlocal working, most
        working += 1
        most = max(most, working)
        if fork.name.endswith("2"):
            working -= 1
            raise ValueError("broken")
        await fork.run(f"seq {fork.name[-1]} > list.txt", check=True)
        working -= 1
        return fork.name

    async def lines(fork: foldspace.Session) -> float:
        return (await fork.files.read("list.txt")).count(b"\n") * -1

    chosen = await foldspace.fork_and_select(session, 4, attempt, lines, parallel=2)
    assert most == 2
    assert [each.score for each in chosen.candidates] == [-1, None, -3, -4]
    assert chosen.best is chosen.candidates[0] and chosen.best.result == "demo-1"
    assert str(chosen.candidates[1].error) == "broken"
    assert chosen.merged and chosen.merged["outcome"] == "merged"
    assert await session.files.read("list.txt") == b"1\n"
    assert [each.name for each in await session.children()] == ["demo-1"]
    scores = await session.annotations("score")
    assert [each["score"] for each in scores] == [-1, None, -3, -4] and scores[1]["note"] == "demo-2: broken"
    assert [each["score"] for each in await chosen.best.session.annotations("score")] == [-1]


async def test_fork_and_select_without_a_best(session: foldspace.Session) -> None:
    async def broken(fork: foldspace.Session) -> None:
        raise ValueError(f"broken {fork.name}")

    async def work(fork: foldspace.Session) -> None:
        await fork.files.write("a.txt", fork.name)

    async def even(fork: foldspace.Session) -> float:
        return 1

    with pytest.raises(foldspace.FoldspaceError, match="all 2 forks failed: broken demo-1") as failed:
        await foldspace.fork_and_select(session, 2, broken, even)
    assert isinstance(failed.value.__cause__, ValueError)
    assert await session.children() == []
    with pytest.raises(UnusableError, match="parallel is 0"):
        await foldspace.fork_and_select(session, 2, work, even, parallel=0)
    chosen = await foldspace.fork_and_select(session, 2, work, even, merge=False, keep=True)
    assert chosen.merged is None and chosen.best is chosen.candidates[0]
    assert len(await session.children()) == 2 and not await session.files.list()


async def test_a_cancelled_fork_and_select_removes_its_forks(session: foldspace.Session) -> None:
    started = asyncio.Event()

    async def forever(fork: foldspace.Session) -> None:
        await fork.start("sleep 60")
        started.set()
        await fork.run("sleep 60")

    async def even(fork: foldspace.Session) -> float:
        return 1

    working = asyncio.ensure_future(foldspace.fork_and_select(session, 3, forever, even, parallel=2))
    await started.wait()
    assert len(await session.children()) == 3
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await session.children() == []


async def test_the_examples_work(session: foldspace.Session) -> None:
    names: dict[str, Any] = {"Runner": Runner, "FoldspaceThread": FoldspaceThread, "foldspace": foldspace}
    names |= {"Agent": Agent, "RunContextWrapper": RunContextWrapper, "function_tool": function_tool}
    names |= {"agent": AGENT, "model": Writer(), "session": session}
    begun, thread = await session.head(), FoldspaceThread(session)
    ran = await run_example(example(FoldspaceThread), dict(names))
    assert await inputs(thread) == ["write a note"] and await notes(thread) == ["note"]
    assert await inputs(ran["other"]) == ["write a note", "write it again"]
    await session.rewind(begun)

    agents, *_, selecting = section_examples("Conversation and files as one")
    await run_example(agents, dict(names))
    assert await inputs(thread) == ["write first", "write third"] and await notes(thread) == ["first", "third"]
    await run_example(selecting, dict(names))
    assert await inputs(thread) == ["write first", "write third", "make the tests pass"]
    assert await notes(thread) == ["first", "third", "pass"]


async def test_the_example_of_fork_and_select_works(session: foldspace.Session) -> None:
    await run_example(example(foldspace.fork_and_select), {"foldspace": foldspace, "session": session})
