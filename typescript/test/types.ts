// Is only compiled: the types as those see them who use the package.
import { forkAndSelect, session, type Client, type CommandResult, type Event, type Session } from "foldspace";
import { foldspaceTools } from "foldspace/ai";
import { FoldspaceSaver } from "foldspace/langgraph";
import { foldspaceTools as mastraTools } from "foldspace/mastra";
import { FoldspaceThread, foldspaceTools as agentTools, type Turn } from "foldspace/openai-agents";
import { generateText, type LanguageModel } from "ai";
import { MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { Agent as MastraAgent } from "@mastra/core/agent";
import { Agent, run, type AgentInputItem, type Model } from "@openai/agents";

export async function work(model: LanguageModel, signal: AbortSignal): Promise<Event | undefined> {
  await using s: Session = await session({ backend: "podman", mount: "." });
  const ran: CommandResult = await s.run("pytest -q", { signal, onStdout: (bytes: Uint8Array) => void bytes.length });
  const [child] = await s.fork({ at: ran.finished, count: 2 });
  const files: ReadableStream<Uint8Array> = await s.at(42).files.stream("a");
  await child?.files.write("a", files, { signal });
  await generateText({ model, tools: await foldspaceTools(s), prompt: "work" });
  const notes: string[] = await s.slice("Note", { parse: String }, { fold: "append" }).get();
  const latest: string | null = await s.slice("Note", { parse: String }, { fold: "latest" }).get();
  // @ts-expect-error: items by their keys are no list
  const steps: string[] = await s.slice("Note", { parse: String }, { fold: "latest_by", key: "/id" }).get();
  await using web = await s.forward(8000, { localPort: 8001 });
  const address: string = web.address;
  await using past = await s.mounted({ at: "tag:before", all: true });
  await s.unmount(past.directory, { lazy: true });
  await s.startService("web", `serve ${address}`, { port: 8000, after: ["db"], restart: true, readySeconds: 5, signal });
  // @ts-expect-error: a position is a number or a text
  s.at({});
  for await (const { session: fork, score } of s.rollouts([["make"], [{ tool: "ls", params: {} }]], { score: "cat score", keep: 1, signal })) {
    const [name, points]: [string, number | null] = [fork.name, score];
    s.rollouts(`test ${name}`, { count: points ?? 1 });
  }
  for await (const event of s.events({ signal })) return event;
  return undefined;
}

export async function frameworks(s: Session, client: Client, chat: Model): Promise<number | null> {
  const thread = new FoldspaceThread(s);
  const agent = new Agent({ name: "writer", model: chat, tools: await agentTools(s) });
  await run(agent, "write", { session: thread });
  const [turn]: Turn<AgentInputItem>[] = await thread.turns();
  await thread.rewind({ to: turn?.position });
  const graph = new StateGraph(MessagesAnnotation).addNode("a", () => ({ messages: [] })).addEdge(START, "a");
  const saver = new FoldspaceSaver(client, s);
  await graph.compile({ checkpointer: saver }).invoke(null, await saver.rewind({ configurable: { thread_id: "main" } }));
  new MastraAgent({ id: "a", name: "a", instructions: "work", model: "openai/any", tools: await mastraTools(s, { only: ["ls"] }) });
  const { best } = await forkAndSelect(s, 2, (fork) => fork.run("make"), () => 1, { merge: false });
  const ran: CommandResult | undefined = best.result;
  return ran ? best.score : null;
}
