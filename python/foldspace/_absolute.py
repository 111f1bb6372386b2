"""Files of a session by the absolute paths that its commands use."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import TYPE_CHECKING

from foldspace.errors import FoldspaceError, ForbiddenError, IsDirectoryError, NotFoundError, UnusableError

if TYPE_CHECKING:
    from foldspace._session import Session


class AbsoluteFiles:
    """Files by the absolute paths that commands of a session use. Files outside of the workspace, such as in /tmp, are
    read and written by commands."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._root: str | None = None

    async def root(self) -> str:
        """Returns the absolute path of the workspace."""
        if self._root is None:
            # A session may have another default directory.
            ran = await self._session.run(["pwd", "-P"], cwd="/", check=True)
            self._root = ran.stdout.removesuffix("\n")
        return self._root

    async def inside(self, path: str) -> str | None:
        """Returns the path in the workspace: empty for its root, ``None`` for a path outside."""
        if not path.startswith("/"):
            return posixpath.normpath(path) if path not in ("", ".") else ""
        path, root = posixpath.normpath(path), await self.root()
        if path == root:
            return ""
        return path[len(root) + 1 :] if path.startswith(root.rstrip("/") + "/") else None

    async def resolved(self, path: str) -> str:
        """Returns the path without symbolic links."""
        ran = await self._session.run(["realpath", "-m", "--", path], check=True)
        return ran.stdout.removesuffix("\n")

    async def command_in(self, directory: str, command: Sequence[str]) -> tuple[str, list[str]]:
        """Returns the directory and the command for ``run``, to run a command in any directory."""
        inside = await self.inside(directory)
        if inside is not None:
            return inside, list(command)
        return "", ["/bin/sh", "-c", 'cd -- "$1" && shift && exec "$@"', "sh", directory, *command]

    async def read(self, path: str) -> bytes:
        """Returns the contents of a file. Follows links."""
        inside = await self.inside(path)
        if inside:
            try:
                if (await self._session.files.stat(inside))["node"] == "file":
                    return await self._session.files.read(inside)
            except NotFoundError:
                # The file may be behind a link.
                pass
        ran = await self._session.run(["cat", "--", path])
        if not ran.ok:
            raise _file_error(path, ran.stderr)
        return ran.stdout_bytes

    async def write(self, path: str, data: bytes, *, executable: bool | None = None) -> None:
        """Writes a file, and creates its missing parent directories. Follows links."""
        inside = await self.inside(path)
        if inside:
            try:
                node = (await self._session.files.stat(inside))["node"]
            except NotFoundError:
                # A parent directory may be a link.
                inside = await self.inside(await self.resolved(path))
                node = "file"
            if inside and node == "file":
                await self._session.files.write(inside, data, executable=executable)
                return
        ran = await self._session.run(["sh", "-c", _WRITE, "sh", path], stdin=data)
        if not ran.ok:
            raise _file_error(path, ran.stderr)
        if executable:
            await self._session.run(["chmod", "+x", "--", path], check=True)


_WRITE = 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1"'


def _file_error(path: str, said: str) -> FoldspaceError:
    kinds = {
        "No such file": NotFoundError,
        "Is a directory": IsDirectoryError,
        "Directory nonexistent": NotFoundError,
        "Permission denied": ForbiddenError,
        "Not a directory": UnusableError,
    }
    for words, kind in kinds.items():
        if words in said:
            return kind(f"{path}: {words}")
    return FoldspaceError(said.strip() or f"{path} can't be used")
