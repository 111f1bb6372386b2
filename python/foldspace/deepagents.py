"""A sandbox for deepagents: ``create_deep_agent(backend=FoldspaceSandbox(session))``."""

# pyright: basic
from __future__ import annotations

from deepagents.backends.protocol import (
    FILE_NOT_FOUND,
    INVALID_PATH,
    IS_DIRECTORY,
    PERMISSION_DENIED,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox

import foldspace.sync
from foldspace import FoldspaceError, ForbiddenError, NotFoundError
from foldspace.errors import IsDirectoryError, RefusedError

_OUTPUT = 1 << 20
_TIMEOUT = 120


class FoldspaceSandbox(BaseSandbox):
    """A session as a sandbox: the agent's commands and file operations are calls in its log.

    The image needs ``python3`` for the tools ``edit_file``, ``glob`` and the like, as with any sandbox of deepagents.
    """

    def __init__(
        self,
        session: foldspace.sync.Session,
        *,
        timeout: int = _TIMEOUT,
        max_output_bytes: int = _OUTPUT,
    ) -> None:
        self.session = session
        """The session."""
        self._timeout = timeout
        self._max_output_bytes = max_output_bytes

    @property
    def id(self) -> str:
        """The session's id."""
        return self.session.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a command; a timeout of 0 means no limit."""
        limit = self._timeout if timeout is None else timeout
        try:
            ran = self.session.run(command, timeout=limit or None, merge_output=True)
        except RefusedError as error:
            # The model may choose another command.
            return ExecuteResponse(output=str(error), exit_code=126)
        output = ran.stdout
        if ran.timed_out:
            output += f"\n[the command timed out after {limit} seconds]"
        truncated = len(ran.stdout_bytes) > self._max_output_bytes
        if truncated:
            output = ran.stdout_bytes[: self._max_output_bytes].decode(errors="replace")
        return ExecuteResponse(output=output, exit_code=ran.exit_code, truncated=truncated or ran.truncated)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files."""
        answers: list[FileUploadResponse] = []
        for path, contents in files:
            try:
                if not path.startswith("/"):
                    raise ValueError(path)
                self.session.absolute.write(path, contents)
                answers.append(FileUploadResponse(path=path))
            except (FoldspaceError, ValueError) as error:
                answers.append(FileUploadResponse(path=path, error=_word(error)))
        return answers

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files."""
        answers: list[FileDownloadResponse] = []
        for path in paths:
            try:
                if not path.startswith("/"):
                    raise ValueError(path)
                answers.append(FileDownloadResponse(path=path, content=self.session.absolute.read(path)))
            except (FoldspaceError, ValueError) as error:
                answers.append(FileDownloadResponse(path=path, error=_word(error)))
        return answers


def _word(error: Exception) -> str:
    words = {NotFoundError: FILE_NOT_FOUND, ForbiddenError: PERMISSION_DENIED, IsDirectoryError: IS_DIRECTORY}
    for kind, word in words.items():
        if isinstance(error, kind):
            return word
    return INVALID_PATH if isinstance(error, ValueError) else str(error)
