import assert from "node:assert/strict";
import { test } from "node:test";
import { generateText, stepCountIs } from "ai";
import { MockLanguageModelV3 as MockModel } from "ai/test";
import { foldspaceTools } from "../dist/ai.js";
import { world } from "./world.js";

const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 }, totalTokens: 2 };
const calls = (toolName, input) => ({
  content: [{ type: "tool-call", toolCallId: toolName, toolName, input: JSON.stringify(input) }],
  finishReason: { unified: "tool-calls", raw: "tool-calls" }, usage, warnings: [],
});
const says = (text) => ({ content: [{ type: "text", text }], finishReason: { unified: "stop", raw: "stop" }, usage, warnings: [] });

test("a model works in a session through the AI SDK", async (t) => {
  const s = await world(t).create({ backend: "host", autoConfirm: true });
  const steps = [calls("write_file", { file_path: "a.txt", content: "by the model\n" }), calls("shell_execute", { command: "cat a.txt" }), calls("read_file", { file_path: "none" }), says("done")];
  const model = new MockModel({ doGenerate: async () => steps.shift() });
  const tools = await foldspaceTools(s);
  const result = await generateText({ model, tools, prompt: "work", stopWhen: stepCountIs(5) });
  assert.equal(result.text, "done");
  const results = result.steps.flatMap((step) => step.toolResults.map((each) => each.output));
  assert.match(results[1], /by the model/);
  assert.match(results[2], /error: \/none does not exist/);
  assert.equal(await s.files.readText("a.txt"), "by the model\n");
  assert.deepEqual(Object.keys(await foldspaceTools(s, { only: ["ls"] })), ["ls"]);
});
