"""A client that is closed while others wait for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import foldspace
import pytest
from conftest import until
from foldspace import Client


async def test_closed_client_ends_its_followers(data: Path) -> None:
    client = Client(data)
    session = await client.create("demo", backend="host", auto_confirm=True)
    seen: list[int] = []

    async def follow() -> None:
        async for event in session.events():
            seen.append(event["seq"])

    process = await session.start("sleep 600")
    waiting = [follow(), process.wait(), session.run("sleep 600")]
    followers = [asyncio.create_task(each) for each in waiting]

    async def told() -> bool:
        return len((await client.server())["calls"]) == 2 and len(seen) > 2

    await until(told)
    await client.close()
    ended = await asyncio.wait_for(asyncio.gather(*followers, return_exceptions=True), 10)
    assert [type(error) for error in ended] == [foldspace.ClientClosedError] * 3, ended
    # Who asks anew is connected anew.
    again = await client.open("demo")
    assert again.id == session.id
    await (await again.process(process.number)).kill()
    await client.close()


async def test_closed_client_does_not_reconnect(data: Path) -> None:
    client = Client(data)
    session = await client.create("demo")
    events = session.events()
    assert (await events.__anext__())["kind"] == "SessionStarted"
    # Nobody reads while it is closed.
    await client.close()
    with pytest.raises(foldspace.ClientClosedError):
        await asyncio.wait_for(events.__anext__(), 10)
