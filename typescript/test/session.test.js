import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { z } from "zod";
import { CommandFailedError, FoldspaceError, session } from "../dist/index.js";
import { backends, world } from "./world.js";

const text = (bytes) => new TextDecoder().decode(bytes);

for (const backend of backends) {
  test(`commands and files work on ${backend}`, async (t) => {
    const s = await world(t).create({ backend, autoConfirm: true });
    const pieces = [];
    const ran = await s.run("echo out; echo err >&2; cat; exit 3", { stdin: "in", onOutput: (stream, bytes) => pieces.push([stream, text(bytes)]) });
    assert.deepEqual([ran.exitCode, ran.stdout, ran.stderr, ran.ok], [3, "out\nin", "err\n", false]);
    assert.ok(pieces.some(([stream]) => stream === "stderr"));
    await assert.rejects(s.run("false", { check: true }), CommandFailedError);
    const bytes = Uint8Array.from({ length: 70_000 }, (_, n) => n % 256);
    await s.files.write("a/b é.bin", bytes, { executable: true });
    assert.deepEqual(await s.files.read("a/b é.bin"), bytes);
    assert.equal((await s.run(["sh", "-c", "wc -c < 'a/b é.bin'; test -x 'a/b é.bin'"], { check: true })).stdout.trim(), "70000");
    const streamed = await s.files.stream("a/b é.bin");
    let count = 0;
    for await (const piece of streamed) count += piece.length;
    assert.equal(count, 70_000);
    await s.files.write("streamed", new Blob(["one ", "two"]).stream());
    assert.equal(await s.files.readText("streamed"), "one two");
    await s.files.move("streamed", "moved");
    await s.files.mkdir("d");
    assert.deepEqual((await s.files.list()).map((entry) => entry.path).sort(), ["a", "d", "moved"]);
    assert.equal(await s.files.exists("streamed"), false);
    await s.files.remove("a", { recursive: true });
    await assert.rejects(s.files.read("a/b é.bin"), (error) => error instanceof FoldspaceError && error.kind === "not_found");
    const long = `# ${"x".repeat(100_000)}\necho long`;
    assert.equal((await s.run(long)).stdout, "long\n");
  });

  test(`files of a command that runs on ${backend} are seen live`, async (t) => {
    const s = await world(t).create({ backend, autoConfirm: true });
    const stop = new AbortController();
    const running = s.run("echo one > new; sleep 600", { signal: stop.signal }).catch((error) => error);
    const read = () => s.files.readText("new", { live: true }).catch(() => "");
    while ((await read()) !== "one\n") await new Promise((done) => setTimeout(done, 20));
    const stat = await s.files.stat("new", { live: true });
    assert.ok(stat.size === 4 && stat.live_at > 1);
    assert.deepEqual((await s.files.list("", { live: true })).map((entry) => entry.path), ["new"]);
    assert.deepEqual((await s.changes({ live: true })).changes.map((change) => change.path), ["new"]);
    assert.equal(await s.files.exists("new"), false);
    stop.abort();
    await running;
  });

  test(`processes run on ${backend} beside calls`, async (t) => {
    const s = await world(t).create({ backend, autoConfirm: true });
    const process = await s.start("read line; echo got $line; echo x > made; exit 5", { input: true });
    assert.equal((await s.run("echo beside")).stdout, "beside\n");
    assert.equal((await s.processes()).length, 1);
    await process.send("hello\n", { end: true });
    const result = await process.collect();
    assert.deepEqual([result.exitCode, result.stdout], [5, "got hello\n"]);
    assert.equal(await s.files.readText("made"), "x\n");
    const endless = await s.start("exec sleep 1000");
    await endless.kill();
    assert.equal((await endless.wait()).signal, 9);
  });
}

