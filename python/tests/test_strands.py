"""Strands Agents: its agents with a scripted model, whose conversation and files rewind and fork as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import foldspace.sync
import pytest
from foldspace.strands import FoldspaceSandbox, FoldspaceSessionManager
from strands import Agent
from strands.models import Model
from strands.multiagent import GraphBuilder
from strands.sandbox import ExecutionResult, StreamChunk
from strands.sandbox.errors import SandboxPathNotFoundError, SandboxTimeoutError
from test_examples import example, section_examples


class Writer(Model):
    """A model that calls the tool to append the last word of its input to a file, then says so."""

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **named: Any) -> AsyncIterator[Any]:
        (*_, last) = messages[-1]["content"]
        yield {"messageStart": {"role": "assistant"}}
        if "toolResult" in last:
            assert last["toolResult"]["status"] == "success", last
            yield {"contentBlockDelta": {"delta": {"text": f"done after {len(messages)}"}}}
        else:
            use = {"toolUseId": f"use-{len(messages)}", "name": "sandbox_shell"}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            command = f'{{"command": "echo {last["text"].split()[-1]} >> notes.txt"}}'
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": command}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if "toolResult" in last else "tool_use"}}


def writer(manager: FoldspaceSessionManager) -> Agent:
    sandbox = FoldspaceSandbox(manager.workspace)
    return Agent(model=Writer(), sandbox=sandbox, session_manager=manager, callback_handler=None)


def said(agent: Agent) -> list[str]:
    return [block["text"] for message in agent.messages for block in message["content"] if "text" in block]


def notes(session: foldspace.sync.Session) -> list[str]:
    return session.files.read("notes.txt").decode().split()


def test_conversation_and_files_are_one(sync_session: foldspace.sync.Session, data: Path) -> None:
    manager = FoldspaceSessionManager(sync_session)
    agent = writer(manager)
    agent("write one")
    agent.state.set("mood", "good")
    agent("write two")
    assert said(agent) == ["write one", "done after 3", "write two", "done after 7"]
    agent.state.set("mood", "bad")
    first, second = manager.turns()
    assert first.input["message"]["message"]["content"] == [{"text": "write one"}]
    before = sync_session.head()

    # The agent itself goes back, too.
    manager.rewind()
    assert said(agent) == ["write one", "done after 3"] and notes(sync_session) == ["one"]
    # Another client continues the conversation.
    with foldspace.sync.Client(data) as client:
        again = writer(FoldspaceSessionManager(client.open(sync_session.id, auto_confirm=True)))
        assert again.messages == agent.messages
        again("write three")
        asyncio.run(again.invoke_async("write four"))
    assert notes(sync_session) == ["one", "three", "four"]

    # The rewind of a rewind, then a fork before the second turn.
    manager.rewind(to=before)
    assert said(agent) == ["write one", "done after 3", "write two", "done after 7"]
    assert agent.state.get("mood") == "good" and notes(sync_session) == ["one", "two"]
    fork = manager.fork(at=second.position)
    other = writer(fork)
    assert said(other) == ["write one", "done after 3"] and other.state.get("mood") is None
    other("write five")
    assert said(other) == ["write one", "done after 3", "write five", "done after 7"]
    assert notes(fork.workspace) == ["one", "five"] and notes(sync_session) == ["one", "two"]
    with pytest.raises(foldspace.NotFoundError, match="turns is 3; the thread has 2"):
        manager.rewind(3)
    manager.rewind(2)
    assert agent.messages == [] and sync_session.files.list() == []


def test_redactions_bytes_and_groups(sync_session: foldspace.sync.Session) -> None:
    session = sync_session
    manager = FoldspaceSessionManager(session)
    agent = Agent(model=Writer(), session_manager=manager, callback_handler=None)
    image = {"image": {"format": "png", "source": {"bytes": b"\xff\x00"}}}
    for content in ([{"text": "one"}, image], [{"text": "two"}]):
        manager.append_message({"role": "user", "content": content}, agent)
    manager.redact_latest_message({"role": "user", "content": [{"text": "redacted"}]}, agent)
    manager.sync_agent(agent)
    again = Agent(model=Writer(), session_manager=FoldspaceSessionManager(session), callback_handler=None)
    assert again.messages[0]["content"] == [{"text": "one"}, image]
    assert said(again) == ["one", "redacted"]
    assert manager.read_message("main", "default", 1).to_message()["content"] == [{"text": "redacted"}]
    assert [each.message_id for each in manager.list_messages("main", "default", limit=1, offset=1)] == [1]
    assert FoldspaceSessionManager(session, "other").turns() == []

    def graph() -> Any:
        builder = GraphBuilder()
        talker = Agent(name="talker", model=Writer(), sandbox=FoldspaceSandbox(session), callback_handler=None)
        builder.add_node(talker, "talk")
        builder.set_graph_id("group")
        builder.set_max_node_executions(2)
        builder.set_session_manager(FoldspaceSessionManager(session, "group"))
        return builder.build()

    graph()("hello")
    stored = FoldspaceSessionManager(session, "group").read_multi_agent("group", "group")
    assert stored["type"] == "graph" and list(stored["node_results"]) == ["talk"]
    graph()("again")
    assert notes(session) == ["hello", "again"]


async def test_sandbox(sync_session: foldspace.sync.Session) -> None:
    sandbox = FoldspaceSandbox(sync_session)
    root = await asyncio.to_thread(sync_session.absolute.root)
    chunks = [each async for each in sandbox.execute_streaming("pwd; echo $A >&2; exit 3", env={"A": "b"})]
    assert chunks == [StreamChunk(f"{root}\n"), StreamChunk("b\n", "stderr"), ExecutionResult(3, f"{root}\n", "b\n")]
    assert (await sandbox.execute("pwd", cwd="/tmp")).stdout == "/tmp\n"
    with pytest.raises(SandboxTimeoutError) as timed_out:
        await sandbox.execute("echo begun; sleep 20", timeout=1)
    assert timed_out.value.stdout == "begun\n"
    await sandbox.write_file("dir/a.bin", b"\xff")
    assert await sandbox.read_file(f"{root}/dir/a.bin") == b"\xff"
    assert [each.name for each in await sandbox.list_files("dir")] == ["a.bin"]
    assert (await sandbox.execute("cat a.bin | wc -c", cwd="dir")).stdout.strip() == "1"
    with pytest.raises(SandboxPathNotFoundError):
        await sandbox.list_files("missing")
    await sandbox.remove_file("dir/a.bin")
    with pytest.raises(FileNotFoundError):
        await sandbox.read_file("dir/a.bin")
    with pytest.raises(OSError):
        await sandbox.write_file("dir", b"")
    assert (await sandbox.execute_code("echo from code", "sh")).stdout == "from code\n"

    # Cancelling ends the command.
    working = asyncio.ensure_future(sandbox.execute("sleep 60"))
    while not any(call["status"] == "running" for call in await asyncio.to_thread(sync_session.calls)):
        await asyncio.sleep(0.02)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert (await sandbox.execute("echo next")).stdout == "next\n"


def test_the_examples_work(sync_session: foldspace.sync.Session) -> None:
    names: dict[str, Any] = {"session": sync_session, "model": Writer(), "Agent": Agent}
    names |= {"FoldspaceSandbox": FoldspaceSandbox, "FoldspaceSessionManager": FoldspaceSessionManager}
    begun = sync_session.head()
    exec(example(FoldspaceSessionManager), names)
    assert said(names["agent"])[::2] == ["write a note", "write something else"]
    assert notes(sync_session) == ["note", "else"]
    sync_session.rewind(begun)
    _, _, _, text, _ = section_examples("Conversation and files as one")
    exec(text, names)
    assert said(names["agent"])[::2] == ["write first", "write fourth"] and notes(sync_session) == ["first", "fourth"]
    assert said(names["other"])[::2] == ["write first", "write third"]
    assert notes(names["fork"].workspace) == ["first", "third"]
