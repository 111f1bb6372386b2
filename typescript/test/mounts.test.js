import assert from "node:assert/strict";
import { existsSync, openSync, closeSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "../dist/index.js";
import { backends, world } from "./world.js";

const skip = !existsSync("/dev/fuse");
const textIn = ({ directory }) => readFileSync(join(directory, "a"), "utf8");

async function until(condition) {
  for (const end = Date.now() + 10_000; !(await condition()); await sleep(20)) assert.ok(Date.now() < end, "it never came");
}

for (const backend of backends) {
  test(`mounts on ${backend} have old files, or follow the session`, { skip }, async (t) => {
    const s = await world(t).create({ backend, autoConfirm: true });
    const { finished } = await s.run("echo one > a", { check: true });
    await s.run("echo two > a; echo x > b", { check: true });
    const past = await s.mounted({ at: finished });
    assert.deepEqual([readdirSync(past.directory), textIn(past)], [["a"], "one\n"]);
    assert.throws(() => writeFileSync(join(past.directory, "a"), "mine"), { code: "EROFS" });
    const now = await s.mounted({ all: true });
    assert.equal(readFileSync(join(now.directory, `.at/${finished}/a`), "utf8"), "one\n");
    await s.run("echo three > a", { check: true });
    await until(() => textIn(now) === "three\n");
    assert.deepEqual((await s.mounts()).map(({ directory, at }) => [directory, at]).sort(), [[past.directory, finished], [now.directory, null]].sort());
    // A file that is still open does not prevent the end.
    const held = openSync(join(now.directory, "a"));
    await past[Symbol.asyncDispose]();
    await now.close();
    assert.deepEqual([past, now].map(({ directory }) => existsSync(join(directory, "a"))), [false, false]);
    closeSync(held);
    await until(async () => !existsSync(now.directory) && (await s.mounts()).length === 0);
    await assert.rejects(s.mounted({ at: 999 }), { kind: "not_found" });
  });
}

test("the last of equal mounts unmounts, and another client's mount stays", { skip }, async (t) => {
  const client = world(t);
  const s = await client.create();
  await s.files.write("a", "one");
  const [first, second] = await Promise.all([s.mounted(), s.mounted()]);
  assert.equal(first.directory, second.directory);
  const other = new Client({ data: client.data });
  const shared = await (await other.open(s.id)).mounted();
  await shared.close();
  other.close();
  await first.close();
  await first.close();
  assert.equal(textIn(second), "one");
  await second.close();
  assert.equal(existsSync(join(second.directory, "a")), false);
  await assert.rejects(s.unmount("/no/such"), { kind: "not_found" });
});

test("a mount ends with its session, or when it is unmounted", { skip }, async (t) => {
  const s = await world(t).create();
  await s.files.write("a", "one");
  const then = await s.mounted({ at: 0 });
  const held = openSync(then.directory);
  await assert.rejects(s.unmount(then.directory), { kind: "refused" });
  closeSync(held);
  await s.unmount(then.directory);
  await then.close();
  const now = await s.mounted();
  await s.remove();
  await until(() => !existsSync(now.directory));
  await now.close();
});
