"""A sandbox for Inspect: ``Task(sandbox="foldspace")``, registered by the package's entry point."""

# pyright: basic
from __future__ import annotations

from typing import Any, Literal, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel

import foldspace
from foldspace import FoldspaceError, ForbiddenError, InfrastructureError, NotFoundError
from foldspace.errors import IsDirectoryError


class FoldspaceSandboxConfig(BaseModel, frozen=True):
    """The configuration: ``sandbox=SandboxEnvironmentSpec("foldspace", FoldspaceSandboxConfig(image="..."))``."""

    backend: str = "container"
    """The backend: ``container`` is the engine that works."""
    image: str | None = None
    """The container's image."""
    data: str | None = None
    """The data directory; by default ``FOLDSPACE_DATA``, else the command line's."""
    auto_confirm: bool | None = None
    """Allows all commands without a question; by default only in containers."""
    remove: bool = False
    """Removes the session of a sample at its end. By default it stays."""


@sandboxenv(name="foldspace")
class FoldspaceSandboxEnvironment(SandboxEnvironment):
    """A session for each sample, with a record of its tools' work."""

    def __init__(self, client: foldspace.Client, session: foldspace.Session, remove: bool) -> None:
        super().__init__()
        self.session = session
        """The session of the sample."""
        self._client = client
        self._remove = remove

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        """Starts a session."""
        chosen = config if isinstance(config, FoldspaceSandboxConfig) else FoldspaceSandboxConfig()
        auto_confirm = chosen.backend != "host" if chosen.auto_confirm is None else chosen.auto_confirm
        client = foldspace.Client(chosen.data, progress=False)
        session = await client.create(
            backend=chosen.backend, image=chosen.image, auto_confirm=auto_confirm, agent="inspect"
        )
        await session.annotate("inspect", value={"task": task_name, "metadata": metadata})
        return {"default": cls(client, session, chosen.remove)}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        """Closes the connections; the sessions stay."""
        for each in environments.values():
            if isinstance(each, cls):
                if each._remove:
                    await each.session.remove()
                await each._client.close()

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Returns a configuration from a log."""
        return FoldspaceSandboxConfig(**config)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Runs a command."""
        if user is not None and user not in await self._own_names():
            raise SandboxUserUnsupportedError(f"foldspace runs commands only as its own user, not as {user!r}")
        place, command = await self.session.absolute.command_in(cwd or "", cmd)
        try:
            ran = await self.session.run(command, cwd=place, env=env, stdin=input or b"", timeout=timeout)
        except InfrastructureError as error:
            raise SandboxUnavailableError(str(error)) from error
        if ran.timed_out:
            raise TimeoutError(f"the command timed out after {timeout} seconds")
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        for output in (ran.stdout_bytes, ran.stderr_bytes):
            if len(output) > limit:
                raise OutputLimitExceededError(f"{limit} bytes", output[-limit:].decode(errors="replace"))
        if ran.exit_code == 126 and "ermission denied" in ran.stderr:
            raise PermissionError(ran.stderr.strip())
        return ExecResult(ran.ok, ran.exit_code, ran.stdout, ran.stderr)

    async def _own_names(self) -> list[str]:
        return (await self.session.run("id -un; id -u", check=True)).stdout.split()

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Writes a file."""
        data = contents.encode() if isinstance(contents, str) else contents
        try:
            await self.session.absolute.write(file, data)
        except FoldspaceError as error:
            raise _os_error(file, error) from error

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Reads a file."""
        try:
            data = await self.session.absolute.read(file)
        except FoldspaceError as error:
            raise _os_error(file, error) from error
        if len(data) > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return data.decode() if text else data


def _os_error(file: str, error: FoldspaceError) -> Exception:
    if isinstance(error, NotFoundError):
        return FileNotFoundError(f"{file}: no such file")
    if isinstance(error, IsDirectoryError):
        return IsADirectoryError(f"{file}: is a directory")
    if isinstance(error, ForbiddenError):
        return PermissionError(f"{file}: permission denied")
    return error
