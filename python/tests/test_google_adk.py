"""Google's ADK: its runner with a scripted model, whose conversation and files rewind and fork as one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import foldspace
import pytest
from foldspace.google_adk import FoldspaceEnvironment, FoldspaceSessionService
from google.adk.agents import LlmAgent
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.tools.environment import EnvironmentToolset
from google.genai import types
from test_examples import example, run_example, section_examples

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL")
IDS: dict[str, Any] = {"app_name": "notes", "user_id": "ann"}


class Writer(BaseLlm):
    """A model that calls the tool to append the last word of its input to a file, then says so."""

    model: str = "writer"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        last = llm_request.contents[-1].parts[-1]
        if last.function_response:
            assert last.function_response.response["status"] == "ok", last
            said = types.Part(text=f"done after {len(llm_request.contents)}")
        else:
            command = f"echo {last.text.split()[-1]} >> notes.txt"
            said = types.Part(function_call=types.FunctionCall(name="Execute", args={"command": command}))
        yield LlmResponse(content=types.Content(role="model", parts=[said]))


def agent(session: foldspace.Session) -> LlmAgent:
    workspace = EnvironmentToolset(environment=FoldspaceEnvironment(session))
    return LlmAgent(name="writer", model=Writer(), tools=[workspace], output_key="said")


async def turn(service: FoldspaceSessionService, text: str, id: str = "talk") -> list[Event]:
    """Runs a turn in which the agent's tool writes the text into a file."""
    runner = Runner(app_name="notes", agent=agent(service.session), session_service=service)
    message = types.Content(role="user", parts=[types.Part(text=f"write {text}")])
    return [event async for event in runner.run_async(user_id="ann", session_id=id, new_message=message)]


async def notes(service: FoldspaceSessionService) -> list[str]:
    return (await service.session.files.read("notes.txt")).decode().split()


async def said(service: FoldspaceSessionService, id: str = "talk") -> list[str]:
    found = await service.get_session(**IDS, session_id=id)
    return [part.text for event in found.events for part in event.content.parts if part.text]


async def test_conversation_and_files_are_one(session: foldspace.Session, data: Path) -> None:
    service = FoldspaceSessionService(session)
    talk = await service.create_session(**IDS, session_id="talk")
    await turn(service, "one")
    await turn(service, "two")
    assert await said(service) == ["write one", "done after 3", "write two", "done after 7"]
    first, second = await service.turns(talk)
    assert first.input["content"]["parts"][0]["text"] == "write one"
    before = await session.head()

    await service.rewind(talk)
    assert await said(service) == ["write one", "done after 3"] and await notes(service) == ["one"]
    assert talk.state == {"said": "done after 3"} and len(talk.events) == 4

    # Another client continues the conversation.
    async with foldspace.Client(data) as client:
        again = FoldspaceSessionService(await client.open(session.id, auto_confirm=True))
        await turn(again, "three")
    assert await said(service) == ["write one", "done after 3", "write three", "done after 7"]
    assert await notes(service) == ["one", "three"]

    # The rewind of a rewind, then a fork before the second turn.
    await session.rewind(before)
    assert await notes(service) == ["one", "two"]
    fork = await service.fork(at=second.position)
    await turn(fork, "four")
    assert await said(fork) == ["write one", "done after 3", "write four", "done after 7"]
    assert await notes(fork) == ["one", "four"] and await notes(service) == ["one", "two"]
    assert len(await said(service)) == 4


async def test_rewinds_of_the_runner_take_the_files(session: foldspace.Session) -> None:
    service = FoldspaceSessionService(session)
    await service.create_session(**IDS, session_id="talk", state={"said": "nothing", "user:name": "Ann"})
    await turn(service, "one")
    (*_, event) = await turn(service, "two")
    runner = Runner(app_name="notes", agent=agent(session), session_service=service)
    await runner.rewind_async(user_id="ann", session_id="talk", rewind_before_invocation_id=event.invocation_id)
    assert await said(service) == ["write one", "done after 3"] and await notes(service) == ["one"]
    await turn(service, "three")
    found = await service.get_session(**IDS, session_id="talk")
    assert found.state == {"said": "done after 7", "user:name": "Ann"}
    await runner.rewind_async(user_id="ann", session_id="talk", rewind_before_invocation_id=found.events[0].invocation_id)
    found = await service.get_session(**IDS, session_id="talk")
    assert found.state == {"said": "nothing", "user:name": "Ann"} and found.events == []
    assert await session.files.list() == []
    with pytest.raises(foldspace.NotFoundError, match="turns is 1; the thread has 0"):
        await service.rewind(found)
    again = Event(author="user", actions=EventActions(rewind_before_invocation_id=event.invocation_id))
    with pytest.raises(foldspace.NotFoundError, match="no invocation"):
        await service.append_event(found, again)


