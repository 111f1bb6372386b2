// A scripted model of the AI SDK, and the work that it does with the tools of a session.
import { MockLanguageModelV3 as MockModel } from "ai/test";

const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 }, totalTokens: 2 };
const calls = (toolName, input) => ({
  content: [{ type: "tool-call", toolCallId: toolName, toolName, input: JSON.stringify(input) }],
  finishReason: { unified: "tool-calls", raw: "tool-calls" }, usage, warnings: [],
});
const says = (text) => ({ content: [{ type: "text", text }], finishReason: { unified: "stop", raw: "stop" }, usage, warnings: [] });

/** Writes a file, reads it by a command, and reads a file that does not exist. */
export function worker() {
  const steps = [calls("write_file", { file_path: "a.txt", content: "by the model\n" }), calls("shell_execute", { command: "cat a.txt" }), calls("read_file", { file_path: "none" }), says("done")];
  return new MockModel({ doGenerate: async () => steps.shift() });
}
