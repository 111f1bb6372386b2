// A separate server for a test, on the host or on Podman where there is one; examples of the documentation.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, findFoldspaceBin } from "../dist/index.js";

export const backends = process.env.CONTAINER_HOST && process.env.FOLDSPACE_IMAGE ? ["host", "podman"] : ["host"];

/** Gives a client with `data` of its own, which are gone after the test. */
export function world(t) {
  const data = mkdtempSync(join(tmpdir(), "foldspace-ts-"));
  const client = Object.assign(new Client({ data }), { data });
  t.after(async () => {
    try {
      for (const { session } of await client.sessions()) await (await client.open(session)).remove().catch(() => {});
    } finally {
      // It waits until the server has ended, which one without clients begins to do by itself.
      spawnSync(findFoldspaceBin(), ["--data", data, "stop"]);
      client.close();
      rmSync(data, { recursive: true, force: true, maxRetries: 10 });
    }
  });
  return client;
}

/** Runs the JavaScript block of a page that begins with a text, with names that it uses. */
export async function example(start, names, page = "integrations.md") {
  const text = readFileSync(new URL(`../../docs/${page}`, import.meta.url), "utf8");
  const block = text.split("\n```js\n").slice(1).map((each) => each.split("\n```")[0]).find((each) => each.startsWith(start));
  const AsyncFunction = (async () => {}).constructor;
  await new AsyncFunction(...Object.keys(names), block)(...Object.values(names));
}
