"""The Python SDK of E2B with asyncio: e2b_async.py BACKEND, with E2B_* set

Much is at once here; e2b_sync.py has every call.
"""

import asyncio
import sys

from e2b import AsyncSandbox, CommandExitException
from e2b.exceptions import TimeoutException
from servers import WAIT_LIMIT, Wrong, check, leave


async def eventually(holds: object, what: str) -> None:
    for _ in range(WAIT_LIMIT * 20):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise Wrong(f"it does not hold within {WAIT_LIMIT} s: {what}")


async def watching(sandbox: AsyncSandbox) -> None:
    await sandbox.files.make_dir("deep/below")
    seen, ended = [], []
    handle = await sandbox.files.watch_dir(
        "deep", on_event=lambda event: seen.append((event.name, event.type.value)), recursive=True,
        on_exit=ended.append,
    )  # fmt: skip
    await sandbox.files.write("deep/below/one", "1")
    await sandbox.files.write("deep/below/one", "2")
    told = [("below/one", kind) for kind in ("create", "chmod", "write", "write")]
    await eventually(lambda: seen == told, f"changes are seen: {seen}")
    await handle.stop()
    check(ended == [None], f"the watch ended with {ended}")
    short = await sandbox.files.watch_dir("deep", on_event=seen.append, on_exit=ended.append, timeout=1)
    await eventually(lambda: len(ended) == 2, "a watch is limited")
    check(isinstance(ended[1], TimeoutException), f"the watch ended with {ended[1]!r}")
    await short.stop()
    print("  a directory is watched as it changes, and for a time")


async def at_once(sandbox: AsyncSandbox) -> None:
    await asyncio.gather(*(sandbox.files.write(f"at/{n}", str(n)) for n in range(20)))
    read = await asyncio.gather(*(sandbox.files.read(f"at/{n}") for n in range(20)))
    check(read == [str(n) for n in range(20)], f"read were {read}")
    ran = await asyncio.gather(*(sandbox.commands.run(f"sleep 0.2; echo {n}") for n in range(10)))
    check([one.stdout for one in ran] == [f"{n}\n" for n in range(10)], f"ran: {ran}")
    handle = await sandbox.commands.run("cat; exit 7", background=True, stdin=True)
    async with sandbox.commands.stream_input(handle.pid) as stream:
        for n in range(20):
            await stream.send(f"{n}\n")
    await handle.close_stdin()
    try:
        raise Wrong(f"it ended well: {await handle.wait()}")
    except CommandExitException as ended:
        check((ended.exit_code, ended.stdout.split()) == (7, [str(n) for n in range(20)]), f"its end: {ended!r}")
    outputs = []
    shell = await sandbox.pty.create(_size(), on_data=outputs.append)
    await sandbox.pty.send_stdin(shell.pid, b"echo $((40 + 2)); exit\n")
    await shell.wait()
    check(b"42\r\n" in b"".join(outputs), f"the terminal showed {outputs}")
    print("  files, commands, a stream of input and a terminal at once")


def _size() -> object:
    from e2b.sandbox.commands.command_handle import PtySize

    return PtySize(rows=24, cols=80)


async def run(backend: str) -> None:
    sandbox = await AsyncSandbox.create(timeout=600)
    try:
        await watching(sandbox)
        if backend != "memory":
            await at_once(sandbox)
        forks = await sandbox.fork(count=3)
        check([await fork.files.read("deep/below/one") for fork in forks] == ["2"] * 3, "forks have the files")
        snapshot = await sandbox.create_snapshot("named")
        again = await AsyncSandbox.create("named")
        check(await again.files.read("deep/below/one") == "2", "a snapshot is found by its name")
        await AsyncSandbox.delete_snapshot(snapshot.snapshot_id)
        await sandbox.pause()
        same = await AsyncSandbox.connect(sandbox.sandbox_id)
        check(await same.files.exists("deep/below/one") and await same.is_running(), "it is resumed")
        await asyncio.gather(*(one.kill() for one in [*forks, again]))
        pages, left = AsyncSandbox.list(), []
        while pages.has_next:
            left += await pages.next_items()
        check([one.sandbox_id for one in left] == [sandbox.sandbox_id], f"left are {left}")
        print("  fork, snapshots by name, pause, connect, list")
    finally:
        await sandbox.kill()


def main() -> None:
    (backend,) = sys.argv[1:]
    print(f"e2b for Python, asyncio, on {backend}", flush=True)
    asyncio.run(run(backend))


main()
leave()
