import assert from "node:assert/strict";
import { test } from "node:test";
import { forkAndSelect } from "../dist/index.js";
import { world } from "./world.js";

const demo = (t) => world(t).create({ name: "demo", backend: "host", autoConfirm: true });

test("the best of several forks is merged", async (t) => {
  const s = await demo(t);
  let [working, most] = [0, 0];
  const attempt = async (fork) => {
    most = Math.max(most, (working += 1));
    try {
      if (fork.name.endsWith("2")) throw new Error("broken");
      await fork.run(`seq ${fork.name.at(-1)} > list.txt`, { check: true });
      return fork.name;
    } finally {
      working -= 1;
    }
  };
  const lines = async (fork) => -(await fork.files.readText("list.txt")).trim().split("\n").length;
  const chosen = await forkAndSelect(s, 4, attempt, lines, { parallel: 2 });
  assert.equal(most, 2);
  assert.deepEqual(chosen.candidates.map((each) => each.score), [-1, null, -3, -4]);
  assert.ok(chosen.best === chosen.candidates[0] && chosen.best.result === "demo-1");
  assert.equal(chosen.candidates[1].error.message, "broken");
  assert.equal(chosen.merged.outcome, "merged");
  assert.equal(await s.files.readText("list.txt"), "1\n");
  assert.deepEqual((await s.children()).map((each) => each.name), ["demo-1"]);
  const scores = await s.annotations("score");
  assert.deepEqual([scores.map((each) => each.score), scores[1].note], [[-1, null, -3, -4], "demo-2: broken"]);
  assert.deepEqual((await chosen.best.session.annotations("score")).map((each) => each.score), [-1]);
});

test("without a best, or without a merge, the session is unchanged", async (t) => {
  const s = await demo(t);
  const broken = async (fork) => {
    throw new Error(`broken ${fork.name}`);
  };
  await assert.rejects(forkAndSelect(s, 2, broken, () => 1), (error) => /all 2 forks failed: broken demo-1/.test(error.message) && error.cause.message === "broken demo-1");
  assert.deepEqual(await s.children(), []);
  const work = (fork) => fork.files.write("a.txt", fork.name);
  await assert.rejects(forkAndSelect(s, 2, work, () => 1, { parallel: 0 }), /parallel is 0/);
  const chosen = await forkAndSelect(s, 2, work, () => 1, { merge: false, keep: true });
  assert.ok(chosen.merged === null && chosen.best === chosen.candidates[0]);
  assert.deepEqual([(await s.children()).length, await s.files.list()], [2, []]);
});

test("an abort removes the forks", async (t) => {
  const s = await demo(t);
  const stop = new AbortController();
  const forever = async (fork) => {
    await fork.start("sleep 60");
    await fork.run("echo ready; sleep 60", { onStdout: () => stop.abort() });
  };
  await assert.rejects(forkAndSelect(s, 3, forever, () => 1, { parallel: 2, signal: stop.signal }), { name: "AbortError" });
  assert.deepEqual(await s.children(), []);
});
