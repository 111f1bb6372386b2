"""Harbor: trials by its own runner, in containers."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import foldspace
import pytest
from conftest import CONTAINERS, until
from foldspace._thread import ThreadLog
from foldspace.harbor import FoldspaceEnvironment
from harbor.models.task.config import EnvironmentConfig, NetworkMode
from harbor.models.trial.config import ServiceVolumeConfig
from harbor.models.trial.paths import TrialPaths

pytestmark = pytest.mark.skipif(not CONTAINERS, reason="no CONTAINER_HOST and FOLDSPACE_IMAGE")
IMAGE = os.environ.get("FOLDSPACE_IMAGE", "")

TASK = """
[agent]
timeout_sec = 60
[verifier]
timeout_sec = 60
[environment]
network_mode = "no-network"
memory_mb = 512
env = { GREETING = "hush" }
"""
DOCKERFILE = f"""FROM {IMAGE}
WORKDIR /app
COPY numbers.txt .
RUN printf 'echo tool\\n' > tool && chmod 755 tool && chown 1000:1000 tool
"""
SOLVE = """#!/bin/bash
awk '{s += $1} END {print s}' numbers.txt > sum.txt
echo "$GREETING" | wc -c >> sum.txt
touch /usr/bin/installed
"""
TEST = """#!/bin/bash
ok() { [ "$(cat /app/sum.txt)" = "$(printf '6\\n5')" ] && [ -e /usr/bin/installed ] && [ -x /app/tool ]; }
if ok; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


