"""Inspect: its checks of a sandbox, and its evaluation with a scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import foldspace
import pytest
import tiktoken
from foldspace.inspect_ai import FoldspaceSandboxConfig, FoldspaceSandboxEnvironment
from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import SandboxEnvironmentSpec
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

# Commands have one user, and the API of files is not bound by the modes of files.
KNOWN = {
    "test_exec_as_user": "commands have one user",
    "test_read_file_not_allowed": "files of the workspace are those of the log, whatever their mode",
    "test_write_text_file_without_permissions": "files of the workspace are written whatever their mode",
    "test_write_binary_file_without_permissions": "files of the workspace are written whatever their mode",
}


class Bytes:
    def encode(self, text: str, **given) -> list[int]:
        return list(text.encode())


@pytest.fixture
async def sandbox_env(
    data: Path, backend_name: str, request: pytest.FixtureRequest
) -> AsyncIterator[FoldspaceSandboxEnvironment]:
    if why := KNOWN.get(request.node.originalname):
        request.node.add_marker(pytest.mark.xfail(reason=why, strict=False))
    config = FoldspaceSandboxConfig(backend=backend_name, data=str(data), auto_confirm=True)
    made = await FoldspaceSandboxEnvironment.sample_init("check", config, {})
    yield made["default"]
    await FoldspaceSandboxEnvironment.sample_cleanup("check", config, made, False)


async def test_evaluation_runs_in_a_session(data: Path, backend_name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("INSPECT_DISPLAY", "none")
    # Its token counts need a download.
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: Bytes())
    outputs = [
        ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "cat given.txt; echo made > note.txt"}),
        ModelOutput.from_content("mockllm/model", "the secret is 42"),
    ]
    config = FoldspaceSandboxConfig(backend=backend_name, data=str(data), auto_confirm=True)
    task = Task(
        dataset=[Sample(input="read it", target="42", files={"given.txt": "the secret is 42\n"})],
        solver=[use_tools(bash()), generate()],
        scorer=includes(),
        sandbox=SandboxEnvironmentSpec("foldspace", config),
    )
    model = get_model("mockllm/model", custom_outputs=outputs)
    logs = await eval_async(task, model=model, log_dir=str(tmp_path), log_level="error")
    assert logs[0].status == "success", logs[0].error
    assert logs[0].results.scores[0].metrics["accuracy"].value == 1.0
    async with foldspace.Client(data) as client:
        sessions = await client.sessions()
        assert len(sessions) == 1
        session = await client.open(sessions[0]["session"])
        assert await session.files.read("note.txt") == b"made\n"
        assert [each["name"] for each in await session.annotations()] == ["inspect"]
