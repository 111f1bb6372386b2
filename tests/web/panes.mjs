// Every pane, by role and by key, on the first run's session and on a family of sessions.

import path from "node:path";
import { assert, equal, ROOT, until } from "./rig.mjs";

const SIZES = { wide: { width: 1680, height: 1050 }, usual: { width: 1280, height: 800 }, narrow: { width: 400, height: 800 } };
const PLACES = {
  sessions: "#/", call: "#/s/first@62", files: "#/s/first@240/file/src/shelfcount/periods.py?view=blame",
  changes: "#/s/first@62/file/src/shelfcount/movements.py", split: "#/s/first@240/file/src/shelfcount/ledger.py?view=split&since=start",
  slices: "#/s/first@62/slices", family: "#/s/family/family", compare: "#/s/family-left/compare/family-right",
};

export async function panes(rig) {
  const fixture = path.join(ROOT, "fixtures/first-run");
  rig.foldspace("run", path.join(fixture, "script.jsonl"), "--mount", path.join(fixture, "tree"), "--session", "first");
  const { origin, stop } = await rig.serve();
  await family(rig, origin);
  rig.origin = origin;
  await rig.check("a page without a token asks for it, and keeps it over a reload", () => signingIn(rig, origin));
  await rig.check("the code of `foldspace ui` is good once, and goes from the address", () => code(rig));
  await rig.check("the timeline is moved by keys", () => timeline(rig, origin));
  await rig.check("a deep link leads to its place, and Back leads back", () => links(rig, origin));
  await rig.check("a run goes on until a condition, and from breakpoint to breakpoint", () => conditions(rig, origin));
  await rig.check("filters narrow the timeline", () => filters(rig, origin));
  await rig.check("a call shows parameters, decision and output", () => call(rig, origin));
  await rig.check("files show the tree, the changes, and a difference both ways", () => files(rig, origin));
  await rig.check("an image is shown, and other bytes as hex", () => bytes(rig, origin));
  await rig.check("blame leads to the call that wrote a line", () => blame(rig, origin));
  await rig.check("slices show what changed", () => slices(rig, origin));
  await rig.check("the family shows forks, merges, and conflicts with three sides", () => relatives(rig, origin));
  await rig.check("two runs are aligned", () => compare(rig, origin));
  await rig.check("screenshots at three sizes, light and dark, and no serious finding of axe", () => looks(rig, origin));
  await stop();
}

// A parent, a fork that is merged, and one in conflict with it.
async function family(rig, origin) {
  const call = (session, tool, params, agent) => rig.api(origin, `/v1/sessions/${session}/calls`, { tool, params, agent, auto_confirm: true });
  const child = (name) => rig.api(origin, "/v1/sessions/family/children", { isolation: "fork", name, agent: "ada" });
  await rig.api(origin, "/v1/sessions", { name: "family", backend: "host" });
  await call("family", "write_file", { file_path: "/a.txt", content: "one\ntwo\nthree\n" }, "lead");
  await child("family-left");
  await child("family-right");
  await call("family-left", "edit_file", { file_path: "/a.txt", old_string: "two", new_string: "TWO" }, "ada");
  await call("family-left", "write_file", { file_path: "/left.py", content: "print('left')\n" }, "ada");
  await call("family-right", "edit_file", { file_path: "/a.txt", old_string: "two", new_string: "2" }, "ada");
  await call("family-right", "shell_execute", { command: "printf '\\033[31mred\\033[0m\\n'; head -c 300 /dev/zero > zeros.bin; exit 4" }, "ada");
  equal((await rig.api(origin, "/v1/sessions/family/merge", { child: "family-left" })).outcome, "merged", "the first merge");
  equal((await rig.api(origin, "/v1/sessions/family/merge", { child: "family-right" })).outcome, "conflicted", "the second merge");
}