test("time goes back, forks go their own way, and a merge brings them home", async (t) => {
  const s = await world(t).create({ backend: "host", autoConfirm: true });
  const { finished } = await s.files.write("a.txt", "one\n");
  await s.tag("first", finished);
  const second = (await s.files.write("a.txt", "two\n")).finished;
  assert.equal(await s.at("tag:first").files.readText("a.txt"), "one\n");
  const [one, two] = await s.fork({ count: 2, at: "tag:first", name: "try" });
  assert.deepEqual([one.name, await one.files.readText("a.txt")], ["try-1", "one\n"]);
  await two.files.write("b.txt", "of the fork\n");
  const merged = await s.merge(two);
  assert.equal(merged.outcome, "merged");
  await assert.rejects(s.merge(two, { ours: ["*.lok"] }), /`\*\.lok`/);
  const again = await s.merge(two, { ours: ["**/*.txt"], generated: ["r/**"], dryRun: true });
  assert.deepEqual([again.outcome, again.unused, again.generated], ["nothing", ["**/*.txt"], []]);
  assert.equal(await s.files.readText("b.txt"), "of the fork\n");
  const other = await s.clone({ isolation: "shared", agent: "second" });
  assert.equal(await other.files.readText("b.txt"), "of the fork\n");
  assert.deepEqual((await s.verify()).differences, []);
  await assert.rejects(s.apply({ dryRun: true }), (error) => error instanceof FoldspaceError && /directory/.test(error.message));
  await two.annotate("reward", { score: 0.5, note: "nearly" });
  assert.equal((await two.annotations("reward"))[0].score, 0.5);
  const diff = await s.diff({ from: "tag:first" });
  assert.deepEqual(diff.changes.map((change) => change.path).sort(), ["a.txt", "b.txt"]);
  assert.deepEqual((await s.rewind("tag:first", { keepEarlier: true, git: true, dryRun: true })).dry_run, true);
  await s.rewind("tag:first");
  assert.equal(await s.files.readText("a.txt"), "one\n");
  const found = await s.bisect({ command: ["sh", "-c", "! grep two a.txt"], good: finished, bad: second, jobs: 2 });
  assert.ok(found.bad, JSON.stringify(found));
  assert.ok((await s.log()).some((event) => event.kind === "SessionRewound"));
  assert.ok((await s.state("Usage")).value.events > 5);
});

test("calls are found, reruns and other sessions compared", async (t) => {
  const s = await world(t).create({ name: "first", backend: "host", autoConfirm: true });
  await s.run("echo one > a.txt; echo two >> a.txt");
  await s.run("exit 3");
  const [wrote, failed] = await s.calls();
  assert.deepEqual((await s.calls({ failed: true })).map((call) => call.call), [failed.call]);
  assert.equal((await s.until(["failed", "path b.txt"], { from: wrote.finished })).call, failed.call);
  assert.equal((await s.until("path *.txt", { backward: true })).call, wrote.call);
  assert.equal(await s.until("path b.txt"), undefined);
  assert.deepEqual((await s.changes({ to: wrote.finished })).changes.map((change) => change.path), ["a.txt"]);
  assert.deepEqual((await s.blame("/a.txt")).lines.map((line) => line.line), ["one", "two"]);
  const again = await s.rerun({ keep: "again" });
  assert.deepEqual([again.same, again.calls, again.name], [true, 2, "again"]);
  assert.ok((await s.align("again")).rows.every((row) => row.same));
  const [fork] = await s.fork({ name: "fork", limits: { calls: 1 } });
  assert.deepEqual((await s.family()).sessions.map((member) => member.name), ["first", "fork"]);
  await fork.run("true");
  await assert.rejects(fork.run("true"), /used up its 1 call/);
});

test("batches of children are dispatched and compared", async (t) => {
  const client = world(t);
  const s = await client.create({ name: "lead", backend: "host", autoConfirm: true });
  const write = { tool: "write_file", params: { file_path: "b.txt", content: "b\n" } };
  const fails = { tool: "shell_execute", params: { command: "exit 3" } };
  const batch = [{ name: "try-1", calls: [write] }, { name: "try-2", calls: [write, fails, write] }];
  const { children } = await s.dispatch(batch, { merge: true });
  assert.deepEqual(children.map((child) => [child.status, child.merge]), [["done", "merged"], ["failed", null]]);
  assert.equal(await s.files.readText("b.txt"), "b\n");
  const tree = await client.compare([s, "try-*"]);
  assert.deepEqual([tree.runs, tree.branches.at(-1).ended[0].name], [3, "try-2"]);
  await assert.rejects(s.dispatch([]), /0 children/);
});

