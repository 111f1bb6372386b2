// Terminals in the page: recorded ones, played; output beyond a result; live ones, in a copy and in the session.

import path from "node:path";
import { pathToFileURL } from "node:url";
import { assert, equal, until } from "./rig.mjs";

const SCRIPT = "printf '\\033[1;31mred\\033[0m \\346\\274\\242 done\\r\\n'; sleep 0.3; printf '\\342\\200\\256evil<img src=x>'; sleep 3; printf '\\r\\n\\033[7mlast\\033[0m'";

export async function terminals(rig) {
  const { origin, stop } = await rig.serve();
  const shell = (command, tty) => rig.api(origin, "/v1/sessions/played/calls", { tool: "shell_execute", params: { command, tty }, auto_confirm: true });
  await rig.api(origin, "/v1/sessions", { name: "played", backend: "host" });
  const cast = await shell(SCRIPT, true);
  const large = await shell("head -c 7000000 /dev/zero | tr '\\0' x; echo; echo the-end", false);
  await shell("head -c 300000 /dev/urandom", true);
  await rig.check("a recorded terminal is played", () => played(rig, origin, cast.call));
  await rig.check("who wants little motion begins with a pause", () => still(rig, origin, cast.call));
  await rig.check("a terminal full of noise is played", () => noise(rig, origin));
  await rig.check("all of a large output is shown", () => kept(rig, origin, large.call));
  await rig.check("a live terminal runs what is typed", () => live(rig, origin));
  await rig.check("a terminal that is closed hangs its command up", () => closed(rig, origin));
  await rig.check("a terminal into a copy leaves the session alone", () => copied(rig, origin, cast.call));
  await stop();
  await rig.check("an exported file plays its terminals", () => exportedTerminal(rig, cast.call));
}

const panel = (page) => page.getByRole("tabpanel");
const recorded = (page) => panel(page).getByRole("group", { name: "Recorded terminal" });
const time = (page) => page.getByRole("slider", { name: "Time in the recording" });

async function played(rig, origin, call) {
  const page = await rig.signedIn(origin, `#/s/played@${call}`);
  await recorded(page).getByText("last").waitFor();
  await panel(page).getByRole("button", { name: "Play" }).waitFor();
  // The pause of 3 seconds is one of 1 second.
  const end = Number(await time(page).getAttribute("max"));
  assert(end > 1.2e6 && end < 2.5e6, `the recording takes ${end} µs`);
  const red = recorded(page).getByText("red", { exact: true });
  equal(await red.getAttribute("class"), "bold", "the look of the word");
  const wide = await recorded(page).locator(".wide").boundingBox();
  const cell = await recorded(page).locator(".screen i").boundingBox();
  assert(Math.abs(wide.width - 2 * cell.width) < 0.5, `a wide character has ${wide.width} instead of twice ${cell.width}`);
  await recorded(page).getByText("\\u{202e}evil<img src=x>").waitFor();
  const position = () => page.getByRole("slider", { name: "Position in the run" }).getAttribute("aria-valuenow");
  const before = await position();
  await time(page).focus();
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowLeft");
  await until(async () => (await recorded(page).getByText("evil").count()) === 0, "nothing of the end at the beginning");
  equal(Number(await time(page).inputValue()), 0, "the beginning");
  await page.getByRole("button", { name: "Speed: 1" }).click();
  await page.getByRole("button", { name: "Speed: 2" }).waitFor();
  await recorded(page).focus();
  await page.keyboard.press("Space");
  await panel(page).getByRole("button", { name: "Pause" }).waitFor();
  await page.keyboard.press("Space");
  await panel(page).getByRole("button", { name: "Play" }).click();
  await recorded(page).getByText("last").waitFor();
  equal(await position(), before, "the keys move nothing else");
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    await rig.axe(page, `a recorded terminal, ${scheme}`);
    await rig.shot(page, `terminal-recorded-${scheme}`);
  }
  await page.setViewportSize({ width: 400, height: 800 });
  await recorded(page).scrollIntoViewIfNeeded();
  await rig.shot(page, "terminal-recorded-narrow");
  rig.sound(page);
}

async function still(rig, origin, call) {
  const page = await rig.page();
  await page.emulateMedia({ reducedMotion: "reduce" });
  await page.goto(`${origin}/#/s/played@${call}`);
  await page.getByLabel("Token of the server").fill(rig.token);
  await page.keyboard.press("Enter");
  await panel(page).getByRole("button", { name: "Play" }).waitFor();
  await page.waitForTimeout(500);
  equal(Number(await time(page).inputValue()), 0, "it stays at the beginning");
  rig.sound(page);
}

async function noise(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/played");
  await page.keyboard.press("G");
  await until(async () => (await recorded(page).innerText()).trim().length > 100, "noise");
  equal(await page.evaluate(() => document.querySelectorAll(".terminal img, .terminal script, .terminal a").length), 0, "elements made by a terminal");
  rig.sound(page);
}

async function kept(rig, origin, call) {
  const page = await rig.signedIn(origin, `#/s/played@${call}`);
  const started = Date.now();
  await panel(page).getByRole("button", { name: /All of the output is kept: show 6.7 MiB/ }).click();
  const all = panel(page).getByRole("list", { name: "All of Output" });
  await all.getByText(/^x{400}$/).first().waitFor();
  console.log(`measured: a line of 7 MB after ${Date.now() - started} ms`);
  await panel(page).locator(".kept").evaluate((box) => (box.scrollTop = box.scrollHeight));
  await all.getByText("the-end").waitFor();
  await rig.axe(page, "all of an output");
  await rig.shot(page, "terminal-kept");
  rig.sound(page);
}

