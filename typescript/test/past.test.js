import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { world } from "./world.js";

test("children are listed with their agents", async (t) => {
  const client = world(t);
  const s = await client.create({ backend: "host", autoConfirm: true, agent: "lead" });
  assert.deepEqual(await s.children(), []);
  const [one, two] = await s.fork({ count: 2, agent: "coder" });
  const full = await s.clone({ isolation: "full", name: "full", agent: "tester" });
  const shared = await s.clone({ isolation: "shared", agent: "reviewer" });
  assert.deepEqual([s.parent, one.parent, shared.parent, shared.agent, s.agent], [null, s.id, null, "reviewer", "lead"]);
  const [below] = await one.fork();
  const children = await s.children();
  assert.deepEqual(children.map((each) => [each.id, each.agent]), [[one.id, "coder"], [two.id, "coder"], [full.id, "tester"]]);
  await children[0].run("true", { check: true });
  assert.equal((await one.calls()).at(-1).agent, "coder");
  // The fork of a fork has its history, but not its children.
  assert.deepEqual((await one.children()).map((each) => each.id), [below.id]);
  await two.remove();
  assert.deepEqual((await (await client.open(s.name)).children()).map((each) => each.id), [one.id, full.id]);
});

test("history is searched, counted and shown", async (t) => {
  const s = await world(t).create({ backend: "host", autoConfirm: true });
  const ran = await s.run("echo Needle > a.txt; echo other");
  await s.run("exit 3");
  assert.equal(await s.head(), (await s.log()).at(-1).seq);
  assert.deepEqual((await s.search("needle", { ignoreCase: true, place: "file" })).map((hit) => hit.path), ["a.txt"]);
  assert.deepEqual(await s.search("needle"), []);
  assert.deepEqual((await s.showCall(ran.call)).paths, ["a.txt"]);
  assert.equal((await s.timeline({ failed: true })).calls, 1);
  const kinds = new Set((await s.log(1, { kind: "SessionStarted,WriteFile" })).map((event) => event.kind));
  assert.ok(kinds.has("SessionStarted") && !kinds.has("ToolCallStarted"));
  const running = s.run("sleep 0.5; echo late");
  let call;
  while (call === undefined) call = (await s.calls()).find((each) => each.status === "running")?.call;
  const pieces = [];
  for await (const { stream, bytes } of s.output(call)) pieces.push(stream, new TextDecoder().decode(bytes));
  assert.deepEqual(pieces, ["stdout", "late\n"]);
  await running;
  assert.deepEqual(await s.messages(), []);
});

test("a failed call is undone, a call ends in time, and a directory is mounted", async (t) => {
  const client = world(t);
  const s = await client.create({ backend: "host", autoConfirm: true });
  await s.call("shell_execute", { command: "echo x > a.txt; exit 3" }, { onFailure: "undo" });
  assert.deepEqual(await s.files.list(), []);
  await assert.rejects(s.call("shell_execute", { command: "sleep 30" }, { timeout: 0.3 }));
  assert.ok((await s.run("sleep 30", { timeout: 1.2 })).seconds < 2);
  await assert.rejects(s.run("true", { timeout: 0.2 }), { kind: "invalid" });
  const process = await s.start("read line; echo $line", { input: true });
  const again = await s.process(process.number);
  await again.send("same\n", { end: true });
  assert.equal((await process.collect()).stdout, "same\n");
  const folder = mkdtempSync(join(tmpdir(), "foldspace-ts-"));
  t.after(() => rmSync(folder, { recursive: true }));
  for (const name of ["a.txt", "b.log"]) writeFileSync(join(folder, name), name);
  const fresh = await client.create({ backend: "host" });
  await fresh.mount(folder, { mountPath: "here", exclude: ["*.log"] });
  assert.deepEqual((await fresh.files.list("", { depth: 2 })).map((entry) => entry.path), ["here", "here/a.txt"]);
});

test("effects stay after a rewind, and a rerun repeats them only if allowed", async (t) => {
  const s = await world(t).create({ backend: "host", autoConfirm: true, agent: "pusher" });
  const { finished } = await s.files.write("bin/git", "#!/bin/sh\necho pushed", { executable: true });
  const pushed = await s.run("PATH=$PWD/bin:$PATH; git push origin main", { check: true });
  await s.recordEffect("deploy", "staging", { outcome: "unknown", undo: "deploy the last release", call: pushed.call });
  await s.recordEffect("deploy", "staging", { call: pushed.call });
  const effects = await s.effects();
  const shown = effects.map(({ call, agent, what, target, outcome, by }) => [call, agent, what, target, outcome, by]);
  assert.deepEqual(shown, [
    [pushed.call, "pusher", "git push", "origin main", "done", "command"],
    [pushed.call, "pusher", "deploy", "staging", "done", "report"],
  ]);
  await assert.rejects(s.rerun(), { kind: "refused", message: /would take place again: git push origin main/ });
  assert.equal((await s.rerun({ repeatEffects: true })).same, true);
  assert.deepEqual((await s.rewind(finished)).effects, effects);
  assert.deepEqual(await s.effects(), effects);
  await assert.rejects(s.recordEffect(""), { kind: "unusable" });
});
