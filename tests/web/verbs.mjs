// What the page does: fork, rewind, merge, bisect, run; and nothing of it where the server is read-only.

import { assert, equal, until } from "./rig.mjs";

export async function verbs(rig) {
  const script = rig.script("steps", [1, 2, 3, 4, 5].map((number) => ({ tool: "write_file", params: { file_path: "/n.txt", content: `${number}\n`, mode: "overwrite" } })));
  rig.foldspace("run", script, "--session", "steps", "--backend", "host");
  const clock = rig.script("clock", [
    { tool: "write_file", params: { file_path: "/a.txt", content: "a\n" } },
    { tool: "shell_execute", params: { command: "date +%s%N > time.txt; wc -c < time.txt" } },
  ]);
  rig.foldspace("run", clock, "--session", "clock", "--backend", "host", "--yes");
  const { origin, stop } = await rig.serve();
  await rig.check("a fork begins from the dialog", () => fork(rig, origin));
  await rig.check("a child is merged from the dialog", () => merge(rig, origin));
  await rig.check("conflicts are resolved file by file", () => conflicts(rig, origin));
  await rig.check("a rewind tells what it will change, and is undone by another", () => rewind(rig, origin));
  await rig.check("a bisection finds the change", () => bisect(rig, origin));
  await rig.check("a rerun shows what differs, and stands beside its session", () => rerun(rig, origin));
  await rig.check("a command runs, after its question is answered", () => command(rig, origin));
  await rig.check("a read-only page offers none of these", () => readOnly(rig));
  await stop();
}

const dialog = (page, name) => page.getByRole("dialog", { name });

async function menu(page, item) {
  await page.getByRole("button", { name: "Actions" }).click();
  await page.getByRole("menuitem", { name: item }).click();
}

async function fork(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/steps");
  await page.keyboard.press("j");
  await page.keyboard.press("F");
  const shown = dialog(page, /Fork at event/);
  await shown.getByLabel("Name of the fork").fill("steps-again");
  await shown.getByText(/foldspace fork steps --at @\d+ --name steps-again/).waitFor();
  await shown.getByRole("button", { name: "Fork" }).click();
  await shown.getByRole("link", { name: "steps-again" }).waitFor();
  const child = await rig.api(origin, "/v1/sessions/steps-again");
  equal(child.calls, 2, "the calls of the fork");
  rig.sound(page);
}

async function merge(rig, origin) {
  await rig.api(origin, "/v1/sessions/steps-again/calls", { tool: "write_file", params: { file_path: "/new.txt", content: "new\n" } });
  const page = await rig.signedIn(origin, "#/s/steps");
  await page.getByRole("tab", { name: "Family" }).click();
  await page.getByRole("tree", { name: "Family of sessions" }).waitFor();
  await menu(page, /Merge a child/);
  const shown = dialog(page, "Merge a child");
  await shown.getByText("new.txt").waitFor();
  await shown.getByRole("button", { name: "Merge" }).click();
  await shown.getByText("Done:").waitFor();
  await rig.api(origin, "/v1/sessions/steps/stat/new.txt");
  rig.sound(page);
}