async function opened(page, place) {
  await page.getByRole("button", { name: "Actions" }).click();
  await page.getByRole("menuitem", { name: "Open a terminal…" }).click();
  const shown = page.getByRole("dialog", { name: "Terminal" });
  await shown.getByLabel(place).check();
  return shown;
}

async function live(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/played");
  const shown = await opened(page, /The live workspace/);
  await shown.getByText("foldspace exec played -t --sh -- sh").waitFor();
  await rig.axe(page, "opening a terminal");
  await rig.shot(page, "terminal-open");
  await shown.getByLabel("Command").fill("PS1='> '; export PS1; exec sh");
  await shown.getByRole("button", { name: "Open" }).click();
  const allow = shown.getByRole("button", { name: "Allow once" });
  await allow.or(shown.getByText(">", { exact: true })).first().waitFor();
  if (await allow.count()) {
    await rig.shot(page, "terminal-question");
    await allow.click();
  }
  const screen = shown.locator(".screen");
  await screen.getByText(">", { exact: true }).waitFor();
  await page.keyboard.type("echo ty''ped");
  await page.keyboard.press("Enter");
  await screen.getByText("typed", { exact: true }).waitFor();
  await page.keyboard.type("stty size");
  await page.keyboard.press("Enter");
  const sizes = async () => [...(await screen.innerText()).matchAll(/^(\d+) (\d+)$/gm)].map(([, rows, columns]) => [Number(rows), Number(columns)]);
  const [before] = await until(async () => ((await sizes()).length ? sizes() : null), "a size");
  await page.setViewportSize({ width: 700, height: 600 });
  await page.waitForTimeout(300);
  await page.keyboard.type("stty size");
  await page.keyboard.press("Enter");
  const after = await until(async () => (await sizes()).find(([, columns]) => columns < before[1]), "fewer columns in a narrow window");
  assert(after[0] < before[0], `${after} of ${before}`);
  await page.keyboard.type("cat -v");
  await page.keyboard.press("Enter");
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Alt+x");
  await page.keyboard.press("Enter");
  await screen.getByText("^[[A^[^[x").first().waitFor();
  await page.evaluate(() => {
    const data = new DataTransfer();
    data.setData("text/plain", "pasted\n");
    document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, cancelable: true, bubbles: true }));
  });
  await screen.getByText("pasted", { exact: true }).first().waitFor();
  await page.keyboard.press("Control+c");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Control+F6");
  equal(await page.evaluate(() => document.activeElement.textContent), "Hang up", "the focus after Ctrl+F6");
  await page.keyboard.press("Escape");
  await screen.click();
  await page.setViewportSize({ width: 1280, height: 800 });
  await rig.axe(page, "a live terminal");
  await rig.shot(page, "terminal-live");
  await page.keyboard.press("Control+u");
  await page.keyboard.type("exit 3");
  await page.keyboard.press("Enter");
  await shown.getByText(/Exit code 3/).waitFor();
  await shown.getByRole("button", { name: "Close", exact: true }).last().click();
  const { calls } = await rig.api(origin, "/v1/sessions/played/calls?limit=1000");
  equal(calls.at(-1).exit_code, 3, "the recorded call");
  rig.sound(page);
}

async function closed(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/played");
  const shown = await opened(page, /The live workspace/);
  await shown.getByLabel("Command").fill("echo up; sleep 1000");
  await shown.getByRole("button", { name: "Open" }).click();
  const allow = shown.getByRole("button", { name: "Allow once" });
  await allow.or(shown.getByText("up", { exact: true })).first().waitFor();
  if (await allow.count()) await allow.click();
  await shown.getByText("up", { exact: true }).waitFor();
  await shown.getByRole("button", { name: "Hang up" }).click();
  await shown.waitFor({ state: "detached" });
  const last = async () => (await rig.api(origin, "/v1/sessions/played/calls?limit=1000")).calls.at(-1);
  await until(async () => (await last()).status === "interrupted", "the call is interrupted");
  rig.sound(page);
}

async function copied(rig, origin, call) {
  const before = (await rig.api(origin, "/v1/sessions/played")).events;
  const page = await rig.signedIn(origin, `#/s/played@${call}`);
  const { finished } = (await rig.api(origin, `/v1/sessions/played/calls?from=${call}&limit=1`)).calls[0];
  const shown = await opened(page, /A throw-away copy/);
  await shown.getByText(`foldspace shell played --at ${finished}`).waitFor();
  await shown.getByRole("button", { name: "Open" }).click();
  await shown.getByText(`A copy of event ${finished}`, { exact: true }).waitFor();
  await page.keyboard.type("pwd; exit");
  await page.keyboard.press("Enter");
  await shown.getByText(/probes/).waitFor();
  await shown.getByText(/Exit code 0/).waitFor();
  equal((await rig.api(origin, "/v1/sessions/played")).events, before, "the events of the session");
  rig.sound(page);
}

async function exportedTerminal(rig, call) {
  const file = path.join(rig.home, "played.html");
  rig.foldspace("ui", "played", "--export", file);
  const page = await rig.page();
  await page.goto(`${pathToFileURL(file).href}#/s/played@${call}`);
  await recorded(page).getByText("last").waitFor();
  await page.keyboard.press("G");
  equal(await page.getByRole("button", { name: /is kept/ }).count(), 0, "what the file does not have");
  rig.sound(page);
}
