"""Repairs a project by a tree search over edits: best-first, by the number of passing tests, without a model.

    python tree_search.py

A node is a position in a fork. Its edits are rollouts from this position, scored by the project's tests; the best become
nodes. A model would propose the edits in `edits`. The forks stay in the data directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import heapq
import re

import foldspace
from foldspace.types import Call

SOURCE = """\
def mean(values):
    return sum(values) / (len(values) - 1)


def spread(values):
    return max(values) + min(values)


def above(values, limit):
    return [value for value in values if value < limit]


def clamp(value, low, high):
    return max(high, min(low, value))
"""
TESTS = """\
import unittest

from stats import above, clamp, mean, spread


class Stats(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(mean([2, 4, 6]), 4)

    def test_spread(self):
        self.assertEqual(spread([7, 2, 4]), 5)

    def test_above(self):
        self.assertEqual(above([1, 5, 9], 4), [5, 9])

    def test_clamp_of_inner_values(self):
        self.assertEqual(clamp(4, 3, 6), 4)

    def test_clamp_of_outer_values(self):
        self.assertEqual([clamp(1, 3, 6), clamp(9, 3, 6)], [3, 6])
"""
# Prints the number of passing tests. Without -B, a test could use the compiled code of an earlier edit.
SCORE = """python3 -B -c '
import unittest
result = unittest.TestResult()
unittest.defaultTestLoader.discover(".").run(result)
print(result.testsRun - len(result.failures) - len(result.errors))'"""
SWAPS = {"+": "-", "-": "+", "<": ">", ">": "<", "max": "min", "min": "max", "0": "1", "1": "0"}


@dataclasses.dataclass(order=True)
class Node:
    """A position of the search; the best is the smallest."""

    failing: int
    depth: int
    session: foldspace.Session = dataclasses.field(compare=False)
    position: int | str = dataclasses.field(compare=False)


def edits(source: str) -> list[str]:
    """Returns the sources after each possible edit: one operator, name or number is swapped."""
    found = re.finditer(r"max|min|[-+<>]|\b[01]\b", source)
    return [source[: each.start()] + SWAPS[each[0]] + source[each.end() :] for each in found]


async def search(session: foldspace.Session, path: str, tests: int, keep: int = 4) -> tuple[Node, int]:
    """Returns the first node whose tests all pass, and the number of rollouts."""
    tried, rollouts, tie = set[str](), 0, 0
    nodes = [(Node(tests, 0, session, await session.head()), tie)]
    while nodes:
        node = heapq.heappop(nodes)[0]
        source = (await node.session.at(node.position).files.read(path)).decode()
        new = [each for each in edits(source) if each not in tried]
        tried.update(new)
        if not new:
            continue
        params = [{"file_path": path, "content": each, "mode": "overwrite"} for each in new]
        calls: list[list[Call]] = [[{"tool": "write_file", "params": each}] for each in params]
        ended: list[foldspace.Rollout] = []
        stream = node.session.rollouts(calls, at=node.position, score=SCORE, keep=keep)
        # Leaving the loop cancels the other rollouts.
        async with contextlib.aclosing(stream) as rolled:
            async for each in rolled:
                ended.append(each)
                if each.score == tests:
                    return Node(0, node.depth + 1, each.session, await each.session.head()), rollouts + len(ended)
        rollouts += len(ended)
        for each in sorted(ended, key=lambda each: each.number):
            if each.kept and each.score is not None:
                # The position before the tests ran, without their temporary files.
                position = f"before:{each.calls[-1]['call']}"
                found = Node(tests - int(each.score), node.depth + 1, each.session, position)
                heapq.heappush(nodes, (found, tie := tie + 1))
        print(f"depth {node.depth + 1}: {len(ended)} edits, best {max(each.score or 0 for each in ended):.0f} of {tests}")
    raise LookupError("no edits make all tests pass")


async def main() -> None:
    """Repairs the project, and prints the patch."""
    async with foldspace.session(backend="host", auto_confirm=True) as session:
        await session.files.write("stats.py", SOURCE)
        await session.files.write("test_stats.py", TESTS)
        broken = await session.head()
        found, rollouts = await search(session, "stats.py", tests=TESTS.count("def test_"))
        print(f"repaired in {rollouts} rollouts, by {found.depth} edits:")
        print((await found.session.diff(broken)).patch, end="")


if __name__ == "__main__":
    asyncio.run(main())