// A file of 300 lines in conflict in one place, another file in conflict as a whole.
async function conflicts(rig, origin) {
  const write = (session, path, content) => rig.api(origin, `/v1/sessions/${session}/calls`, { tool: "write_file", params: { file_path: path, content, mode: "overwrite" } });
  const text = (line, last = "line 299") => `${Array.from({ length: 300 }, (_, number) => (number === 150 ? line : number === 299 ? last : `line ${number}`)).join("\n")}\n`;
  await rig.api(origin, "/v1/sessions", { name: "sides", backend: "host" });
  await write("sides", "/long.txt", text("base"));
  await write("sides", "/b.txt", "b\n");
  await rig.api(origin, "/v1/sessions/sides/children", { isolation: "fork", name: "sides-1" });
  await write("sides", "/long.txt", text("mine"));
  await write("sides", "/b.txt", "my b\n");
  await write("sides-1", "/long.txt", text("yours", "the end"));
  await write("sides-1", "/b.txt", "your b\n");
  const page = await rig.signedIn(origin, "#/s/sides");
  await page.getByRole("tab", { name: "Family" }).click();
  await page.getByRole("tree", { name: "Family of sessions" }).waitFor();
  await menu(page, /Merge a child/);
  const shown = dialog(page, "Merge a child");
  await shown.getByText("2 open conflicts").waitFor();
  await shown.getByRole("button", { name: "long.txt" }).click();
  await shown.getByText("1 part in conflict; 1 other change of the file can be merged.").waitFor();
  for (const [side, line] of [["Ours", "mine"], ["Base", "base"], ["Theirs", "yours"]]) {
    const group = shown.getByRole("group", { name: `${side} of long.txt` });
    equal(await group.locator("[class*=side-] code").allTextContents(), [line], `the marked line of ${side}`);
    equal(await group.locator(".line").count(), 5, `${side} has only the lines around the conflict`);
  }
  await rig.axe(page, "a conflict");
  await rig.shot(page, "conflict");
  equal(await shown.getByRole("button", { name: "Merge", exact: true }).isDisabled(), true, "a merge with open conflicts");
  await shown.getByRole("group", { name: "Side for long.txt" }).getByRole("button", { name: "Theirs" }).click();
  await shown.getByText("1 open conflict", { exact: true }).waitFor();
  await shown.getByRole("group", { name: "Side for b.txt" }).getByRole("button", { name: "Ours" }).click();
  await shown.getByText("foldspace merge sides-1 --ours b.txt --theirs long.txt").waitFor();
  await until(() => shown.getByRole("button", { name: "Merge", exact: true }).isEnabled(), "the merge is possible");
  await shown.getByRole("button", { name: "Merge", exact: true }).click();
  await shown.getByText("Done:").waitFor();
  const file = async (name) => (await fetch(`${origin}/v1/sessions/sides/files/${name}`, { headers: { authorization: `Bearer ${rig.token}` } })).text();
  equal([await file("b.txt"), (await file("long.txt")).split("\n")[150]], ["my b\n", "yours"], "the files after the merge");
  rig.sound(page);
}

async function rewind(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/steps");
  const before = (await rig.api(origin, "/v1/sessions/steps")).events;
  const text = async () => (await (await fetch(`${origin}/v1/sessions/steps/files/n.txt`, { headers: { authorization: `Bearer ${rig.token}` } })).text()).trim();
  await page.keyboard.press("R");
  const shown = dialog(page, /Rewind to event/);
  await shown.getByText(/2 files will change/).waitFor();
  await shown.getByText(`a rewind to ${before} undoes it`).waitFor();
  await rig.axe(page, "a rewind");
  await rig.shot(page, "rewind");
  await shown.getByRole("button", { name: "Rewind" }).click();
  await shown.getByText(/The session is as it was/).waitFor();
  equal(await text(), "1", "the file after the rewind");
  await page.keyboard.press("Escape");
  await page.keyboard.press(":");
  await page.getByLabel(/A position from 1/).fill(String(before));
  await page.keyboard.press("Enter");
  await until(async () => (await page.getByRole("slider").getAttribute("aria-valuenow")) === String(before), "the position before");
  await menu(page, /Rewind to here/);
  await dialog(page, `Rewind to event ${before}`).getByText(/2 files will change/).waitFor();
  await dialog(page, `Rewind to event ${before}`).getByRole("button", { name: "Rewind" }).click();
  await page.getByText(/The session is as it was/).waitFor();
  equal(await text(), "5", "the file after the second rewind");
  rig.sound(page);
}

async function bisect(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/steps");
  await page.keyboard.press("x");
  const shown = dialog(page, "Bisect");
  await shown.getByLabel("Bad at").fill("16");
  await shown.getByLabel(/Command, for/).fill('unheard-of "$(cat n.txt)"');
  await shown.getByRole("button", { name: "Find it" }).click();
  await shown.getByText("A command that nothing allows runs if you tick The command may run.").waitFor();
  await shown.getByLabel(/Command, for/).fill('test "$(cat n.txt 2>/dev/null || echo 0)" -lt 4');
  await shown.getByLabel(/The command may run/).check();
  await shown.getByRole("button", { name: "Find it" }).click();
  await shown.getByRole("heading", { name: "The first bad change" }).waitFor({ timeout: 60_000 });
  equal(await shown.locator(".patch .line.added code").allTextContents(), ["4"], "the line that the change added");
  await shown.getByText("write_file /n.txt").waitFor();
  await shown.locator("summary", { hasText: "probes" }).click();
  assert((await shown.getByRole("row").count()) > 3, "the probes are shown");
  await rig.axe(page, "a bisection");
  await rig.shot(page, "bisect");
  await shown.getByRole("button", { name: /^call/ }).click();
  await page.getByRole("tabpanel").locator(".patch .line.added code", { hasText: "4" }).waitFor();
  rig.sound(page);
}

