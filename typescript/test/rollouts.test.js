import assert from "node:assert/strict";
import { test } from "node:test";
import { backends, example, world } from "./world.js";

async function collected(rollouts) {
  const all = [];
  for await (const rollout of rollouts) all.push(rollout);
  return all.sort((a, b) => a.number - b.number);
}

const running = async (s) => {
  let count = 0;
  for (const child of await s.children()) count += (await child.calls()).filter(({ status }) => status === "running").length;
  return count;
};

async function until(condition) {
  for (const end = Date.now() + 10_000; !(await condition()); await new Promise((done) => setTimeout(done, 50)))
    assert.ok(Date.now() < end, "it never came");
}

for (const backend of backends) {
  test(`the best rollouts stay: ${backend}`, async (t) => {
    const client = world(t);
    const s = await client.create({ name: "demo", backend, autoConfirm: true });
    await s.files.write("list.txt", "0\n");
    const before = await s.head();
    await s.files.remove("list.txt");
    const lists = [1, 4, 2, 3].map((lines) => [`seq ${lines} >> list.txt`]);
    const rolled = await collected(s.rollouts(lists, { at: before, score: "wc -l < list.txt", keep: 2, parallel: 2, name: "try", agent: "coder" }));
    assert.deepEqual(rolled.map(({ score, kept, status }) => [score, kept, status]), [[2, false, "done"], [5, true, "done"], [3, false, "done"], [4, true, "done"]]);
    const { session: fork, changed } = rolled[1];
    assert.deepEqual([fork.name, fork.agent, fork.parent, changed], ["try-2", "coder", s.id, ["list.txt"]]);
    assert.equal(await fork.files.readText("list.txt"), "0\n1\n2\n3\n4\n");
    assert.deepEqual((await s.children()).map(({ name }) => name), ["try-2", "try-4"]);
    await assert.rejects(rolled[0].session.show(), { kind: "not_found" });
  });
}

test("failed rollouts have reasons, and requests that do not fit leave no forks", async (t) => {
  const s = await world(t).create({ name: "demo", backend: "host", autoConfirm: true });
  const write = { tool: "write_file", params: { file_path: "once", content: "1" } };
  const failed = await collected(s.rollouts([write, "exit 3", "touch never"], { count: 2, keep: 0 }));
  assert.deepEqual(failed.map(({ status, reason, score, kept }) => [status, reason, score, kept]), Array(2).fill(["failed", "call 2 (shell_execute) failed: exit 3", 0, false]));
  assert.deepEqual(failed[0].calls.map(({ tool }) => tool), ["write_file", "shell_execute"]);
  await assert.rejects(collected(s.rollouts([["true"], ["true"]], { count: 3 })), /needs 1 or 3/);
  await assert.rejects(collected(s.rollouts([])), /0 lists/);
  await assert.rejects(collected(s.rollouts("true", { at: 10_000 })), { kind: "not_found" });
  assert.deepEqual(await s.children(), []);
});

test("leaving the loop or an abort cancels the others", async (t) => {
  const client = world(t);
  const s = await client.create({ name: "demo", backend: "host", autoConfirm: true });
  for await (const { number } of s.rollouts([["true"], ["sleep 60"], ["sleep 60"]])) {
    assert.equal(number, 0);
    await until(async () => (await running(s)) === 2);
    break;
  }
  await until(async () => (await running(s)) === 0);
  const stop = new AbortController();
  const working = collected(s.rollouts("sleep 60", { count: 2, signal: stop.signal }));
  await until(async () => (await running(s)) === 2);
  stop.abort();
  await assert.rejects(working, { name: "AbortError" });
  await until(async () => (await running(s)) === 0);
});

test("rollouts that end at once are all yielded", async (t) => {
  const s = await world(t).create({ backend: "memory" });
  for (let n = 1; n <= 30; n += 1) assert.equal((await collected(s.rollouts([[]], { count: n, keep: 0 }))).length, n);
});

test("the documented loop yields all rollouts", async (t) => {
  const s = await world(t).create({ backend: "host", autoConfirm: true });
  await s.files.write("test.sh", "exit 0");
  const seen = [];
  await example("for await (const { number, score }", { s, console: { log: (...each) => seen.push(each) } }, "rollouts.md");
  assert.deepEqual(seen.sort(), Array.from({ length: 8 }, (_, number) => [number, 1]));
  assert.equal((await s.children()).length, 1);
});
