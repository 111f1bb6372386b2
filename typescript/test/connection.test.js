import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { Client, findFoldspaceBin } from "../dist/index.js";
import { world } from "./world.js";

/** Serves over TCP, and gives a port behind which connections can be cut, and the token. */
async function remote(t) {
  const own = world(t);
  const server = spawn(findFoldspaceBin(), ["--data", own.data, "serve", "--http", "127.0.0.1:0"], { stdio: ["ignore", "pipe", "ignore"] });
  let said = "";
  for await (const piece of server.stdout) {
    said += piece;
    if (/token/.test(said)) break;
  }
  const port = Number(/http:\/\/127\.0\.0\.1:(\d+)/.exec(said)[1]);
  const cut = new Set();
  const between = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    for (const socket of [near, far]) socket.on("error", () => {});
    near.pipe(far).pipe(near);
    cut.add(near);
  }).listen(0, "127.0.0.1");
  await once(between, "listening");
  t.after(() => {
    between.close();
    for (const socket of cut) socket.destroy();
  });
  const token = readFileSync(join(own.data, "http.token"), "utf8").trim();
  return { url: `http://127.0.0.1:${between.address().port}`, token, cut };
}

test("a session over TCP needs its token, and events miss nothing when connections break", async (t) => {
  const { url, token, cut } = await remote(t);
  await assert.rejects(new Client({ url, token: "wrong" }).sessions(), { kind: "unauthorized" });
  const s = await new Client({ url, token }).create({ backend: "host", autoConfirm: true });
  assert.equal((await s.run("echo far")).stdout, "far\n");
  await assert.rejects(s.forward(8000), { kind: "unusable" });
  const seqs = [];
  let cuts = 0;
  for await (const event of s.events()) {
    seqs.push(event.seq);
    if (event.kind === "DeleteEntry") break;
    if (cuts < 2) {
      cuts += 1;
      for (const socket of cut) socket.destroy();
      await s.files.write(`after-${cuts}`, "x");
      if (cuts === 2) await s.files.remove("after-1");
    }
  }
  assert.equal(cuts, 2);
  assert.deepEqual(seqs, Array.from(seqs, (_, n) => n + 1));
});

test("an abort cancels a long command, a bisection and a read", async (t) => {
  const s = await world(t).create({ backend: "host", autoConfirm: true });
  const stop = new AbortController();
  const long = `# ${"x".repeat(10_000)}\necho ready; exec sleep 1000`;
  await assert.rejects(s.run(long, { signal: stop.signal, onStdout: () => stop.abort() }), { name: "AbortError" });
  // It would wait for the end of the command.
  const good = (await s.files.write("a", "1")).finished;
  const bad = (await s.files.write("a", "2")).finished;
  const command = "touch begun; exec sleep 1000";
  await assert.rejects(s.bisect({ command, good, bad, timeout: 60, signal: AbortSignal.timeout(1000) }), { name: "TimeoutError" });
  await assert.rejects(s.files.read("a", { signal: AbortSignal.abort() }), { name: "AbortError" });
  await s.tag("here", bad);
  assert.deepEqual(await s.tags(), { here: bad });
  await s.untag("here");
  assert.deepEqual(await s.tags(), {});
});

test("a call is made once, also when its server is killed", async (t) => {
  const client = world(t);
  const s = await client.create({ backend: "host", autoConfirm: true });
  const status = spawnSync(findFoldspaceBin(), ["--data", client.data, "--json", "status"], { encoding: "utf8" });
  const { process } = JSON.parse(status.stdout);
  const cut = s.run(`echo once >> count; kill -9 ${process}; sleep 60`);
  await assert.rejects(cut, (error) => error.outcome?.status === "interrupted" && error.outcome.repeated === true);
  assert.equal((await s.run("cat count")).stdout, "once\n");
});