async function signingIn(rig, origin) {
  const page = await rig.page();
  await page.goto(`${origin}/`);
  await page.getByLabel("Token of the server").waitFor();
  await rig.axe(page, "signing in");
  const field = page.getByLabel("Token of the server");
  await field.fill("not it");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").waitFor();
  await field.fill(rig.token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("treegrid", { name: "Sessions" }).waitFor();
  const names = await page.getByRole("treegrid").getByRole("link").allTextContents();
  equal([...names].sort(), ["family", "family-left", "family-right", "first"], "the sessions");
  await until(async () => (await page.getByRole("row", { level: 2 }).count()) === 2, "both forks below their parent");
  await page.reload();
  await page.getByRole("treegrid", { name: "Sessions" }).waitFor();
  await page.getByLabel("Find a session").fill("right");
  await until(async () => (await page.getByRole("treegrid").getByRole("link").count()) === 1, "one session that fits");
  await page.getByLabel("Find a session").fill("");
  await page.getByRole("link", { name: "first", exact: true }).press("Enter");
  await page.getByRole("listbox", { name: /Calls/ }).waitFor();
  const other = await rig.page();
  await other.goto(`${origin}/#/s/first`);
  await other.getByLabel("Token of the server").waitFor();
  rig.sound(page);
}

async function code(rig) {
  const page = await rig.page();
  const address = rig.ui("first");
  await page.goto(address);
  await page.getByRole("heading", { name: "first" }).waitFor();
  const visited = await page.evaluate(() => [location.href, document.referrer]);
  assert(!visited.join().includes("code="), `the code stays in ${visited}`);
  await page.reload();
  await page.getByRole("heading", { name: "first" }).waitFor();
  rig.sound(page);
  const other = await rig.page();
  await other.goto(address);
  await other.getByRole("alert").getByText(/The address was not accepted/).waitFor();
}

const selected = (page) => page.getByRole("listbox", { name: /Calls/ }).getByRole("option", { selected: true });
const position = async (page) => Number(await page.getByRole("slider").getAttribute("aria-valuenow"));

async function timeline(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/first");
  await until(async () => (await selected(page).getAttribute("aria-posinset")) === "1", "the first call is selected");
  await page.keyboard.press("j");
  await page.keyboard.press("ArrowDown");
  await until(async () => (await selected(page).getAttribute("aria-posinset")) === "3", "the third call after two steps");
  await page.keyboard.press("k");
  await until(async () => (await selected(page).getAttribute("aria-posinset")) === "2", "the second call after a step back");
  await page.keyboard.press("n");
  await until(async () => /error$/.test((await selected(page).locator(".verdict").textContent())), "the next failure");
  const failed = await position(page);
  await page.keyboard.press("h");
  await until(async () => (await position(page)) === failed - 1, "one event back");
  await page.keyboard.press("G");
  await until(async () => (await selected(page).getAttribute("aria-posinset")) === "94", "the last call");
  await page.keyboard.press("N");
  await until(async () => (await position(page)) < 240, "the failure before");
  await page.keyboard.press("Enter");
  await until(async () => (await page.locator(".row.event").count()) > 1, "the events of the call");
  await page.keyboard.press("Escape");
  await until(async () => (await page.locator(".row.event").count()) === 0, "no events after Esc");
  await page.keyboard.press(":");
  await page.getByLabel(/A position from 1/).fill("100");
  await page.keyboard.press("Enter");
  await until(async () => (await position(page)) === 100, "event 100");
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keys and signs" }).waitFor();
  await rig.axe(page, "the keys");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await scrub(page);
  rig.sound(page);
}

async function scrub(page) {
  const strip = page.getByRole("slider", { name: "Position in the run" });
  const { x, y, width } = await strip.boundingBox();
  await page.mouse.click(x + width * 0.5, y + 10);
  await until(async () => Math.abs((await position(page)) - 120) < 4, "the middle of the run by a click");
  for (const lanes of ["tools", "agents"]) {
    await page.getByLabel("Lanes").selectOption(lanes);
    await until(async () => (await strip.boundingBox()).height > 60, `lanes of ${lanes}`);
  }
  await page.mouse.move(x + width * 0.01, y + 10);
  await page.getByText(/events before the first call: what was there at the start/).waitFor();
  await page.mouse.move(x + width * 0.5, y + 10);
  await page.locator(".strip-tip", { hasText: /^call \d+, .*, \d\d:\d\d:\d\d$/ }).waitFor();
  await page.getByLabel("Axis").selectOption("time");
  await page.keyboard.down("Shift");
  await page.mouse.down();
  await page.mouse.move(x + width * 0.7, y + 10, { steps: 3 });
  await page.mouse.up();
  await page.keyboard.up("Shift");
  await until(() => page.getByRole("button", { name: "Zoom out" }).isEnabled(), "a part of the run after Shift and a drag");
  for (let turn = 0; turn < 3; turn += 1) await page.getByRole("button", { name: "Zoom out" }).click({ timeout: 500 }).catch(() => {});
  equal(await page.getByRole("button", { name: "Zoom out" }).isDisabled(), true, "all of the run again");
  await page.getByRole("button", { name: "Zoom in" }).click();
  await page.getByRole("button", { name: "Zoom out" }).click();
}

async function links(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/first@62/file/src/shelfcount/movements.py");
  await page.getByRole("heading", { name: "src/shelfcount/movements.py" }).waitFor();
  equal(await position(page), 62, "the position of the link");
  await page.keyboard.press("3");
  await page.getByRole("tab", { name: "Slices", selected: true }).waitFor();
  await page.goBack();
  await page.getByRole("tab", { name: "Files", selected: true }).waitFor();
  assert(!page.url().includes(rig.token), "the token is in the address");
  await page.keyboard.press("]");
  await until(async () => (await position(page)) > 62, "the next change of the file");
  await page.goBack();
  await until(async () => (await position(page)) === 62, "back at the place before");
  rig.sound(page);
}

async function conditions(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/first@1");
  const found = async (query) => String((await rig.api(origin, `/v1/sessions/first/until?${new URLSearchParams(query)}`)).seq);
  const at = () => page.getByRole("slider").getAttribute("aria-valuenow");
  const arrives = (seq, what) => until(async () => (await at()) === seq, `${what} at ${seq}`);
  const shown = page.getByRole("dialog", { name: "Continue until" });
  await page.keyboard.press("u");
  await shown.getByLabel("Condition").fill("fialed");
  await page.keyboard.press("Enter");
  await shown.getByRole("alert").getByText("did you mean failed?").waitFor();
  await shown.getByLabel("Condition").fill("path **/movements.py");
  await shown.getByText("foldspace replay first --at 1 --until 'path **/movements.py'").waitFor();
  await page.keyboard.press("Enter");
  const written = await found({ conditions: "path **/movements.py", from: 1 });
  await page.getByRole("status").getByText(`Stopped at ${written}: path **/movements.py`).waitFor();
  await arrives(written, "the first change of the file");
  await page.keyboard.press("u");
  await shown.getByLabel("Condition").fill("Usage.calls >= 40");
  await page.keyboard.press("Enter");
  const fortieth = await found({ conditions: "Usage.calls >= 40", from: written });
  await arrives(fortieth, "the fortieth call");
  await page.keyboard.press("U");
  await shown.getByLabel("Condition").fill("/movements/");
  await page.keyboard.press("Enter");
  const before = await found({ conditions: "/movements/", from: fortieth, backward: true });
  await arrives(before, "the match before");
  await page.keyboard.press("n");
  await arrives(await found({ conditions: "/movements/", from: before }), "the match after, by n");
  await page.keyboard.press("N");
  await arrives(before, "the match before, by N");
  await page.keyboard.press("c");
  await page.getByText("No breakpoint is set: b sets one.").waitFor();
  await page.keyboard.press("b");
  for (const condition of ["failed", "Usage.calls >= 60"]) {
    await shown.getByLabel("Condition").fill(condition);
    await shown.getByRole("button", { name: "Set a breakpoint" }).press("Enter");
    await shown.getByRole("button", { name: `Remove ${condition}` }).waitFor();
  }
  await rig.axe(page, "breakpoints");
  await rig.shot(page, "breakpoints");
  await page.keyboard.press("Escape");
  const stops = "failed\nUsage.calls >= 60";
  let now = before;
  for (const [key, backward] of [["c", false], ["c", false], ["C", true]]) {
    await page.keyboard.press(key);
    now = await found({ conditions: stops, from: now, backward });
    await arrives(now, `a breakpoint by ${key}`);
  }
  await page.reload();
  await page.getByRole("tabpanel").locator(":scope > *").first().waitFor();
  await page.keyboard.press("c");
  await arrives(await found({ conditions: stops, from: now }), "a breakpoint after a reload");
  await page.keyboard.press("b");
  await shown.getByRole("button", { name: "Remove failed" }).click();
  await page.keyboard.press("Escape");
  await page.keyboard.press("B");
  await page.getByRole("status").getByText("All breakpoints are cleared.").waitFor();
  await page.keyboard.press("G");
  await page.keyboard.press("u");
  await shown.getByLabel("Condition").fill("failed");
  await page.keyboard.press("Enter");
  await shown.getByText("No later event meets the condition.").waitFor();
  rig.sound(page);
}

async function filters(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/first");
  const total = async () => Number((await page.getByRole("listbox", { name: /Calls/ }).getAttribute("aria-label")).match(/\d+/)[0]);
  equal(await total(), 94, "all calls");
  await page.getByRole("button", { name: "Failed", exact: true }).click();
  await until(async () => (await total()) === 17, "the failures");
  for (const key of ["f", "f"]) await page.keyboard.press(key);
  await until(async () => (await total()) === 94, "all again");
  await page.getByLabel("Tool").selectOption("grep");
  await until(async () => (await total()) === 12, "the calls of grep");
  await page.getByLabel("Tool").selectOption("");
  await until(async () => (await total()) === 94, "all without a tool");
  await page.getByLabel(/Path of changed files/).fill("src/**");
  await until(async () => (await total()) > 3 && (await total()) < 94, "the calls that changed src");
  const narrowed = await total();
  await page.reload();
  await until(async () => (await total()) === narrowed, "the filter is in the address");
  await page.getByRole("button", { name: "All", exact: true }).click();
  await page.getByLabel("Text in calls").fill("timedelta");
  await until(async () => (await total()) > 1 && (await total()) < 20, "calls with a text");
  rig.sound(page);
}

async function call(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/family-right");
  await page.keyboard.press("G");
  const pane = page.getByRole("tabpanel");
  await pane.getByText("exit 4", { exact: true }).waitFor();
  await pane.getByText("Allowed").waitFor();
  equal(await pane.locator(".ansi-red").textContent(), "red", "the colour of the output");
  await pane.getByRole("button", { name: "zeros.bin", exact: true }).click();
  await page.getByRole("tab", { name: "Files", selected: true }).waitFor();
  rig.sound(page);
}

async function files(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/first@62/files");
  await page.getByRole("listbox", { name: "Changed files" }).getByRole("option", { name: /movements.py/ }).click();
  await page.getByRole("heading", { name: "src/shelfcount/movements.py" }).waitFor();
  await page.locator(".editor .cm-deletedChunk").first().waitFor();
  await page.getByRole("button", { name: "Side by side" }).click();
  await page.locator(".editor .cm-merge-b .cm-changedLine").first().waitFor();
  await page.getByRole("button", { name: "Since start" }).click();
  await until(async () => (await page.getByRole("listbox", { name: "Changed files" }).getByRole("option").count()) === 2, "two files since the start");
  const tree = page.getByRole("tree", { name: "Files" });
  await tree.focus();
  await tree.getByRole("treeitem", { name: /^. ?README.md/ }).or(tree.getByRole("treeitem", { name: /README/ })).first().click();
  await page.getByRole("heading", { name: "README.md" }).waitFor();
  await tree.focus();
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "NOTES.md" }).waitFor();
  const saving = page.waitForEvent("download");
  await page.getByRole("button", { name: "Save this file" }).click();
  equal((await saving).suggestedFilename(), "NOTES.md", "the name of the saved file");
  rig.sound(page);
}

