"""The best of several forks."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from foldspace import _models
from foldspace._session import Session
from foldspace.errors import ConflictError, FoldspaceError, NotFoundError, RefusedError, UnusableError


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A fork of ``fork_and_select``."""

    session: Session
    """The fork."""
    score: float | None
    """Its score; ``None`` if it failed."""
    result: Any
    """The return value of ``run``."""
    error: Exception | None
    """The exception of ``run`` or ``score``; ``None`` if it has a score."""


@dataclasses.dataclass(frozen=True)
class Selection:
    """The outcome of ``fork_and_select``."""

    best: Candidate
    """The candidate with the highest score."""
    candidates: Sequence[Candidate]
    """All candidates in the order of their forks. The sessions of the others were removed, unless ``keep`` is set."""
    merged: _models.Merge | None
    """The merge of the best; ``None`` without ``merge``. Conflicts leave the session unchanged."""


async def fork_and_select(
    session: Session,
    count: int,
    run: Callable[[Session], Awaitable[Any]],
    score: Callable[[Session], Awaitable[float]],
    *,
    parallel: int = 4,
    merge: bool = True,
    keep: bool = False,
    name: str = "score",
) -> Selection:
    """Forks a session, works in each fork, and merges the fork with the highest score.

        async def attempt(fork):
            await fork.run(f"seq {len(fork.name)} > list.txt", check=True)

        async def lines(fork):
            return (await fork.files.read("list.txt")).count(b"\\n")

        selection = await foldspace.fork_and_select(session, 4, attempt, lines)
        assert await session.files.read("list.txt") == await selection.best.session.files.read("list.txt")

    - ``count``: the number of forks, from 1 to 1,000; ``parallel`` of them work at the same time.
    - ``run``: works in a fork. An exception makes it a failed candidate.
    - ``score``: returns a fork's score; the first of equal scores wins.
    - ``merge``: false to only return the best.
    - ``keep``: true to keep the other forks.
    - ``name``: the name of the annotations with the scores, which the session and the forks get.

    Raises ``FoldspaceError``, with the first failure as its cause, if all candidates fail. Cancelling the task before
    the merge removes all forks, unless ``keep`` is set.
    """
    if parallel < 1:
        raise UnusableError(f"parallel is {parallel}; the minimum is 1")
    forks, slots = await session.fork(count=count), asyncio.Semaphore(parallel)
    best: Candidate | None = None

    async def attempt(fork: Session) -> Candidate:
        async with slots:
            try:
                result = await run(fork)
                points = float(await score(fork))
                await fork.annotate(name, score=points)
                return Candidate(fork, points, result, None)
            except Exception as error:
                return Candidate(fork, None, None, error)

    tasks = [asyncio.ensure_future(attempt(fork)) for fork in forks]
    try:
        candidates = await asyncio.gather(*tasks)
        for each in candidates:
            note = each.session.name if each.error is None else f"{each.session.name}: {each.error}"
            await session.annotate(name, score=each.score, note=note, value={"fork": each.session.id})
            if each.score is not None and (best is None or best.score is None or each.score > best.score):
                best = each
        if best is None:
            raise FoldspaceError(f"all {count} forks failed: {candidates[0].error}") from candidates[0].error
        return Selection(best, candidates, await session.merge(best.session) if merge else None)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for fork in forks:
            if not keep and (best is None or fork is not best.session):
                await _remove(fork)


async def _remove(fork: Session) -> None:
    """Removes a fork: kills its processes, cancels its calls, and waits until they have ended."""
    until = asyncio.get_running_loop().time() + 10
    with contextlib.suppress(NotFoundError):
        for process in await fork.processes():
            # It may have ended.
            with contextlib.suppress(ConflictError, RefusedError):
                await process.kill()
        while True:
            try:
                return await fork.remove()
            except RefusedError:
                if asyncio.get_running_loop().time() > until:
                    raise
                for call in await fork.calls():
                    if call["status"] == "running":
                        with contextlib.suppress(ConflictError, NotFoundError):
                            await fork.cancel(call["call"])
                await asyncio.sleep(0.05)
