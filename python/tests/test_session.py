"""The client: a session and all that it can do."""

from __future__ import annotations

import asyncio
import io
import tarfile
from pathlib import Path
from typing import Any

import foldspace
import pytest
from conftest import stop, until
from foldspace import Client, Session


async def test_run_gives_output_and_exit_code(session: Session) -> None:
    ran = await session.run("echo out; printf '\\377' >&2; exit 3")
    assert (ran.stdout, ran.stderr_bytes, ran.exit_code, ran.ok, ran.truncated) == ("out\n", b"\xff", 3, False, False)
    argv = await session.run(["printf", "%s|", "a b", "$HOME"])
    assert argv.stdout == "a b|$HOME|"


async def test_run_takes_environment_directory_and_input(session: Session) -> None:
    await session.files.mkdir("sub")
    ran = await session.run("echo $NAME; basename $PWD; cat", env={"NAME": "x"}, cwd="sub", stdin="typed")
    assert ran.stdout == "x\nsub\ntyped"


@pytest.mark.parametrize("data_in", [b"\xff\xfe" * 500_000, b"x" * 100_000, b""])
async def test_run_takes_any_input(session: Session, data_in: bytes) -> None:
    ran = await session.run("cat > in; wc -c < in", stdin=data_in)
    assert ran.stdout.strip() == str(len(data_in))
    assert await session.files.read("in") == data_in


async def test_run_gives_all_output(session: Session) -> None:
    ran = await session.run("seq 200000")
    assert ran.stdout.splitlines()[-1] == "200000"
    assert len(ran.stdout_bytes) == 1_288_895


@pytest.mark.parametrize("length", [20_000, 100_000, 140_000])
async def test_run_takes_long_commands(session: Session, length: int) -> None:
    ran = await session.run(f"echo {'x' * length} | wc -c; cat", stdin="typed")
    assert ran.stdout.split() == [str(length + 1), "typed"]
    words = ["sh", "-c", f"# {'x' * min(length, 131_000)}\necho $1; cat", "sh", "a b"]
    assert (await session.run(words, stdin="typed")).stdout == "a b\ntyped"


async def test_run_streams(session: Session) -> None:
    seen: list[tuple[str, bytes]] = []
    await session.run("echo a; sleep 0.3; echo b >&2", on_output=lambda stream, data: seen.append((stream, data)))
    assert seen == [("stdout", b"a\n"), ("stderr", b"b\n")]


async def test_run_with_check_raises(session: Session) -> None:
    with pytest.raises(foldspace.CommandFailedError, match="ended with 4: sorry") as raised:
        await session.run("echo sorry >&2; exit 4", check=True)
    assert raised.value.result.exit_code == 4


async def test_run_ends_at_its_timeout(session: Session) -> None:
    ran = await session.run("echo begun; sleep 30", timeout=1)
    assert (ran.timed_out, ran.exit_code, ran.stdout) == (True, 124, "begun\n")


async def test_merged_output_is_in_order(session: Session) -> None:
    assert (await session.run("echo 1; echo 2 >&2; echo 3", merge_output=True)).stdout == "1\n2\n3\n"
    assert (await session.run(["sh", "-c", "echo 1; echo 2 >&2"], merge_output=True)).stdout == "1\n2\n"


async def test_cancelled_task_cancels_the_call(client: Client, session: Session) -> None:
    task = asyncio.create_task(session.run("echo $$ > pid; sleep 60"))

    async def begun() -> bool:
        return bool((await client.server())["calls"])

    async def ended() -> bool:
        return not await begun()

    await until(begun)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(ended)
    finished = [event for event in await session.log() if event["kind"] == "CallFinished"]
    assert finished[-1]["event"]["status"] == "interrupted"


async def test_questions_are_asked(client: Client) -> None:
    asked: list[str] = []

    def ask(question: foldspace.Question) -> str:
        asked.extend(question.programs)
        return "once" if "touch" in question.programs else "refuse"

    session = await client.create(backend="host", on_question=ask)
    assert (await session.run("touch a")).ok
    with pytest.raises(foldspace.RefusedError):
        await session.run("rm a")
    assert asked == ["touch", "rm"]


async def test_unasked_questions_are_refused(client: Client) -> None:
    session = await client.create(backend="host")
    with pytest.raises(foldspace.RefusedError):
        await session.run("touch a")
    allowed = await client.open(session.name, allow=["touch"])
    assert (await allowed.run("touch a")).ok