async function bytes(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/first@62/file/assets/mark.png");
  await until(async () => page.evaluate(() => document.querySelector(".pictures img")?.naturalWidth > 0), "the image");
  await page.goto(`${origin}/#/s/family-right/file/zeros.bin`);
  await page.getByRole("heading", { name: "family-right" }).waitFor();
  await page.getByRole("tree", { name: "Files" }).waitFor();
  await page.keyboard.press("G");
  await page.getByRole("list", { name: "Bytes" }).getByText("00 00 00").first().waitFor();
  rig.sound(page);
}

async function blame(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/first@240/file/src/shelfcount/periods.py?view=blame");
  const mark = page.locator(".cm-blame", { hasText: "#121 edit_file" });
  await mark.click();
  await until(async () => (await position(page)) === 122, "the event that wrote the line");
  await page.goto(`${origin}/#/s/family@999/file/a.txt?view=blame`);
  await page.locator(".cm-blame", { hasText: "edit_file" }).click();
  await page.getByRole("heading", { name: "family-left" }).waitFor();
  await page.goto(`${origin}/#/s/first@240/file/README.md?view=blame`);
  await page.locator(".cm-blame", { hasText: /initial$/ }).first().waitFor();
  rig.sound(page);
}

async function slices(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/first@62/slices");
  await page.getByRole("button", { name: /^Usage/ }).click();
  await page.getByText("/writes").waitFor();
  await page.getByRole("button", { name: /^Mounts/ }).click();
  await page.getByRole("heading", { name: "Mounts" }).waitFor();
  rig.sound(page);
}

