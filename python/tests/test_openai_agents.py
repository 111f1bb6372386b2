"""openai-agents: its runner with its scripted model, in a sandbox, and with a session."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import foldspace
import pytest
from agents import Agent, RunConfig, Runner, set_tracing_disabled
from agents.memory.session import Session
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecTimeoutError, WorkspaceReadNotFoundError
from agents.testing import ScriptedModel, assistant_message, function_call
from foldspace.openai_agents import FoldspaceSandboxClient, FoldspaceSandboxClientOptions, FoldspaceSession

set_tracing_disabled(True)


@pytest.fixture
async def sandboxes(data: Path) -> AsyncIterator[FoldspaceSandboxClient]:
    client = FoldspaceSandboxClient(str(data))
    yield client
    await client.close()


@pytest.fixture
def options(backend_name: str) -> FoldspaceSandboxClientOptions:
    return FoldspaceSandboxClientOptions(backend=backend_name, auto_confirm=True)


async def test_sandbox_runs_commands_and_keeps_files(sandboxes, options) -> None:
    manifest = Manifest(entries={"given.txt": File(content=b"given\n")})
    async with await sandboxes.create(options=options, manifest=manifest) as sandbox:
        told = await sandbox.exec("cat given.txt; echo err >&2; exit 3")
        assert (told.stdout, told.stderr, told.exit_code) == (b"given\n", b"err\n", 3)
        await sandbox.write(Path("dir/a.bin"), io.BytesIO(b"\xff"))
        assert (await sandbox.read(Path("dir/a.bin"))).read() == b"\xff"
        assert [Path(each.path).name for each in await sandbox.ls("dir")] == ["a.bin"]
        await sandbox.rm("dir", recursive=True)
        with pytest.raises(WorkspaceReadNotFoundError):
            await sandbox.read(Path("dir/a.bin"))
        with pytest.raises(ExecTimeoutError):
            await sandbox.exec("sleep 20", timeout=1)
        assert await sandbox.running()
        packed = await sandbox.persist_workspace()
        state = json.loads(json.dumps(sandboxes.serialize_session_state(sandbox.state)))
    again = await sandboxes.resume(sandboxes.deserialize_session_state(state))
    assert (await again.read(Path("given.txt"))).read() == b"given\n"
    other = await sandboxes.create(options=options)
    await other.hydrate_workspace(packed)
    assert (await other.read(Path("given.txt"))).read() == b"given\n"
    await sandboxes.delete(other)


async def test_agent_works_in_the_session(data: Path, sandboxes, options) -> None:
    call = function_call("exec_command", {"cmd": "echo made > note.txt; cat note.txt"}, call_id="call-1")
    model = ScriptedModel([[call], [assistant_message("done")]])
    agent = SandboxAgent(name="worker", instructions="Work.", model=model)
    sandbox = SandboxRunConfig(client=sandboxes, options=options)
    told = await Runner.run(agent, "write a note", run_config=RunConfig(sandbox=sandbox))
    assert told.final_output == "done"
    outputs = [str(item.output) for item in told.new_items if item.type == "tool_call_output_item"]
    assert any("made" in each for each in outputs), outputs
    async with foldspace.Client(data) as client:
        session = await client.open((await client.sessions())[0]["session"])
        assert await session.files.read("note.txt") == b"made\n"


async def test_session_keeps_the_conversation(client: foldspace.Client) -> None:
    session = FoldspaceSession("a user / 1", client)
    assert isinstance(session, Session)
    model = ScriptedModel([[assistant_message("one")], [assistant_message("two")]])
    agent = Agent(name="talker", model=model)
    await Runner.run(agent, "first", session=session)
    await Runner.run(agent, "second\u2028line", session=FoldspaceSession("a user / 1", client))
    items = await session.get_items()
    assert [each["role"] for each in items] == ["user", "assistant", "user", "assistant"]
    assert items[2]["content"] == "second\u2028line"
    assert await session.get_items(2) == items[-2:]
    assert await session.pop_item() == items[-1]
    await session.clear_session()
    assert await session.get_items() == []
    assert await session.pop_item() is None