async def test_files(session: Session) -> None:
    files = session.files
    await files.write("a/b.txt", "text")
    await files.write("run.sh", b"#!/bin/sh\necho ran\n", executable=True)
    await files.write("from-stream", io.BytesIO(b"1" * 700_000))
    assert (await session.run("./run.sh")).stdout == "ran\n"
    assert await files.read_text("/a/b.txt") == "text"
    assert len(await files.read("from-stream")) == 700_000
    assert (await files.stat("a/b.txt"))["size"] == 4
    assert [each["path"] for each in await files.list()] == ["a", "from-stream", "run.sh"]
    assert "a/b.txt" in [each["path"] for each in await files.list(depth=2)]
    await files.move("a/b.txt", "c.txt")
    assert not await files.exists("a/b.txt")
    await files.mkdir("d/e")
    await files.remove("a", recursive=True)
    assert [each["path"] for each in await files.tree("d")] == ["d/e"]
    with pytest.raises(foldspace.NotFoundError):
        await files.read("missing")
    with pytest.raises(foldspace.FoldspaceError):
        await files.write("c.txt", "again", create=True)


async def test_live_files_of_a_running_command(session: Session) -> None:
    files = session.files
    running = asyncio.create_task(session.run("echo one > new; sleep 600"))

    async def is_written() -> bool:
        return "new" in [each["path"] for each in await files.list(live=True)] and await files.read("new", live=True) == b"one\n"

    await until(is_written)
    stat = await files.stat("new", live=True)
    assert (stat["size"], stat.get("live_at", 0) > 1) == (4, True)
    assert [each["path"] for each in (await session.changes(live=True))["changes"]] == ["new"]
    assert not await files.exists("new")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: files.exists("new"))


async def test_names_of_files_may_be_any(session: Session) -> None:
    for name in ("with space", "ünïcode", "per%cent?&#", "line\nbreak"):
        await session.files.write(f"dir/{name}", name)
        assert await session.files.read_text(f"dir/{name}") == name


async def test_tar_in_and_out(session: Session) -> None:
    await session.files.write("src/one", "1")
    packed = await session.files.download("src")
    await session.files.upload(packed, "copy")
    assert await session.files.read("copy/one") == b"1"
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert "one" in [each.removeprefix("./") for each in archive.getnames()]


async def test_watch_tells_of_changes(session: Session) -> None:
    seen: list[tuple[str, str]] = []

    async def watch() -> None:
        async for change in session.files.watch():
            seen.append((change["path"], change["kind"]))

    watching = asyncio.create_task(watch())

    async def begun() -> bool:
        await session.files.write("a", "1")
        return bool(seen)

    async def told() -> bool:
        return ("b", "create") in seen

    await until(begun)
    await session.run("echo > b")
    await until(told)
    watching.cancel()


async def test_positions_diffs_and_rewinds(session: Session) -> None:
    await session.files.write("a", "one\n")
    await session.tag("before")
    before = await session.head()
    ran = await session.run("echo two > a; echo new > b")
    assert ran.call > before
    assert await session.at("tag:before").files.read("a") == b"one\n"
    assert await session.at(before).files.tree() != await session.files.tree()
    diff = await session.diff(before)
    assert diff.paths() == ["a", "b"]
    assert "+two" in diff.patch
    rewound = await session.rewind("tag:before")
    assert rewound["to"] <= before
    assert [each["path"] for each in await session.files.list()] == ["a"]
    assert list(await session.tags()) == ["before"]
    await session.untag("before")
    assert await session.tags() == {}
    assert (await session.state("VirtualFileSystem", pointer="/a"))["size"] == 4


async def test_forks_and_merges(session: Session) -> None:
    await session.files.write("a", "1\n")
    at = await session.head()
    await session.files.write("a", "2\n")
    children = await session.fork(count=3, at=at, name="try")
    assert [each.name for each in children] == ["try-1", "try-2", "try-3"]
    assert {await each.files.read("a") for each in children} == {b"1\n"}
    await children[0].run("echo child > child.txt", check=True)
    merged = await session.merge(children[0])
    assert merged["outcome"] == "merged"
    assert await session.files.read("child.txt") == b"child\n"
    clone = await session.clone(name="clone", agent="someone")
    assert await clone.files.read("a") == b"2\n"


