// What a call ran, whether it worked and what it changed: in its row, and in its pane.

import { assert, equal, until } from "./rig.mjs";

export async function calls(rig) {
  const { origin, stop } = await rig.serve();
  await rig.api(origin, "/v1/sessions", { name: "work", backend: "host" });
  const call = (tool, params, agent) => rig.api(origin, "/v1/sessions/work/calls", { tool, params, agent, auto_confirm: true });
  const lines = Array.from({ length: 80 }, (_, number) => `line ${number}`).join("\n");
  await call("write_file", { file_path: "/a.txt", content: `${lines}\n` }, "ada");
  await call("shell_execute", { command: ["sh", "-c", "sed -i 's/line 40/LINE 40/' a.txt; echo b > b.txt; echo 'it is done'"] }, "ada");
  await call("shell_execute", { command: ["printf", "%s\n", "it's here"] }, "bob");
  await call("shell_execute", { command: "seq 1 300; echo the last line; exit 3" }, "bob");
  await rig.check("a row says what ran, who ran it, and what it changed", () => rows(rig, origin));
  await rig.check("a call begins with its command, its verdict and its changes", () => pane(rig, origin));
  await rig.check("the end of a failed call's output is in view, and it can be copied", () => failure(rig, origin));
  await rig.check("the number of a call leads to what the call changed", () => numbers(rig, origin));
  await rig.check("panes are resized by pointer and keys, and the timeline can be hidden", () => widths(rig, origin));
  await rig.check("the list of sessions says what runs and what failed, and can be sorted", () => list(rig, origin));
  await rig.check("an empty session and an empty store say what to do, and disabled actions why", () => empty(rig, origin));
  await stop();
}

async function rows(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/work");
  const row = (number) => page.getByRole("listbox", { name: /Calls/ }).getByRole("option").nth(number);
  await row(3).waitFor();
  const texts = async (number, part) => (await row(number).locator(part).allTextContents()).map((text) => text.trim());
  equal(await texts(1, ".what"), ["sed -i 's/line 40/LINE 40/' a.txt; echo b > b.txt; echo 'it is done'"], "the title of a command");
  equal(await texts(0, ".what"), ["write_file /a.txt"], "the title of another tool");
  equal([await texts(0, ".agent"), await texts(2, ".agent")], [["ada"], ["bob"]], "the agents");
  equal([await texts(0, ".changes"), await texts(1, ".counts"), await texts(2, ".changes")], [["+1"], ["+1 ~1"], []], "the changes");
  equal(await texts(1, ".path"), ["a.txt"], "the first path");
  equal([await texts(1, ".verdict"), await texts(3, ".verdict")], [[""], ["exit 3"]], "the verdicts");
  for (const [number, name] of [[0, "write"], [1, "write"], [2, "command"], [3, "failed"]]) {
    assert((await row(number).getAttribute("class")).includes(name), `row ${number} is marked as ${name}`);
  }
  assert(await row(1).locator(".sign").getAttribute("title") === "shell_execute: a command", "the sign names the tool");
  rig.sound(page);
}

