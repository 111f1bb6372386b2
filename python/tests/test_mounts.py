"""Mounts of a session's files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import foldspace
import foldspace.sync
import pytest
from conftest import until
from foldspace import Session

pytestmark = pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="no /dev/fuse")


async def gone(session: Session, directory: Path) -> None:
    """Waits until the process that served a mount has ended."""

    async def is_gone() -> bool:
        return not directory.exists() and await session.mounts() == []

    await until(is_gone)


async def test_mount_at_position_has_old_files(session: Session) -> None:
    first = await session.run("echo one > a", check=True)
    await session.run("echo two > a; echo x > b", check=True)
    async with session.mounted(at=first.finished) as directory:
        assert subprocess.run(["cat", "a"], cwd=directory, capture_output=True).stdout == b"one\n"
        assert [entry.name for entry in directory.iterdir()] == ["a"]
        with pytest.raises(OSError, match="Read-only"):
            (directory / "a").write_text("mine")
        (listed,) = await session.mounts()
        assert (Path(listed["directory"]), listed["session"], listed["at"]) == (directory, session.id, first.finished)
    await gone(session, directory)
    with pytest.raises(foldspace.NotFoundError, match="no position 999"):
        async with session.mounted(at=999):
            pass


async def test_mount_of_present_follows_session(session: Session) -> None:
    ran = await session.run("echo one > a", check=True)
    async with session.mounted(all=True) as directory:
        await session.run("echo two > a", check=True)

        async def shows() -> bool:
            return (directory / "a").read_text() == "two\n"

        await until(shows)
        assert (directory / f".call/{ran.call}/after/a").read_text() == "one\n"
        # A file that is still open does not prevent the end.
        held = (directory / "a").open()
        held.read(1)
    assert not (directory / "a").exists()
    held.close()
    await gone(session, directory)


async def test_equal_mounts_end_with_the_last_context(session: Session) -> None:
    await session.files.write("a", "one")
    first, second = session.mounted(), session.mounted()
    directory = await first.__aenter__()
    assert await second.__aenter__() == directory
    await first.__aexit__(None, None, None)
    assert (directory / "a").read_text() == "one"
    await second.__aexit__(None, None, None)
    await gone(session, directory)


async def test_mount_of_another_client_stays(session: Session, sync_client: foldspace.sync.Client) -> None:
    await session.files.write("a", "one")
    async with session.mounted() as directory:
        with sync_client.open(session.id).mounted() as same:
            assert same == directory
        assert (directory / "a").read_text() == "one"
        with (directory / "a").open(), pytest.raises(foldspace.RefusedError, match="is in use"):
            await session.unmount(directory)
        await session.unmount(directory)
        assert not (directory / "a").exists()
        with pytest.raises(foldspace.NotFoundError, match="no mount"):
            await session.unmount("/no/such")
    await gone(session, directory)


async def test_mount_ends_with_the_session(session: Session) -> None:
    await session.files.write("a", "one")
    async with session.mounted() as directory:
        await session.remove()

    async def is_gone() -> bool:
        return not directory.exists()

    await until(is_gone)


def test_sync_mount_works_outside_of_the_loop(sync_session: foldspace.sync.Session) -> None:
    sync_session.files.write("a", "one")
    with sync_session.mounted(at=0) as empty, sync_session.mounted() as directory:
        assert (list(empty.iterdir()), (directory / "a").read_text()) == ([], "one")
        assert {each["directory"] for each in sync_session.mounts()} == {str(empty), str(directory)}
        sync_session.unmount(empty)
        assert not empty.is_mount()
    assert not (directory / "a").exists()