async def test_merge_keeps_generated_files_and_takes_globs(session: Session) -> None:
    one, two = await session.fork(count=2, name="tried")
    for child, mark in ((one, b"1"), (two, b"2")):
        for path in ("__pycache__/a.pyc", "r/a.html", "a.lock"):
            await child.files.write(path, mark)
    assert (await session.merge(one))["outcome"] == "merged"
    with pytest.raises(foldspace.UnusableError, match="`\\*.lok`"):
        await session.merge(two, ours=["*.lok"])
    merged = await session.merge(two, theirs=["**/*.lock"], generated=["r/*"])
    assert (merged["outcome"], merged["generated"]) == ("merged", ["__pycache__/a.pyc", "r/a.html"])
    paths = ("__pycache__/a.pyc", "r/a.html", "a.lock")
    assert [await session.files.read(path) for path in paths] == [b"1", b"1", b"2"]


async def test_bisect_finds_the_change(session: Session) -> None:
    await session.files.write("n", "1")
    good = await session.head()
    for number in ("2", "3", "4"):
        await session.files.write("n", number)
    found = await session.bisect('test "$(cat n)" -lt 3', good=good)
    assert found["bad"][0]["changes"][0]["path"] == "n"
    assert await session.at(found["first_bad"] or 0).files.read("n") == b"3"
    assert found["bad"][0]["merged"] is None


async def test_bisect_leads_into_the_merged_child(session: Session) -> None:
    await session.files.write("n", "1")
    good = await session.head()
    (child,) = await session.fork(name="culprit")
    ran = await child.run("echo 3 > n", check=True)
    await session.merge(child)
    found = await session.bisect('test "$(cat n)" -lt 3', good=good)
    merged = found["bad"][0]["merged"]
    assert merged is not None
    assert (merged["child"], merged["name"]) == (child.id, "culprit")
    assert [event["call"] for event in await child.log(merged["seqs"][0], limit=1)] == [ran.call]


async def test_annotations(session: Session) -> None:
    await session.annotate("reward", score=0.5, note="half", value={"tests": [1, 2]})
    await session.annotate("other", note="x")
    found = await session.annotations("reward")
    assert [(each["score"], each["note"], each["value"]) for each in found] == [(0.5, "half", {"tests": [1, 2]})]


async def test_calls_of_tools(session: Session) -> None:
    told = await session.call("write_file", {"file_path": "x.txt", "content": "x"})
    assert told["status"] == "ok"
    assert (await session.show_call(told["call"]))["tool"] == "write_file"
    with pytest.raises(foldspace.NotFoundError) as raised:
        await session.call("read_file", {"file_path": "missing"})
    assert raised.value.outcome is not None
    assert "write_file" in [each["name"] for each in await session.tools()]
    assert (await session.verify())["differences"] == []


async def test_processes_in_the_background(session: Session) -> None:
    process = await session.start("while read line; do echo got $line; done", input=True)
    await process.send("one\n")
    output = process.output()
    assert await output.__anext__() == ("stdout", b"got one\n")
    assert (await session.files.exists("x")) is False
    await process.send("two\n", end=True)
    assert [data async for _, data in output] == [b"got two\n"]
    assert (await process.wait())["exit_code"] == 0
    sleeper = await session.start(["sleep", "60"])
    assert (await sleeper.wait(0.1))["running"]
    assert sleeper.number in [each.number for each in await session.processes()]
    await sleeper.kill()
    assert (await sleeper.wait())["signal"] == 9


async def test_terminal_in_the_background(session: Session) -> None:
    process = await session.start("stty size", window=(30, 100))
    assert (await process.collect()).stdout.split() == ["30", "100"]


async def test_events_come_as_they_are_recorded(session: Session) -> None:
    kinds: list[str] = []

    async def follow() -> None:
        async for event in session.events():
            kinds.append(event["kind"])

    following = asyncio.create_task(follow())
    await session.files.write("a", "1")

    async def told() -> bool:
        return "WriteFile" in kinds

    await until(told)
    following.cancel()
    assert kinds[0] == "SessionStarted"
    log = await session.log()
    assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
    assert len(await session.log(2, limit=1)) == 1


async def test_events_go_on_after_the_server_has_ended(data: Path, client: Client) -> None:
    session = await client.create("demo")
    seen: list[int] = []

    async def follow() -> None:
        async for event in session.events():
            seen.append(event["seq"])

    following = asyncio.create_task(follow())

    async def first() -> bool:
        return len(seen) == 1

    await until(first)
    process = (await client.server())["process"]
    await client.stop_server()

    async def another() -> bool:
        return (await client.server())["process"] != process

    await until(another, 20)
    await session.files.write("a", "1")

    async def more() -> bool:
        return len(seen) >= 4

    await until(more)
    assert seen == list(range(1, len(seen) + 1))
    following.cancel()


