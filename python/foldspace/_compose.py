"""The services of a Harbor task's ``docker-compose.yaml``, in containers that share the session's network."""

# pyright: basic
from __future__ import annotations

import asyncio
import io
import json
import re
import shlex
import tarfile
import time
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from harbor.constants import MAIN_SERVICE_NAME
from harbor.environments.base import ExecResult
from harbor.environments.definition import COMPOSE_FILE_NAME
from harbor.environments.tar_transfer import extract_dir

import foldspace
from foldspace import InfrastructureError

LABEL = "foldspace.harbor"
# Adds a line to the names of main, and prints what the other containers need.
_NAMES = """echo "$1" >> /etc/hosts; cat /etc/hosts; echo; echo =
cat /etc/resolv.conf; echo; echo =; env | grep -i _proxy="""
# Fields with an option of the same effect.
_OPTIONS = {
    "cpus": "--cpus",
    "mem_limit": "--memory",
    "restart": "--restart",
    "shm_size": "--shm-size",
    "user": "--user",
    "working_dir": "--workdir",
}
# Fields that have no effect in a trial, or other checks.
_BOTH = {
    *("build", "command", "container_name", "depends_on", "environment", "expose", "image", "init", "labels"),
    *("networks", "pull_policy", "stdin_open", "stop_grace_period", "tty", "volumes"),
}
_MAIN = {*_BOTH, "user", "working_dir"}
_OTHERS = {*_BOTH, *_OPTIONS, "entrypoint", "healthcheck"}
_BUILD = {"args", "context", "dockerfile", "target"}
_TOP = {"name", "networks", "services", "version", "volumes"}
# Commands that only keep a container.
_KEEPS = re.compile(r"((/bin/)?(ba)?sh -c )?(exec )?(sleep infinity|tail -f /dev/null)")
_VARIABLE = re.compile(r"\$(?:(\$)|([A-Za-z_]\w*)|\{(\w+)(?:(:?[-?])([^{}]*))?\}|\{)")
_DURATION = re.compile(r"([\d.]+)(ms|us|h|m|s)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}


class Podman:
    """The program podman, as a client of an engine if there is a URL."""

    def __init__(self, url: str | None) -> None:
        self._command = ["podman", *(["--url", url] if url else [])]

    async def run(self, *arguments: str, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
        """Returns the exit code, the output and the errors."""
        pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *self._command, *arguments, stdin=none if stdin is None else pipe, stdout=pipe, stderr=pipe
        )
        try:
            output, said = await process.communicate(stdin)
        except BaseException:
            process.kill()
            raise
        return process.returncode or 0, output, said

    async def __call__(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        """Returns the output, or raises."""
        code, output, said = await self.run(*arguments, stdin=stdin)
        if code != 0:
            raise RuntimeError(f"`podman {arguments[0]}` failed: {said.decode(errors='replace')[-2000:].strip()}")
        return output


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    """Returns a part of the file with its variables replaced."""
    if isinstance(value, dict):
        return {name: _filled(each, variables) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, variables) for each in value]
    return _VARIABLE.sub(lambda found: _value(found, variables), value) if isinstance(value, str) else value


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    escaped, plain, braced, operator, rest = found.groups()
    if escaped:
        return "$"
    if not (name := plain or braced):
        raise ValueError(f"{COMPOSE_FILE_NAME}: foldspace can't replace the variables of {found.string!r}")
    value = variables.get(name)
    missing = value is None or (not value and (operator or "").startswith(":"))
    if missing and (operator or "").endswith("?"):
        raise ValueError(f"{COMPOSE_FILE_NAME}: variable {name} has no value: {rest}")
    return (rest or "") if missing or value is None else value


def pairs(given: Any, variables: Mapping[str, str]) -> dict[str, str]:
    """Returns variables that are a list of ``NAME=VALUE`` or a mapping. Names without a value are looked up."""
    if isinstance(given, list):
        given = {name: value if equals else None for name, equals, value in (each.partition("=") for each in given)}
    looked_up = {name: variables.get(name) if value is None else str(value) for name, value in (given or {}).items()}
    return {name: value for name, value in looked_up.items() if value is not None}


def _words(given: Any) -> list[str]:
    return shlex.split(given) if isinstance(given, str) else [str(each) for each in given or []]


def _volume(given: Any) -> tuple[str, str]:
    """Returns the source of a volume, empty for an anonymous one, and its target."""
    if isinstance(given, dict):
        return (given.get("source", ""), given["target"]) if given.get("type") in ("bind", "volume") else ("?", "")
    source, colon, rest = given.partition(":")
    return (source, rest.partition(":")[0]) if colon else ("", source)


def _is_path(source: str) -> bool:
    return source[:1] in (".", "/", "~")


def _seconds(given: Any, default: float) -> float:
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(str(given))) or default


