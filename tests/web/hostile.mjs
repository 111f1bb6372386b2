// Contents, names and outputs that are not to be trusted: they neither run nor hang the page.

import { assert, equal, until } from "./rig.mjs";

const SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>";
const BIDI = "invoice\u202Efdp.exe";
const FILES = 100_000;

export async function hostile(rig) {
  const write = (file_path, content) => ({ tool: "write_file", params: { file_path, content }, agent: "<b onmouseover=alert(3)>x</b>" });
  const script = rig.script("hostile", [
    write("/<img src=x onerror=alert(4)>.html", SCRIPT),
    // Tools refuse such a name, and commands do not.
    { tool: "shell_execute", params: { command: String.raw`printf 'plain\342\200\256 text \007 bell\342\200\213\n' > "$(printf 'invoice\342\200\256fdp.exe')"` } },
    { tool: "shell_execute", params: { command: "head -c 10000000 /dev/zero | tr '\\0' x > long.txt; printf '\\nshort\\n' >> long.txt" } },
    write("/page.svg", '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(5)"><script>alert(6)</script></svg>'),
    { tool: "shell_execute", params: { command: `printf '%s\\n' '${SCRIPT}'; printf '\\342\\200\\256'; printf '\\033]0;title\\007\\033[2Jcleared\\n'` } },
    { tool: "read_file", params: { file_path: `/${SCRIPT}` }, expect: "error" },
    { tool: "shell_execute", params: { command: `mkdir many && cd many && seq ${FILES} | xargs touch` } },
  ]);
  rig.foldspace("run", script, "--session", "hostile", "--backend", "host", "--yes");
  const { origin, stop } = await rig.serve();
  await rig.check("hostile names, contents and outputs are shown as text", () => asText(rig, origin));
  await rig.check("a line of 10 MB is cut, and does not hang the page", () => longLine(rig, origin));
  await rig.check(`a directory of ${FILES} files is a list of those in sight`, () => manyFiles(rig, origin));
  await rig.check("the page has a strict policy, and no inline style or script", () => policy(rig, origin));
  await stop();
}

async function asText(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/hostile");
  for (let step = 0; step < 6; step++) {
    for (const tab of ["1", "2", "3"]) {
      await page.keyboard.press(tab);
      await page.waitForTimeout(120);
    }
    await page.keyboard.press("j");
  }
  await page.goto(`${origin}/#/s/hostile@999/file/${encodeURIComponent(BIDI)}`);
  await page.getByRole("heading", { name: "invoice\\u{202e}fdp.exe" }).waitFor();
  await page.locator(".cm-specialChar", { hasText: "\\u{202e}" }).waitFor();
  await page.goto(`${origin}/#/s/hostile@999/file/page.svg`);
  await page.getByRole("heading", { name: "page.svg" }).waitFor();
  const strange = await page.evaluate(() => document.querySelectorAll("#app script, #app img[src=x], [onerror], [onload]").length);
  equal(strange, 0, "elements of the contents in the page");
  const shown = await page.evaluate(() => /[\u202a-\u202e\u2066-\u2069]/.test(document.body.innerText));
  assert(!shown, "a bidi control character is in the page");
  rig.sound(page);
}

async function longLine(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/hostile/file/long.txt?view=file");
  await page.getByRole("tree", { name: "Files" }).waitFor();
  await page.keyboard.press("G");
  await page.getByRole("textbox", { name: "long.txt" }).getByText(/more characters/).waitFor();
  const started = Date.now();
  await page.keyboard.press("1");
  await page.getByRole("tab", { name: "Call", selected: true }).waitFor();
  assert(Date.now() - started < 3000, "the page hangs");
  rig.sound(page);
}

async function manyFiles(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/hostile/files");
  await page.keyboard.press("G");
  const tree = page.getByRole("tree", { name: "Files" });
  await tree.getByRole("treeitem", { name: /many/ }).click();
  await until(async () => (await tree.getByRole("treeitem").count()) > 10, "files of the directory");
  assert((await tree.getByRole("treeitem").count()) < 200, "all files are elements");
  rig.sound(page);
}

async function policy(rig, origin) {
  const answer = await fetch(`${origin}/`);
  const policy = answer.headers.get("content-security-policy") ?? "";
  for (const word of ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"]) assert(policy.includes(word), `${word} in ${policy}`);
  assert(!/unsafe/.test(policy), policy);
  equal(answer.headers.get("x-content-type-options"), "nosniff", "sniffing");
  equal(answer.headers.get("referrer-policy"), "no-referrer", "the referrer");
  const text = await answer.text();
  assert(!/<script(?![^>]*src=)/.test(text) && !/ style=|<style| on\w+=/.test(text), "the page has inline script or style");
}