def podman(*arguments: str) -> str:
    command = ["podman", "--url", os.environ["CONTAINER_HOST"], *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def built(tmp_path: Path):
    """Removes the images that a test has built."""

    def images() -> set[str]:
        return set(podman("images", "--format", "{{.Repository}}:{{.Tag}}", "localhost/foldspace-harbor").split())

    before = images()
    yield
    for image in images() - before:
        # The owner may be removing a container of it at this moment.
        for again in (True, True, True, False):
            try:
                podman("rmi", "--force", image)
                break
            except subprocess.CalledProcessError:
                if not again:
                    raise
                time.sleep(1)


def task_in(directory: Path, solution: str) -> Path:
    files = {
        "task.toml": TASK,
        "instruction.md": "Write the sum of the numbers to sum.txt.",
        "environment/Dockerfile": DOCKERFILE,
        "environment/numbers.txt": "1\n2\n3\n",
        "solution/solve.sh": solution,
        "tests/test.sh": TEST,
    }
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory


def trial_of(task: Path, jobs: Path, data: Path, agent: str = "oracle", *options: str) -> Path:
    """Runs a task by the program harbor, and returns the directory of its trial."""
    command = [Path(sys.executable).parent / "harbor", "run", "--path", task, "--agent", agent, "--quiet", *options]
    command += ["--env", "foldspace.harbor:FoldspaceEnvironment", "--ek", f"data={data}", "--jobs-dir", jobs]
    environ = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_API_KEY": "none"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    trials = [each.parent for each in jobs.glob("*/*/result.json")]
    assert len(trials) == 1, done.stdout
    return trials[0]


def rewards(trial: Path) -> dict[str, float]:
    result = json.loads((trial / "result.json").read_text())
    assert result["exception_info"] is None, result["exception_info"]
    return result["verifier_result"]["rewards"]


async def test_trial_of_the_oracle_is_a_session(data: Path, tmp_path: Path, built: None) -> None:
    trial = await asyncio.to_thread(trial_of, task_in(tmp_path / "task", SOLVE), tmp_path / "jobs", data)
    assert rewards(trial) == {"reward": 1.0}
    note = json.loads((trial / "foldspace-env.json").read_text())
    async with foldspace.Client(data) as client:
        session = await client.open(note["session"], auto_confirm=True)
        assert session.name == f"{trial.name}__env" and note["data"] == str(data)
        assert await session.files.read("sum.txt") == b"6\n5\n"
        changed = [event for event in await session.log() if event["kind"] == "WriteFile" and event["call"] is not None]
        assert len(changed) == 3, "both of the image's files, and the solution's: each by a call"
        assert not [event for event in await session.log() if event["kind"] == "DriftFound"]
        notes = {each["name"]: each for each in await session.annotations()}
        assert notes["harbor"]["value"]["workdir"] == "/app" and notes["reward"]["score"] == 1.0
        # The past, and a fork of it, in a container of its own.
        assert (await session.diff("tag:start")).paths() == ["sum.txt"]
        assert not await session.at("tag:start").files.exists("sum.txt")
        fork = (await session.fork(at="tag:start"))[0]
        ran = await fork.run(["bash", "-c", "cd /app && sh tool && ls && test ! -e /logs"])
        assert (ran.stdout, ran.exit_code) == ("tool\nnumbers.txt\ntool\n", 0)
    written = [each for each in data.rglob("*") if each.is_file() and b"hush" in each.read_bytes()]
    assert written == [], "variables are not recorded"


async def test_trial_of_a_wrong_solution_has_no_reward(data: Path, tmp_path: Path, built: None) -> None:
    task = task_in(tmp_path / "task", "#!/bin/bash\necho 7 > sum.txt\nexit 3\n")
    trial = await asyncio.to_thread(trial_of, task, tmp_path / "jobs", data)
    assert rewards(trial) == {"reward": 0.0}
    assert (trial / "agent" / "exit-code.txt").read_text() == "3"


def scripted(messages: list[dict[str, str]]) -> str:
    """Returns the next answer of terminus-2's model: a job in the background, its end in a later command."""
    keys = [
        "(until [ -e /tmp/go ]; do sleep 0.1; done; awk '{s += $1} END {print s}' numbers.txt > sum.txt) &\n",
        "touch /tmp/go /usr/bin/installed; wait; echo $GREETING | wc -c >> sum.txt; echo $(wc -l < sum.txt) lines\n",
    ][len(messages) // 2 :][:1]
    commands = [{"keystrokes": each, "duration": 0.1} for each in keys or [""]]
    done = any("2 lines" in each["content"] for each in messages)
    return json.dumps({"analysis": "seen", "plan": "more", "commands": commands, "task_complete": done})


class Model(BaseHTTPRequestHandler):
    """A model that speaks OpenAI's chat API."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = {"role": "assistant", "content": scripted(asked["messages"])}
        about = {"id": "1", "object": "chat.completion", "created": 0, "model": asked["model"]}
        answer = json.dumps(about | {"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def model() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


async def test_terminus_works_in_tmux_and_its_steps_are_recorded(data: Path, tmp_path: Path, built: None) -> None:
    task = task_in(tmp_path / "task", SOLVE)
    with model() as url:
        options = ["--model", "openai/scripted", "--ak", f"api_base={url}", "--ak", "record_terminal_session=false"]
        trial = await asyncio.to_thread(trial_of, task, tmp_path / "jobs", data, "terminus-2", *options)
    assert rewards(trial) == {"reward": 1.0}
    trajectory = trial / "agent" / "trajectory.json"
    async with foldspace.Client(data) as client:
        session = await client.open(json.loads((trial / "foldspace-env.json").read_text())["session"])
        steps = await ThreadLog(session).entries("harbor")
        assert [each.value for each in steps] == json.loads(trajectory.read_text())["steps"]
        # A step has the position after its commands.
        assert not await session.at(steps[1].position).files.exists("sum.txt")
        assert await session.at(steps[-1].position).files.read("sum.txt") == b"6\n5\n"
        command = [os.environ["FOLDSPACE_BIN"], "--data", str(data), "--json", "import", str(trajectory)]
        (run,) = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        command = [*command[:3], "log", run["session"], "--messages"]
        messages = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert messages.count("assistant: Analysis: seen") == len(steps) - 1


def environment_in(directory: Path, data: Path, **given) -> FoldspaceEnvironment:
    (directory / "environment").mkdir(parents=True, exist_ok=True)
    (directory / "environment" / "given.txt").write_text("given\n")
    paths = TrialPaths(directory / "trial")
    paths.mkdir()
    config = {"docker_image": IMAGE, "network_mode": NetworkMode.NO_NETWORK, "workdir": "/srv/app"}
    return FoldspaceEnvironment(
        environment_dir=directory / "environment",
        environment_name="task",
        session_id="task__1__env",
        trial_paths=paths,
        task_env_config=EnvironmentConfig(**config | given.pop("config", {})),
        logger=logging.getLogger("test"),
        data=str(data),
        **given,
    )


@pytest.fixture
async def environment(data: Path, tmp_path: Path) -> AsyncIterator[FoldspaceEnvironment]:
    made = environment_in(tmp_path, data)
    await made.start(False)
    yield made
    await made.stop(True)


async def test_commands_have_results(environment: FoldspaceEnvironment) -> None:
    ran = await environment.exec("pwd; cat given.txt; echo wrong >&2; exit 3")
    assert (ran.stdout, ran.stderr, ran.return_code) == ("/srv/app\ngiven\n", "wrong\n", 3)
    ran = await environment.exec("echo $A; pwd", cwd="/usr", env={"A": "it's"})
    assert ran.stdout == "it's\n/usr\n"
    ran = await environment.exec("cat | wc -c; : " + "x" * 5000, env={"A": "long"})
    assert (ran.stdout, ran.return_code) == ("0\n", 0)
    ran = await environment.exec("echo begun; sleep 60", timeout_sec=1)
    assert (ran.stdout, ran.return_code) == ("begun\n", 124) and "1 seconds" in (ran.stderr or "")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(environment.exec("sleep 61"), 1)
    assert (await environment.exec("grep -lzx '6[1]' /proc/[0-9]*/cmdline")).stdout == "", "a cancelled one is ended"
    assert (await environment.exec("true", cwd="/nowhere")).return_code != 0
    ran = await environment.exec("rm -rf --no-preserve-root /")
    assert ran.return_code == 126 and "not allowed" in (ran.stderr or ""), "the policy denies it"
    drift = [each for each in await environment.session.log() if each["kind"] == "DriftFound"]
    assert drift == []


async def test_commands_have_users(environment: FoldspaceEnvironment) -> None:
    assert (await environment.exec("id -u; echo $HOME", user="root")).stdout == "0\n/root\n"
    ran = await environment.exec("id -un; id -u; echo $A; touch /etc/x", env={"A": "b"}, user="nobody")
    assert (ran.stdout, ran.return_code) == ("nobody\n65534\nb\n", 1)
    with environment.with_default_user(65534):
        assert (await environment.exec("id -un")).stdout == "nobody\n"
    ran = await environment.exec("true", user="missing")
    assert ran.return_code == 126 and "no such user" in (ran.stderr or "")


@pytest.mark.parametrize("user", ["root", "nobody"])
async def test_tmux_outlives_its_commands(environment: FoldspaceEnvironment, user: str) -> None:
    async def printed(path: str) -> bool:
        return "b\n" in ((await environment.exec(f"cat {path}")).stdout or "")

    await environment.exec("chmod 777 .")
    for number in range(2):
        start = "export SHELL=/bin/bash && tmux new-session -e A=b -d -s one 'bash --login'; tmux new -d -s two"
        assert (await environment.exec(start, user=user)).return_code == 0
        ran = await environment.exec(f"tmux send-keys -t one -- 'echo $A > {number}' Enter", user=user)
        assert (ran.stderr, ran.return_code) == ("", 0)
        await until(lambda path=str(number): printed(path))
        ran = await environment.exec("tmux list-sessions -F '#S'; tmux show-environment -g SHELL", user=user)
        assert ran.stdout == "one\ntwo\nSHELL=/bin/bash\n"
        assert (await environment.exec("tmux kill-server", user=user)).return_code == 0
    await environment.exec("rm /usr/bin/tmux")
    assert (await environment.exec("tmux new-session -d", user=user)).return_code == 127


async def test_steps_of_trajectories_are_recorded_once(environment: FoldspaceEnvironment) -> None:
    path = environment.trial_paths.agent_dir / "trajectory.json"
    path.parent.mkdir(exist_ok=True)
    first: list[dict[str, object]] = [{"step_id": 1, "message": "one"}, {"step_id": 2, "message": "x" * 40_000}]
    second: list[dict[str, object]] = [{"step_id": 1, "message": "other", "extra": {"$content": "given"}}]
    for steps in (first[:1], first, first, second):
        path.write_text(json.dumps({"steps": steps}))
        os.utime(path, ns=(0, time.time_ns()))
        assert (await environment.exec("true")).return_code == 0
    path.write_text("{")
    assert (await environment.exec("true")).return_code == 0
    assert [each.value for each in await ThreadLog(environment.session).entries("harbor")] == first + second


async def test_files_go_both_ways(environment: FoldspaceEnvironment, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("echo run")
    script.chmod(0o755)
    for target in ("/srv/app/run.sh", "/opt/deep/run.sh", "/usr/bin"):
        await environment.upload_file(script, target)
    ran = await environment.exec("./run.sh; /opt/deep/run.sh; run.sh")
    assert ran.stdout == "run\n" * 3
    await environment.download_file("/srv/app/run.sh", tmp_path / "back" / "run.sh")
    assert (tmp_path / "back" / "run.sh").read_text() == "echo run"
    with pytest.raises(foldspace.NotFoundError):
        await environment.download_file("/srv/app/missing", tmp_path / "missing")

    tree = tmp_path / "tree"
    (tree / "in" / "empty").mkdir(parents=True)
    (tree / "in" / "bytes").write_bytes(bytes(range(256)) * 1000)
    (tree / "link").symlink_to("in/bytes")
    await environment.upload_dir(tree, "/var/tree")
    await environment.download_dir("/var/tree", tmp_path / "again")
    assert (tmp_path / "again" / "link").read_bytes() == (tree / "in" / "bytes").read_bytes()
    assert (tmp_path / "again" / "in" / "empty").is_dir()
    with pytest.raises(RuntimeError):
        await environment.download_dir("/var/missing", tmp_path / "missing")


async def test_container_stays_while_nothing_runs(environment: FoldspaceEnvironment) -> None:
    await environment.exec("mkdir -p /logs/kept")
    await asyncio.sleep(3)
    assert (await environment.exec("ls /logs")).stdout == "kept\n"


async def test_failing_infrastructure_raises(data: Path, tmp_path: Path) -> None:
    environment = environment_in(tmp_path, data)
    await environment.start(False)
    name = podman("ps", "--format", "{{.Names}}", "--filter", f"name={environment.session.id}").strip()
    running = asyncio.create_task(environment.exec("sleep 60"))
    await asyncio.sleep(1)
    await asyncio.to_thread(podman, "rm", "--force", "--time", "0", name)
    with pytest.raises(foldspace.InfrastructureError):
        await running
    await environment.stop(True)
    missing = environment_in(tmp_path / "missing", data, config={"docker_image": "localhost/nowhere:1"})
    with pytest.raises(RuntimeError, match="podman pull"):
        await missing.start(False)


async def test_what_it_can_not_do_is_refused(data: Path, tmp_path: Path) -> None:
    mounts: list[ServiceVolumeConfig] = [{"type": "bind", "source": "/srv", "target": "/mnt"}]
    with pytest.raises(ValueError, match="can't mount directories"):
        environment_in(tmp_path / "mounts", data, mounts=mounts)
    allowlist = {"network_mode": NetworkMode.ALLOWLIST, "allowed_hosts": ["example.org"]}
    with pytest.raises(ValueError, match="allowlist"):
        environment = environment_in(tmp_path / "hosts", data, config=allowlist)
        environment.validate_network_policy_support(environment.task_env_config.resolve_baseline())
    with pytest.raises(FileNotFoundError, match="no environment definition"):
        environment_in(tmp_path / "nothing", data, config={"docker_image": None})
