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

const runtimes = { deno: [found("@deno", "deno"), "run", "--allow-all"], bun: [found("@oven", "bin/bun"), "run"] };

for (const [name, command] of Object.entries(runtimes)) {
  test(`the client works in ${name}`, (t) => {
    const data = mkdtempSync(join(tmpdir(), "foldspace-ts-"));
    t.after(() => {
      spawnSync(findFoldspaceBin(), ["--data", data, "stop"]);
      rmSync(data, { recursive: true, force: true, maxRetries: 10 });
    });
    const env = { ...process.env, FOLDSPACE_DATA: data };
    const ran = spawnSync(command[0], [...command.slice(1), at("runtime.js")], { env, encoding: "utf8", timeout: 60_000 });
    assert.equal(ran.status, 0, ran.error?.message ?? ran.stderr);
  });
}
