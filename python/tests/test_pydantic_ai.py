"""pydantic-ai: its conformance suite for workspaces, its conversation store, and its agent with a scripted model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import foldspace
import pytest
from foldspace.pydantic_ai import FoldspaceBackend, FoldspaceConversationStore
from conftest import CONTAINERS
from pydantic_ai import Agent
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.workspaces import Workspace, WorkspaceRef
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite


class TestConformance(WorkspaceBackendSuite):
    """The conformance suite of pydantic-ai."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    def fresh_backend(self, data: Path, backend_name: str) -> Callable[[], FoldspaceBackend]:
        return lambda: FoldspaceBackend(backend=backend_name, data=str(data), auto_confirm=True)

    @pytest.fixture
    def backend(self, fresh_backend: Callable[[], FoldspaceBackend]) -> FoldspaceBackend:
        return fresh_backend()

    @pytest.fixture
    def attach_backend(self, data: Path, backend_name: str) -> Callable[[WorkspaceRef], FoldspaceBackend]:
        return lambda ref: FoldspaceBackend(ref, backend=backend_name, data=str(data), auto_confirm=True)

    @pytest.fixture
    def destroy_environment(self):
        return FoldspaceBackend.destroy

    @pytest.fixture
    def filesystem_honors_shell_permissions(self) -> bool:
        # Files are those of the log, whatever their mode.
        return False

    @pytest.fixture
    def can_detect_exit_with_inherited_output_pipes(self, backend_name: str) -> bool:
        # The rule's clean-up waits 30 seconds for a child that has ended with its command: once is enough.
        return backend_name == ("podman" if CONTAINERS else "host")

    async def test_a_backend_attached_by_ref_reaches_a_detached_process(self) -> None:
        pytest.skip("the processes of a command end with it; `Session.start` is for those that go on")


def scripted(messages, info):
    """Runs the tool once, and then ends."""
    if info.function_tools and not any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
        return ModelResponse(parts=[ToolCallPart("shell", {"command": "echo hello > note.txt; cat note.txt"})])
    return ModelResponse(parts=[TextPart(f"{len(messages)} messages")])


async def test_agent_works_in_the_session(data: Path, backend_name: str) -> None:
    backend = FoldspaceBackend(backend=backend_name, data=str(data), auto_confirm=True)
    workspace = Workspace(backend)
    agent = Agent(FunctionModel(scripted))

    @agent.tool_plain
    async def shell(command: str) -> str:
        return (await workspace.run(command, shell=True)).stdout

    told = await agent.run("write a note")
    returned = [part for message in told.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [part.content for part in returned] == ["hello\n"]
    session = await backend.session()
    assert await session.files.read("note.txt") == b"hello\n"
    await backend.close()


async def test_conversations_are_kept_and_forked(client: foldspace.Client) -> None:
    store = FoldspaceConversationStore(client)
    agent = Agent(FunctionModel(scripted))
    first = await agent.run("one")
    await store.save(first)
    name = first.conversation.conversation_id
    again = FoldspaceConversationStore(client)
    loaded = await again.load(name)
    assert loaded is not None
    stale = await again.load(name)
    second = await agent.run("two", conversation=loaded)
    await again.save(second)
    assert len((await store.load(name)).messages) == 4
    with pytest.raises(ConversationConflict):
        await store.save(stale)
    fork = await store.fork(name)
    assert {each.conversation_id for each in await store.list_conversations()} == {name, fork.conversation_id}
    await store.delete(name)
    assert await store.load(name) is None
    assert len((await store.load(fork.conversation_id)).messages) == 4
