// Is only compiled: the types as those see them who use the package.
import { session, type CommandResult, type Event, type Session } from "foldspace";
import { foldspaceTools } from "foldspace/ai";
import { generateText, type LanguageModel } from "ai";

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
  // @ts-expect-error: a position is a number or a text
  s.at({});
  for await (const event of s.events({ signal })) return event;
  return undefined;
}
