"""An environment for Harbor: ``harbor run --env foldspace.harbor:FoldspaceEnvironment``."""

# pyright: basic
from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import shlex
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any, cast

from harbor.constants import MAIN_SERVICE_NAME
from harbor.environments.base import BaseEnvironment, ExecResult, ServiceOperationsUnsupportedError
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.compose_service_ops import ComposeServiceOpsMixin, ComposeServiceTransport
from harbor.environments.definition import (
    DOCKERFILE_NAME,
    require_agent_environment_definition,
    should_use_prebuilt_docker_image,
)
from harbor.environments.docker.compose_env import legacy_log_mount_env_vars
from harbor.environments.tar_transfer import extract_dir
from harbor.models.trial.config import ResourceMode

import foldspace
from foldspace import RefusedError, UnusableError
from foldspace._compose import Podman, Services, build_options, of_root
from foldspace._thread import ThreadLog
from foldspace.types import ContainerOptions

_ROOT = "/workspace"
_REPOSITORY = "localhost/foldspace-harbor"
# Longer commands are passed on standard input, since a call's command is limited.
_CHARS = 3500
_AS_USER = """group=$(id -g -- {user}) || exit 126
home=$(getent passwd {user} | cut -d: -f6)
HOME=${{home:-/}} exec setpriv --reuid {user} --regid "$group" --init-groups -- bash -c {command}"""
# The exports, tmux and its socket in a command that may start tmux's server.
_TMUX = re.compile(r"((?:export [^;&|]*&& *)*tmux(?: +-[LSf] *\S+)*) +new(?:-session)?\b")
# Starts a server unless one is kept already, and stays until it ends.
_KEPT = "{0} show-options -s exit-empty 2> /dev/null | grep -q off && exit; "
_KEEP = r"{0} start-server \; set-option -s exit-empty off \; show-options -s exit-empty \; wait-for foldspace"
_BUILDING = asyncio.Lock()