async function relatives(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/family/family");
  await until(async () => (await page.getByRole("tree", { name: "Family of sessions" }).getByRole("treeitem").count()) === 3, "the family");
  await page.getByRole("button", { name: "1 conflict" }).click();
  for (const [side, line] of [["Ours", "TWO"], ["Base", "two"], ["Theirs", "2"]]) {
    const marked = page.getByRole("group", { name: `${side} of a.txt` }).locator("[class*=side-]");
    await marked.waitFor();
    equal(await marked.locator("code").allTextContents(), [line], `the marked line of ${side}`);
    equal(await marked.locator(".number").allTextContents(), ["2"], `its number in ${side}`);
  }
  await page.getByRole("tree").getByRole("link", { name: "family-left" }).click();
  await page.getByRole("heading", { name: "family-left" }).first().waitFor();
  rig.sound(page);
}

async function compare(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/family-left");
  await page.keyboard.press("d");
  await page.getByLabel("Other session", { exact: true }).fill("family-right");
  await page.keyboard.press("Enter");
  await page.getByText(/1 call the same, 2 only here, 2 only there/).waitFor();
  await page.getByRole("button", { name: "left.py" }).waitFor();
  await page.getByRole("button", { name: "a.txt" }).click();
  await page.locator(".compare .editor .cm-changedLine").first().waitFor();
  rig.sound(page);
}

async function looks(rig, origin) {
  for (const scheme of ["light", "dark"]) {
    const page = await rig.signedIn(origin, "#/", { ...SIZES.usual, scheme });
    for (const [name, hash] of Object.entries(PLACES)) {
      await page.goto(`${origin}/${hash}`);
      await page.reload();
      await settled(page);
      await rig.axe(page, `${name}, ${scheme}`);
      for (const [size, viewport] of Object.entries(SIZES)) {
        await page.setViewportSize(viewport);
        await rig.shot(page, `${name}-${size}-${scheme}`);
      }
      await page.setViewportSize(SIZES.usual);
    }
    rig.sound(page);
    await page.context().close();
  }
}

async function settled(page) {
  await page.waitForLoadState("load");
  await page.locator(".table .line, [role=tabpanel] > *").first().waitFor();
  await page.waitForTimeout(500);
}
