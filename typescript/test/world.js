// A server of its own for a test, on the host or on Podman where there is one.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
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
