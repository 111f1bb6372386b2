"""mini-swe-agent: its own agent, with a scripted model."""

from __future__ import annotations

from pathlib import Path

import foldspace.sync
import pytest
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.models.test_models import DeterministicModel, make_output


@pytest.fixture
def environment(data: Path, backend: str):
    config = {"environment_class": "foldspace.mini.FoldspaceEnvironment", "data": str(data), "backend": backend}
    made = get_environment(config | {"auto_confirm": True, "env": {"GREETING": "hello"}})
    yield made
    made.cleanup()


def test_agent_runs_to_its_submission(environment) -> None:
    actions = [
        'echo "$GREETING" > note.txt; cat note.txt',
        "exit 3",
        "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat note.txt",
    ]
    model = DeterministicModel(outputs=[make_output(each, [{"command": each}]) for each in actions])
    agent = DefaultAgent(model, environment, system_template="You work.", instance_template="{{task}} on {{system}}")
    ended = agent.run("Write a note")
    assert ended["exit_status"] == "Submitted"
    assert ended["submission"] == "hello\n"
    assert environment.session.files.read("note.txt") == b"hello\n"
    observed = "\n".join(str(message["content"]) for message in agent.messages)
    assert "<returncode>3" in observed or '"returncode": 3' in observed or "returncode" in observed
    assert agent.serialize()["info"]["foldspace"]["session"] == environment.session.id
    codes = [event["event"]["exit_code"] for event in environment.session.log() if event["kind"] == "CommandResult"]
    assert codes == [0, 3, 0]


def test_timeout_is_an_exception_of_the_command(environment) -> None:
    told = environment.execute({"command": "echo begun; sleep 20"}, timeout=1)
    assert told["returncode"] == -1
    assert told["output"] == "begun\n"
    assert "timed out after 1 seconds" in told["exception_info"]


def test_errors_and_output_come_together(environment) -> None:
    told = environment.execute({"command": "echo out; echo err >&2; exit 4"})
    assert told == {"output": "out\nerr\n", "returncode": 4, "exception_info": ""}


def test_a_name_continues_its_session(data: Path) -> None:
    given = {"environment_class": "foldspace.mini.FoldspaceEnvironment", "data": str(data), "backend": "host"}
    first = get_environment(given | {"name": "task", "auto_confirm": True})
    first.execute({"command": "echo 1 > a"})
    second = get_environment(given | {"name": "task", "auto_confirm": True})
    assert second.execute({"command": "cat a"})["output"] == "1\n"
    assert second.session.id == first.session.id
    first.cleanup()
    second.cleanup()
