"""A SkyRL-Gym environment. Each episode is a fork of a session.

    skyrl_gym.register(id="foldspace", entry_point="skyrl_env:FoldspaceEnv")

A row of the dataset names the session and the position that its episodes start from, and a command whose last line is the
reward at the end: ``{"session": "task-7", "at": "tag:start", "reward_spec": {"ground_truth": "make score"}}``. The model
answers with commands in ``<bash>`` tags, and without one when it is done. It needs ``pip install skyrl-gym``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import foldspace.sync
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput, ConversationType

_OUTPUT_CHARS = 4_000


@functools.cache
def client(data: str | None) -> foldspace.sync.Client:
    """Returns the client of a data directory: one for all episodes of the process, in any thread."""
    return foldspace.sync.Client(data)


class FoldspaceEnv(BaseTextEnv):
    """An episode: a fork of a session at a position. Episodes of one position share its history and start equal.

    - ``env_config``: ``data`` (the data directory), ``timeout`` (seconds of a command, 60 by default), ``keep`` (true to
      keep the forks after their episodes, for ``foldspace compare``).
    - ``extras``: the row of the dataset, with ``max_turns`` (8 by default).
    """

    def __init__(self, env_config: Mapping[str, Any], extras: Mapping[str, Any]) -> None:
        super().__init__()
        self.timeout = float(env_config.get("timeout", 60))
        self.keep = bool(env_config.get("keep", False))
        self.max_turns = int(extras.get("max_turns", 8))
        self.start = extras.get("at")
        self.score = str(extras["reward_spec"]["ground_truth"])
        self.task = client(env_config.get("data")).open(extras["session"], auto_confirm=True)
        self.fork: foldspace.sync.Session | None = None
        self.reward = 0.0

    def init(self, prompt: ConversationType) -> tuple[ConversationType, dict[str, Any]]:
        """Forks the session."""
        self.close()
        (self.fork,) = self.task.fork(at=self.start, agent="policy")
        self.turns, self.reward = 0, 0.0
        return prompt, {"session": self.fork.id}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Runs the command of an answer. Without one, or after the last turn, the reward is the score."""
        assert self.fork is not None, "init comes first"
        self.turns += 1
        command = re.search(r"<bash>(.*?)</bash>", action, re.DOTALL)
        observations: ConversationType = []
        # The position after the command, which other forks may start from.
        metadata: dict[str, Any] = {"session": self.fork.id}
        if command:
            try:
                ran = self.fork.run(command[1].strip(), timeout=self.timeout, merge_output=True)
                text = f"{ran.stdout[-_OUTPUT_CHARS:]}[exit code {ran.exit_code}]"
                metadata["position"] = ran.finished
            except foldspace.RefusedError as error:
                text = f"refused: {error}"
            observations = [{"role": "user", "content": text}]
        done = command is None or self.turns >= self.max_turns
        if done:
            self.reward = self._scored(self.fork)
        return BaseTextEnvStepOutput(observations=observations, reward=self.reward, done=done, metadata=metadata)

    def _scored(self, fork: foldspace.sync.Session) -> float:
        lines = fork.run(self.score, timeout=self.timeout).stdout.split("\n")
        try:
            reward = float(next(line for line in reversed(lines) if line.strip()))
        except (StopIteration, ValueError):
            reward = 0.0
        fork.annotate("reward", score=reward)
        return reward

    def get_metrics(self) -> dict[str, Any]:
        """Returns the metrics of the episode."""
        return {"turns": self.turns, "reward": self.reward}

    def close(self) -> None:
        """Removes the fork, unless `keep` is set."""
        fork, self.fork = self.fork, None
        if fork is not None and not self.keep:
            fork.remove()
