"""pydantic-ai: its conformance suite for workspaces, its conversation store, and its agent with a scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import foldspace
import pytest
from foldspace.pydantic_ai import FoldspaceBackend, FoldspaceConversationStore
from pydantic_ai import Agent
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.workspaces import WorkspaceRef
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite


class TestConformance(WorkspaceBackendSuite):
    """The conformance suite of pydantic-ai."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    async def made(self, anyio_backend: str) -> AsyncIterator[list[FoldspaceBackend]]:
        made: list[FoldspaceBackend] = []
        yield made
        for each in made:
            await each.close()

    @pytest.fixture
    def fresh_backend(
        self, data: Path, backend_name: str, made: list[FoldspaceBackend]
    ) -> Callable[[], FoldspaceBackend]:
        def make() -> FoldspaceBackend:
            made.append(FoldspaceBackend(backend=backend_name, data=str(data), auto_confirm=True))
            return made[-1]

        return make

    @pytest.fixture
    def backend(self, fresh_backend: Callable[[], FoldspaceBackend]) -> FoldspaceBackend:
        return fresh_backend()

    @pytest.fixture
    def attach_backend(
        self, data: Path, backend_name: str, made: list[FoldspaceBackend]
    ) -> Callable[[WorkspaceRef], FoldspaceBackend]:
        def attach(ref: WorkspaceRef) -> FoldspaceBackend:
            made.append(FoldspaceBackend(ref, backend=backend_name, data=str(data), auto_confirm=True))
            return made[-1]

        return attach

    @pytest.fixture
    def destroy_environment(self):
        async def destroy(backend: FoldspaceBackend) -> None:
            await (await backend.session()).remove()

        return destroy
