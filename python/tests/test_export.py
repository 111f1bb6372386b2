"""Exports: trajectories as Harbor reads them, and traces as OpenTelemetry does."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from harbor.models.trajectories import Step, Trajectory
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

TRANSCRIPTS = Path(__file__).parents[2] / "fixtures" / "transcripts"
CLAUDE = "claude/e1621bd0-4826-43bc-826f-fc3b6ab04d91.jsonl"
OWN = [
    {"tool": "write_file", "params": {"file_path": "a.txt", "content": "x" * 1000}},
    {"tool": "shell_execute", "params": {"command": "echo out; echo err >&2; exit 3"}, "agent": "builder"},
    {"tool": "rm", "params": {"path": "missing"}, "expect": "error"},
]


class Program:
    def __init__(self, directory: Path):
        self.directory = directory

    def run(self, *arguments: str) -> str:
        data = {"FOLDSPACE_DATA": str(self.directory / "data"), "FOLDSPACE_IN_PROCESS": "1"}
        command = [os.environ["FOLDSPACE_BIN"], *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | data).stdout

    def imported(self, name: str) -> list[dict[str, Any]]:
        return json.loads(self.run("--json", "import", str(TRANSCRIPTS / name)))

    def trajectory(self, session: str) -> Trajectory:
        return Trajectory.model_validate_json(self.run("export", session, "--atif"))

    def spans(self, session: str) -> list[Any]:
        line = self.run("export", session, "--otlp")
        assert line.count("\n") == 1
        request = json_format.Parse(line, ExportTraceServiceRequest())
        return list(request.resource_spans[0].scope_spans[0].spans)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def own(program: Program) -> None:
    script = program.directory / "own.jsonl"
    script.write_text("".join(f"{json.dumps(call)}\n" for call in OWN))
    program.run("run", str(script), "--backend", "host", "--yes", "--session", "own")


def calls(steps: list[Step]) -> list[tuple[str, str]]:
    return [(call.tool_call_id, call.function_name) for step in steps for call in step.tool_calls or []]


def results(trajectory: Trajectory) -> dict[str | None, Any]:
    found = [step.observation.results for step in trajectory.steps if step.observation]
    return {result.source_call_id: result for several in found for result in several}


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def test_own_session_is_a_trajectory_and_a_trace(program: Program) -> None:
    own(program)
    trajectory = program.trajectory("own")
    assert [step.source for step in trajectory.steps] == ["agent"] * 3
    assert [tool for _, tool in calls(trajectory.steps)] == ["write_file", "shell_execute", "rm"]
    first = (trajectory.steps[0].tool_calls or [])[0]
    assert first.arguments["content"] == "x" * 1000
    found = list(results(trajectory).values())
    assert found[0].extra["changed"] == ["/a.txt"]
    assert (found[1].content, found[1].extra["exit_code"]) == ("out\nerr\n", 3)
    assert found[2].extra["is_error"] and "does not exist" in found[2].content

    session, write, shell, remove = program.spans("own")
    assert (session.name, write.name) == ("invoke_agent builder", "execute_tool write_file")
    assert {span.parent_span_id for span in (write, shell, remove)} == {session.span_id}
    assert {span.trace_id for span in (write, shell, remove)} == {session.trace_id}
    assert attributes(shell)["gen_ai.tool.name"] == "shell_execute"
    assert (attributes(shell)["process.exit.code"], attributes(shell)["agent"]) == (3, "builder")
    assert (write.status.code, remove.status.code) == (1, 2)
    assert session.start_time_unix_nano <= write.start_time_unix_nano <= write.end_time_unix_nano
    assert program.spans("own") == [session, write, shell, remove]


def test_claude_run_has_messages_and_its_subagent(program: Program) -> None:
    parent, child = program.imported(CLAUDE)
    trajectory = program.trajectory(parent["name"])
    assert (trajectory.trajectory_id, trajectory.agent.name) == (parent["run"], "claude")
    assert trajectory.agent.model_name == "claude-opus-4-8"
    assert {step.source for step in trajectory.steps} == {"user", "agent"}
    assert len(calls(trajectory.steps)) == parent["calls"]
    (subagent,) = trajectory.subagent_trajectories or []
    assert subagent.trajectory_id == child["run"]
    assert [tool for _, tool in calls(subagent.steps)] == ["Write", "Bash"]
    refs = [result.subagent_trajectory_ref for result in results(trajectory).values() if result.subagent_trajectory_ref]
    assert [[ref.trajectory_id for ref in some] for some in refs] == [[child["run"]]]
    # By itself it begins with what it inherited.
    alone = program.trajectory(child["name"])
    copied = [step for step in alone.steps if step.is_copied_context]
    assert 0 < len(copied) < len(alone.steps)

    spans = program.spans(parent["name"])
    assert len(spans) == parent["calls"] + child["calls"] + 2
    by_id = {span.span_id: span for span in spans}
    agents = [span for span in spans if span.name == "invoke_agent claude"]
    assert by_id[agents[1].parent_span_id].name == "execute_tool Agent"


def test_trajectory_comes_back_as_it_was(program: Program) -> None:
    parent, child = program.imported("atif.json")
    given = Trajectory.model_validate_json((TRANSCRIPTS / "atif.json").read_text())
    trajectory = program.trajectory(parent["name"])
    assert (trajectory.trajectory_id, trajectory.session_id) == (given.trajectory_id, given.session_id)
    assert trajectory.agent == given.agent and trajectory.final_metrics == given.final_metrics
    assert calls(trajectory.steps) == calls(given.steps)
    assert [(step.step_id, step.source, step.message) for step in trajectory.steps] == [
        (step.step_id, step.source, step.message) for step in given.steps
    ]
    was, found = results(given), results(trajectory)
    assert found["c1"].content == was["c1"].content and found["c1"].extra["exit_code"] == 0
    assert [ref.trajectory_id for ref in found["c2"].subagent_trajectory_ref] == ["sub-1"]
    assert [one.trajectory_id for one in trajectory.subagent_trajectories or []] == [child["run"]]
    # Imported again elsewhere it is the same run.
    written = program.directory / "again.json"
    written.write_text(program.run("export", parent["name"], "--atif"))
    other = Program(program.directory / "other")
    other.directory.mkdir()
    again = json.loads(other.run("--json", "import", str(written)))
    assert [(run["session"], run["run"], run["calls"]) for run in again] == [
        (run["session"], run["run"], run["calls"]) for run in (parent, child)
    ]


@pytest.mark.parametrize(
    "name",
    [
        "codex.jsonl",
        "gemini.jsonl",
        "mini-swe-agent-1.traj.json",
        "mini-swe-agent-2.traj.json",
        "swe-agent.traj",
        "openhands",
        "inspect.json",
    ],
)
def test_run_of_each_format_is_a_trajectory(program: Program, name: str) -> None:
    (run,) = program.imported(name)
    trajectory = program.trajectory(run["name"])
    assert len(calls(trajectory.steps)) == run["calls"]
    assert any(step.message for step in trajectory.steps)
    assert len(program.spans(run["name"])) == run["calls"] + 1


def test_own_events_are_a_step_and_an_event_of_the_span(program: Program) -> None:
    own(program)
    program.run("emit", "own", "score", "0.5")
    step = program.trajectory("own").steps[-1]
    assert (step.source, step.extra) == ("system", {"event": {"kind": "score", "data": 0.5}})
    assert [event.name for event in program.spans("own")[0].events] == ["score"]