def of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def build_options(build: dict[str, Any], directory: Path, variables: Mapping[str, str]) -> list[str]:
    """Returns the arguments of ``podman build``."""
    context = directory / build.get("context", ".")
    options = ["--file", str(context / build.get("dockerfile", "Dockerfile"))]
    options += ["--target", build["target"]] if "target" in build else []
    for name, value in pairs(build.get("args"), variables).items():
        options += ["--build-arg", f"{name}={value}"]
    # Images of OCI's format have no health checks.
    return [*options, "--format", "docker", str(context)]


class Services:
    """The services of a file, which may be missing: ``main`` is the session's container, the others get more."""

    def __init__(self, directory: Path, variables: Mapping[str, str], podman: Podman) -> None:
        self._directory, self._variables, self._podman = directory.resolve(), variables, podman
        file = directory / COMPOSE_FILE_NAME
        document = _filled(yaml.safe_load(file.read_text()), variables) if file.exists() else {}
        self.others: dict[str, dict[str, Any]] = {}
        for name, given in (document.get("services") or {}).items():
            service = {field: value for field, value in (given or {}).items() if value is not None}
            if isinstance(build := service.get("build"), str):
                service["build"] = {"context": build}
            self.others[name] = service
        self.main = self.others.pop(MAIN_SERVICE_NAME, {})
        if refused := sorted(set(self._refused(document))):
            raise ValueError(f"{COMPOSE_FILE_NAME}: foldspace can't honor {', '.join(refused)}")
        self.environment = pairs(self.main.get("environment"), variables)
        self._session: foldspace.Session | None = None
        self._id = ""
        # Starts of the session's container, and the services that have a container.
        self._starts = 0
        self.started: list[str] = []

    def _refused(self, document: dict[str, Any]) -> Iterator[str]:
        yield from (name for name in document if name not in _TOP and not name.startswith("x-"))
        for kind, plain in (("networks", ({}, {"driver": "bridge"})), ("volumes", ({},))):
            given = (document.get(kind) or {}).items()
            yield from (f"{kind}.{name}" for name, options in given if (options or {}) not in plain)
        if not _KEEPS.fullmatch(" ".join(_words(self.main.get("command"))) or "sleep infinity"):
            yield "main.command"
        # Harbor's own templates used to mount the directories of logs.
        if not all(_volume(each)[1].startswith("/logs/") for each in self.main.get("volumes", [])):
            yield "main.volumes"
        networks = set[str]()
        for name, service in {MAIN_SERVICE_NAME: self.main, **self.others}.items():
            fields = _MAIN if service is self.main else _OTHERS
            yield from (f"{name}.{field}" for field in service if field not in fields and not field.startswith("x-"))
            own = service.get("networks") or ["default"]
            networks |= set(own)
            if isinstance(own, dict) and any(own.values()) or len(networks) > 1:
                yield f"{name}.networks"
            if not self._conditions(service).keys() <= {MAIN_SERVICE_NAME, *self.others}:
                yield f"{name}.depends_on"
            build = service.get("build", {})
            yield from (f"{name}.build.{field}" for field in build if field not in _BUILD)
            if not self._is_within(build.get("context", ".")):
                yield f"{name}.build.context"
        for name, service in self.others.items():
            if "image" not in service and "build" not in service:
                yield f"{name} without an image"
            for source, target in map(_volume, service.get("volumes", [])):
                if not target or (_is_path(source) and not self._is_within(source)):
                    yield f"{name}.volumes"

    def _is_within(self, path: str) -> bool:
        whole = (self._directory / path).resolve()
        return whole.is_relative_to(self._directory) and whole.exists()

    def _conditions(self, service: dict[str, Any]) -> dict[str, str]:
        given = service.get("depends_on", [])
        return {n: (given[n] or {}).get("condition", "") if isinstance(given, dict) else "" for n in given}

    async def start(self, session: foldspace.Session, images: dict[str, str]) -> None:
        """Starts containers for the other services, each when its dependencies are ready."""
        self._session, self._id = session, session.id
        state = await session.state("PodmanWorkspace")
        self._starts = state["started"]
        main = f"container:{state['container']['id']}"
        # Without root all containers have the same users already.
        shared = ["--network", main, *([] if state["container"]["rootless"] else ["--userns", main])]
        names = [*self.others, *(each["container_name"] for each in self.others.values() if "container_name" in each)]
        line = f"127.0.0.1 localhost main {' '.join(names)}"
        ran = await session.run(["sh", "-c", _NAMES, "sh", line])
        hosts, resolv, variables = ran.stdout.split("\n=\n")
        proxy = pairs(variables.splitlines(), {})
        proxy |= {name: ",".join((value, *names)) for name, value in proxy.items() if name.lower() == "no_proxy"}
        self.environment = {n: v for n, v in proxy.items() if n.lower() == "no_proxy"} | self.environment
        graph = {name: self._conditions(service).keys() - {MAIN_SERVICE_NAME} for name, service in self.others.items()}
        for name in TopologicalSorter(graph).static_order():
            service = self.others[name]
            options = [*shared, *self._run_options(name, proxy)]
            self.started.append(name)
            await self._podman("create", *options, images[name], *_words(service.get("command")))
            await self._podman("cp", "-", f"{self._name(name)}:/", stdin=self._files(service, hosts, resolv))
            await self._podman("start", self._name(name))
            await self._ready(name)
        for name in self.others:
            await self._inspected(name)

    def _run_options(self, name: str, proxy: dict[str, str]) -> list[str]:
        service = self.others[name]
        options = ["--name", self._name(name), "--label", f"{LABEL}={self._id}", "--log-driver", "k8s-file"]
        for field, option in _OPTIONS.items():
            options += [option, str(service[field])] if field in service else []
        for variable, value in (proxy | pairs(service.get("environment"), self._variables)).items():
            options += ["--env", f"{variable}={value}"]
        for source, target in map(_volume, service.get("volumes", [])):
            if not _is_path(source):
                options += ["--volume", f"{self._name(source)}:{target}" if source else target]
        if "entrypoint" in service:
            options += ["--entrypoint", json.dumps(_words(service["entrypoint"]))]
        return options

    def _files(self, service: dict[str, Any], hosts: str, resolv: str) -> bytes:
        """Returns what a container gets before it starts: names, and copies of the task's files."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for path, text in (("etc/hosts", hosts), ("etc/resolv.conf", resolv)):
                entry = tarfile.TarInfo(path)
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
            for source, target in map(_volume, service.get("volumes", [])):
                if _is_path(source):
                    archive.add(self._directory / source, str(PurePosixPath(target)).lstrip("/"), filter=of_root)
        return packed.getvalue()

    def _name(self, name: str) -> str:
        return f"harbor-{self._id}-{name}"

    async def _ready(self, name: str) -> None:
        """Waits until a service is healthy, or has finished if another service depends on that."""
        services = [self.main, *self.others.values()]
        if any(self._conditions(each).get(name) == "service_completed_successfully" for each in services):
            await self._podman("wait", self._name(name))
            await self._inspected(name)
            return
        inspected, given = await self._inspected(name), self.others[name].get("healthcheck", {})
        test = given.get("test") or (inspected["Config"].get("Healthcheck") or {}).get("Test") or ["NONE"]
        kind, *words = ["CMD-SHELL", test] if isinstance(test, str) else test
        if kind == "NONE" or given.get("disable"):
            return
        command = ["sh", "-c", *words] if kind == "CMD-SHELL" else words
        each = _seconds(given.get("interval"), 30) + _seconds(given.get("timeout"), 30)
        end = time.monotonic() + _seconds(given.get("start_period"), 0) + each * int(given.get("retries", 3))
        while (ran := await self._podman.run("exec", self._name(name), *command))[0] != 0:
            await self._inspected(name)
            if time.monotonic() > end:
                said = (ran[1] + ran[2]).decode(errors="replace")[-1000:].strip()
                raise RuntimeError(f"service {name} is not healthy: {said}\n{await self.logs(name)}")
            await asyncio.sleep(0.5)

    async def _inspected(self, name: str) -> dict[str, Any]:
        inspected = json.loads(await self._podman("container", "inspect", self._name(name)))[0]
        if inspected["State"]["Status"] == "exited" and (code := inspected["State"]["ExitCode"]) != 0:
            raise RuntimeError(f"service {name} has exited with {code}:\n{(await self.logs(name))[-2000:]}")
        return inspected

    async def check(self) -> None:
        """Raises if the session's container is not the container with the network of the others."""
        if self._session and await self._session.state("PodmanWorkspace", pointer="/started") != self._starts:
            raise InfrastructureError("the container of main was restarted: it can't reach the other services")

    async def until_stopped(self) -> None:
        """Waits until the session's container has stopped, after its last process."""
        assert self._session is not None
        async with asyncio.timeout(30):
            while await self._session.state("PodmanWorkspace", pointer="/running"):
                await asyncio.sleep(0.2)

    async def logs(self, name: str) -> str:
        """Returns what a service has printed."""
        _, output, said = await self._podman.run("logs", self._name(name))
        return (output + said).decode(errors="replace")

    async def remove(self) -> None:
        """Removes the containers and their volumes."""
        if self.started:
            await self._removed("rm", "--time", "0", "--volumes", "--filter", f"label={LABEL}={self._id}")
            named = await self._podman("volume", "ls", "--quiet", "--filter", f"name={self._name('')}")
            if named:
                await self._removed("volume", "rm", *named.decode().split())

    async def _removed(self, *arguments: str) -> None:
        # What a container used may be busy until shortly after its end.
        for again in (True, True, True, True, False):
            try:
                await self._podman(*arguments, "--force")
                return
            except RuntimeError:
                if not again:
                    raise
                await asyncio.sleep(1)

    async def service_exec(
        self,
        command: str,
        *,
        service: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Runs a command in the container of a service."""
        options = ["--workdir", cwd] if cwd else []
        options += ["--user", str(user)] if user is not None else []
        for name, value in (env or {}).items():
            options += ["--env", f"{name}={value}"]
        running = self._podman.run("exec", *options, self._name(service), "sh", "-c", command)
        try:
            code, output, said = await asyncio.wait_for(running, timeout_sec)
        except TimeoutError:
            return ExecResult(stderr=f"the command timed out after {timeout_sec} seconds\n", return_code=124)
        texts = (each.decode(errors="replace") for each in (output, said))
        return ExecResult(stdout=next(texts), stderr=next(texts), return_code=code)

    async def service_download_file(self, source_path: str, target_path: Path | str, *, service: str) -> None:
        """Copies a file of a service to this machine."""
        packed = await self._podman("cp", f"{self._name(service)}:{source_path}", "-")
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            if (file := archive.extractfile(archive.getmembers()[0])) is None:
                raise RuntimeError(f"{source_path} of service {service} is not a file")
            Path(target_path).parent.mkdir(parents=True, exist_ok=True)
            Path(target_path).write_bytes(file.read())

    async def service_download_dir(self, source_dir: str, target_dir: Path | str, *, service: str) -> None:
        """Copies a directory's contents of a service to this machine."""
        extract_dir(io.BytesIO(await self._podman("cp", f"{self._name(service)}:{source_dir}/.", "-")), target_dir)

    async def stop_service(self, service: str) -> None:
        """Stops the container of a service."""
        await self._podman("stop", self._name(service))
