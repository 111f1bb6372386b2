"""Harbor: tasks with several containers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import foldspace
import pytest
from conftest import CONTAINERS, until
from foldspace.harbor import FoldspaceEnvironment
from harbor.environments.base import ServiceOperationsUnsupportedError
from harbor.models.task.config import NetworkMode
from test_harbor import IMAGE, built, environment_in, podman, rewards, task_in, trial_of

__all__ = ["built"]
pytestmark = pytest.mark.skipif(not CONTAINERS, reason="no CONTAINER_HOST and FOLDSPACE_IMAGE")

COMPOSE = """
services:
  main:
    build:
      context: ${CONTEXT_DIR}
    image: ${MAIN_IMAGE_NAME}
    command: ["sh", "-c", "sleep infinity"]
    environment:
      - PORT=${PORT:-8000}
    volumes: ["${HOST_AGENT_LOGS_PATH}:${ENV_AGENT_LOGS_PATH}"]
    depends_on:
      web: {condition: service_healthy}
  seed:
    image: IMAGE
    command: sh -c 'echo seed > /data/seed'
    volumes: ["data:/data"]
  web:
    container_name: site
    build: {context: web, args: {WORD: "it's $$1"}}
    environment: {SECRET: "${GREETING}"}
    volumes: ["data:/data:ro", "./page.txt:/srv/deep/page.txt:ro"]
    depends_on:
      seed: {condition: service_completed_successfully}
    healthcheck:
      test: ["CMD", "grep", "-q", ":1F40 ", "/proc/net/tcp"]
      interval: 1s