async function rerun(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/clock");
  await menu(page, /^Rerun/);
  const shown = dialog(page, "Rerun");
  await shown.getByLabel("Calls up to event").fill("2");
  await shown.getByLabel("Keep it as").fill("");
  await shown.getByText("foldspace rerun clock --until 2", { exact: true }).waitFor();
  await shown.getByRole("button", { name: "Rerun" }).press("Enter");
  await shown.getByText("1 call: 0 diverged, 0 skipped.").waitFor();
  await shown.getByRole("heading", { name: "Nothing differs" }).waitFor();
  await shown.getByLabel("Calls up to event").fill("");
  await shown.getByRole("button", { name: "Rerun" }).click();
  await shown.getByRole("alert").getByText(/call 5: .*date/).waitFor();
  await shown.getByLabel("Keep it as").fill("clock-again");
  await shown.getByLabel(/The commands may run/).check();
  await shown.getByText("foldspace rerun clock --keep clock-again --yes").waitFor();
  await shown.getByRole("button", { name: "Rerun" }).click();
  await shown.getByRole("log").getByText("call 5: DIVERGED, shell_execute date").waitFor();
  await shown.getByText("2 calls: 1 diverged, 0 skipped.").waitFor();
  await shown.getByRole("link", { name: "clock-again" }).waitFor();
  await shown.locator("summary", { hasText: "file time.txt" }).click();
  await shown.getByText("+++ b/time.txt").first().waitFor();
  await rig.axe(page, "a rerun");
  await rig.shot(page, "rerun");
  equal(await shown.getByRole("link", { name: "there" }).getAttribute("href"), "#/s/clock-again@5", "the call in the other session");
  await shown.getByRole("button", { name: "call 5" }).click();
  await page.getByRole("tabpanel").getByRole("heading", { name: /^date/ }).waitFor();
  await menu(page, /^Rerun/);
  await shown.getByLabel("Keep it as").fill("clock-again");
  await shown.getByLabel(/The commands may run/).check();
  await shown.getByRole("button", { name: "Rerun" }).click();
  await shown.getByRole("alert").getByText(/clock-again/).waitFor();
  await shown.getByLabel("Keep it as").fill("clock-third");
  await shown.getByRole("button", { name: "Rerun" }).click();
  await shown.getByRole("button", { name: "Compare" }).click();
  await page.getByLabel("Other session", { exact: true }).waitFor();
  equal(await page.getByLabel("Other session", { exact: true }).inputValue(), "clock-third", "the session that is compared");
  rig.sound(page);
}

async function command(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/steps");
  await menu(page, /Run a command/);
  const shown = dialog(page, "Run a command");
  await shown.getByLabel("Command").fill("touch asked; echo it ran");
  await shown.getByRole("button", { name: "Run" }).click();
  await shown.getByRole("button", { name: "Allow once" }).click();
  await shown.getByText("Exit code 0").waitFor();
  await shown.getByLabel("Output").getByText("it ran").waitFor();
  rig.sound(page);
}

async function readOnly(rig) {
  const page = await rig.page();
  await page.goto(rig.ui("steps", "--read-only"));
  await page.getByRole("listbox", { name: /Calls/ }).waitFor();
  await page.getByRole("button", { name: "Actions" }).click();
  await page.getByRole("menuitem", { name: /Copy a link/ }).waitFor();
  equal(await page.getByRole("menuitem", { name: /Fork|Rewind|Bisect|Merge|Run|terminal/ }).count(), 0, "verbs in the menu");
  await page.keyboard.press("Escape");
  await menu(page, /^Rerun/);
  await dialog(page, "Rerun").getByText("foldspace rerun steps").waitFor();
  equal(await dialog(page, "Rerun").getByRole("button", { name: "Rerun" }).count(), 0, "a rerun of a read-only page");
  await page.keyboard.press("Escape");
  for (const key of ["F", "R", "x"]) await page.keyboard.press(key);
  equal(await page.getByRole("dialog").count(), 0, "dialogs by keys");
  rig.sound(page);
}
