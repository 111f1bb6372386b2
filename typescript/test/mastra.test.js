import assert from "node:assert/strict";
import { test } from "node:test";
import { Agent } from "@mastra/core/agent";
import { foldspaceTools } from "../dist/mastra.js";
import { worker } from "./model.js";
import { world } from "./world.js";

test("an agent of Mastra works in a session", async (t) => {
  const s = await world(t).create({ backend: "host", autoConfirm: true });
  const tools = await foldspaceTools(s);
  const agent = new Agent({ id: "worker", name: "worker", instructions: "work", model: worker(), tools });
  const { text, toolResults } = await agent.generate("work", { maxSteps: 5 });
  const [, ran, failed] = toolResults.map((each) => each.payload.result);
  assert.equal(text, "done");
  assert.match(ran, /by the model/);
  assert.match(failed, /error: \/none does not exist/);
  assert.equal(await s.files.readText("a.txt"), "by the model\n");
  assert.deepEqual(Object.keys(await foldspaceTools(s, { only: ["ls"] })), ["ls"]);
});
