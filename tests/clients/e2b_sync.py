"""The Python SDK of E2B, as it blocks: e2b_sync.py BACKEND, with E2B_* set

It prints what works, one line each, and ends at what does not.
"""

import io
import sys
import time
import urllib.request

from e2b import CommandExitException, Sandbox, SandboxQuery
from e2b.exceptions import (
    AuthenticationException,
    FileNotFoundException,
    InvalidArgumentException,
    NotFoundException,
    SandboxException,
    SandboxNotFoundException,
    TimeoutException,
)
from servers import check, eventually, leave, raises


def files(sandbox: Sandbox) -> None:
    made = sandbox.files.write("notes/a.txt", "hé\n")
    check((made.path, made.name) == ("/home/user/notes/a.txt", "a.txt"), f"written was {made}")
    check(sandbox.files.read("notes/a.txt") == "hé\n", "a text is read back")
    check(sandbox.files.read("/home/user/notes/a.txt") == "hé\n", "/home/user is the workspace")
    raw = bytes(range(256)) * 4096
    sandbox.files.write("raw.bin", raw)
    check(bytes(sandbox.files.read("raw.bin", format="bytes")) == raw, "bytes are read back")
    check(b"".join(sandbox.files.read("raw.bin", format="stream")) == raw, "a stream is read back")
    sandbox.files.write("stream.bin", io.BytesIO(raw))
    sandbox.files.write("octets.bin", raw, use_octet_stream=True)
    for name in ("stream.bin", "octets.bin"):
        check(bytes(sandbox.files.read(name, format="bytes")) == raw, f"{name} is what was sent")
    many = [{"path": f"many/{n}", "data": str(n)} for n in range(5)]
    check([made.name for made in sandbox.files.write_files(many)] == list("01234"), "many files are written")
    listed = {entry.path: entry for entry in sandbox.files.list("/workspace", depth=2)}
    check(listed["/workspace/many/3"].size == 1 and listed["/workspace/many"].type.value == "dir", f"listed: {listed}")
    check("/home/user/many/3" not in [entry.path for entry in sandbox.files.list(".")], "one level is listed")
    check(sandbox.files.exists("raw.bin") and not sandbox.files.exists("nothing"), "what is there exists")
    about = sandbox.files.get_info("/home/user/raw.bin")
    check((about.size, about.path, about.type.value) == (len(raw), "/home/user/raw.bin", "file"), f"told: {about}")
    check(abs(about.modified_time.timestamp() - time.time()) < 600, f"changed at {about.modified_time}")
    check(sandbox.files.rename("raw.bin", "below/moved.bin").path == "/home/user/below/moved.bin", "it is renamed")
    sandbox.files.remove("many")
    sandbox.files.remove("many")
    check(not sandbox.files.exists("many/1") and not sandbox.files.exists("raw.bin"), "what is removed is gone")
    check(sandbox.files.make_dir("new/dir") and not sandbox.files.make_dir("new/dir"), "a directory is made once")
    raises(FileNotFoundException, lambda: sandbox.files.read("nothing"))
    raises(FileNotFoundException, lambda: sandbox.files.get_info("nothing"))
    raises(FileNotFoundException, lambda: sandbox.files.list("nothing"))
    raises(FileNotFoundException, lambda: sandbox.files.rename("nothing", "else"))
    raises(InvalidArgumentException, lambda: sandbox.files.read("new"))
    raises(InvalidArgumentException, lambda: sandbox.files.list("stream.bin"))
    made = sandbox.files.write("zipped", "text " * 100, gzip=True, metadata={"made": "by hand"})
    check(sandbox.files.read("zipped") == "text " * 100, "a compressed upload is unpacked")
    renamed = sandbox.files.rename("zipped", "unzipped")
    check(made.metadata == renamed.metadata == {"made": "by hand"}, f"metadata: {made} {renamed}")
    with urllib.request.urlopen(sandbox.download_url("notes/a.txt", use_signature_expiration=60)) as answer:
        check(answer.read() == "hé\n".encode(), "a signed URL gives the file")
    forged = sandbox.download_url("notes/a.txt").replace("notes%2Fa.txt", "stream.bin").replace("notes/a", "stream")
    raises(urllib.error.HTTPError, lambda: urllib.request.urlopen(forged))
    print("  files: text, bytes, streams, many, list, info, rename, remove, directories, signed URLs")


