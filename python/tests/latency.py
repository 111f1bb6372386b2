"""Measures a command, `true`, in each framework: its own backends and foldspace's in turn, beside a plain subprocess.

FOLDSPACE_BIN=target/dist/foldspace python/.venv/bin/python python/tests/latency.py [CALLS]

On Podman where CONTAINER_HOST and FOLDSPACE_IMAGE are set. The frameworks' own Docker backends where DOCKER_HOST is set
and FOLDSPACE_DOCKER_IMAGE names an image.
"""

# pyright: basic
from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import foldspace
import foldspace.sync

CALLS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
DOCKER_IMAGE = os.environ.get("FOLDSPACE_DOCKER_IMAGE") if "DOCKER_HOST" in os.environ else None
OURS = ["host", *(["podman"] if os.environ.get("CONTAINER_HOST") else [])]
Calls = dict[str, Callable[[], Any]]


async def mini(stack: AsyncExitStack, data: str) -> Calls:
    from foldspace.mini import FoldspaceEnvironment
    from minisweagent.environments.docker import DockerEnvironment
    from minisweagent.environments.local import LocalEnvironment

    made: dict[str, Any] = {"own local": LocalEnvironment()}
    for backend in OURS:
        made[backend] = FoldspaceEnvironment(data=data, backend=backend, auto_confirm=True)
        stack.callback(made[backend].cleanup)
    if DOCKER_IMAGE:
        made["own Docker"] = DockerEnvironment(image=DOCKER_IMAGE, cwd="/", run_args=["--rm", "--network", "none"])
        stack.callback(made["own Docker"].cleanup)
    return {name: lambda one=one: one.execute({"command": "true"}) for name, one in made.items()}


async def deepagents(stack: AsyncExitStack, data: str) -> Calls:
    from deepagents.backends.local_shell import LocalShellBackend
    from foldspace.deepagents import FoldspaceSandbox

    made: dict[str, Any] = {"own local": LocalShellBackend(root_dir="/tmp", virtual_mode=False)}
    client = stack.enter_context(foldspace.sync.Client(data))
    for backend in OURS:
        made[backend] = FoldspaceSandbox(client.create(backend=backend, auto_confirm=True))
    return {name: lambda one=one: one.execute("true") for name, one in made.items()}


async def inspect_ai(stack: AsyncExitStack, data: str) -> Calls:
    from foldspace.inspect_ai import FoldspaceSandboxConfig, FoldspaceSandboxEnvironment
    from inspect_ai.util._sandbox.local import LocalSandboxEnvironment

    made: dict[str, Any] = {"own local": (await LocalSandboxEnvironment.sample_init("latency", None, {}))["default"]}
    for backend in OURS:
        config = FoldspaceSandboxConfig(backend=backend, data=data, auto_confirm=True)
        made[backend] = (await FoldspaceSandboxEnvironment.sample_init("latency", config, {}))["default"]
    return {name: lambda one=one: one.exec(["true"]) for name, one in made.items()}


async def pydantic_ai(stack: AsyncExitStack, data: str) -> Calls:
    from foldspace.pydantic_ai import FoldspaceBackend
    from pydantic_ai.workspaces import LocalWorkspaceBackend, Workspace

    made: dict[str, Any] = {"own local": Workspace(LocalWorkspaceBackend("/tmp"))}
    for backend in OURS:
        made[backend] = Workspace(FoldspaceBackend(backend=backend, data=data, auto_confirm=True))
    return {name: lambda one=one: one.run(["true"]) for name, one in made.items()}


async def openai_agents(stack: AsyncExitStack, data: str) -> Calls:
    from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
    from foldspace.openai_agents import FoldspaceSandboxClient, FoldspaceSandboxClientOptions

    made: dict[str, Any] = {"own local": await UnixLocalSandboxClient().create()}
    for backend in OURS:
        options = FoldspaceSandboxClientOptions(backend=backend, auto_confirm=True)
        client = FoldspaceSandboxClient(data)
        stack.push_async_callback(client.close)
        made[backend] = await client.create(options=options)
    if DOCKER_IMAGE:
        import docker
        from agents.sandbox.sandboxes.docker import DockerSandboxClient, DockerSandboxClientOptions

        own = DockerSandboxClient(docker.from_env())
        made["own Docker"] = await own.create(options=DockerSandboxClientOptions(image=DOCKER_IMAGE))
        stack.push_async_callback(own.delete, made["own Docker"])
    for one in made.values():
        await one.start()
    return {name: lambda one=one: one.exec("true", shell=False) for name, one in made.items()}


async def measured(calls: Calls) -> dict[str, list[float]]:
    """Makes the calls in turn, and returns the milliseconds of each, in order."""
    took: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(CALLS + 10):
        for name, call in calls.items():
            began = time.perf_counter()
            told = call()
            if inspect.isawaitable(told):
                await told
            if number >= 10:
                took[name].append((time.perf_counter() - began) * 1000)
    return {name: sorted(each) for name, each in took.items()}


async def main() -> None:
    """Prints a line for each framework and backend."""
    print(f"{CALLS} calls each, in turn; milliseconds")
    print(f"{'':15}{'backend':14}{'p50':>8}{'p90':>8}{'of a subprocess':>18}{'of own Docker':>15}")
    for framework in (mini, deepagents, inspect_ai, pydantic_ai, openai_agents):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as data:
            async with AsyncExitStack() as stack:
                calls: Calls = {"subprocess": lambda: subprocess.run(["true"], capture_output=True)}
                took = await measured(calls | await framework(stack, data))
                plain, docker = took["subprocess"], took.get("own Docker")
                for name, each in took.items():
                    middle, beside = each[len(each) // 2], plain[len(plain) // 2]
                    of_docker = f"{middle / docker[len(docker) // 2]:.3f}" if docker else "-"
                    print(
                        f"{framework.__name__:15}{name:14}{middle:8.2f}{each[len(each) * 9 // 10]:8.2f}"
                        f"{middle / beside:18.2f}{of_docker:>15}",
                        flush=True,
                    )
            subprocess.run([os.environ["FOLDSPACE_BIN"], "--data", data, "stop"], capture_output=True)


if __name__ == "__main__":
    asyncio.run(main())
