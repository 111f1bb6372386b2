// The checkpointer: LangGraph.js's validation suite, and files that go along with the state.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { AIMessage, HumanMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { Annotation, END, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { emptyCheckpoint } from "@langchain/langgraph-checkpoint";
import { ToolNode } from "@langchain/langgraph/prebuilt";
import { FoldspaceSaver, POSITION } from "../dist/langgraph.js";
import { example, world } from "./world.js";

const folder = new URL("..", import.meta.url).pathname;

test("the validation suite passes", () => {
  // The framework's own savers in memory and SQLite store whole checkpoints, too.
  const args = ["run", "--globals", "--testNamePattern", "^(?!.*only store channel_values that have changed)", "test/langgraph.spec.js"];
  const ran = spawnSync(process.execPath, ["node_modules/vitest/vitest.mjs", ...args], { cwd: folder, encoding: "utf8", env: { ...process.env, NO_COLOR: "1" } });
  assert.equal(ran.status, 0, ran.stdout + ran.stderr);
  assert.match(ran.stdout, /Tests {2}725 passed \| 1 skipped/);
});

/** A graph whose steps append their names to a file and to the state. */
function writer(s, ...names) {
  const State = Annotation.Root({ lines: Annotation({ reducer: (one, two) => one.concat(two), default: () => [] }) });
  const graph = new StateGraph(State);
  for (const [at, name] of names.entries()) {
    graph.addNode(name, async () => {
      await s.run(`echo ${name} >> notes.txt`, { check: true });
      return { lines: [name] };
    });
    graph.addEdge(names[at - 1] ?? START, name);
  }
  return graph.addEdge(names.at(-1), END);
}

const history = async (graph, config) => {
  const found = [];
  for await (const each of graph.getStateHistory(config)) found.push(each);
  return found.reverse();
};
const notes = async (files) => ((await files.exists("notes.txt")) ? (await files.readText("notes.txt")).trim().split("\n") : []);
const started = async (t) => {
  const client = world(t);
  return { client, s: await client.create({ name: "agent", backend: "host", autoConfirm: true }) };
};

for (const durability of ["async", "sync", "exit"]) {
  test(`each checkpoint has the files of its state with durability ${durability}`, async (t) => {
    const { client, s } = await started(t);
    const graph = writer(s, ..."abcdefghijkl").compile({ checkpointer: new FoldspaceSaver(client, s) });
    const config = { configurable: { thread_id: "a thread / with: signs" } };
    const other = { configurable: { thread_id: "other" } };
    await graph.invoke({ lines: [] }, { ...config, durability });
    const states = await history(graph, config);
    assert.equal(states.length, durability === "exit" ? 1 : 14);
    for (const { values, metadata } of states) {
      assert.equal(metadata[POSITION].session, s.id);
      assert.deepEqual(await notes(s.at(metadata[POSITION].position).files), values.lines ?? []);
    }
    await graph.invoke({ lines: [] }, { ...other, durability });
    assert.equal((await notes(s.at((await history(graph, other)).at(-1).metadata[POSITION].position).files)).length, 24);
  });
}

test("a checkpoint after an error has the files before the step", async (t) => {
  const { client, s } = await started(t);
  const State = Annotation.Root({ lines: Annotation() });
  const write = (text) => s.run(`echo ${text} >> notes.txt`, { check: true });
  const graph = new StateGraph(State)
    .addNode("first", async () => (await write("first"), { lines: "first" }))
    .addNode("second", async () => {
      await write("second");
      throw new Error("broken");
    })
    .addEdge(START, "first")
    .addEdge("first", "second")
    .compile({ checkpointer: new FoldspaceSaver(client, s) });
  for (const durability of ["async", "exit"]) {
    const config = { configurable: { thread_id: durability } };
    await s.rewind(1);
    await assert.rejects(graph.invoke({ lines: "" }, { ...config, durability }), /broken/);
    const { values, metadata } = await graph.getState(config);
    assert.deepEqual([values.lines, await notes(s.at(metadata[POSITION].position).files)], ["first", ["first"]], durability);
  }
});