async def test_state_and_lists(client: foldspace.Client) -> None:
    service = FoldspaceSessionService(await client.create())
    given = {"app:a": 1, "user:b": 2, "temp:c": 3, "d": 4}
    talk = await service.create_session(**IDS, session_id=" talk ", state=given)
    assert (talk.id, talk.state) == ("talk", {"app:a": 1, "user:b": 2, "d": 4})
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**IDS, session_id="talk")
    delta = {"app:a": 5, "temp:e": 6, "d": None, "f": [7]}
    for at in (1.0, 2.0, 3.0):
        event = Event(author="writer", invocation_id="i", timestamp=at, actions=EventActions(state_delta=dict(delta)))
        await service.append_event(talk, event)
    await service.append_event(talk, Event(author="writer", partial=True))
    assert talk.state == {"app:a": 5, "user:b": 2, "temp:e": 6, "d": None, "f": [7]}
    kept = await service.get_session(**IDS, session_id="talk")
    assert kept.state == {"app:a": 5, "user:b": 2, "d": None, "f": [7]} and kept.events == talk.events
    for config, times in (
        (GetSessionConfig(num_recent_events=0), []),
        (GetSessionConfig(num_recent_events=2), [2.0, 3.0]),
        (GetSessionConfig(num_recent_events=9), [1.0, 2.0, 3.0]),
        (GetSessionConfig(after_timestamp=3.0), [3.0]),
    ):
        found = await service.get_session(**IDS, session_id="talk", config=config)
        assert [event.timestamp for event in found.events] == times

    other = await service.create_session(app_name="notes", user_id="bob")
    assert other.state == {"app:a": 5} and other.id != "talk"
    assert await service.get_user_state(**IDS) == {"b": 2}
    listed = (await service.list_sessions(app_name="notes")).sessions
    assert [(each.user_id, each.events) for each in listed] == [("ann", []), ("bob", [])]
    assert [each.id for each in (await service.list_sessions(**IDS)).sessions] == ["talk"]
    await service.delete_session(**IDS, session_id="talk")
    assert await service.get_session(**IDS, session_id="talk") is None
    assert (await service.list_sessions(app_name="notes", user_id="ann")).sessions == []
    with pytest.raises(SessionNotFoundError):
        await service.append_event(talk, Event(author="writer"))


async def test_environment(session: foldspace.Session) -> None:
    environment = FoldspaceEnvironment(session)
    with pytest.raises(RuntimeError, match="initialize"):
        environment.working_dir
    await environment.initialize()
    ran = await environment.execute("pwd; echo err >&2; exit 3")
    assert (ran.stdout, ran.stderr, ran.exit_code, ran.timed_out) == (f"{environment.working_dir}\n", "err\n", 3, False)
    assert (await environment.execute("sleep 20", timeout=0.5)).timed_out
    await environment.write_file(Path("dir/a.bin"), b"\xff")
    assert await environment.read_file("dir/a.bin") == b"\xff"
    await environment.write_file(environment.working_dir / "b.txt", "ü")
    assert await session.files.read("b.txt") == "ü".encode()
    with pytest.raises(FileNotFoundError):
        await environment.read_file("missing")


async def test_the_examples_work(session: foldspace.Session) -> None:
    names: dict[str, Any] = {"session": session, "agent": agent(session), "Runner": Runner, "LlmAgent": LlmAgent}
    names |= {"model": Writer(), "types": types, "EnvironmentToolset": EnvironmentToolset}
    names |= {"FoldspaceSessionService": FoldspaceSessionService, "FoldspaceEnvironment": FoldspaceEnvironment}
    ran = await run_example(example(FoldspaceSessionService), dict(names))
    assert ran["conversation"].events == [] and ran["runner"].session_service is ran["service"]
    _, _, text, *_ = section_examples("Conversation and files as one")
    ran = await run_example(text, names)
    service, id = ran["service"], ran["conversation"].id
    assert (await said(service, id))[::2] == ["write first", "write third"]
    assert (await said(ran["fork"], id))[::2] == ["write first"]
    assert await notes(service) == ["first", "third"] and await notes(ran["fork"]) == ["first"]
