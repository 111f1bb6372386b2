#!/usr/bin/env python3
"""Measures mounts of the past and workspaces in a mount beside ext4 or what the directory is on, `cp -a`,
`git worktree add` and a bare overlay mount, in one run. Needs root, git and gcc.

    benches/mounts.py PROGRAM DIRECTORY [C_SOURCES]

The directory, which must be empty, is on the file system to compare with. C_SOURCES is a directory of C files that
compile on their own with `gcc -c -I`; without it that build is left out. Prints one line for each figure."""

import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "python"))
from foldspace.sync import Client  # noqa: E402

PROGRAM, PLACE = sys.argv[1], Path(sys.argv[2])
SOURCES = sys.argv[3] if len(sys.argv) > 3 else None
FILES, MANY, FORKS = 10_000, 100_000, 1_000


def timed(work):
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def median(work, rounds=5):
    return statistics.median(timed(work) for _ in range(rounds))


def sh(command, cwd=None):
    subprocess.run(["sh", "-c", command], cwd=cwd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def told(what, ours, **others):
    beside = ", ".join(f"{name} {value:.2f} ms (x{ours / value:.2f})" for name, value in others.items())
    print(f"{what}: {ours:.2f} ms" + (f"; {beside}" if beside else ""), flush=True)


def tree(root, files):
    """Makes a git repository of small files, 100 to a directory."""
    for number in range(files):
        if number % 100 == 0:
            (root / f"d{number // 100}").mkdir(parents=True)
        (root / f"d{number // 100}/f{number}.txt").write_text(f"line {number}\n" * 20)
    sh("git init -q && git config gc.auto 0 && git add -A && git -c user.name=a -c user.email=a@b commit -qm start", root)


def files_of(session, name="repo"):
    return Path(session.run("pwd").stdout.strip()) / name


def forks(client, plain):
    """A fork of 10,000 files until a command runs in it, beside other ways to a second working copy."""
    parent = client.create("parent", backend="mount", auto_confirm=True)
    parent.run(f"cp -a {plain} repo && git -C repo status", timeout=600)
    made = []

    def fork():
        child = parent.fork()[0]
        child.run("true")
        made.append(child)

    fork()
    ours = median(fork)
    copies = iter(range(100))
    copy = median(lambda: sh(f"cp -a {plain} {PLACE}/copy{next(copies)}"))
    worktree = median(lambda: sh(f"git worktree add -q {PLACE}/tree{next(copies)} HEAD", plain))

    def overlay():
        at = PLACE / f"overlay{next(copies)}"
        sh(f"mkdir -p {at}/u {at}/w {at}/m && mount -t overlay o -o lowerdir={plain},upperdir={at}/u,workdir={at}/w {at}/m")
        sh(f"(cd {at}/m && true); umount {at}/m")

    told(f"fork of {FILES} files until a command runs", ours, cp=copy, worktree=worktree, overlay=median(overlay))
    return parent, made[-1], PLACE / "copy0"


def status(fork, copy):
    first = timed(lambda: sh("git status", fork)), timed(lambda: sh("git status", copy))
    told("git status, first", first[0], ext4=first[1])
    told("git status, warm", median(lambda: sh("git status", fork)), ext4=median(lambda: sh("git status", copy)))


def builds(fork, copy):
    if SOURCES:
        build = f"for c in $(find {SOURCES} -name '*.c'); do gcc -O1 -c -I{SOURCES} -o $(basename $c).o $c || true; done"
        told("build of C files", timed(lambda: sh(build, fork)), ext4=timed(lambda: sh(build, copy)))
    crate = "mkdir crate && cd crate && cargo init -q --name small --vcs none"
    sh(crate, fork)
    sh(crate, copy)
    check = "rm -rf target; CARGO_TARGET_DIR=$PWD/target cargo check -q --offline"
    ours = median(lambda: sh(check, fork / "crate"), 3)
    told("cargo check of a small crate", ours, ext4=median(lambda: sh(check, copy / "crate"), 3))


def large(session, fork, copy):
    """32 MiB, read warm and written; then small edits in it, each with a commit."""
    write = "head -c 33554432 /dev/urandom > source; cat source > big"
    sh(write, fork)
    sh(write, copy)
    read = "cat big > /dev/null"
    told("read 32 MiB, warm", median(lambda: sh(read, fork)), ext4=median(lambda: sh(read, copy)))
    again = "cat source > big"
    told("write 32 MiB", median(lambda: sh(again, fork)), ext4=median(lambda: sh(again, copy)))
    session.run("true")
    command = session.run
    edit = "repo/big"

    def bare(text):
        return median(lambda: command(text))

    call = bare("true")
    offsets = [random.randrange(32 << 20) for _ in range(16)]
    text = "; ".join(f"printf %08d {at % 7}{at % 11}1234 | dd of={edit} bs=1 seek={at} conv=notrunc 2>/dev/null" for at in offsets)
    plain = median(lambda: sh(text.replace(edit, str(copy / "big"))))
    told("16 edits in 32 MiB and a commit", bare(text) - call - plain, the_edits_themselves=plain)
    front = f"(printf 0123456789; cat {edit}) > front; mv front {edit}"
    plain = median(lambda: sh(front.replace(edit, str(copy / "big")), copy))
    told("10 bytes before 32 MiB and a commit", bare(front) - call - plain, the_edit_itself=plain)


def thousand(client, parent):
    used = lambda: int(subprocess.run(["du", "-skx", PLACE / "data"], capture_output=True, text=True).stdout.split()[0])
    status = subprocess.run([PROGRAM, "--data", PLACE / "data", "--json", "status"], capture_output=True, text=True)
    owner = json.loads(status.stdout)["process"]
    memory = lambda: next(int(line.split()[1]) for line in open(f"/proc/{owner}/status") if line.startswith("VmRSS"))
    before, held = used(), memory()
    begun, made = time.perf_counter(), []
    for number in range(FORKS):
        child = parent.fork()[0]
        child.run(f"echo {number} > repo/d0/f0.txt")
        made.append(child)
    seconds = time.perf_counter() - begun
    each = f"{(used() - before) / FORKS:.1f} KiB of disk and {(memory() - held) / FORKS:.1f} KiB of the owner's memory each"
    print(f"{FORKS} forks, one file changed in each: {seconds:.1f} s, {each}", flush=True)


def capture(client):
    """What a call that changes two files costs more in 100,000 files than in 10."""
    costs = []
    for files in (10, MANY):
        session = client.create(f"of-{files}", backend="mount", auto_confirm=True)
        session.run(f"for d in $(seq {max(files // 100, 1)}); do mkdir d$d; for f in $(seq {min(files, 100)}); do echo $f > d$d/f$f; done; done", timeout=600)
        session.fork()
        change = "echo x >> d1/f1; echo x >> d1/f2"
        costs.append((median(lambda: session.run(change), 41), median(lambda: session.run("true"), 41)))
    (few, idle), (many, idle_many) = costs
    print(f"a call that changes two files: {few:.2f} ms in 10 files, {many:.2f} ms in {MANY} files (one without changes: {idle:.2f}, {idle_many:.2f} ms)")


def past(client, plain, parent):
    with parent.mounted(at=parent.head()) as place:
        repo = place / "repo"
        walk = "find . -type f | wc -l"
        told(f"mount of the past: list {FILES} files, first", timed(lambda: sh(walk, repo)), ext4=median(lambda: sh(walk, plain)))
        told("mount of the past: list, warm", median(lambda: sh(walk, repo)), ext4=median(lambda: sh(walk, plain)))
        read = "find d* -type f -print0 | xargs -0 cat > /dev/null"
        told("mount of the past: read all, first", timed(lambda: sh(read, repo)), ext4=median(lambda: sh(read, plain)))
        told("mount of the past: read all, warm", median(lambda: sh(read, repo)), ext4=median(lambda: sh(read, plain)))


def main():
    plain = PLACE / "plain"
    tree(plain, FILES)
    os.environ["FOLDSPACE_BIN"] = PROGRAM
    with Client(PLACE / "data") as client:
        parent, child, copy = forks(client, plain)
        fork = files_of(child)
        status(fork, copy)
        builds(fork, copy)
        large(child, fork, copy)
        past(client, plain, parent)
        capture(client)
        thousand(client, parent)
        client.stop_server()


main()
