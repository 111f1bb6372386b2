// The search panel, the marks of the text filter, sides of single hunks, and the removal of a session.

import { assert, equal, until } from "./rig.mjs";

const MANY = Number(process.env.FOLDSPACE_WEB_FOUND ?? 20_000);

export async function search(rig) {
  const write = (file_path, content, mode = "overwrite") => ({ tool: "write_file", params: { file_path, content, mode }, agent: "ada" });
  const script = rig.script("found", [
    write("/src/a.txt", `${"line\n".repeat(400)}a needle here\n`),
    { tool: "shell_execute", params: { command: "printf 'out 1\\nnee%s two\\n' dle; printf '\\033[31mred nee%s\\033[0m\\n' dle >&2" } },
    write("/src/b.txt", "nothing\n"),
    write("/src/a.txt", "a needle here\n<script>alert('needle')</script>\n😀 needle\n"),
    { tool: "read_file", params: { file_path: "/NEEDLE" }, expect: "error" },
  ]);
  rig.foldspace("run", script, "--session", "found", "--backend", "host", "--yes");
  const many = rig.script("many", Array.from({ length: MANY }, (_, number) => ({ tool: "read_file", params: { file_path: `/needle-${number}` }, expect: "error" })));
  rig.foldspace("run", many, "--session", "many");
  const { origin, stop } = await rig.serve();
  await rig.check("a search finds commands, output and files, and leads there", () => finds(rig, origin));
  await rig.check("a search takes case, expressions and places, and tells a wrong expression", () => options(rig, origin));
  await rig.check(`a search of ${MANY.toLocaleString("en")} calls streams, and stops`, () => large(rig, origin));
  await rig.check("the text filter marks what it found", () => filter(rig, origin));
  await rig.check("m and ' take a letter, and f takes a filter", () => letters(rig, origin));
  await rig.check("conflicts are resolved part by part", () => hunks(rig, origin));
  await rig.check("a session is removed after a question, and not while a call runs", () => removal(rig, origin));
  await stop();
}

const field = (page) => page.getByLabel("Text to find");
const hits = (page) => page.getByRole("listbox", { name: "Matches" }).getByRole("option");
const found = async (page, words) => {
  await page.locator(".search-panel .found", { hasText: words }).waitFor();
  await until(async () => (await page.locator(".search-panel").getByRole("button", { name: "Stop" }).count()) === 0, "the end of the search");
};
const marked = (page) => page.evaluate(() => [...(CSS.highlights.get("found") ?? [])].map((range) => range.toString()));

async function finds(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/found");
  await page.keyboard.press("Control+Shift+F");
  await field(page).fill("needle");
  await found(page, "11 matches in 4 calls");
  await page.getByText("foldspace grep found needle -i --all-history").waitFor();
  const shown = await hits(page).allTextContents();
  assert(shown.filter((text) => /src\/a.txt:/.test(text)).length === 3, `lines of files in ${JSON.stringify(shown)}`);
  const texts = await hits(page).locator("mark").allTextContents();
  assert(texts.length > 8 && texts.every((text) => /^needle$/i.test(text)), `the marks are ${JSON.stringify(texts)}`);
  await rig.axe(page, "the search");
  await rig.shot(page, "search");
  await hits(page).filter({ hasText: "needle two" }).click();
  await until(async () => (await marked(page)).join() === "needle", "the mark in the output");
  equal(await page.evaluate(() => [...CSS.highlights.get("found")][0].startContainer.data.includes("needle two")), true, "the place of the mark");
  await hits(page).filter({ hasText: "src/a.txt:401" }).click();
  await page.locator(".cm-spot", { hasText: "a needle here" }).waitFor();
  assert(await page.locator(".cm-spot").evaluate((line) => line.getBoundingClientRect().bottom < innerHeight), "the line is in view");
  await page.keyboard.press("n");
  await page.locator(".row[aria-selected=true]", { hasText: "needle" }).first().waitFor();
  await field(page).press("Escape");
  await until(async () => (await page.locator(".search-panel").count()) === 0, "the panel is closed");
  for (const [width, height, scheme] of [[1440, 900, "light"], [1024, 768, "dark"], [390, 844, "light"]]) {
    const other = await rig.signedIn(origin, "#/s/found", { width, height, scheme });
    await other.getByRole("button", { name: "Search", exact: true }).click();
    await field(other).fill("needle");
    await found(other, "11 matches");
    await hits(other).filter({ hasText: "needle two" }).click();
    await until(async () => (await marked(other)).length === 1, "the mark");
    await rig.shot(other, `search-${width}-${scheme}`);
    equal(await other.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, `nothing overflows at ${width}`);
    await rig.axe(other, `the search at ${width}`);
    rig.sound(other);
  }
  rig.sound(page);
}

