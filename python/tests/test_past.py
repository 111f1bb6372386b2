"""What a session did: calls, changes, searches, reruns."""

from __future__ import annotations

import asyncio

import foldspace
import foldspace.sync
import pytest
from conftest import until
from foldspace import Client, Session


async def worked(session: Session) -> None:
    await session.files.write("a.txt", "one\n")
    await session.run("echo two >> a.txt; echo made > made.txt; exit 3")
    with pytest.raises(foldspace.NotFoundError):
        await session.call("read_file", {"file_path": "missing"})


async def test_calls_are_listed_by_filters(session: Session) -> None:
    await worked(session)
    calls = await session.calls()
    assert [call["tool"] for call in calls] == ["put_file", "shell_execute", "read_file"]
    assert [call["call"] for call in await session.calls(failed=True)] == [calls[1]["call"], calls[2]["call"]]
    assert [call["tool"] for call in await session.calls(path="made*", changed=True)] == ["shell_execute"]
    assert [call["tool"] for call in await session.calls(calls[1]["call"], limit=1)] == ["shell_execute"]
    assert [call["tool"] for call in await session.calls(text="MISSING", tool="read_file")] == ["read_file"]
    assert await session.calls(agent="nobody") == []
    whole = await session.show_call(calls[1]["call"])
    assert (whole["result"]["exit_code"], whole["tool"]) == (3, "shell_execute")
    timeline = await session.timeline(buckets=2)
    assert (timeline["calls"], sum(bucket["failed"] for bucket in timeline["buckets"])) == (3, 2)
    assert (await session.timeline(tool="read_file"))["calls"] == 1


async def test_effects_stay_after_a_rewind(client: Client, session: Session) -> None:
    before = await session.head()
    ran = await session.run("echo deployed > log")
    named = await client.create("named", backend="memory", agent="mailer")
    await named.record_effect("mail", "ada", undo="write again")
    (mail,) = await named.effects()
    assert (mail["call"], mail["agent"], mail["outcome"], mail["undo"]) == (None, "mailer", "done", "write again")
    seq = await session.record_effect("deploy", "staging", outcome="unknown", call=ran.call)
    assert [(each["seq"], each["outcome"]) for each in await session.effects()] == [(seq, "unknown")]
    await session.record_effect("deploy", "staging", call=ran.call)
    effects = await session.effects()
    assert [(each["seq"], each["call"], each["outcome"], each["by"]) for each in effects] == [(seq, ran.call, "done", "report")]
    assert (await session.undo(call=ran.call, dry_run=True))["effects"] == effects
    assert (await session.rewind(before))["effects"] == effects
    assert await session.effects() == effects
    assert await (await session.fork(at=before))[0].effects() == []
    with pytest.raises(foldspace.UnusableError, match="what is empty"):
        await session.record_effect("")
    with pytest.raises(foldspace.NotFoundError):
        await session.record_effect("deploy", call=10_000)


async def test_rerun_repeats_effects_only_if_allowed(client: Client) -> None:
    session = await client.create(backend="host", auto_confirm=True)
    await session.files.write("bin/git", "#!/bin/sh\necho pushed", executable=True)
    await session.run("PATH=$PWD/bin:$PATH; git push origin main", check=True)
    assert [(each["what"], each["outcome"], each["by"]) for each in await session.effects()] == [("git push", "done", "command")]
    with pytest.raises(foldspace.RefusedError, match="1 effect would take place again: git push origin main"):
        await session.rerun()
    assert (await session.rerun(repeat_effects=True))["same"]


async def test_rerun_is_offline_only_where_requests_are_recorded(client: Client) -> None:
    session = await client.create(backend="host", auto_confirm=True)
    await session.run("true", check=True)
    with pytest.raises(foldspace.UnusableError, match="offline needs a container"):
        await session.rerun(offline=True)


async def test_changes_and_lines_have_their_calls(session: Session) -> None:
    await worked(session)
    wrote, ran, _ = await session.calls()
    changed = (await session.changes(wrote["finished"], ran["finished"]))["changes"]
    assert [(change["path"], change["change"]) for change in changed] == [("a.txt", "changed"), ("made.txt", "added")]
    lines = (await session.blame("/a.txt"))["lines"]
    within = [(call["call"], call["finished"]) for call in (wrote, ran)]
    assert [begun < line["seq"] < ended for line, (begun, ended) in zip(lines, within) if ended] == [True, True]
    assert len((await session.blame("a.txt", wrote["finished"]))["lines"]) == 1


async def test_search_finds_lines_of_calls_and_files(session: Session) -> None:
    await worked(session)
    wrote, ran, missed = await session.calls()
    found = await session.search("TWO|MADE|missing", ignore_case=True)
    places = [(hit["call"], hit["place"], hit["path"], hit["line"]) for hit in found]
    assert (ran["call"], "file", "a.txt", "two") in places and (ran["call"], "file", "made.txt", "made") in places
    assert places[-1][:2] == (missed["call"], "output")
    assert [hit["path"] for hit in await session.search("o", place="file", path="*.txt", limit=1)] == ["a.txt"]
    assert await session.search("one", start=wrote["finished"] + 1) == []
    with pytest.raises(foldspace.UnusableError, match="pattern: unclosed group"):
        await session.search("(")