test("events and changes come as they happen", async (t) => {
  const s = await world(t).create({ backend: "host", autoConfirm: true });
  const stop = new AbortController();
  const seen = [];
  const watching = (async () => {
    for await (const change of s.files.watch("src", { signal: stop.signal })) {
      seen.push(change);
      if (seen.length === 2) return;
    }
  })();
  const kinds = [];
  const following = (async () => {
    for await (const event of s.events()) {
      kinds.push(event.kind);
      if (event.kind === "DeleteEntry") return;
    }
  })();
  await new Promise((done) => setTimeout(done, 300));
  await s.files.write("src/a", "x");
  await s.files.remove("src/a");
  await Promise.all([watching, following]);
  assert.deepEqual(seen.filter((change) => change.path === "src/a").map((change) => change.kind), ["create", "remove"]);
  assert.equal(kinds[0], "SessionStarted");
});

test("a slice of your own has the type of its schema", async (t) => {
  const s = await world(t).create({ backend: "memory" });
  const step = z.object({ id: z.number(), status: z.string().default("open") });
  const steps = s.slice("Step", step, { fold: "latest_by", key: "/id" });
  const first = await steps.emit({ id: 1 });
  await steps.emit({ id: 1, status: "done" });
  assert.deepEqual(await steps.get(), { 1: { id: 1, status: "done" } });
  assert.deepEqual(await steps.get(first), { 1: { id: 1, status: "open" } });
  await assert.rejects(steps.emit({ id: "one" }), z.ZodError);
  const last = s.slice("Last", step, { fold: "latest", kind: "own.Step" });
  assert.deepEqual(await last.get(), { id: 1, status: "done" });
  const all = s.slice("All", step, { fold: "append", max: 1, kind: "own.Step" });
  assert.deepEqual(await all.get(), [{ id: 1, status: "done" }]);
  assert.equal(await s.slice("None", step, { fold: "latest" }).get(), null);
  await assert.rejects(s.slice("Usage", step, { fold: "latest" }).get(), FoldspaceError);
});

test("an abort cancels the command, and refusals say why", async (t) => {
  const client = world(t);
  const s = await client.create({ backend: "host", autoConfirm: true });
  const stop = new AbortController();
  const running = s.run("touch begun; echo ready; exec sleep 1000", { signal: stop.signal, onOutput: () => stop.abort() });
  await assert.rejects(running, { name: "AbortError" });
  assert.equal((await s.run("echo next")).stdout, "next\n");
  assert.equal((await s.state("ToolCalls")).value.calls[0].status, "interrupted");
  const asks = await client.open(s.id, { onQuestion: ({ programs }) => (programs.includes("touch") ? "once" : "refuse") });
  assert.equal((await asks.run("touch asked && echo yes")).stdout, "yes\n");
  await assert.rejects(asks.run("rm begun"), (error) => error.kind === "refused" && !error.isInfrastructure);
  const nobody = await client.open(s.name);
  await assert.rejects(nobody.run("touch other"), /allow, autoConfirm or onQuestion/);
  await assert.rejects(client.open("nothing"), { kind: "not_found" });
  const again = { createId: "once", name: "same" };
  assert.equal((await client.create(again)).id, (await client.create(again)).id);
});

test("a server that cannot start, or is gone, is an infrastructure failure", async (t) => {
  const client = world(t);
  await client.create();
  const s = await client.create({ backend: "host", autoConfirm: true });
  await client.stopServer();
  const unlessEnding = (error) => {
    if (!["ending", "connection"].includes(error.kind)) throw error;
  };
  let ran;
  while (!ran) ran = await s.run("echo again").catch(unlessEnding);
  assert.equal(ran.stdout, "again\n", "it is started again");
  await assert.rejects(session({ data: "/dev/null/none" }), (error) => error.isInfrastructure && error.detail.length > 0);
});

test("the program of the package runs, and a script ends by itself", async () => {
  const bin = new URL("../bin/foldspace.js", import.meta.url).pathname;
  const said = spawnSync(process.execPath, [bin, "--version"], { encoding: "utf8" });
  assert.match(said.stdout, /^foldspace \d/);
  assert.equal(spawnSync(process.execPath, [bin, "nonsense"]).status, 2);
});