def outside(sandbox: Sandbox, has_container: bool) -> None:
    if not has_container:
        raises(InvalidArgumentException, lambda: sandbox.files.read("/etc/passwd"))
        return
    sandbox.files.write("/tmp/below/a.txt", "outside")
    check(sandbox.commands.run("cat /tmp/below/a.txt").stdout == "outside", "commands see it")
    check([entry.path for entry in sandbox.files.list("/tmp/below")] == ["/tmp/below/a.txt"], "it is listed")
    check("root" in sandbox.files.read("/etc/passwd"), "files of the image are read")
    raises(FileNotFoundException, lambda: sandbox.files.get_info("/tmp/nothing"))
    print("  files outside of the workspace")


def watching(sandbox: Sandbox) -> None:
    sandbox.files.make_dir("watched/below")
    handle = sandbox.files.watch_dir("watched")
    sandbox.files.write("watched/one", "1")
    sandbox.files.write("watched/below/two", "2")
    sandbox.files.remove("watched/one")
    seen = []
    eventually(lambda: seen.extend(handle.get_new_events()) or ("one", "remove") in told(seen), "a removal is seen")
    new = [("one", "create"), ("one", "chmod"), ("one", "write")]
    check(told(seen) == [*new, ("one", "remove")], f"seen were {seen}")
    handle.stop()
    raises(SandboxException, handle.get_new_events)
    raises(FileNotFoundException, lambda: sandbox.files.watch_dir("nothing"))
    print("  a directory is watched")


def told(events: list) -> list:
    return [(event.name, event.type.value) for event in events]


def commands(sandbox: Sandbox) -> None:
    ran = sandbox.commands.run("echo out; echo err >&2; echo $GIVEN-$ALWAYS", envs={"GIVEN": "here"})
    check((ran.stdout, ran.stderr, ran.exit_code) == ("out\nhere-always\n", "err\n", 0), f"it ran: {ran}")
    wrong = raises(CommandExitException, lambda: sandbox.commands.run("echo no >&2; exit 3"))
    check((wrong.exit_code, wrong.stderr) == (3, "no\n"), f"its end is told: {wrong}")
    sandbox.files.make_dir("sub")
    ran = sandbox.commands.run("basename $PWD; echo x > made", cwd="/workspace/sub")
    check(ran.stdout == "sub\n" and sandbox.files.read("sub/made") == "x\n", f"it ran in a directory: {ran}")
    check(sandbox.commands.run("basename $PWD", cwd="/home/user/sub", user="root").stdout == "sub\n", "by user, too")
    raises((InvalidArgumentException, NotFoundException), lambda: sandbox.commands.run("true", cwd="/workspace/none"))
    outs, errs = [], []
    sandbox.commands.run(
        "for n in 1 2 3; do echo $n; echo e$n >&2; sleep 0.1; done", on_stdout=outs.append, on_stderr=errs.append
    )
    check(("".join(outs), "".join(errs)) == ("1\n2\n3\n", "e1\ne2\ne3\n"), f"streamed: {outs} {errs}")
    check(len(sandbox.commands.run("head -c 3000000 /dev/zero | tr '\\0' x").stdout) == 3_000_000, "all output comes")
    since = time.monotonic()
    raises(TimeoutException, lambda: sandbox.commands.run("sleep 30; echo late > late", timeout=1))
    check(time.monotonic() - since < 15, "a limit is kept")
    eventually(lambda: sandbox.commands.list() == [], "what took too long is ended")
    background(sandbox)
    print("  commands: output, exit codes, envs, cwd, streams, limits, background, stdin, kill, connect, list")


