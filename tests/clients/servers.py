"""Servers for the clients: each with data of its own, on loopback, ended by its process id."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

# How long a server may take to say where it is, and to end: a busy machine is slow.
WAIT_LIMIT = 60
TOKEN = "clients-of-the-tests-" + "0" * 24


@dataclass(frozen=True)
class Server:
    """A server over HTTP."""

    url: str
    data: Path
    token: str = TOKEN

    @property
    def mcp(self) -> str:
        return f"{self.url}/mcp"


class Wrong(Exception):
    """Something is not as it should be."""


def check(holds: bool, what: str) -> None:
    """Ends the test when something does not hold."""
    if not holds:
        raise Wrong(what)


def raises(kind: type | tuple, work: Callable[[], object]) -> Exception:
    """The error of that kind that some work ends with."""
    try:
        gave = work()
    except kind as error:
        return error
    raise Wrong(f"no {kind} was raised, but it gave {gave!r}")


def eventually(holds: Callable[[], object], what: str) -> None:
    """Waits until something holds."""
    until = time.monotonic() + WAIT_LIMIT
    while not holds():
        check(time.monotonic() < until, f"it does not hold within {WAIT_LIMIT} s: {what}")
        time.sleep(0.05)


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """An empty directory for as long as it is needed."""
    path = Path(tempfile.mkdtemp(prefix="foldspace-clients-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def environment(data: Path) -> dict[str, str]:
    """What a server is given: nothing of the user's own configuration."""
    kept = ("PATH", "HOME", "CONTAINER_HOST", "FOLDSPACE_IMAGE", "FOLDSPACE_CACHE", "LLVM_PROFILE_FILE")
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        "FOLDSPACE_DATA": str(data),
        "FOLDSPACE_TOKEN": TOKEN,
        "RUST_BACKTRACE": "1",
    }


@contextlib.contextmanager
def serve(program: str, *options: str, listen: str = "--http") -> Iterator[Server]:
    """`foldspace serve` on a port that the system chose."""
    with directory() as data:
        command = [program, "serve", listen, "127.0.0.1:0", *options]
        process = subprocess.Popen(
            command, env=environment(data), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        said: list[str] = []
        found = threading.Event()
        reader = threading.Thread(target=_read, args=(process, said, found), daemon=True)
        reader.start()
        try:
            found.wait(WAIT_LIMIT)
            url = _address(said)
            check(url is not None, f"{' '.join(command)} did not say where it is:\n{''.join(said)}")
            yield Server(url, data)
            check(process.poll() is None, f"the server ended by itself:\n{''.join(said)}")
        finally:
            _end(process, said)
            reader.join(WAIT_LIMIT)
        check(process.returncode == 0, f"the server ended with {process.returncode}:\n{''.join(said)}")
        check("panicked" not in "".join(said), f"the server panicked:\n{''.join(said)}")


def _read(process: subprocess.Popen, said: list[str], found: threading.Event) -> None:
    for line in process.stdout:
        said.append(line)
        if _address(said):
            found.set()
    found.set()


def _address(said: list[str]) -> str | None:
    found = re.search(r"http://127\.0\.0\.1:[0-9]+", "".join(said))
    return found[0] if found else None


def _end(process: subprocess.Popen, said: list[str]) -> None:
    process.terminate()
    try:
        process.wait(WAIT_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise Wrong(f"the server did not end within {WAIT_LIMIT} s of SIGTERM:\n{''.join(said)}") from None


def leave() -> NoReturn:
    """Ends this process at once: a thread of the HTTP client of E2B's SDK may abort it while Python winds up."""
    sys.stdout.flush()
    os._exit(0)
