// Threads: conversations in the log of the session with the files, rewound, forked and merged as one.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Agent, run, setTracingDisabled, Usage } from "@openai/agents";
import { assistantMessage, functionCall, ScriptedModel } from "@openai/agents/testing";
import { Client } from "../dist/index.js";
import { FoldspaceThread, foldspaceTools } from "../dist/openai-agents.js";
import { example, world } from "./world.js";

setTracingDisabled(true);

const textOf = (item) => (typeof item.content === "string" ? item.content : item.content.map((part) => part.text).join(""));

/** A model that calls the tool to append the last word of its input to a file, then says so. */
const writer = {
  async getResponse({ input }) {
    const isDone = input.at(-1).type === "function_call_result";
    const asked = textOf(input.filter((item) => item.role === "user").at(-1));
    const command = `echo ${asked.split(" ").at(-1)} >> notes.txt`;
    const step = isDone ? assistantMessage("written") : functionCall("shell_execute", { command }, { callId: `call-${input.length}` });
    return { usage: new Usage(), output: [step] };
  },
};

/** Makes a turn in which the agent's tool writes the last word of the text into a file. */
async function turn(thread, text) {
  const agent = new Agent({ name: "writer", model: writer, tools: await foldspaceTools(thread.session, { only: ["shell_execute"] }) });
  await run(agent, text, { session: thread });
}

const notes = async (thread) => (await thread.session.files.readText("notes.txt")).trim().split("\n");
const inputs = async (thread) => (await thread.getItems()).filter((item) => item.role === "user").map(textOf);
const said = (text) => ({ type: "message", role: "user", content: text });

test("a rewind takes back items and files", async (t) => {
  const client = world(t);
  const s = await client.create({ backend: "host", autoConfirm: true });
  const thread = new FoldspaceThread(s);
  await turn(thread, "write one");
  const afterOne = await thread.getItems();
  assert.deepEqual(afterOne.map((item) => item.type), ["message", "function_call", "function_call_result", "message"]);
  await turn(thread, "write two");
  const afterTwo = await thread.getItems();
  assert.deepEqual([afterTwo.length, await notes(thread)], [8, ["one", "two"]]);
  const before = await s.head();
  await thread.rewind();
  assert.deepEqual([await thread.getItems(), await notes(thread)], [afterOne, ["one"]]);

  // Another client continues the thread.
  const far = new Client({ data: client.data });
  t.after(() => far.close());
  const again = new FoldspaceThread(await far.open(s.id, { autoConfirm: true }));
  assert.deepEqual(await again.getItems(), afterOne);
  await turn(again, "write three");
  assert.deepEqual([await inputs(thread), await notes(thread)], [["write one", "write three"], ["one", "three"]]);
  const [first, second] = await thread.turns();
  assert.ok(textOf(first.input) === "write one" && first.position < second.position);

  // The rewind of a rewind.
  await s.rewind(before);
  assert.deepEqual([await thread.getItems(), await notes(thread)], [afterTwo, ["one", "two"]]);
  await thread.rewind({ to: second.position });
  assert.deepEqual([await thread.getItems(), await notes(thread)], [afterOne, ["one"]]);
  await turn(thread, "write four");
  await thread.rewind({ turns: 2 });
  assert.deepEqual([await thread.getItems(), await s.files.list()], [[], []]);
});

test("a streamed turn, a failed turn and items without a run are rewound", async (t) => {
  const s = await world(t).create({ backend: "host", autoConfirm: true });
  const thread = new FoldspaceThread(s);
  const tools = await foldspaceTools(s);
  const call = (command) => [functionCall("shell_execute", { command }, { callId: command })];
  const model = new ScriptedModel([call("echo one > a.txt"), [assistantMessage("done")]]);
  const streamed = await run(new Agent({ name: "a", model, tools }), "go", { session: thread, stream: true });
  await streamed.completed;
  assert.equal(await s.files.readText("a.txt"), "one\n");
  const failing = new ScriptedModel([call("echo two > a.txt")]);
  await assert.rejects(run(new Agent({ name: "a", model: failing, tools }), "fail", { session: thread }));
  await turn(thread, "write on");
  assert.deepEqual(await inputs(thread), ["go", "write on"]);
  await thread.addItems([said("by hand"), said("again")]);
  await thread.rewind();
  assert.deepEqual(await inputs(thread), ["go", "write on"]);
  await thread.rewind();
  await assert.rejects(notes(thread), { kind: "not_found" });
  await thread.rewind();
  assert.deepEqual([await thread.getItems(), await s.files.list()], [[], []]);
});

