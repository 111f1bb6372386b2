// Uses a session in whatever runs this: Node, Deno or Bun.
import assert from "node:assert/strict";
import { session } from "../dist/index.js";

const s = await session({ backend: "host", autoConfirm: true });
assert.equal((await s.run("cat", { stdin: "in" })).stdout, "in");
await s.files.write("a", new Blob(["one ", "two"]).stream());
let text = "";
for await (const piece of await s.files.stream("a")) text += new TextDecoder().decode(piece);
assert.equal(text, "one two");
const stop = new AbortController();
const running = s.run("echo ready; exec sleep 1000", { signal: stop.signal, onStdout: () => stop.abort() });
await assert.rejects(running, { name: "AbortError" });
const { finished } = await s.run("echo next"); // which waits for the end of the one before
assert.ok((await s.state("ToolCalls")).value.calls.some((call) => call.status === "interrupted"));
const process = await s.start("read line; echo got $line", { input: true });
await process.send("it\n", { end: true });
assert.equal((await process.collect()).stdout, "got it\n");
const [child] = await s.fork({ at: finished });
await child.files.write("b", "of the child");
assert.equal((await s.merge(child)).outcome, "merged");
for await (const event of s.events()) if (event.seq > finished) break;
await assert.rejects(s.files.read("none"), { kind: "not_found" });
await s[Symbol.asyncDispose]();
