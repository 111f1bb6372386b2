"""Children of a session, their limits and options, and the words that the API takes for these."""

from __future__ import annotations

import re
from pathlib import Path

import foldspace
import foldspace.types
import pytest
from foldspace import Client, Session

SOURCES = Path(__file__).parent.parent.parent / "src"


async def test_one_fork_has_its_name_and_limits(session: Session) -> None:
    (solo,) = await session.fork(name="solo", limits={"calls": 1}, agent="coder")
    assert (solo.name, solo.agent, solo.parent) == ("solo", "coder", session.id)
    await solo.run("true", check=True)
    with pytest.raises(foldspace.OverLimitError, match="1 call") as raised:
        await solo.run("true")
    assert raised.value.limit == {"name": "calls", "limit": 1, "used": 1}
    with pytest.raises(foldspace.ConflictError):
        await session.fork(name="solo")
    numbered = await session.fork(count=1, name="solo", agent="coder")
    assert [(each.name, each.agent) for each in numbered] == [("solo-1", "coder")]


async def test_clone_has_limits_and_a_policy(session: Session) -> None:
    clone = await session.clone(limits={"tools": ["read_file"]})
    with pytest.raises(foldspace.RefusedError, match="read_file"):
        await clone.run("true")
    bound = await session.clone(policy={"write": ["src/**"]})
    with pytest.raises(foldspace.RefusedError):
        await bound.files.write("a.txt", "1")
    shared = await session.clone(isolation="shared", agent="second", limits={"calls": 1})
    await shared.run("true", check=True)
    with pytest.raises(foldspace.OverLimitError, match="second"):
        await shared.run("true")
    await session.run("true", check=True)


async def test_children_are_listed_with_their_agents(client: Client, session: Session) -> None:
    assert await session.children() == []
    one, two = await session.fork(count=2, agent="coder")
    full = await session.clone(isolation="full", name="full", agent="tester")
    await session.clone(isolation="shared", agent="reviewer")
    (below,) = await one.fork()
    children = await session.children()
    assert [(each.id, each.agent) for each in children] == [(one.id, "coder"), (two.id, "coder"), (full.id, "tester")]
    assert [each["agent"] for each in (await session.family())["sessions"]][1:] == ["coder", "coder", "tester", "coder"]
    await children[0].run("true", check=True)
    assert (await one.calls())[-1]["agent"] == "coder"
    # The fork of a fork has its history, but not its children.
    assert [each.id for each in await one.children()] == [below.id]
    assert await below.children() == []
    await two.remove()
    assert [each.id for each in await (await client.open("demo")).children()] == [one.id, full.id]


async def test_timeout_is_taken_as_it_is(session: Session) -> None:
    ran = await session.run("echo begun; sleep 30", timeout=1.2)
    assert (ran.exit_code, ran.timed_out) == (124, True)
    assert 1.2 <= ran.seconds < 5
    for timeout in (0.2, 0, 86_401):
        with pytest.raises(foldspace.InvalidCallError, match=f"timeout_seconds is {timeout}; it must be from 1 to 86400"):
            await session.run("true", timeout=timeout)


def fields_of(path: str, name: str) -> set[str]:
    """Returns the fields that serde reads for a type of the sources."""
    text = (SOURCES / path).read_text()
    body = text[text.index(f"pub struct {name} {{") :].split("\n}\n", 1)[0]
    fields = re.findall(r"((?:    #\[[^\n]*\]\n)*)    pub (\w+):", body)
    return {field for attributes, field in fields if "serde(skip)" not in attributes and "serde(flatten)" not in attributes}


def test_options_and_limits_have_the_words_of_the_api() -> None:
    own = {
        "Limits": fields_of("engine/event/session.rs", "ChildLimits"),
        "CommandOptions": fields_of("backends/command_options.rs", "CommandOptions"),
        "HostOptions": fields_of("backends/host.rs", "HostOptions"),
        "ContainerOptions": fields_of("backends/containers.rs", "PodmanOptions"),
        "NetworkRules": fields_of("network/rules.rs", "NetworkRules"),
        "MockOptions": fields_of("backends/config/mod.rs", "MockOptions"),
        "MockRule": fields_of("backends/config/mod.rs", "MockRule") | fields_of("backends/mock.rs", "MockAnswer"),
    }
    for name, fields in own.items():
        inherited = own["CommandOptions"] if name.endswith("Options") else set()
        assert set(getattr(foldspace.types, name).__annotations__) == fields | inherited, name


async def test_options_are_taken(client: Client, backend: str) -> None:
    words: foldspace.ContainerOptions = {"environment": {"A": "b"}, "merge_output": True, "workdir": "w"}
    limited: foldspace.ContainerOptions = {**words, "pids": 50, "memory_bytes": 1 << 28, "cpus": 0.5, "network": False}
    session = await client.create(backend=backend, options=limited if backend == "podman" else words, auto_confirm=True)
    assert (await session.run("echo $A; pwd | sed 's|.*/||'", check=True)).stdout == "b\nw\n"
    with pytest.raises(foldspace.UnusableError, match="unknown field `memory`"):
        await client.create(backend=backend, options={"memory": 1})