""".replace("IMAGE\n", f"{IMAGE}\n")
WEB = f"""FROM {IMAGE}
ARG WORD
RUN mkdir -p /srv && echo "$WORD" > /srv/word
WORKDIR /srv
CMD ["sh", "-c", "echo $SECRET > secret; cp /data/seed .; sleep 1; exec python3 -u -m http.server 8000"]
"""
FETCH = """#!/bin/bash
get() { python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode(), end="")' "$1"; }
for path in word secret seed deep/page.txt; do get http://web:$PORT/$path; done > got.txt
get http://site:8000/word >> got.txt
awk '{s += $1} END {print s}' numbers.txt > sum.txt
echo "$GREETING" | wc -c >> sum.txt
touch /usr/bin/installed
"""
ARTIFACTS = 'artifacts = [{ source = "/srv/seed", service = "web" }, { source = "/srv/deep", service = "web" }]\n'
COLLECT = """
[[verifier.collect]]
command = "echo $(id -u) collected > /srv/seed"
service = "web"
"""
LOGS = [{"type": "bind", "source": "/srv", "target": "/logs/agent"}]


def composed(directory: Path, text: str = COMPOSE) -> Path:
    environment = directory / "environment"
    (environment / "web").mkdir(parents=True, exist_ok=True)
    (environment / "docker-compose.yaml").write_text(text)
    (environment / "web" / "Dockerfile").write_text(WEB)
    (environment / "page.txt").write_text("page\n")
    return directory


def left(session: str = "") -> list[str]:
    labels = f"label=foldspace.harbor{'=' * bool(session)}{session}"
    return podman("ps", "--all", "--format", "{{.Names}}", "--filter", labels).split()


async def test_trial_reaches_its_services(data: Path, tmp_path: Path, built: None) -> None:
    task = composed(task_in(tmp_path / "task", FETCH))
    (task / "task.toml").write_text(ARTIFACTS + (task / "task.toml").read_text() + COLLECT)
    trial = await asyncio.to_thread(trial_of, task, tmp_path / "jobs", data)
    assert rewards(trial) == {"reward": 1.0}
    async with foldspace.Client(data) as client:
        note = json.loads((trial / "foldspace-env.json").read_text())
        session = await client.open(note["session"])
        assert await session.files.read("got.txt") == b"it's $1\nhush\nseed\npage\nit's $1\n"
    assert "GET /deep/page.txt" in (trial / "foldspace-env-web.log").read_text()
    collected = {each.name: each.read_text() for each in (trial / "artifacts").rglob("*") if each.is_file()}
    assert (collected["seed"], collected["page.txt"]) == ("0 collected\n", "page\n")
    assert left(note["session"]) == []
    assert podman("volume", "ls", "--quiet", "--filter", f"name=harbor-{note['session']}") == ""


@pytest.fixture
async def environment(data: Path, tmp_path: Path, built: None) -> AsyncIterator[FoldspaceEnvironment]:
    made = environment_in(composed(tmp_path), data, persistent_env={"GREETING": "hello"}, auto_mounts=LOGS)
    await made.start(False)
    yield made
    await made.stop(True)


async def test_services_have_commands_files_and_ends(environment: FoldspaceEnvironment, tmp_path: Path) -> None:
    command = "id -u; pwd; echo $A; cat secret; echo no >&2; exit 3"
    ran = await environment.service_exec(command, service="web", env={"A": "b"})
    assert (ran.stdout, ran.stderr, ran.return_code) == ("0\n/srv\nb\nhello\n", "no\n", 3)
    ran = await environment.service_exec("id -un; pwd", service="web", user="nobody", cwd="/usr")
    assert ran.stdout == "nobody\n/usr\n"
    ran = await environment.service_exec("cat /proc/self/uid_map", service="web")
    mapped = await environment.service_exec("cat /proc/self/uid_map", service="main")
    assert ran.stdout == mapped.stdout, "root of main and of the others is the same user of this machine"
    assert (await environment.service_exec("echo begun; sleep 60", service="web", timeout_sec=1)).return_code == 124
    assert (await environment.exec("echo $PORT $SECRET")).stdout == "8000\n"
    await environment.service_download_file("/srv/word", tmp_path / "new" / "word", service="web")
    assert (tmp_path / "new" / "word").read_text() == "it's $1\n"
    await environment.service_download_dir("/srv/deep", tmp_path / "deep", service="web")
    assert (tmp_path / "deep" / "page.txt").read_text() == "page\n"
    with pytest.raises(RuntimeError, match="missing"):
        await environment.service_download_file("/srv/missing", tmp_path / "missing", service="web")
    with pytest.raises(RuntimeError, match="not a file"):
        await environment.service_download_file("/srv/deep", tmp_path / "missing", service="web")
    with pytest.raises(ServiceOperationsUnsupportedError, match="no service 'db'"):
        await environment.service_exec("true", service="db")

    await environment.stop_service("main")
    assert not await environment.session.state("PodmanWorkspace", pointer="/running")
    assert (await environment.service_exec("cat seed", service="web")).stdout == "seed\n"
    with pytest.raises(foldspace.InfrastructureError, match="was restarted"):
        await environment.exec("true")
    await environment.stop_service("web")
    assert podman("ps", "--format", "{{.Names}}", "--filter", f"label=foldspace.harbor={environment.session.id}") == ""


async def test_names_of_services_need_no_proxy(data: Path, tmp_path: Path, built: None) -> None:
    config = {"network_mode": NetworkMode.PUBLIC}
    given = {"GREETING": "hello"}
    environment = environment_in(composed(tmp_path), data, config=config, persistent_env=given, auto_mounts=LOGS)
    await environment.start(False)
    try:
        fetch = "import urllib.request as u; print(u.urlopen('http://{}:8000/word').read())"
        for service, name in (("main", "web"), ("web", "site")):
            ran = await environment.service_exec(f'python3 -c "{fetch.format(name)}"', service=service)
            assert "it's $1" in (ran.stdout or ""), ran.stderr
            ran = await environment.service_exec("cat /etc/resolv.conf; echo $https_proxy", service=service)
            assert (ran.stdout or "").split() == ["nameserver", "127.0.0.2", "http://127.0.0.2:3128"]
    finally:
        await environment.stop(True)


@pytest.mark.parametrize(
    "command, healthcheck, said",
    [
        ("sh -c 'echo broken; exit 7'", "{test: 'false'}", "service web has exited with 7:\nbroken"),
        ("sh -c 'echo up; sleep 60'", "{test: echo ill; false, interval: 1ms, timeout: 1s}", "not healthy: ill\nup"),
    ],
)
async def test_failed_start_leaves_nothing(
    data: Path, tmp_path: Path, command: str, healthcheck: str, said: str
) -> None:
    text = f"services:\n  web:\n    image: {IMAGE}\n    command: {command}\n    healthcheck: {healthcheck}\n"
    environment = environment_in(composed(tmp_path, text), data)
    before = left()
    with pytest.raises(RuntimeError, match=said):
        await environment.start(False)
    assert left() == before
    await environment.stop(True)
    async with foldspace.Client(data) as client:
        (session,) = await client.sessions()
        opened = await client.open(session["session"])
        await until(lambda: stopped(opened))


async def stopped(session: foldspace.Session) -> bool:
    return not await session.state("PodmanWorkspace", pointer="/running")


@pytest.mark.parametrize(
    "text, refused",
    [
        ("web: {image: a, privileged: true, cap_add: [NET_ADMIN]}", "web.cap_add, web.privileged"),
        ("web: {image: a, ports: ['80:80'], hostname: b}", "web.hostname, web.ports"),
        ("web: {image: a, volumes: ['/etc:/mnt']}", "web.volumes"),
        ("web: {image: a, volumes: [{type: tmpfs, target: /mnt}]}", "web.volumes"),
        ("web: {image: a, networks: [one]}\n  db: {image: a, networks: [two]}", "db.networks, web.networks"),
        ("web: {image: a, networks: {default: {aliases: [b]}}}", "web.networks"),
        ("web: {image: a, network_mode: host}", "web.network_mode"),
        ("web: {build: ..}", "web.build.context"),
        ("web: {build: {context: ., ssh: default}}", "web.build.ssh"),
        ("web: {environment: {A: b}}", "web without an image"),
        ("web: {image: a, depends_on: [db]}", "web.depends_on"),
        ("main: {volumes: ['data:/data'], entrypoint: run}", "main.entrypoint, main.volumes"),
        ("main: {command: ./serve}", "main.command"),
        ("main: {}\nnetworks: {default: {internal: true}}", "networks.default"),
        ("main: {}\nvolumes: {data: {external: true}}\nsecrets: {}", "secrets, volumes.data"),
        ("main: {environment: ['A=${A:?is needed}']}", "variable A has no value: is needed"),
        ("main: {environment: ['A=${A:+b}']}", "can't replace the variables"),
    ],
)
def test_what_services_can_not_do_is_refused(data: Path, tmp_path: Path, text: str, refused: str) -> None:
    with pytest.raises(ValueError) as raised:
        environment_in(composed(tmp_path, f"services:\n  {text}\n"), data)
    assert str(raised.value).endswith(f" {refused}") or refused in str(raised.value) and "variable" in refused


def test_overlays_of_a_run_are_refused(data: Path, tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text("services: {}\n")
    with pytest.raises(ValueError, match="--extra-docker-compose"):
        environment_in(tmp_path, data, extra_docker_compose=[tmp_path / "more.yaml"])
