import assert from "node:assert/strict";
import { test } from "node:test";
import { generateText, stepCountIs } from "ai";
import { foldspaceTools } from "../dist/ai.js";
import { worker } from "./model.js";
import { world } from "./world.js";

test("a model works in a session through the AI SDK", async (t) => {
  const s = await world(t).create({ backend: "host", autoConfirm: true });
  const tools = await foldspaceTools(s);
  const result = await generateText({ model: worker(), tools, prompt: "work", stopWhen: stepCountIs(5) });
  assert.equal(result.text, "done");
  const results = result.steps.flatMap((step) => step.toolResults.map((each) => each.output));
  assert.match(results[1], /by the model/);
  assert.match(results[2], /error: \/none does not exist/);
  assert.equal(await s.files.readText("a.txt"), "by the model\n");
  assert.deepEqual(Object.keys(await foldspaceTools(s, { only: ["ls"] })), ["ls"]);
});