async def test_until_finds_events_and_states(session: Session) -> None:
    await worked(session)
    _, ran, missed = await session.calls()
    found = await session.until("tool read_file", "path made.txt")
    assert found and (found["because"], found["call"]) == ("path made.txt", ran["call"])
    again = await session.until("tool read_file", "path made.txt", start=found["seq"])
    assert again and again["seq"] == missed["call"]
    back = await session.until("VirtualFileSystem./made.txt exists", backward=True)
    assert back and back["call"] == ran["call"]
    assert await session.until("failed", start=-0 + await session.head()) is None
    with pytest.raises(foldspace.UnusableError, match="did you mean failed"):
        await session.until("fialed")


async def test_reruns_stand_beside_their_session(client: Client, session: Session) -> None:
    await worked(session)
    same = await session.rerun()
    assert (same["same"], same["calls"], same["name"]) == (True, 3, None)
    with pytest.raises(foldspace.UnusableError, match="nothing was run"):
        await session.rerun(keep="never", backend="memory")
    kept = await session.rerun(keep="again")
    assert (kept["diverged"], kept["name"], kept["same"]) == (0, "again", True)
    verdicts = [(call["tool"], call["verdict"]) for call in kept["differing"]]
    assert verdicts == [("put_file", "skipped")]
    again = await client.open("again")
    assert await again.files.read("a.txt") == b"one\ntwo\n"
    rows = (await session.align(again))["rows"]
    # What the client put there was no call of a tool, and is none in the other.
    assert [(row["same"], row["result_differs"]) for row in rows] == [(False, False), (True, False), (True, False)]
    fork = (await session.fork(name="fork"))[0]
    assert [member["name"] for member in (await fork.family())["sessions"]] == ["demo", "fork"]


async def test_batches_are_dispatched_and_compared(client: Client, session: Session) -> None:
    await session.files.write("a.txt", "one\n")
    write = {"tool": "write_file", "params": {"file_path": "b.txt", "content": "b\n"}}
    fails = {"tool": "shell_execute", "params": {"command": "exit 3"}}
    children = [
        {"name": "try-1", "calls": [write], "annotations": [{"name": "reward", "score": 1}]},
        {"name": "try-2", "calls": [write, fails, write]},
    ]
    done = (await session.dispatch(children, parallel=1, merge=True))["children"]
    assert [(child["status"], child["merge"]) for child in done] == [("done", "merged"), ("failed", None)]
    assert (done[0]["changed"], [call["failed"] for call in done[1]["calls"]]) == (["b.txt"], [False, True])
    assert await session.files.read("b.txt") == b"b\n"
    tree = await client.compare("try-*", session)
    assert tree["runs"] == 3
    ended = {run["name"]: run for branch in tree["branches"] for run in branch["ended"]}
    assert (ended["try-1"]["scores"]["reward"]["score"], ended["try-2"]["failed"]) == (1, 1)
    with pytest.raises(foldspace.UnusableError, match="0 children"):
        await session.dispatch([])
    with pytest.raises(foldspace.UnusableError, match="at least two sessions"):
        await client.compare("try-1")


async def test_output_of_a_call_is_followed(client: Client, session: Session) -> None:
    starter = await session.start("read line; touch go", input=True)
    running = asyncio.create_task(session.run("while [ ! -e go ]; do sleep 0.05; done; echo over; sleep 0.2"))

    async def begun() -> bool:
        return len(await session.calls(tool="shell_execute")) == 1

    await until(begun)
    (call,) = await session.calls(tool="shell_execute")
    assert call["status"] == "running"
    following = asyncio.create_task(collected(session, call["call"]))
    await asyncio.sleep(0.2)
    await starter.send("go\n", end=True)
    assert await asyncio.wait_for(following, 20) == b"over\n"
    assert (await running).stdout == "over\n"
    with pytest.raises(foldspace.NotFoundError):
        await collected(session, call["call"])
    assert "foldspace_tool_call_duration_seconds_count" in await client.metrics()


async def collected(session: Session, call: int) -> bytes:
    return b"".join([data async for _, data in session.output(call)])


def test_sync_past_is_the_same(sync_client: foldspace.sync.Client) -> None:
    session = sync_client.create("demo")
    session.files.write("a.txt", "one\n")
    assert [call["tool"] for call in session.calls()] == ["put_file"]
    found = session.until("path *.txt")
    assert found and found["call"] == session.calls()[0]["call"]
    assert session.rerun()["same"]
    assert session.log()[0]["kind"] == "SessionStarted"
