"""The Claude Agent SDK: its conformance suite for session stores, and transcripts with files."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import claude_agent_sdk
import foldspace
import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ResultMessage,
    fork_session_via_store,
    get_session_messages_from_store,
    project_key_for_directory,
)
from claude_agent_sdk.testing import run_session_store_conformance
from foldspace import NotFoundError
from foldspace.claude_agent_sdk import FoldspaceSessionStore
from test_examples import run_example, section_examples


async def test_the_store_passes_the_conformance_suite(client: foldspace.Client) -> None:
    numbers = itertools.count()

    async def fresh() -> FoldspaceSessionStore:
        return FoldspaceSessionStore(await client.create(f"store-{next(numbers)}", backend="memory"))

    await run_session_store_conformance(fresh)


def message(session_id: str, role: str, content: Any, after: dict[str, Any] | None) -> dict[str, Any]:
    """Returns an entry as the CLI writes it."""
    parent = after["uuid"] if after else None
    return {
        "type": role, "uuid": str(uuid.uuid4()), "parentUuid": parent, "sessionId": session_id, "isSidechain": False,
        "timestamp": "2026-11-30T09:00:00.000Z", "message": {"role": role, "content": content},
    }  # fmt: skip


async def turn(store: FoldspaceSessionStore, key: Any, text: str) -> None:
    """Makes the hook's call, the change and the entries of a turn, in the order of the CLI."""
    (matcher,) = store.hooks()["UserPromptSubmit"]
    given: Any = {"hook_event_name": "UserPromptSubmit", "session_id": key["session_id"], "cwd": ".", "prompt": text}
    assert await matcher.hooks[0](given, None, {"signal": None}) == {}
    loaded: list[Any] = await store.load(key) or []
    asked = message(key["session_id"], "user", text, loaded[-1] if loaded else None)
    use = message(key["session_id"], "assistant", [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}], asked)
    await store.session.run(f"echo {text} >> notes.txt", check=True)
    await store.append(key, [asked])  # type: ignore[list-item]
    done = message(key["session_id"], "user", [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}], use)
    said = message(key["session_id"], "assistant", [{"type": "text", "text": f"wrote {text}"}], done)
    # A repeated batch adds nothing.
    await store.append(key, [use, done, said])  # type: ignore[list-item]
    await store.append(key, [done, said])  # type: ignore[list-item]


async def test_a_rewind_takes_back_transcripts_and_files(session: foldspace.Session) -> None:
    store, id_ = FoldspaceSessionStore(session), str(uuid.uuid4())
    key: Any = {"project_key": project_key_for_directory("."), "session_id": id_}
    with pytest.raises(NotFoundError, match="no conversation"):
        await store.rewind(id_)
    await turn(store, key, "one")
    after_one = await store.load(key)
    await turn(store, key, "two")
    assert [each.input for each in await store.turns(id_)] == ["one", "two"]
    fork = await store.fork()
    await store.rewind(id_)
    assert await store.load(key) == after_one and await session.files.read("notes.txt") == b"one\n"
    assert len(await get_session_messages_from_store(store, id_)) == 4
    with pytest.raises(NotFoundError, match="turns is 2; the thread has 1"):
        await store.rewind(id_, 2)
    first = await session.fork(at=(await store.turns(id_))[0].position)
    assert await FoldspaceSessionStore(first[0]).load(key) is None and not await first[0].files.list()

    await turn(fork, key, "three")
    assert await fork.session.files.read("notes.txt") == b"one\ntwo\nthree\n"
    assert len(await get_session_messages_from_store(fork, id_)) == 12
    # The SDK's own fork of a conversation, in the same session.
    copied = await fork_session_via_store(fork, id_)
    assert len(await get_session_messages_from_store(fork, copied.session_id)) == 12
    assert len(await fork.list_sessions(key["project_key"])) == 2


async def test_the_example_works(session: foldspace.Session) -> None:
    key: Any = {"project_key": project_key_for_directory("."), "session_id": str(uuid.uuid4())}

    async def query(prompt: str, options: ClaudeAgentOptions) -> AsyncIterator[ResultMessage]:
        """Makes a turn without the CLI."""
        assert isinstance(options.session_store, FoldspaceSessionStore) and options.resume in (None, key["session_id"])
        await turn(options.session_store, key, prompt)
        yield ResultMessage("success", 1, 1, False, 1, key["session_id"])

    names = {name: getattr(claude_agent_sdk, name) for name in ("tool", "create_sdk_mcp_server", "ResultMessage")}
    names |= {"ClaudeAgentOptions": ClaudeAgentOptions, "FoldspaceSessionStore": FoldspaceSessionStore}
    _, text, *_ = section_examples("Conversation and files as one")
    ran = await run_example(text, names | {"session": session, "query": query, "replace": replace})
    assert [each.input for each in await ran["store"].turns(key["session_id"])] == ["write a note"]
    assert await session.files.read("notes.txt") == b"write a note\n"
    answer = await ran["run"].handler({"command": "cat notes.txt; exit 1"})
    assert answer == {"content": [{"type": "text", "text": "write a note\n"}], "is_error": True}
