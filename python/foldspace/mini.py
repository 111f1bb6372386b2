"""An environment of mini-swe-agent: ``environment_class: foldspace.mini.FoldspaceEnvironment``."""

# pyright: basic
from __future__ import annotations

import platform
from typing import Any

from minisweagent.exceptions import Submitted
from minisweagent.utils.serialize import recursive_merge
from pydantic import BaseModel

import foldspace.sync
from foldspace import FoldspaceError

_MARK = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class FoldspaceEnvironmentConfig(BaseModel):
    """The configuration."""

    backend: str = "container"
    """The backend: ``container`` is the engine that works."""
    image: str | None = None
    """The container's image."""
    name: str | None = None
    """The session's name; an existing session is continued."""
    mount: str | None = None
    """A directory of this machine to copy into the workspace."""
    directory: str | None = None
    """A directory of this machine to work in."""
    options: dict[str, Any] = {}
    """Other options of the backend."""
    data: str | None = None
    """The data directory; by default ``FOLDSPACE_DATA``, else the command line's."""
    cwd: str = ""
    """The directory of commands, relative to the workspace."""
    env: dict[str, str] = {}
    """Variables of all commands."""
    timeout: int = 30
    """The time limit of a command in seconds."""
    auto_confirm: bool | None = None
    """Allows all commands without a question; by default only in containers."""
    allow: list[str] = []
    """Programs, or programs with their first words, that may run without a question."""


class FoldspaceEnvironment:
    """Runs an agent's commands in a session, so that its run can be inspected, rewound, forked and bisected."""

    def __init__(self, *, config_class: type = FoldspaceEnvironmentConfig, **given: Any) -> None:
        self.config = config_class(**given)
        """The configuration."""
        self._client = foldspace.sync.Client(self.config.data)
        self.session = self._session()
        """The session."""

    def _session(self) -> foldspace.sync.Session:
        config = self.config
        auto_confirm = config.backend != "host" if config.auto_confirm is None else config.auto_confirm
        rules: dict[str, Any] = {"auto_confirm": auto_confirm, "allow": config.allow, "agent": "mini-swe-agent"}
        if config.name:
            try:
                return self._client.open(config.name, **rules)
            except foldspace.NotFoundError:
                pass
        place: dict[str, Any] = {"backend": config.backend, "image": config.image, "options": config.options}
        return self._client.create(config.name, mount=config.mount, directory=config.directory, **place, **rules)

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Runs a command."""
        limit = timeout or self.config.timeout
        try:
            ran = self.session.run(
                action.get("command", ""),
                cwd=cwd or self.config.cwd,
                env=self.config.env,
                timeout=limit,
                merge_output=True,
            )
        except FoldspaceError as error:
            return _failure("", error)
        if ran.timed_out:
            return _failure(ran.stdout, TimeoutError(f"the command timed out after {limit} seconds"))
        self._check_finished(ran.stdout, ran.exit_code)
        return {"output": ran.stdout, "returncode": ran.exit_code, "exception_info": ""}

    def _check_finished(self, output: str, exit_code: int) -> None:
        lines = output.lstrip().splitlines(keepends=True)
        if lines and lines[0].strip() == _MARK and exit_code == 0:
            submission = "".join(lines[1:])
            extra = {"exit_status": "Submitted", "submission": submission}
            raise Submitted({"role": "exit", "content": submission, "extra": extra})

    def get_template_vars(self, **given: Any) -> dict[str, Any]:
        """Returns the variables of templates."""
        return recursive_merge(self.config.model_dump(), platform.uname()._asdict(), given)

    def serialize(self) -> dict[str, Any]:
        """Returns the configuration and the session, for the trajectory."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        config = {"environment": self.config.model_dump(mode="json"), "environment_type": kind}
        return {"info": {"config": config, "foldspace": {"session": self.session.id, "position": self.session.head()}}}

    def cleanup(self) -> None:
        """Closes the connection. The session stays."""
        self._client.close()


def _failure(output: str, error: Exception) -> dict[str, Any]:
    extra = {"exception_type": type(error).__name__, "exception": str(error)}
    said = f"An error occurred while executing the command: {error}"
    return {"output": output, "returncode": -1, "exception_info": said, "extra": extra}