def background(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("read a; echo got $a; cat; exit 5", background=True, stdin=True)
    (listed,) = sandbox.commands.list()
    check((listed.pid, listed.cmd, listed.args[0]) == (handle.pid, "/bin/bash", "-l"), f"listed: {listed}")
    again = sandbox.commands.connect(handle.pid)
    sandbox.commands.send_stdin(handle.pid, "one\n")
    sandbox.commands.send_stdin(handle.pid, "rest")
    sandbox.commands.close_stdin(handle.pid)
    for one in (handle, again):
        wrong = raises(CommandExitException, one.wait)
        check((wrong.exit_code, wrong.stdout) == (5, "got one\nrest"), f"its end is told: {wrong!r} {wrong.stdout!r}")
    handle = sandbox.commands.run("cat", background=True, stdin=True)
    sandbox.commands.stream_input(handle.pid, (f"{n}\n" for n in range(50)))
    sandbox.commands.close_stdin(handle.pid)
    check(handle.wait().stdout == "".join(f"{n}\n" for n in range(50)), "a stream of input comes in order")
    handle = sandbox.commands.run("sleep 60", background=True)
    check(sandbox.commands.kill(handle.pid), "a process is killed")
    check(raises(CommandExitException, handle.wait).exit_code == -1, "its end is told")
    check(not sandbox.commands.kill(handle.pid) and not sandbox.commands.kill(99_999_999), "it is gone then")
    raises(NotFoundException, lambda: sandbox.commands.connect(99_999_999))
    # What is disconnected runs on.
    handle = sandbox.commands.run("sleep 0.5; echo done > after", background=True)
    handle.disconnect()
    eventually(lambda: sandbox.files.exists("after"), "a process runs on without its client")


def terminals(sandbox: Sandbox) -> None:
    from e2b.sandbox.commands.command_handle import PtySize

    shell = sandbox.pty.create(PtySize(rows=30, cols=100), cwd="/workspace/sub", envs={"PS1": "", "WHO": "me"})
    sandbox.pty.send_stdin(shell.pid, b"stty size; echo $WHO; basename $PWD\n")
    sandbox.pty.resize(shell.pid, PtySize(rows=40, cols=120))
    sandbox.pty.send_stdin(shell.pid, b"sleep 0.3; stty size; exit 4\n")
    seen = b""
    wrong = None
    try:
        for _, _, data in shell:
            seen += data or b""
        shell.wait()
    except CommandExitException as ended:
        wrong = ended
    check(wrong is not None and wrong.exit_code == 4, f"the terminal ended with {wrong!r}: {seen}")
    for text in (b"me\r\n", b"sub\r\n", b"40 120\r\n"):
        check(text in seen, f"{text} is not in {seen}")
    shell = sandbox.pty.create(PtySize(rows=24, cols=80))
    check(sandbox.pty.kill(shell.pid) and not sandbox.pty.kill(99_999_999), "a terminal is killed")
    print("  terminals: create, input, resize, kill")


def lifetimes(sandbox: Sandbox) -> None:
    check(sandbox.is_running(), "it runs")
    about = sandbox.get_info()
    check((about.sandbox_id, about.metadata["kind"]) == (sandbox.sandbox_id, "main & more"), f"told: {about}")
    others = [Sandbox.create(metadata={"kind": "other", "n": str(n)}) for n in range(3)]
    listed, pages = [], Sandbox.list(query=SandboxQuery(metadata={"kind": "other"}), limit=2)
    while pages.has_next:
        page = pages.next_items()
        check(len(page) <= 2, "a page has its size")
        listed += [one.sandbox_id for one in page]
    check(listed == [one.sandbox_id for one in reversed(others)], f"listed: {listed}")
    (only,) = Sandbox.list(query=SandboxQuery(metadata={"kind": "main & more"})).next_items()
    check(only.sandbox_id == sandbox.sandbox_id, "metadata are found as they are")
    others[0].set_timeout(1)
    eventually(lambda: not others[0].is_running(), "its time is over")
    raises(SandboxNotFoundException, lambda: Sandbox.connect(others[0].sandbox_id))
    check(others[1].kill() and not others[1].kill(), "it is killed once")
    check(not others[1].is_running(), "it does not run then")
    raises(SandboxException, lambda: others[1].files.read("x"))
    paused = others[2]
    paused.files.write("kept", "yes")
    process = paused.commands.run("sleep 600", background=True) if sandbox.has_commands else None
    paused.pause()
    check(not paused.pause(), "it is paused once")
    check(Sandbox.get_info(paused.sandbox_id).state.value == "paused", "that is told")
    raises(SandboxException, lambda: paused.files.read("kept"))
    back = Sandbox.connect(paused.sandbox_id, timeout=120)
    check(back.files.read("kept") == "yes", "files stay")
    running = [each.pid for each in back.commands.list()] if process else []
    check(running == ([process.pid] if process and sandbox.has_container else []), f"processes stay in a container: {running}")
    back.kill()
    made = [Sandbox.create(idempotency_key="once-and-again").sandbox_id for _ in range(2)]
    check(made[0] == made[1], f"the same request gave {made}")
    Sandbox.kill(made[0])
    print("  lifetimes: info, lists by page and metadata, set_timeout, pause, connect, kill, idempotency keys")


def forks(sandbox: Sandbox) -> None:
    sandbox.files.write("state", "shared")
    forks = sandbox.fork(count=5, timeout=600)
    check(len({fork.sandbox_id for fork in forks}) == 5, f"forks: {forks}")
    for n, fork in enumerate(forks):
        fork.files.write("state", str(n))
    check([fork.files.read("state") for fork in forks] == list("01234"), "forks are apart")
    check(sandbox.files.read("state") == "shared", "the parent stays as it is")
    if sandbox.has_commands:
        check(forks[3].commands.run("cat state; echo $ALWAYS").stdout == "3always\n", "commands run in a fork")
    snapshot = sandbox.create_snapshot()
    sandbox.files.write("state", "later")
    check([one.snapshot_id for one in sandbox.list_snapshots().next_items()] == [snapshot.snapshot_id], "it is listed")
    begun = Sandbox.create(snapshot.snapshot_id, timeout=600, envs={"MORE": "m"})
    check(begun.files.read("state") == "shared", "a sandbox begins from a snapshot")
    if sandbox.has_commands:
        check(begun.commands.run("cat state; echo $MORE").stdout == "sharedm\n", "with variables of its own")
    check(Sandbox.delete_snapshot(snapshot.snapshot_id), "a snapshot is deleted")
    check(not Sandbox.delete_snapshot(snapshot.snapshot_id), "once")
    check(begun.files.read("state") == "shared", "what began from it stays")
    for one in [*forks, begun]:
        one.kill()
    print("  fork(count=5), snapshots")


def refusals(sandbox: Sandbox, has_container: bool) -> None:
    raises(AuthenticationException, lambda: Sandbox.create(api_key="e2b_" + "0" * 40))
    raises(SandboxNotFoundException, lambda: Sandbox.connect("e2b-nothing"))
    if has_container:
        # Without a network there is nothing to restrict.
        sandbox.update_network({"allow_out": ["1.1.1.1"]})
        (now,) = sandbox.get_metrics()
        check(0 < now.mem_used <= now.mem_total and 0 < now.disk_used <= now.disk_total, f"metrics: {now}")
    else:
        for missing in (lambda: sandbox.update_network({"allow_out": ["1.1.1.1"]}), sandbox.get_metrics):
            wrong = raises(SandboxException, missing)
            check("501" in str(wrong) and "docs/e2b.md" in str(wrong), f"the error names what is missing: {wrong}")
    check("400" in str(raises(SandboxException, lambda: Sandbox.create(timeout=10**9))), "a time has an end")
    print("  refusals: a wrong key, unknown sandboxes, what there is not")


def main() -> None:
    (backend,) = sys.argv[1:]
    print(f"e2b for Python, blocking, on {backend}", flush=True)
    with Sandbox.create(timeout=600, metadata={"kind": "main & more"}, envs={"ALWAYS": "always"}) as sandbox:
        sandbox.has_commands = backend != "memory"
        sandbox.has_container = backend == "container"
        files(sandbox)
        outside(sandbox, backend == "container")
        watching(sandbox)
        if sandbox.has_commands:
            commands(sandbox)
            terminals(sandbox)
        lifetimes(sandbox)
        forks(sandbox)
        refusals(sandbox, backend == "container")


main()
leave()