async function options(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/found");
  await page.keyboard.press("/");
  await field(page).fill("NEEDLE");
  await page.getByRole("button", { name: "Match case" }).click();
  await found(page, /^2 matches in 1 call/);
  await page.getByRole("button", { name: "Match case" }).click();
  await page.getByLabel("Place").selectOption("file");
  await found(page, "3 matches in 2 calls");
  await page.getByLabel("Place").selectOption("");
  await field(page).fill("needle.*(two");
  await found(page, "No match");
  await page.getByRole("button", { name: "Regular expression" }).click();
  await page.getByRole("alert").getByText(/pattern: .*unclosed group/).waitFor();
  await field(page).fill("needle.*two");
  await found(page, "1 match in 1 call");
  rig.sound(page);
}

async function large(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/many");
  await page.keyboard.press("/");
  const began = Date.now();
  await field(page).fill("needle-1");
  await hits(page).first().waitFor();
  const first = Date.now() - began;
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("button", { name: "Search on" }).waitFor();
  const part = Number((await page.locator(".search-panel .found").textContent()).match(/[\d,]+/)[0].replaceAll(",", ""));
  await page.getByRole("button", { name: "Search on" }).click();
  await field(page).fill("needle-19");
  await page.locator(".search-panel .found", { hasText: /matches in/ }).waitFor();
  await until(async () => (await page.locator(".search-panel").getByRole("button", { name: "Stop" }).count()) === 0, "the end of the search", 120);
  console.log(`measured: ${MANY} calls: first matches after ${first} ms, ${part} when stopped, all after ${Date.now() - began} ms`);
  assert((await hits(page).count()) < 100, "all matches are elements");
  rig.sound(page);
}

async function filter(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/found");
  await page.getByLabel("Text in calls").fill("src/A");
  await page.locator(".filters .found", { hasText: "2 of 5 calls" }).waitFor();
  equal(await page.locator(".timeline mark").allTextContents(), ["src/a", "src/a"], "the marks in the rows");
  await rig.axe(page, "the marks");
  rig.sound(page);
}

async function letters(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/found");
  const position = async () => Number(await page.locator(".where b").textContent());
  await page.keyboard.press("G");
  await until(async () => (await position()) === 16, "the last call");
  const last = await position();
  await page.keyboard.press("m");
  await page.keyboard.press("q");
  await until(() => page.url().includes("marks=q"), "the mark in the address");
  await page.keyboard.press("g");
  await until(async () => (await position()) < last, "the first call");
  await page.keyboard.press("'");
  await page.keyboard.press("z");
  await page.getByText("There is no mark z").waitFor();
  await page.reload();
  await page.locator(".row[aria-selected=true]").waitFor();
  await page.keyboard.press("'");
  await page.keyboard.press("q");
  await until(async () => (await position()) === last, "the mark q");
  const list = page.getByRole("listbox", { name: /Calls/ });
  await page.keyboard.press("f");
  await page.keyboard.press("f");
  await until(async () => (await list.getAttribute("aria-label")).includes("1 of"), "the failed calls");
  await page.keyboard.press("f");
  await page.keyboard.press("x");
  await until(async () => (await list.getAttribute("aria-label")).includes("5 of"), "all calls");
  await page.keyboard.press("f");
  await page.keyboard.press("/");
  await until(() => page.getByLabel("Text in calls").evaluate((input) => input === document.activeElement), "the focus in the text filter");
  rig.sound(page);
}

