// The conversation between the calls: its rows, its pane, what contradicts a claim, and its filters.

import fs from "node:fs";
import path from "node:path";
import { assert, equal, ROOT, until } from "./rig.mjs";

const HOSTILE = "<img src=x onerror=alert(1)> \u202egnp.exe \u001b]0;owned\u0007 \u200b & </script>";
const FAILURES = "..F\nFAILED tests/test_cart.py::test_voucher - assert 3 == 4\n1 failed, 2 passed in 0.31s\n";

// A transcript of Claude Code, line by line.
class Transcript {
  constructor(rig, id) {
    this.file = path.join(rig.home, `${id}.jsonl`);
    this.id = id;
    this.lines = [];
  }

  line(kind, content, more = {}) {
    const number = this.lines.length;
    const time = new Date(Date.UTC(2026, 10, 23) + number * 130).toISOString();
    const usage = kind === "assistant" ? { id: `m${number}`, model: "claude-opus-4-8", usage: { input_tokens: 1200, output_tokens: 1340 } } : {};
    this.lines.push({ parentUuid: null, isSidechain: false, type: kind, uuid: `u${number}`, sessionId: this.id, cwd: "/w", version: "2", timestamp: time, message: { role: kind, content, ...usage }, ...more });
    return this;
  }

  says(kind, text, thinking = null) {
    const thought = thinking === null ? [] : [{ type: "thinking", thinking, signature: "" }];
    return this.line(kind, [...thought, ...(text === null ? [] : [{ type: "text", text }])]);
  }

  calls(name, input, content, { failed = false, ...more } = {}) {
    const id = `c${this.lines.length}`;
    return this.line("assistant", [{ type: "tool_use", id, name, input }]).line("user", [{ type: "tool_result", tool_use_id: id, content, is_error: failed }], more);
  }

  runs(command, code = 0, output = "fine\n") {
    return this.calls("Bash", { command }, code ? `Exit code ${code}\n${output}` : output, { failed: code !== 0 });
  }

  writes(name, content) {
    return this.calls("Write", { file_path: `/w/${name}`, content }, "File created", { toolUseResult: { type: "create", filePath: `/w/${name}`, content, structuredPatch: [], originalFile: null } });
  }