test("state and files are rewound and forked as one", async (t) => {
  const { client, s } = await started(t);
  const saver = new FoldspaceSaver(client, s);
  const graph = writer(s, "first", "second", "third").compile({ checkpointer: saver });
  const config = { configurable: { thread_id: "main" } };
  const all = ["first", "second", "third"];
  assert.deepEqual((await graph.invoke({ lines: [] }, config)).lines, all);
  const states = await history(graph, config);
  const between = states.find((each) => each.next[0] === "second");

  const files = await saver.fork(between.config, { name: "files" });
  assert.deepEqual(await notes(files.files), ["first"]);
  const fork = await saver.fork(between.config, { thread: "fork" });
  const forkSaver = new FoldspaceSaver(client, fork);
  const forked = writer(fork, "first", "second", "third").compile({ checkpointer: forkSaver });
  const there = { configurable: { thread_id: "fork" } };
  assert.deepEqual((await forked.getState(there)).next, ["second"]);
  assert.deepEqual((await forked.invoke(null, there)).lines, all);
  assert.deepEqual([await notes(fork.files), await notes(s.files)], [all, all]);
  // Positions before the fork are positions of the fork.
  const first = (await history(forked, there))[0];
  await forkSaver.rewind(first.config);
  assert.deepEqual([await notes(fork.files), await notes(s.files)], [[], all]);
  await assert.rejects(forkSaver.rewind(states.at(-1).config), { kind: "not_found" });
  await assert.rejects(new FoldspaceSaver(client, s).position((await history(forked, there)).at(-1).config), { kind: "not_found" });

  await graph.invoke(null, await saver.rewind(between.config));
  assert.deepEqual([(await graph.getState(config)).values.lines, await notes(s.files)], [all, all]);
});

test("an agent with a scripted model continues from a checkpoint in another process", async (t) => {
  const { client, s } = await started(t);
  const model = ({ messages }) => {
    const asked = messages.filter((each) => each.getType() === "human").at(-1).text.split(" ").at(-1);
    const isDone = messages.at(-1).getType() === "tool";
    const call = { name: "shell", args: { command: `echo ${asked} >> notes.txt` }, id: `call-${messages.length}`, type: "tool_call" };
    return { messages: [new AIMessage(isDone ? "written" : { content: "", tool_calls: [call] })] };
  };
  const agent = (checkpointer) => {
    const schema = { type: "object", properties: { command: { type: "string" } }, required: ["command"] };
    const shell = tool(async ({ command }) => (await s.run(command)).stdout, { name: "shell", description: "Runs a command.", schema });
    return new StateGraph(MessagesAnnotation)
      .addNode("model", model)
      .addNode("tools", new ToolNode([shell]))
      .addEdge(START, "model")
      .addConditionalEdges("model", ({ messages }) => (messages.at(-1).tool_calls.length ? "tools" : END), ["tools", END])
      .addEdge("tools", "model")
      .compile({ checkpointer });
  };
  const config = { configurable: { thread_id: "main" } };
  const ask = (text) => ({ messages: [new HumanMessage(text)] });
  const graph = agent(new FoldspaceSaver(client, s));
  await graph.invoke(ask("write one"), config);
  const { config: afterOne } = await graph.getState(config);
  await graph.invoke(ask("write two"), config);
  assert.deepEqual(await notes(s.files), ["one", "two"]);

  const saver = new FoldspaceSaver(client, await client.open(s.id));
  const { messages } = await agent(saver).invoke(ask("write three"), await saver.rewind(afterOne));
  assert.deepEqual([messages.filter((each) => each.getType() === "human").map((each) => each.text), await notes(s.files)], [["write one", "write three"], ["one", "three"]]);
  await saver.deleteThread("main");
  assert.deepEqual((await agent(saver).getState(config)).values, {});
});

test("threads, namespaces and tasks have any names", async (t) => {
  const { client, s } = await started(t);
  const saver = new FoldspaceSaver(client, s);
  const [thread_id, checkpoint_ns, task] = ["ü / 😀 ..", "a|b:1", "t".repeat(110)];
  const config = await saver.put({ configurable: { thread_id, checkpoint_ns } }, emptyCheckpoint(), { source: "loop", step: 0, parents: {} });
  await saver.putWrites(config, [["lines", Uint8Array.of(0, 255)]], task);
  await saver.copyThread(thread_id, "copy");
  const found = [];
  for await (const each of saver.list({})) found.push([each.config.configurable.thread_id, each.config.configurable.checkpoint_ns, each.pendingWrites]);
  const writes = [[task, "lines", Uint8Array.of(0, 255)]];
  assert.deepEqual(found.sort(), [["copy", checkpoint_ns, writes], [thread_id, checkpoint_ns, writes]]);
});

test("the example works", async (t) => {
  const { client, s } = await started(t);
  const builderOf = (session) => writer(session, "first", "second");
  await example("const config", { builderOf, client, FoldspaceSaver, input: { lines: [] }, session: s });
  const [fork] = await s.children();
  const all = ["first", "second"];
  assert.deepEqual([await notes(s.files), await notes(fork.files)], [all, all]);
  const graph = builderOf(fork).compile({ checkpointer: new FoldspaceSaver(client, fork) });
  assert.deepEqual((await graph.getState({ configurable: { thread_id: "other" } })).values.lines, all);
});