test("a rewind past the first turn changes nothing", async (t) => {
  const thread = new FoldspaceThread(await world(t).create({ backend: "host", autoConfirm: true }));
  await assert.rejects(thread.rewind(), /turns is 1; the thread has 0/);
  await turn(thread, "write one");
  for (const turns of [0, -1, 2]) await assert.rejects(thread.rewind({ turns }), new RegExp(`turns is ${turns}; the thread has 1`));
  await assert.rejects(thread.rewind({ to: 9999 }), { kind: "not_found" });
  await assert.rejects(thread.rewind({ turns: 1, to: 1 }), /not both/);
  assert.deepEqual([await inputs(thread), await notes(thread)], [["write one"], ["one"]]);
});

test("forks continue on their own and merge", async (t) => {
  const thread = new FoldspaceThread(await world(t).create({ backend: "host", autoConfirm: true }));
  await turn(thread, "write one");
  const fork = await thread.fork({ name: "try" });
  await turn(fork, "write two");
  assert.deepEqual([await inputs(thread), await notes(thread)], [["write one"], ["one"]]);
  const earlier = await fork.fork({ at: (await fork.turns())[0].position });
  assert.deepEqual([await earlier.getItems(), await earlier.session.files.list()], [[], []]);

  assert.equal((await thread.merge(fork)).outcome, "merged");
  assert.deepEqual([await thread.getItems(), await notes(thread)], [await fork.getItems(), ["one", "two"]]);
  // A second merge adds only the items since.
  await turn(fork, "write three");
  await turn(fork, "write four");
  await thread.merge(fork);
  // Items without changes to files.
  await fork.addItems([said("only said")]);
  await thread.merge(fork);
  assert.deepEqual(await thread.popItem(), said("only said"));
  await fork.session.remove();
  assert.deepEqual(await inputs(thread), ["write one", "write two", "write three", "write four"]);
  assert.deepEqual(await notes(thread), ["one", "two", "three", "four"]);
  // A merge is one turn.
  assert.deepEqual((await thread.turns()).map((each) => textOf(each.input)), ["write one", "write two", "write three"]);
  await thread.rewind();
  assert.deepEqual([await inputs(thread), await notes(thread)], [["write one", "write two"], ["one", "two"]]);
  await thread.rewind();
  assert.deepEqual([await inputs(thread), await notes(thread)], [["write one"], ["one"]]);
  await assert.rejects(fork.getItems(), { kind: "not_found" });
  await assert.rejects(fork.addItems([said("lost")]), { kind: "not_found" });
});

test("conflicts leave both unchanged", async (t) => {
  const thread = new FoldspaceThread(await world(t).create({ backend: "host", autoConfirm: true }));
  const fork = await thread.fork();
  await turn(fork, "write theirs");
  await turn(thread, "write ours");
  const before = await thread.getItems();
  assert.equal((await thread.merge(fork)).outcome, "conflicted");
  assert.deepEqual([await thread.getItems(), await notes(thread)], [before, ["ours"]]);
  await thread.merge(fork, { theirs: ["notes.txt"] });
  assert.deepEqual([await inputs(thread), await notes(thread)], [["write ours", "write theirs"], ["theirs"]]);
});

test("items have any kind and size", async (t) => {
  const s = await world(t).create({ backend: "memory" });
  const [thread, other] = [new FoldspaceThread(s), new FoldspaceThread(s, "other")];
  const items = [said("x".repeat(2_000_000)), said("ü\u2028😀".repeat(9000)), said({ $content: "0".repeat(64) }), said("half \ud83d"), said("last")];
  await thread.addItems(items);
  await thread.addItems([]);
  await other.addItems([said("other")]);
  assert.deepEqual(await new FoldspaceThread(s).getItems(), items);
  assert.deepEqual([await thread.getItems(1), await thread.getItems(0)], [items.slice(-1), []]);
  assert.deepEqual(await Promise.all([thread.popItem(), thread.popItem()]), [items.at(-1), items.at(-2)]);
  await thread.addItems([said("again")]);
  assert.equal((await thread.turns()).length, 2);
  const at = await s.head();
  await thread.clearSession();
  assert.deepEqual([await thread.getItems(), await thread.popItem(), await inputs(other)], [[], undefined, ["other"]]);
  await thread.rewind({ to: at });
  assert.deepEqual(await thread.getItems(), [...items.slice(0, -2), said("again")]);
});

test("the example works", async (t) => {
  const s = await world(t).create({ backend: "host", autoConfirm: true });
  await example("const agentOf", { Agent, FoldspaceThread, foldspaceTools, model: writer, run, session: s });
  const thread = new FoldspaceThread(s);
  assert.deepEqual([await inputs(thread), await notes(thread)], [["write first", "write third"], ["first", "third"]]);
});
