"""Runs the asyncio client for programs without asyncio: one event loop in a separate thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class Loop:
    """An event loop in a thread, started on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # Threads do not survive a fork of the process.
            if self._loop is None or self._process != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._process = os.getpid()
                threading.Thread(target=self._loop.run_forever, name="foldspace", daemon=True).start()
            return self._loop

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for the work. An interruption, such as Ctrl-C, cancels it, and waits until it has ended."""
        loop, tasks, ended = self._running(), list[asyncio.Task[T]](), threading.Event()

        def start() -> None:
            tasks.append(loop.create_task(work))
            tasks[0].add_done_callback(lambda _: ended.set())

        loop.call_soon_threadsafe(start)
        try:
            ended.wait()
        except BaseException:
            loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            ended.wait()
            raise
        return tasks[0].result()

    async def join(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for the work in another event loop. Cancelling cancels it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._running()))

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yields the items as they come."""

        async def following() -> tuple[bool, Any]:
            try:
                return True, await items.__anext__()
            except StopAsyncIteration:
                return False, None

        async def close() -> None:
            closing: Any = getattr(items, "aclose", None)
            if closing is not None:
                await closing()

        try:
            while True:
                more, item = self.wait(following())
                if not more:
                    return
                yield item
        finally:
            self.wait(close())

    @contextmanager
    def enter(self, context: AbstractAsyncContextManager[T]) -> Generator[T, None, None]:
        """Enters a context, and leaves it."""

        async def leave(error: BaseException | None) -> bool | None:
            return await context.__aexit__(type(error) if error else None, error, error.__traceback__ if error else None)

        async def enter() -> T:
            return await context.__aenter__()

        inside = self.wait(enter())
        try:
            yield inside
        except BaseException as error:
            if not self.wait(leave(error)):
                raise
        else:
            self.wait(leave(None))


LOOP = Loop()
"""The loop of this process."""


async def in_thread(work: Callable[[], T]) -> T:
    """Runs work in a new thread. Cancelling does not end the work."""
    done: Future[T] = Future()
    # Then cancelling leaves it pending.
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            # SystemExit would end the event loop, and a future takes no StopIteration.
            fits = isinstance(error, Exception) and not isinstance(error, StopIteration)
            done.set_exception(error if fits else RuntimeError(repr(error)))

    threading.Thread(target=run, name="foldspace-work", daemon=True).start()
    return await asyncio.wrap_future(done)
