import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { findFoldspaceBin } from "../dist/index.js";

const at = (path) => new URL(path, import.meta.url).pathname;

/** Finds a program in the packages of one publisher: npm has installed that of this machine. */
function found(publisher, program) {
  const folder = at(`../node_modules/${publisher}`);
  const paths = readdirSync(folder).map((each) => join(folder, each, program));
  return paths.find((path) => existsSync(path));
}

const runtimes = {
  deno: { program: found("@deno", "deno"), script: ["run", "--allow-all"], tests: ["test", "--allow-all", "--no-check"] },
  bun: { program: found("@oven", "bin/bun"), script: ["run"], tests: ["test", "--timeout=60000"] },
};
const adapters = ["ai", "langgraph", "mastra", "selection", "services", "threads"].map((name) => `./${name}.test.js`);

for (const [name, { program, script, tests }] of Object.entries(runtimes)) {
  const run = (t, args) => {
    const data = mkdtempSync(join(tmpdir(), "foldspace-ts-"));
    t.after(() => {
      spawnSync(findFoldspaceBin(), ["--data", data, "stop"]);
      rmSync(data, { recursive: true, force: true, maxRetries: 10 });
    });
    const env = { ...process.env, FOLDSPACE_DATA: data };
    const ran = spawnSync(program, args, { cwd: at("."), env, encoding: "utf8", timeout: 120_000 });
    assert.equal(ran.status, 0, ran.error?.message ?? ran.stdout + ran.stderr);
  };
  test(`the client works in ${name}`, (t) => run(t, [...script, "runtime.js"]));
  test(`the adapters work in ${name}`, (t) => run(t, [...tests, ...adapters]));
}