async def test_errors_are_classes(client: Client) -> None:
    await client.create("taken")
    with pytest.raises(foldspace.ConflictError):
        await client.create("taken")
    with pytest.raises(foldspace.NotFoundError) as raised:
        await client.open("missing")
    assert raised.value.hint
    with pytest.raises(foldspace.UnusableError):
        await client.create("not / a name")


async def test_infrastructure_failures_are_told_apart(client: Client) -> None:
    session = await client.create("nothing-runs")
    with pytest.raises(foldspace.FoldspaceError) as raised:
        await session.run("true")
    assert not isinstance(raised.value, foldspace.CommandFailedError)


async def test_backend_that_is_not_there_is_infrastructure(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTAINER_HOST", "unix:///nowhere/at/all.sock")
    async with Client(data) as client:
        with pytest.raises(foldspace.InfrastructureError):
            session = await client.create(backend="podman", auto_confirm=True)
            await session.run("true")


async def test_missing_program_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDSPACE_BIN", str(tmp_path / "missing"))
    with pytest.raises(foldspace.StartError, match="failed to start"):
        async with Client(tmp_path / "data"):
            pass


async def test_create_ids_adopt(client: Client) -> None:
    first = await client.create(create_id="x")
    again = await client.create(create_id="x")
    assert first.id == again.id
    assert [each["session"] for each in await client.sessions()] == [first.id]


async def test_mounts_are_copied(client: Client, backend: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "skip.log").write_text("b")
    session = await client.create(backend=backend, mount=tmp_path, exclude=["*.log"], auto_confirm=True)
    assert (await session.run("ls")).stdout == "a.txt\n"
    await session.remove()
    with pytest.raises(foldspace.NotFoundError):
        await session.show()


async def test_directory_is_worked_in(data: Path, tmp_path: Path) -> None:
    async with foldspace.session(backend="host", directory=tmp_path, data=data, auto_confirm=True) as session:
        await session.run("echo 1 > made", check=True)
    assert (tmp_path / "made").read_text() == "1\n"
    async with foldspace.attach(session.id, data=data) as again:
        assert await again.files.read("made") == b"1\n"
        assert "session" in repr(again)


async def test_html_is_escaped(session: Session) -> None:
    await session.files.write("<b>.txt", "<script>\n")
    shown = [session, await session.diff(), await session.log(), await session.files.tree()]
    for each in shown:
        html = each._repr_html_()
        assert "<b>.txt" not in html
        assert "<script>" not in html
    assert "&lt;b&gt;.txt" in shown[1]._repr_html_()
    assert "&lt;script&gt;" in shown[1]._repr_html_()


async def test_tasks_run_at_once(session: Session) -> None:
    forks = await session.fork(count=4)
    ran = await asyncio.gather(*(fork.run(f"echo {number}") for number, fork in enumerate(forks)))
    assert [each.stdout for each in ran] == ["0\n", "1\n", "2\n", "3\n"]


async def test_data_may_be_deep(data: Path) -> None:
    deep = data.parent / ("d" * 60) / ("e" * 60)
    async with Client(deep) as client:
        assert (await client.health())["status"] == "ok"
        assert (await client.create("x")).name == "x"
    stop(deep)


async def test_call_is_made_once_when_its_answer_is_lost(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    once, lost = Session._stream_once, []

    async def losing(self: Session, *given: Any) -> Any:
        outcome = await once(self, *given)
        lost.append(outcome)
        if len(lost) < 3:
            raise foldspace.ConnectionLostError("lost")
        return outcome

    monkeypatch.setattr(Session, "_stream_once", losing)
    shown: list[bytes] = []
    ran = await session.run("echo out; echo once >> count", on_output=lambda _, data: shown.append(data))
    assert (ran.stdout, b"".join(shown), lost[2]["repeated"]) == ("out\n", b"out\n", True)
    assert await session.files.read("count") == b"once\n"


async def test_call_of_killed_server_is_not_made_again(data: Path) -> None:
    async with foldspace.session(backend="host", data=data, auto_confirm=True) as session, Client(data) as client:
        process = (await client.server())["process"]
        with pytest.raises(foldspace.FoldspaceError) as failed:
            await session.run(f"echo once >> count; kill -9 {process}; sleep 60")
        assert failed.value.outcome is not None
        assert (failed.value.outcome["status"], failed.value.outcome.get("repeated")) == ("interrupted", True)
        assert (await session.run("cat count")).stdout == "once\n"