  write() {
    fs.writeFileSync(this.file, this.lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
    return this.file;
  }
}

export async function messages(rig) {
  const talk = new Transcript(rig, "c1a10000-0000-4000-8000-000000000001")
    .says("user", "Mend the sum in calc.py.\n\nThe tests of the shop fail since yesterday.")
    .says("assistant", "I found it: `add` subtracts.", "The sum subtracts. I look at the tests first.")
    .runs("cat calc.py")
    .says("assistant", "I write it anew.")
    .writes("calc.py", "def add(a, b):\n    return a + b\n");
  for (let number = 0; number < 12; number += 1) talk.runs(`grep -rn voucher src${number}`);
  talk
    .runs("python -m pytest -q", 1, FAILURES)
    .says("assistant", `All tests pass now.\n\n\`\`\`python\nreturn a + b\n\`\`\`\n${"And more. ".repeat(300)}\nThe end.`)
    .says("user", HOSTILE)
    .says("assistant", `${HOSTILE}\n${"x".repeat(1500)}`)
    .runs("false", 2);
  rig.foldspace("import", talk.write(), "--name", "talk");
  const many = new Transcript(rig, "c1a10000-0000-4000-8000-000000000002");
  for (let turn = 0; turn < 120; turn += 1) {
    many.says("user", `Turn ${turn}`);
    for (let call = 0; call <= (turn * 7) % 23; call += 1) many.runs(`echo ${turn} ${call}`);
    many.says("assistant", "Next.", "I think.");
  }
  rig.foldspace("import", many.write(), "--name", "many-turns");
  const fixtures = path.join(ROOT, "fixtures/transcripts");
  for (const [file, name] of [["claude/e1621bd0-4826-43bc-826f-fc3b6ab04d91.jsonl", "of-claude"], ["gemini.jsonl", "of-gemini"], ["swe-agent.traj", "of-swe-agent"]]) {
    rig.foldspace("import", path.join(fixtures, file), "--name", name);
  }
  const { origin, stop } = await rig.serve();
  await rig.check("messages are between the calls, in the order of the run", () => rows(rig, origin));
  await rig.check("a message has its text in full, its model and its tokens", () => pane(rig, origin));
  await rig.check("a claim of success is beside what its calls did", () => claim(rig, origin));
  await rig.check("the timeline shows all, calls or messages, and finds text in both", () => filters(rig, origin));
  await rig.check("keys and links lead to messages and past them", () => moves(rig, origin));
  await rig.check("hostile messages are shown as text", () => hostile(rig, origin));
  await rig.check("messages stay in order while a long run scrolls", () => scrolls(rig, origin));
  await rig.check("new messages of a run appear", () => grows(rig, origin, talk));
  await rig.check("the conversation fits on a telephone, in the dark", () => narrow(rig, origin));
  await stop();
}

// All calls and messages of a session, in order.
async function wanted(rig, origin, session) {
  const all = async (what) => (await rig.api(origin, `/v1/sessions/${session}/${what}?limit=1000`))[what];
  const [calls, said] = [await all("calls"), await all("messages")];
  assert(calls.length > 0 && calls.length < 1000 && said.length > 0 && said.length < 1000, `${calls.length} calls and ${said.length} messages of ${session}`);
  return [...calls.map((call) => ({ at: call.call, call })), ...said.map((message) => ({ at: message.seq, message }))].sort((a, b) => a.at - b.at);
}

const timeline = (page) => page.getByRole("listbox", { name: /^(Calls|Messages)/ });
const positions = async (page) => (await timeline(page).locator(".position").allTextContents()).map(Number);
const at = async (page) => Number(await page.getByRole("slider", { name: "Position in the run" }).getAttribute("aria-valuenow"));
const row = (page, text) => timeline(page).getByRole("option").filter({ hasText: text });

async function rows(rig, origin) {
  for (const session of ["talk", "of-claude", "of-gemini", "of-swe-agent"]) {
    const all = await wanted(rig, origin, session);
    const page = await rig.signedIn(origin, `#/s/${session}`, { width: 1280, height: 1600 });
    await page.getByRole("listbox", { name: `Calls and messages, ${all.length} of them` }).waitFor();
    await until(async () => (await positions(page)).length === all.length, `all ${all.length} rows of ${session}`);
    equal(await positions(page), all.map((item) => item.at), `the order of ${session}`);
    const roles = await timeline(page).getByRole("option").evaluateAll((list) => list.map((option) => option.querySelector("svg.role")?.getAttribute("aria-label") ?? null));
    const words = { user: "prompt", assistant: "message", reasoning: "reasoning", system: "system" };
    equal(roles, all.map(({ message }) => (message ? words[message.role] : null)), `the roles of ${session}`);
    await page.locator(".row[aria-selected=true]:not(.message)").waitFor();
    rig.sound(page);
    await page.context().close();
  }
  const page = await rig.signedIn(origin, "#/s/talk", { width: 1440, height: 900 });
  equal(await row(page, "Mend the sum").locator(".what").textContent(), "Mend the sum in calc.py. ⏎ The tests of the shop fail since yesterday.", "a prompt in one line");
  equal(await row(page, "I found it").locator(".took").textContent(), "1.3k tok", "the tokens");
  assert((await row(page, "I found it").locator(".took").getAttribute("title")).startsWith("claude-opus-4-8, 1,200 tokens in, 1,340 out, "), "the usage");
  await rig.axe(page, "the conversation");
  await rig.shot(page, "messages");
  rig.sound(page);
}

async function pane(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/talk");
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await row(page, "All tests pass").click();
  const shown = page.getByRole("tabpanel");
  await page.getByRole("tab", { name: "Message", selected: true }).waitFor();
  await shown.getByRole("heading", { name: "Message", exact: true }).waitFor();
  for (const text of ["claude-opus-4-8", "1,200 tokens in, 1,340 out", "c1a10000-0000-4000-8000-000000000001"]) await shown.getByText(text, { exact: true }).waitFor();
  equal(await shown.locator(".text pre").textContent(), "return a + b", "code in its frame");
  equal(await shown.getByText("The end.").count(), 0, "the end of a long text");
  await shown.getByRole("button", { name: "Show the whole text" }).click();
  await shown.getByText("The end.").waitFor();
  await shown.getByRole("button", { name: "Copy the text" }).click();
  await until(async () => /^All tests pass now\.[^]*The end\.$/.test(await page.evaluate(() => navigator.clipboard.readText())), "the whole text is copied");
  await row(page, "Mend the sum").click();
  await shown.getByRole("heading", { name: "Prompt", exact: true }).waitFor();
  await shown.getByText("Mend the sum in calc.py.\n\nThe tests").waitFor();
  rig.sound(page);
}

async function claim(rig, origin) {
  const all = await wanted(rig, origin, "talk");
  const said = all.find(({ message }) => message?.claim);
  const page = await rig.signedIn(origin, "#/s/talk", { width: 1440, height: 900 });
  equal(await timeline(page).locator(".claim").count(), 1, "claims in the timeline");
  await row(page, "All tests pass").click();
  const shown = page.getByRole("tabpanel");
  await shown.getByText("It says “All tests pass now.”, but the last command before it ended with exit 1").waitFor();
  await until(async () => (await shown.getByLabel(/^Failures of call/).textContent()) === "FAILED tests/test_cart.py::test_voucher - assert 3 == 4\n1 failed, 2 passed in 0.31s", "the failed tests");
  await shown.getByText("14 calls, 1 path changed, 1 failed").waitFor();
  equal((await shown.locator(".effect li .link").allTextContents()).map((text) => text.trim()), ["/w/calc.py", "python -m pytest -q"], "the calls that matter");
  await shown.locator(".patch .line.added", { hasText: "return a + b" }).waitFor();
  await shown.getByRole("button", { name: "Show all 14 calls" }).click();
  equal(await shown.locator(".effect li").count(), 14, "all calls");
  await shown.getByRole("button", { name: "Since the prompt" }).click();
  await shown.getByText("15 calls, 1 path changed, 1 failed").waitFor();
  await rig.axe(page, "a claim");
  await rig.shot(page, "messages-claim");
  await page.keyboard.press("2");
  await page.getByRole("listbox", { name: "Changed files" }).getByRole("option", { name: "calc.py" }).waitFor();
  await page.keyboard.press("1");
  const { call } = all.find((item) => item.at === said.message.claim.call);
  await shown.getByRole("button", { name: "$ python -m pytest -q" }).click();
  await until(async () => (await at(page)) === call.finished, "the failed call");
  await page.goBack();
  await until(async () => (await at(page)) === said.at, "the message again");
  await timeline(page).locator(".claim").click();
  await until(async () => (await at(page)) === call.finished, "the failed call by the badge");
  await page.getByRole("heading", { name: "python -m pytest -q" }).waitFor();
  rig.sound(page);
}

async function filters(rig, origin) {
  const all = await wanted(rig, origin, "talk");
  const page = await rig.signedIn(origin, "#/s/talk");
  const are = async (holds, what) => {
    const expected = all.filter(holds).map((item) => item.at);
    await until(async () => JSON.stringify(await positions(page)) === JSON.stringify(expected), `${what}: rows ${expected}`);
  };
  await are(() => true, "all");
  await page.getByRole("button", { name: "Calls", exact: true }).click();
  await are(({ call }) => call, "calls only");
  await page.getByRole("button", { name: "Messages", exact: true }).click();
  await are(({ message }) => message, "messages only");
  await page.getByRole("button", { name: "Reasoning" }).click();
  await are(({ message }) => message && message.role !== "reasoning", "no reasoning");
  assert(/[?&]show=messages/.test(page.url()) && /[?&]reasoning=off/.test(page.url()), `the filter is in ${page.url()}`);
  await page.reload();
  await are(({ message }) => message && message.role !== "reasoning", "after a reload");
  await page.getByRole("button", { name: "Failed", exact: true }).click();
  await are(({ message }) => message?.claim, "false claims");
  await page.getByText(/^1 of \d+ messages/).waitFor();
  await rig.axe(page, "false claims");
  await page.keyboard.press("Escape");
  await are(() => true, "all again");
  await page.getByLabel("Text in calls").fill("MEND THE");
  await are(({ message }) => message?.text.includes("Mend the"), "a text in a prompt");
  await page.getByLabel("Text in calls").fill("calc.py");
  await are(({ call, message }) => JSON.stringify(call?.params ?? message?.text).includes("calc.py"), "a text in calls and messages");
  await page.getByLabel("Text in calls").fill("anew");
  await are(({ message }) => message?.text.includes("anew"), "a text in a message");
  await page.getByLabel("Text in calls").fill("is nowhere");
  await page.getByText("No call matches.").waitFor();
  await page.getByRole("button", { name: "Show all calls" }).click();
  await are(() => true, "all again");
  await page.getByLabel("Tool").selectOption("Write");
  await are(({ call }) => call?.tool === "Write", "a tool hides messages");
  rig.sound(page);
}

async function moves(rig, origin) {
  const all = await wanted(rig, origin, "talk");
  const ends = all.map(({ at: seq, call }) => (call ? call.finished : seq));
  const page = await rig.signedIn(origin, "#/s/talk");
  const is = (seq, what) => until(async () => (await at(page)) === seq, `${what}: ${seq}`);
  await page.keyboard.press("g");
  for (const [number, end] of ends.entries()) {
    await is(end, `row ${number}`);
    const selected = timeline(page).locator("[aria-selected=true]");
    await until(async () => Number(await selected.getAttribute("aria-posinset")) === number + 1, `row ${number} is selected`);
    await page.keyboard.press("j");
  }
  const failures = all.filter(({ call }) => call?.exit_code).map(({ call }) => call.finished);
  await page.keyboard.press("g");
  for (const end of failures) {
    await page.keyboard.press("n");
    await is(end, "the next failure");
  }
  await page.keyboard.press("k");
  await page.keyboard.press("N");
  await is(failures.at(-2), "the failure before a message");
  const double = all.findIndex(({ message }, number) => message && all[number + 1]?.at === message.seq);
  assert(double >= 0, "an event has two messages");
  await page.goto(`${origin}/#/s/talk@${all[double].at}?message=1`);
  await page.getByRole("tabpanel").getByText("I found it").waitFor();
  await page.keyboard.press("k");
  await page.getByRole("tabpanel").getByRole("heading", { name: "Reasoning" }).waitFor();
  await page.keyboard.press("j");
  await page.getByRole("tabpanel").getByText("I found it").waitFor();
  await until(async () => page.url().includes("message=1"), "the address of the second message");
  await page.reload();
  await page.getByRole("tabpanel").getByText("I found it").waitFor();
  await page.keyboard.press("l");
  await is(all[double].at + 1, "one event forward");
  await page.keyboard.press("h");
  await page.getByRole("tabpanel").getByRole("heading", { name: "Reasoning" }).waitFor();
  rig.sound(page);
}

async function hostile(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/talk");
  const texts = timeline(page).locator(".row.message .what").filter({ hasText: "onerror" });
  equal(await texts.count(), 2, "hostile rows");
  await texts.nth(1).click();
  const shown = page.getByRole("tabpanel").locator(".text");
  await shown.waitFor();
  for (const text of [await texts.first().textContent(), await shown.textContent()]) {
    for (const part of ["<img src=x onerror=alert(1)>", "\\u{202e}gnp.exe", "\\x1b]0;owned\\x07", "\\u{200b}", "</script>"]) assert(text.includes(part), `${part} in ${text.slice(0, 200)}`);
  }
  assert(await page.getByRole("tabpanel").evaluate((box) => box.scrollWidth <= box.clientWidth), "a long word is wider than the pane");
  equal(await page.locator("#app img").count(), 0, "pictures from texts");
  rig.sound(page);
}

async function scrolls(rig, origin) {
  const all = [];
  for (let from = 1; from !== null; ) {
    const page = await rig.api(origin, `/v1/sessions/many-turns/calls?limit=1000&from=${from}`);
    all.push(...page.calls.map(({ call }) => call));
    from = page.next;
  }
  const said = (await rig.api(origin, "/v1/sessions/many-turns/messages?limit=1000")).messages;
  all.push(...said.map(({ seq }) => seq));
  all.sort((a, b) => a - b);
  const page = await rig.signedIn(origin, "#/s/many-turns");
  await page.getByRole("listbox", { name: `Calls and messages, ${all.length} of them` }).waitFor();
  for (const share of [0.5, 0.1, 0.93, 1, 0.3]) {
    await page.locator(".timeline").evaluate((box, part) => (box.scrollTop = box.scrollHeight * part), share);
    await until(async () => {
      const shown = await timeline(page).getByRole("option").evaluateAll((list) => list.map((option) => [Number(option.getAttribute("aria-posinset")) - 1, Number(option.querySelector(".position")?.textContent)]));
      return shown.length > 20 && shown.length < 150 && shown.every(([index, seq]) => all[index] === seq) && Math.abs(shown[0][0] / all.length - share) < 0.1;
    }, `rows at ${share}`);
  }
  const last = said.at(-60);
  await page.goto(`${origin}/#/s/many-turns@${last.seq}`);
  await until(async () => Number(await timeline(page).locator("[aria-selected=true]").getAttribute("aria-posinset")) - 1 === all.indexOf(last.seq), "the row of a link");
  rig.sound(page);
}

async function grows(rig, origin, talk) {
  const page = await rig.signedIn(origin, "#/s/talk");
  await row(page, "Mend the sum").waitFor();
  await page.getByRole("button", { name: "connected" }).click();
  talk.says("user", "Once more, please.").runs("true").says("assistant", "It was a pleasure.");
  rig.byOwner("import", talk.write(), "--name", "talk");
  for (const text of ["Once more, please.", "It was a pleasure."]) await row(page, text).waitFor();
  await page.getByRole("tabpanel").getByText("It was a pleasure.").waitFor();
  const all = await wanted(rig, origin, "talk");
  const shown = await positions(page);
  equal(shown, all.map((item) => item.at).slice(-shown.length), "the order after new messages");
  rig.sound(page);
}

async function narrow(rig, origin) {
  const { at: claimed } = (await wanted(rig, origin, "talk")).find(({ message }) => message?.claim);
  for (const scheme of ["light", "dark"]) {
    const page = await rig.signedIn(origin, `#/s/talk@${claimed}`, { width: 390, height: 844, scheme });
    await page.getByText("It says").waitFor();
    await page.getByLabel(/^Failures of call/).waitFor();
    assert(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "the page is wider than the screen");
    assert(await row(page, "All tests pass").locator(".claim").isVisible(), "the claim's badge is visible");
    await rig.axe(page, `messages at 390 px, ${scheme}`);
    await rig.shot(page, `messages-390-${scheme}`);
    rig.sound(page);
    await page.context().close();
  }
}