class FoldspaceEnvironment(ComposeServiceOpsMixin, BaseEnvironment):
    """A session for each environment of a trial, in a Podman container with a writable root.

    The task's working directory is the workspace: changes there are recorded. Changes elsewhere, such as in ``/logs``,
    are removed with the container. Steps of the agent's trajectory are recorded, too, and servers of ``tmux`` outlive
    the commands that start them. ``--ek data=DIR`` sets the data directory, ``--ek remove=true`` removes the session
    at the end, and ``options`` are options of the container.
    """

    def __init__(
        self,
        *args: Any,
        data: str | None = None,
        remove: bool = False,
        options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._data = data
        self._remove = remove
        self._options = dict(options or {})
        self._client: foldspace.Client | None = None
        self._session: foldspace.Session | None = None
        self._holders: list[foldspace.Process] = []
        self._workdir = "/"
        self._image_user = ""
        self._env_files: dict[str, str] = {}
        # The agent's trajectory as it was recorded last, and its time.
        self._steps: list[Any] = []
        self._written = 0
        super().__init__(*args, **kwargs)
        if self._host_mounts:
            raise ValueError("foldspace can't mount directories of this machine in a trial; leave out --mounts")
        if self.extra_docker_compose_paths:
            raise ValueError("foldspace reads the task's own docker-compose.yaml; leave out --extra-docker-compose")
        names = ("PODMAN_BASE_URL", "PODMAN_URL", "CONTAINER_HOST")
        url = self._options.get("connection") or next(filter(None, map(os.environ.get, names)), None)
        self._podman = Podman(url)
        self._services = Services(self.environment_dir, self._compose_variables(), self._podman)
        self._persistent_env = self._services.environment | self._persistent_env

    @staticmethod
    def type() -> str:
        """Returns the name of this kind of environment."""
        return "foldspace"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """The capabilities of the environment."""
        return EnvironmentCapabilities(disable_internet=True, docker_compose=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """Returns the resources that it can limit."""
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    @classmethod
    def preflight(cls, kwargs: dict[str, Any] | None = None) -> None:
        """Ends the program if Podman is missing."""
        # Harbor 0.25 passes no options. Without an options_model the base class of later releases checks none.
        del kwargs
        if not shutil.which("podman"):
            raise SystemExit("foldspace.harbor needs the program podman to build and inspect images: install it")

    def _validate_definition(self) -> None:
        require_agent_environment_definition(self.environment_dir, docker_image=self.task_env_config.docker_image)

    @property
    def session(self) -> foldspace.Session:
        """The session, once the environment has started."""
        if self._session is None:
            raise RuntimeError("the environment has not started")
        return self._session

    async def start(self, force_build: bool) -> None:
        """Starts a session with the contents of the image's working directory."""
        image, main = await self._image(force_build), self._services.main
        others = {name: await self._image_of(name, each, force_build) for name, each in self._services.others.items()}
        config = json.loads(await self._podman("image", "inspect", image))[0]["Config"]
        workdir = self.task_env_config.workdir or main.get("working_dir") or config.get("WorkingDir")
        self._workdir = os.path.normpath(workdir or "/")
        self._image_user = str(main.get("user") or config.get("User", "")).partition(":")[0]
        self._client = foldspace.Client(self._data, progress=False)
        try:
            await self._begin(image, others)
        except BaseException:
            try:
                await self.stop(True)
            except Exception as error:
                self.logger.warning(f"failed to end what had started: {error}")
            raise

    async def _begin(self, image: str, others: dict[str, str]) -> None:
        assert self._client is not None
        memory = self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT)
        limits = {
            "memory_bytes": memory << 20 if memory else None,
            "cpus": self._resource_limit_value("cpu", auto_mode=ResourceMode.LIMIT),
            "also_at": self._workdir if self._workdir not in ("/", _ROOT) else None,
        }
        chosen = {"writable_root": True, "network": self._network_is_public, "idle_seconds": 1}
        chosen |= {name: value for name, value in limits.items() if value is not None}
        self._session = await self._client.create(
            self.session_id,
            backend="podman",
            image=image,
            options=cast(ContainerOptions, chosen | self._options),
            auto_confirm=True,
            agent="harbor",
        )
        # Keeps the container running, since it stops without a command.
        self._holders = [await self._session.start(["tail", "-f", "/dev/null"])]
        if contents := await self._contents(image) if self._workdir != "/" else b"":
            await self._unpack(contents, self._workdir)
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()
        if others:
            await self._services.start(self._session, others)
            self._persistent_env = self._services.environment | self._persistent_env
        about = {"task": self.environment_name, "trial": str(self.context_id), "image": image, "workdir": self._workdir}
        await self._session.annotate("harbor", value=about)
        await self._session.tag("start")
        role = self.session_id.rsplit("__", 1)[-1]
        note = {"session": self._session.id, "name": self._session.name, "data": str(self._client.data)}
        (self.trial_paths.trial_dir / f"foldspace-{role}.json").write_text(json.dumps(note, indent=2) + "\n")

    async def _image(self, force_build: bool) -> str:
        given = self.task_env_config.docker_image
        if given and should_use_prebuilt_docker_image(
            self.environment_dir, docker_image=given, force_build=force_build
        ):
            if not await self._has(given):
                await self._podman("pull", given)
            return given
        return await self._image_of(MAIN_SERVICE_NAME, self._services.main, force_build)

    async def _image_of(self, name: str, service: dict[str, Any], force_build: bool) -> str:
        """Builds or pulls a service's image. The service ``main`` has the task's Dockerfile."""
        has_file = name == MAIN_SERVICE_NAME and (self.environment_dir / DOCKERFILE_NAME).exists()
        build: dict[str, Any] | None = service.get("build") or ({} if has_file else None)
        if build is None:
            if "image" not in service:
                raise ValueError(f"service {name} has no image")
            if not await self._has(service["image"]):
                await self._podman("pull", service["image"])
            return service["image"]
        image = self._main_image if name == MAIN_SERVICE_NAME else f"{self._main_image}-{name}"
        async with _BUILDING:
            # Arguments of a build are not part of the name.
            if force_build or "args" in build or not await self._has(image):
                options = build_options(build, self.environment_dir, self._compose_variables())
                await self._podman("build", "--tag", image, *options)
        return image

    @property
    def _main_image(self) -> str:
        return f"{_REPOSITORY}:{self.environment_id[:12]}"

    def _compose_variables(self) -> dict[str, str]:
        """Returns the variables that Harbor has for the task's docker-compose.yaml."""
        memory, cpus = self._effective_memory_mb, self._effective_cpus
        own = {"MAIN_IMAGE_NAME": self._main_image, "CONTEXT_DIR": str(self.environment_dir.resolve())}
        own |= {"CPUS": str(cpus)} if cpus else {}
        own |= {"MEMORY": f"{memory}M"} if memory else {}
        logs = legacy_log_mount_env_vars(self._mounts, host_value="target")
        return dict(os.environ) | self._persistent_env | own | logs

    async def _has(self, image: str) -> bool:
        try:
            await self._podman("image", "exists", image)
        except RuntimeError:
            return False
        return True

    async def _contents(self, image: str) -> bytes:
        """Returns the image's working directory as a tar archive, with the owners of all entries."""
        script = 'cd "$0" 2> /dev/null || exit 0; tar -cf - .'
        options = ["--rm", "--network", "none", "--user", "0:0", "--entrypoint", "/bin/sh"]
        return await self._podman("run", *options, image, "-c", script, self._workdir)

    async def stop(self, delete: bool) -> None:
        """Ends the container. The session stays, unless ``remove`` is set."""
        session, client = self._session, self._client
        self._session = self._client = None
        if client is None:
            return
        try:
            await self._save_logs()
            try:
                # Podman removes the session's container only after the containers with its network.
                if delete:
                    await self._services.remove()
            finally:
                if session is not None:
                    await self._end(session, delete)
        finally:
            await client.close()

    async def _end(self, session: foldspace.Session, delete: bool) -> None:
        await self._record_steps(session)
        with contextlib.suppress(OSError, ValueError):
            await session.annotate("reward", score=float(self.trial_paths.reward_text_path.read_text()))
        if delete:
            await self._end_holders()
        if delete and self._remove:
            await session.remove()

    async def _end_holders(self) -> None:
        while self._holders:
            holder = self._holders.pop()
            # It has already ended if the container has.
            with contextlib.suppress(RefusedError):
                await holder.kill()
            await holder.wait(10)

    async def _save_logs(self) -> None:
        role = self.session_id.rsplit("__", 1)[-1]
        for name in self._services.started:
            path = self.trial_paths.trial_dir / f"foldspace-{role}-{name}.log"
            path.write_text(await self._services.logs(name))

    def _compose_service_transport(self, service: str | None) -> ComposeServiceTransport:
        if service not in self._services.others:
            raise ServiceOperationsUnsupportedError(f"the task has no service {service!r}")
        return self._services

    async def stop_service(self, service: str) -> None:
        """Stops a service. The service ``main`` stops with the session's container."""
        if not self.is_main_service(service):
            return await super().stop_service(service)
        await self._end_holders()
        await self._services.until_stopped()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Runs a command. A command that is refused or times out has a result, too."""
        await self._record_steps(self.session)
        try:
            if found := _TMUX.search(command):
                await self._keep_tmux(await self._script((_KEPT + _KEEP).format(found[1]), cwd, env, user))
            argv, stdin = _command(await self._script(command, cwd, env, user))
            ran = await self.session.run(argv, stdin=stdin, timeout=timeout_sec)
        except RefusedError as error:
            return ExecResult(stdout="", stderr=str(error), return_code=126)
        await self._services.check()
        note = f"\nthe command timed out after {timeout_sec} seconds\n" if ran.timed_out else ""
        code = 124 if ran.timed_out else ran.exit_code
        if emit := self._output_callback():
            await emit(ran.stdout, "stdout")
            await emit(ran.stderr + note, "stderr")
        return ExecResult(stdout=ran.stdout, stderr=ran.stderr + note, return_code=code)

    async def _record_steps(self, session: foldspace.Session) -> None:
        """Adds the new steps of the agent's trajectory to the thread ``harbor`` of the log."""
        path = self.trial_paths.agent_dir / "trajectory.json"
        # A verifier's environment has the same directories.
        if not self.session_id.endswith("__env") or not path.exists() or path.stat().st_mtime_ns == self._written:
            return
        self._written = path.stat().st_mtime_ns
        try:
            steps = json.loads(path.read_text())["steps"]
            # Each step of a task with several steps has its own trajectory.
            new = steps[len(self._steps) :] if steps[:1] == self._steps[:1] else steps
            self._steps = steps
            await ThreadLog(session).add("harbor", new, lambda *_: False)
        except (ValueError, KeyError, UnusableError) as error:
            self.logger.warning(f"failed to record steps of {path}: {error}")

    async def _script(self, command: str, cwd: str | None, env: dict[str, str] | None, user: str | int | None) -> str:
        # On one line, since the log shows the first line.
        command = f"cd {shlex.quote(cwd or self._workdir)} || exit; {command}"
        who = self._resolve_user(user)
        who = self._image_user or "root" if who is None else str(who)
        if who not in ("root", "0"):
            command = _AS_USER.format(user=shlex.quote(who), command=shlex.quote(command))
        given = self._merge_env(env)
        return f". {await self._env_file(given)}; {command}" if given else command

    async def _keep_tmux(self, script: str) -> None:
        """Starts a process that keeps a tmux server."""
        argv, stdin = _command(script)
        process = await self.session.start(argv, stdin=stdin)
        async with contextlib.aclosing(process.output()) as output:
            # Without tmux, or with a server that is kept already, it ends and prints nothing there.
            async for stream, _ in output:
                if stream == "stdout":
                    self._holders.append(process)
                    break

    async def _env_file(self, env: dict[str, str]) -> str:
        """Returns a file in the container that sets variables. The log has neither their names nor their values."""
        text = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())
        if text not in self._env_files:
            path = f"/tmp/.harbor-env-{len(self._env_files)}"
            # The input of a background process is not recorded.
            script = ["/bin/sh", "-c", 'umask 77 && cat > "$1"', "sh", path]
            process = await self.session.start(script, input=True)
            if not (ran := await process.feed_and_collect(text.encode())).ok:
                raise RuntimeError(f"failed to write the environment to {path}: {ran.stderr.strip()}")
            self._env_files[text] = path
        return self._env_files[text]

    def _absolute(self, path: str) -> str:
        """Returns the session's path of an entry."""
        whole = os.path.normpath(PurePosixPath(self._workdir, path))
        is_within = self._workdir != "/" and (whole + "/").startswith(self._workdir + "/")
        return _ROOT + whole.removeprefix(self._workdir) if is_within else whole

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Writes a file; keeps its name if the target is a directory."""
        source = Path(source_path)
        if target_path.endswith("/") or await self.is_dir(target_path, user="root"):
            target_path = f"{target_path.rstrip('/')}/{source.name}"
        executable = os.access(source, os.X_OK)
        await self.session.absolute.write(self._absolute(target_path), source.read_bytes(), executable=executable)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Unpacks a directory's contents in a directory."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(source_dir, ".", filter=of_root)
        await self._unpack(packed.getvalue(), target_dir)

    async def _unpack(self, archive: bytes, target: str) -> None:
        ran = await self.session.run(["sh", "-c", 'mkdir -p "$1" && tar -xf - -C "$1"', "sh", target], stdin=archive)
        if not ran.ok:
            raise RuntimeError(f"failed to unpack in {target}: {ran.stderr.strip()}")

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Reads a file."""
        data = await self.session.absolute.read(self._absolute(source_path))
        target = Path(target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copies a directory's contents to this machine."""
        ran = await self.session.run(["tar", "-cf", "-", "-C", source_dir, "."])
        if not ran.ok:
            raise RuntimeError(f"failed to pack {source_dir}: {ran.stderr.strip()}")
        for why in extract_dir(io.BytesIO(ran.stdout_bytes), target_dir):
            self.logger.debug(f"left out of {source_dir}: {why}")


def _command(script: str) -> tuple[list[str], str]:
    """Returns a command that runs a script, and its standard input."""
    if len(script) > _CHARS:
        return ["bash", "-c", 'exec bash -c "$(cat)" < /dev/null'], script
    return ["bash", "-c", script], ""
