"""Tests of the programs in python/examples."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import foldspace.sync
import pytest
from test_examples import run_example

EXAMPLES = Path(__file__).parents[1] / "examples"


def blocks(section: str, language: str) -> list[str]:
    """Returns the blocks of a section of docs/rollouts.md."""
    text = (EXAMPLES.parents[1] / "docs" / "rollouts.md").read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    return [block.split("\n```")[0] for block in text.split(f"```{language}\n")[1:]]


def test_tree_search_repairs_the_project(data: Path) -> None:
    environment = {**os.environ, "FOLDSPACE_DATA": str(data)}
    ran = subprocess.run([sys.executable, EXAMPLES / "tree_search.py"], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert " by 5 edits:" in ran.stdout
    changed = [line for line in ran.stdout.splitlines() if line.startswith("+ ")]
    assert changed == [
        "+    return sum(values) / (len(values) - 0)",
        "+    return max(values) - min(values)",
        "+    return [value for value in values if value > limit]",
        "+    return min(high, max(low, value))",
    ]


@pytest.fixture
def skyrl(data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(EXAMPLES)
    import skyrl_gym
    from skyrl_gym.envs import deregister

    skyrl_gym.register(id="foldspace", entry_point="skyrl_env:FoldspaceEnv")
    yield skyrl_gym
    deregister("foldspace")
    sys.modules.pop("skyrl_env").client(str(data)).close()


def test_skyrl_episodes_are_forks(skyrl: Any, sync_session: foldspace.sync.Session, data: Path) -> None:
    from skyrl_gym.envs.base_text_env import BaseTextEnv

    sync_session.files.write("count.txt", "1\n")
    sync_session.tag("start")
    sync_session.files.write("count.txt", "later\n")
    row = {"session": "demo", "at": "tag:start", "max_turns": 3, "reward_spec": {"ground_truth": "wc -l < count.txt"}}
    prompt = [{"role": "user", "content": "add lines"}]

    def episode(number: int) -> tuple[Any, list[Any]]:
        env = skyrl.make("foldspace", env_config={"data": str(data)}, extras=row)
        assert isinstance(env, BaseTextEnv) and env.init(prompt)[0] == prompt
        steps = [env.step(f"I add one.\n<bash>echo {number} >> count.txt; cat count.txt</bash>") for _ in range(number)]
        return env, [*steps, *([] if number == 3 else [env.step("I am done.")])]

    with ThreadPoolExecutor() as threads:
        episodes = list(threads.map(episode, (1, 2, 3)))
    assert episodes[1][1][1]["observations"] == [{"role": "user", "content": "1\n2\n2\n[exit code 0]"}]
    assert [[step["reward"] for step in steps] for _, steps in episodes] == [[0, 2], [0, 0, 3], [0, 0, 4]]
    assert [[step["done"] for step in steps] for _, steps in episodes] == [[False, True], *[[False, False, True]] * 2]
    forks = sync_session.children()
    assert {fork.id for fork in forks} == {steps[0]["metadata"]["session"] for _, steps in episodes}
    assert sorted(fork.annotations("reward")[0]["score"] for fork in forks) == [2, 3, 4]
    # Any step is a position to branch from.
    first = episodes[1][1][0]["metadata"]
    (branch,) = next(fork for fork in forks if fork.id == first["session"]).fork(at=first["position"])
    assert branch.files.read("count.txt") == b"1\n2\n"
    branch.remove()
    metrics = [env.get_metrics() for env, _ in episodes]
    assert BaseTextEnv.aggregate_metrics(metrics) == {"turns": (2 + 3 + 3) / 3, "reward": 3}
    for env, _ in episodes:
        env.close()
        env.close()
    assert sync_session.children() == []


def test_skyrl_failures_are_observations(skyrl: Any, sync_session: foldspace.sync.Session, data: Path) -> None:
    row = {"session": "demo", "reward_spec": {"ground_truth": "echo none"}}
    env = skyrl.make("foldspace", env_config={"data": str(data), "timeout": 1, "keep": True}, extras=row)
    env.init([])
    assert env.step("<bash>echo begun; sleep 30</bash>")["observations"][0]["content"] == "begun\n[exit code 124]"
    assert env.step("<bash>exit 3</bash>")["observations"][0]["content"] == "[exit code 3]"
    ended = env.step("nothing")
    assert (ended["reward"], ended["done"], ended["observations"]) == (0, True, [])
    env.close()
    assert len(sync_session.children()) == 1


async def test_documented_rollouts_are_scored(session: foldspace.Session) -> None:
    (text,) = blocks("Score and keep", "python")
    ran = await run_example(text, {"session": session})
    rollouts = sorted(ran["rollouts"], key=lambda each: each.number)
    assert [(each.score, each.kept) for each in rollouts] == [(3, False), (8, True), (5, True)]
    assert await session.files.read("list.txt") == b"0\n1\n2\n3\n4\n5\n6\n7\n"


def test_documented_request_streams_results(sync_session: foldspace.sync.Session, data: Path) -> None:
    (text,) = blocks("Over HTTP", "sh")
    api = f'api() {{ curl -sS --unix-socket {data}/http.sock -H content-type:application/json "$@"; }}'
    answer = subprocess.run(["sh", "-c", f"{api}\n{text}"], capture_output=True, text=True, check=True).stdout
    events = [block.split("\ndata: ") for block in answer.split("\n\n") if block.startswith("event: ")]
    assert [name for name, _ in events if name != "event: progress"] == ["event: result"] * 2 + ["event: outcome"]
    rollouts = json.loads(events[-1][1])["rollouts"]
    assert [(each["name"], each["score"], each["kept"]) for each in rollouts] == [("demo-1", 3, False), ("demo-2", 5, True)]
    assert [child.name for child in sync_session.children()] == ["demo-2"]


def test_documented_episode_works(skyrl: Any, sync_session: foldspace.sync.Session, data: Path) -> None:
    sync_session.files.write("list.txt", "0\n")
    sync_session.tag("start")
    (text,) = blocks("Episodes of SkyRL", "python")
    names: dict[str, Any] = {"skyrl_gym": skyrl, "data": str(data)}
    exec(text.split("\n", 1)[1], names)
    assert (names["step"]["reward"], names["step"]["done"]) == (3, True)