async function hunks(rig, origin) {
  const write = (session, content) => rig.api(origin, `/v1/sessions/${session}/calls`, { tool: "write_file", params: { file_path: "/x:1.txt", content, mode: "overwrite" } });
  const text = (one, two) => `${one}\n${"same\n".repeat(20)}${two}\n`;
  await rig.api(origin, "/v1/sessions", { name: "parts", backend: "host" });
  await write("parts", text("a", "b"));
  await rig.api(origin, "/v1/sessions/parts/children", { isolation: "fork", name: "parts-1" });
  await write("parts", text("our a", "our b"));
  await write("parts-1", text("their a", "their b"));
  const page = await rig.signedIn(origin, "#/s/parts");
  await page.getByRole("tab", { name: "Family" }).click();
  await page.getByRole("tree", { name: "Family of sessions" }).waitFor();
  await page.getByRole("button", { name: "Actions" }).click();
  await page.getByRole("menuitem", { name: /Merge a child/ }).click();
  const shown = page.getByRole("dialog", { name: "Merge a child" });
  await shown.getByRole("button", { name: "x:1.txt" }).click();
  const side = (hunk, word) => shown.getByRole("group", { name: `Side for part ${hunk} of x:1.txt` }).getByRole("button", { name: word });
  await side(1, "Theirs").click();
  await shown.getByText("1 open conflict", { exact: true }).waitFor();
  await side(2, "Ours").click();
  await shown.getByText("foldspace merge parts-1 --ours x:1.txt:2 --theirs x:1.txt:1").waitFor();
  await rig.axe(page, "parts of a conflict");
  await rig.shot(page, "conflict-parts");
  await until(() => shown.getByRole("button", { name: "Merge", exact: true }).isEnabled(), "the merge is possible");
  await shown.getByRole("button", { name: "Merge", exact: true }).click();
  await shown.getByText("Done:").waitFor();
  await shown.getByText("mixed").waitFor();
  const file = await fetch(`${origin}/v1/sessions/parts/files/x:1.txt`, { headers: { authorization: `Bearer ${rig.token}` } });
  equal(await file.text(), text("their a", "our b"), "the file after the merge");
  rig.sound(page);
}

async function removal(rig, origin) {
  await rig.api(origin, "/v1/sessions", { name: "old", backend: "host" });
  await rig.api(origin, "/v1/sessions/old/children", { isolation: "fork", name: "old-child" });
  const page = await rig.signedIn(origin, "#/");
  const row = page.getByRole("row").filter({ has: page.getByRole("link", { name: "old", exact: true }) });
  await row.getByRole("link").focus();
  await page.keyboard.press("Delete");
  const shown = page.getByRole("dialog", { name: "Remove old" });
  await shown.getByText("Its child old-child remains").waitFor();
  await shown.getByText("foldspace remove old", { exact: true }).waitFor();
  await rig.axe(page, "the removal");
  await rig.shot(page, "remove-session");
  await shown.getByRole("button", { name: "Cancel" }).click();
  equal(await row.count(), 1, "the session is still there");
  await row.hover();
  await row.getByRole("button", { name: "Remove old" }).click();
  const running = rig.api(origin, "/v1/sessions/old/calls", { tool: "shell_execute", params: { command: "sleep 3" }, auto_confirm: true });
  await until(async () => (await rig.api(origin, "/v1/server")).calls.length > 0, "the running call");
  await shown.getByRole("button", { name: "Remove" }).click();
  await shown.getByRole("alert").getByText(/it is open|in use/).waitFor();
  await running;
  await shown.getByRole("button", { name: "Remove" }).click();
  await until(async () => (await row.count()) === 0, "the session is removed");
  equal((await fetch(`${origin}/v1/sessions/old`, { headers: { authorization: `Bearer ${rig.token}` } })).status, 404, "the removed session");
  await rig.api(origin, "/v1/sessions/old-child");
  rig.sound(page);
}