async function pane(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/work");
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  await page.keyboard.press("j");
  const shown = page.getByRole("tabpanel");
  await shown.locator(".patch .line.added", { hasText: "LINE 40" }).waitFor();
  await shown.getByLabel("Output", { exact: true }).waitFor();
  const text = await shown.innerText();
  const places = ["sed -i", "ok\n", "Changes", "Output", "it is done"].map((part) => text.lastIndexOf(part));
  equal(places, [...places].sort((a, b) => a - b), "the command, the verdict, the changes, the output, in this order");
  assert(!/exit_code|duration_seconds|timed_out|truncated|cwd/.test(text), `the pane repeats what the verdict says: ${text}`);
  const line = shown.locator(".patch .line.removed", { hasText: "line 40" });
  equal(await line.locator(".number").allTextContents(), ["41", ""], "a removed line has its old number");
  equal(await shown.locator(".patch .line.added", { hasText: "LINE 40" }).locator(".number").allTextContents(), ["", "41"], "an added line has its new number");
  await shown.getByRole("button", { name: "Copy the command" }).click();
  const quoted = `sh -c "sed -i 's/line 40/LINE 40/' a.txt; echo b > b.txt; echo 'it is done'"`;
  await until(async () => (await copied()) === quoted, "the command is copied as one quoted line");
  await shown.getByRole("button", { name: "Changes of b.txt" }).press("Enter");
  equal(await shown.getByRole("button", { name: "Changes of b.txt" }).getAttribute("aria-expanded"), "false", "a file's changes can be closed");
  await page.keyboard.press("j");
  await shown.getByRole("heading", { name: /^printf '%s.*"it's here"$/s }).waitFor();
  await rig.axe(page, "a call with changes");
  rig.sound(page);
}

async function failure(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/work");
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.keyboard.press("G");
  const shown = page.getByRole("tabpanel");
  await shown.getByText("exit 3", { exact: true }).waitFor();
  const output = shown.getByLabel("Output", { exact: true });
  await output.waitFor();
  const rest = await output.evaluate((box) => box.scrollHeight - box.clientHeight - box.scrollTop);
  assert(rest < 4, `${rest} pixels below the end of the output`);
  await shown.getByRole("button", { name: "Copy: Output" }).click();
  await until(async () => /^1\n2\n[^]*\nthe last line\n?$/.test(await page.evaluate(() => navigator.clipboard.readText())), "the whole output is copied");
  rig.sound(page);
}

async function numbers(rig, origin) {
  const { calls: all } = await rig.api(origin, "/v1/sessions/work/calls");
  const { call, finished } = all[1];
  const page = await rig.signedIn(origin, `#/s/work@${call}/files`);
  const changed = page.getByRole("listbox", { name: "Changed files" }).getByRole("option");
  const at = async () => Number(await page.getByRole("slider").getAttribute("aria-valuenow"));
  await until(async () => (await changed.count()) === 2, "both files that the call changed");
  equal(await at(), finished, "the end of the call");
  for (let step = finished; step > call; step -= 1) await page.keyboard.press("h");
  await until(async () => (await at()) === call, "the event of the call's start");
  await page.getByText("Nothing changed.").waitFor();
  await page.getByRole("button", { name: "The whole call" }).click();
  await until(async () => (await at()) === finished, "the end of the call again");
  await page.keyboard.press(":");
  await page.getByLabel(/A position from 1/).fill(String(all[3].call));
  await page.keyboard.press("Enter");
  await until(async () => (await at()) === all[3].finished, "the end of another call");
  rig.sound(page);
}

async function empty(rig, origin) {
  await rig.api(origin, "/v1/sessions", { name: "no-calls", backend: "host" });
  const page = await rig.signedIn(origin, "#/s/no-calls");
  await page.getByText("foldspace exec no-calls -- make test", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Actions" }).click();
  for (const [item, why] of [[/^Rewind/, "no calls yet"], [/^Bisect/, "no calls yet"], [/^Merge/, "no children"]]) {
    const entry = page.getByRole("menuitem", { name: item });
    equal([await entry.getAttribute("aria-disabled"), (await entry.textContent()).includes(why)], ["true", true], `the entry ${item}`);
  }
  await rig.axe(page, "the menu of an empty session");
  await rig.shot(page, "empty-session");
  await page.getByRole("menuitem", { name: /^Rewind/ }).click({ force: true });
  equal(await page.getByRole("dialog").count(), 0, "dialogs of a disabled entry");
  await page.keyboard.press("Escape");
  await page.keyboard.press("R");
  await page.getByRole("status").getByText("This session has no calls yet.").waitFor();
  await page.route("**/v1/sessions?*", (route) => route.fulfill({ json: [] }));
  await page.goto(`${origin}/#/`);
  for (const words of ["foldspace new demo --dir .", "foldspace exec demo -- make test"]) await page.getByText(words, { exact: true }).waitFor();
  await rig.axe(page, "an empty store");
  await rig.shot(page, "empty-store");
  rig.sound(page);
}

async function widths(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/work/files", { width: 1440, height: 900 });
  await page.keyboard.press("j");
  await page.getByRole("listbox", { name: "Changed files" }).getByRole("option", { name: "a.txt" }).click();
  const removed = page.locator(".editor .cm-oldNumbers .cm-gutterElement").filter({ hasText: /^41$/ });
  await removed.waitFor();
  const fresh = page.locator(".editor .cm-lineNumbers:not(.cm-oldNumbers) .cm-gutterElement").filter({ hasText: /^41$/ });
  const [was, is] = [await removed.boundingBox(), await fresh.boundingBox()];
  assert(was.x < is.x && was.y < is.y && is.y - was.y < 40, `old and new numbers of line 41 at ${JSON.stringify([was, is])}`);
  const width = async () => Math.round((await page.getByRole("region", { name: "Timeline" }).boundingBox()).width);
  const usual = await width();
  const bar = page.getByRole("separator", { name: "Width of the timeline" });
  const { x, y, height } = await bar.boundingBox();
  await page.mouse.move(x + 2, y + height / 2);
  await page.mouse.down();
  await page.mouse.move(x - 98, y + height / 2, { steps: 3 });
  await page.mouse.up();
  await until(async () => Math.abs((await width()) - (usual - 100)) < 5, "a narrower timeline");
  await bar.press("ArrowRight");
  await until(async () => Math.abs((await width()) - (usual - 76)) < 5, "a wider timeline by a key");
  const before = await width();
  await page.reload();
  await until(async () => (await width().catch(() => 0)) === before, "the width after a reload");
  await bar.dblclick();
  await until(async () => (await width()) === usual, "the usual width");
  await page.keyboard.press("T");
  await until(async () => (await page.getByRole("region", { name: "Timeline" }).count()) === 0, "no timeline");
  await page.getByRole("button", { name: "Hide the timeline", pressed: true }).click();
  await until(async () => (await width()) === usual, "the timeline again");
  await page.setViewportSize({ width: 1024, height: 700 });
  await page.getByRole("button", { name: "Side by side" }).click();
  await until(async () => Math.min(...await page.locator(".editor .cm-mergeViewEditor").evaluateAll((sides) => sides.map((side) => side.getBoundingClientRect().width))) > 280, "two wide sides at 1024");
  for (let step = 0; step < 40; step += 1) await bar.press("ArrowRight");
  assert((await page.getByRole("region", { name: "At the cursor" }).boundingBox()).width > 150, "the panes at the cursor stay in view");
  await rig.axe(page, "resized panes");
  rig.sound(page);
}

async function list(rig, origin) {
  await rig.api(origin, "/v1/sessions", { name: "busy", backend: "host" });
  const running = rig.api(origin, "/v1/sessions/busy/calls", { tool: "shell_execute", params: { command: "sleep 6" }, auto_confirm: true });
  await until(async () => (await rig.api(origin, "/v1/server")).calls.length === 1, "a call in flight");
  const page = await rig.signedIn(origin, "#/", { width: 1024, height: 700 });
  const row = (name) => page.getByRole("row").filter({ has: page.getByRole("link", { name, exact: true }) });
  await until(async () => (await row("work").locator(".column-failed").textContent()) === "1", "the failures of a session");
  equal([await row("work").locator(".column-agents").textContent(), await row("work").locator(".column-calls").textContent()], ["ada, bob", "4"], "its agents and calls");
  assert(/ms|s$/.test(await row("work").locator(".column-took").textContent()), "its duration");
  await row("busy").getByText("running", { exact: true }).first().waitFor();
  await rig.axe(page, "the list of sessions");
  await rig.shot(page, "sessions-running");
  await page.getByRole("button", { name: "Failed" }).click();
  await page.getByRole("columnheader", { name: "Failed" }).and(page.locator("[aria-sort=descending]")).waitFor();
  const failures = (await page.locator(".line .column-failed").allTextContents()).map((text) => Number(text.replace("–", "-1")));
  equal(failures, [...failures].sort((a, b) => b - a), "sessions by their failures");
  await page.getByRole("button", { name: "Name" }).click();
  const names = await page.getByRole("treegrid").getByRole("link").allTextContents();
  equal(names, [...names].sort(), "sessions by name");
  await page.getByRole("button", { name: "Name" }).focus();
  await page.keyboard.press("/");
  await page.keyboard.type("busy");
  await until(async () => (await page.getByRole("treegrid").getByRole("link").count()) === 1, "the session that was searched");
  rig.sound(page);
  await running;
}
