"""Services, and their ports."""

from __future__ import annotations

import asyncio
import socket
import urllib.request
from collections.abc import AsyncIterator

import foldspace
import foldspace.sync
import pytest
from foldspace import Client, Session

# Sends back all that it has received, after the end of its input.
ECHO = """
import socket, sys, threading
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("it is", "up", flush=True)
def serve(peer):
    received = peer.makefile("rb").read()
    peer.sendall(received)
    peer.close()
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]]).start()
"""


@pytest.fixture
async def session(session: Session) -> AsyncIterator[Session]:
    """Ends its services after the test: a server waits for processes before it ends."""
    yield session
    for service in await session.services():
        await session.stop_service(service["name"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


async def start_echo(session: Session, port: int) -> foldspace.Process:
    command = ["python3", "-c", ECHO, str(port)]
    return await session.start_service("echo", command, port=port, prints="it is up", restart=True)


async def echoed(address: str, data: bytes) -> bytes:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    writer.write_eof()
    received = await reader.read()
    writer.close()
    return received


async def test_service_is_listed_until_it_is_stopped(session: Session) -> None:
    port = free_port()
    process = await start_echo(session, port)
    env = {"SAID": "hello"}
    late_command = "echo $SAID > said; echo ready; exec sleep 600"
    await session.start_service("late", late_command, prints="ready", after=["echo"], env=env)
    echo, late = await session.services()
    assert (echo["name"], echo["process"], echo["port"], echo["restart"]) == ("echo", process.number, port, True)
    assert (late["name"], late["after"], late["running"], late["restart"]) == ("late", ["echo"], True, False)
    assert (await (await session.process(late["process"])).show())["service"] == "late"
    await session.stop_service("late")
    assert await session.files.read("said") == b"hello\n"
    assert [each["name"] for each in await session.services()] == ["echo"]
    with pytest.raises(foldspace.NotFoundError, match="no service late"):
        await session.stop_service("late")


async def test_service_that_is_not_ready_runs_on(session: Session) -> None:
    process = await session.start_service("slow", "exec sleep 600", prints="up", ready_seconds=0.2)
    assert (await process.show())["running"]
    assert (await process.show())["ready"] is False
    with pytest.raises(foldspace.RefusedError, match="slow runs already"):
        await session.start_service("slow", "true")
    with pytest.raises(foldspace.RefusedError, match="exit code 3 before it was ready:\noops"):
        await session.start_service("other", "echo oops; exit 3", prints="up")
    with pytest.raises(foldspace.RefusedError, match="starts after db"):
        await session.start_service("other", "true", after=["db"])
    with pytest.raises(foldspace.UnusableError, match="ready_seconds"):
        await session.start_service("other", "true", ready_seconds=301)


async def test_forward_passes_connections_on(session: Session) -> None:
    port = free_port()
    await start_echo(session, port)
    pieces = [bytes([each]) * 1_000_000 for each in range(5)]
    async with session.forward(port) as address:
        assert await asyncio.gather(*(echoed(address, piece) for piece in pieces)) == pieces
    # A rewind ends it, and the next connection starts it again.
    before = await session.head()
    await session.files.write("a", "x")
    await session.rewind(before)
    assert not (await session.services())[0]["running"]
    async with session.forward(port) as address:
        assert await echoed(address, b"again") == b"again"


async def test_forward_of_a_container_ends_with_its_context(session: Session) -> None:
    if session.backend == "host":
        pytest.skip("the address is the port itself")
    await start_echo(session, 8000)
    local_port = free_port()
    async with session.forward(8000, local_port=local_port) as address:
        assert address == f"127.0.0.1:{local_port}"
        with pytest.raises(OSError, match="in use"):
            async with session.forward(8000, local_port=local_port):
                pass
        await session.stop_service("echo")
        assert await echoed(address, b"lost") == b""
        await start_echo(session, 8000)
        assert await echoed(address, b"again") == b"again"
        reader, writer = await asyncio.open_connection("127.0.0.1", local_port)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", local_port)
    with pytest.raises(foldspace.RefusedError, match="nothing listens at port 8001"):
        async with session.forward(8001):
            pass


async def test_fork_of_a_container_has_its_services(session: Session) -> None:
    if session.backend == "host":
        pytest.skip("the port is the parent's")
    await start_echo(session, 8000)
    (fork,) = await session.fork()
    async with fork.forward(8000) as address:
        await session.stop_service("echo")
        assert await echoed(address, b"of the fork") == b"of the fork"
    await fork.stop_service("echo")


async def test_forward_of_a_session_without_commands_is_refused(client: Client) -> None:
    session = await client.create(backend="memory")
    with pytest.raises(foldspace.RefusedError, match="runs no commands"):
        async with session.forward(8000):
            pass


def test_sync_forward_works_outside_of_the_loop(sync_session: foldspace.sync.Session) -> None:
    port = free_port()
    sync_session.files.write("index.html", "a page")
    serve = ["python3", "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    sync_session.start_service("web", serve, port=port)
    with sync_session.forward(port) as address:
        assert urllib.request.urlopen(f"http://{address}/").read() == b"a page"
    sync_session.stop_service("web")
    assert sync_session.services() == []
