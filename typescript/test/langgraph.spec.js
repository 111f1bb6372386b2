// The validation suite of LangGraph.js, which Vitest runs.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { deltaChannelHistoryTests, validate } from "@langchain/langgraph-checkpoint-validation";
import { Client, findFoldspaceBin } from "../dist/index.js";
import { FoldspaceSaver } from "../dist/langgraph.js";

const data = mkdtempSync(join(tmpdir(), "foldspace-ts-"));
const client = new Client({ data });
let made = 0;
const suite = { checkpointerName: "foldspace", createCheckpointer: () => new FoldspaceSaver(client, undefined, { name: `checkpoints-${(made += 1)}` }) };

validate(suite);
deltaChannelHistoryTests(suite);

afterAll(() => {
  client.close();
  spawnSync(findFoldspaceBin(), ["--data", data, "stop"]);
  rmSync(data, { recursive: true, force: true, maxRetries: 10 });
});
