// A run in one file, opened without a server.

import { randomBytes } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { assert, equal, until } from "./rig.mjs";

export async function exported(rig) {
  const { origin, stop } = await rig.serve();
  const known = (await rig.api(origin, "/v1/sessions")).some(({ name }) => name === "first");
  await stop();
  assert(known, "the first run's session is made by panes.mjs, which goes first");
  const file = path.join(rig.home, "run.html");
  await rig.check("an exported file shows the run without a server", async () => {
    rig.foldspace("ui", "first", "--export", file);
    assert(fs.statSync(file).size < 5 << 20, "the file has more than 5 MiB");
    const page = await rig.page();
    page.on("request", (request) => !/^(file|blob|data):/.test(request.url()) && rig.strangers.push(`the exported file asks for ${request.url()}`));
    await page.goto(pathToFileURL(file).href);
    await page.getByRole("listbox", { name: "Calls, 94 of them" }).waitFor();
    await page.getByText("exported", { exact: true }).waitFor();
    await look(page);
    await rig.axe(page, "an exported file");
    await rig.shot(page, "exported");
    rig.sound(page);
  });
  await rig.check("an exported file of 1,000 large calls has less than 5 MB, and says what is left out", () => bounded(rig));
}

// Neither the contents nor the lists of files would fit.
async function bounded(rig) {
  const many = "mkdir many && cd many && seq 30000 | xargs touch && for i in $(seq 2000); do echo $i > n$i; done";
  const calls = Array.from({ length: 999 }, (_, number) => (number % 2
    ? { tool: "read_file", params: { file_path: `/f${number - 1}.txt` } }
    : { tool: "write_file", params: { file_path: `/f${number}.txt`, content: randomBytes([200, 5000, 30_000][number % 3]).toString("base64") } }));
  rig.foldspace("run", rig.script("bounded", [{ tool: "shell_execute", params: { command: many } }, ...calls]), "--session", "bounded", "--backend", "host", "--yes");
  const file = path.join(rig.home, "bounded.html");
  rig.foldspace("ui", "bounded", "--export", file);
  assert(fs.statSync(file).size < 5e6, `the file has ${fs.statSync(file).size} bytes`);
  const page = await rig.page();
  await page.goto(pathToFileURL(file).href);
  await page.getByRole("listbox", { name: "Calls, 1000 of them" }).waitFor();
  await page.keyboard.press("2");
  await page.getByText(/Not in this file: changes after event \d+/).waitFor();
  await page.keyboard.press("G");
  await page.getByRole("treeitem", { name: /f0.txt/ }).click();
  await page.locator(".file-body").getByText(/left out of the export|\w{60}/).first().waitFor();
  rig.sound(page);
}

async function look(page) {
  await page.keyboard.press("n");
  await page.getByRole("tabpanel").locator(".badge", { hasText: "error" }).waitFor();
  await page.keyboard.press(":");
  await page.getByLabel(/A position from 1/).fill("62");
  await page.keyboard.press("Enter");
  await page.keyboard.press("2");
  await page.getByRole("listbox", { name: "Changed files" }).getByRole("option", { name: /movements.py/ }).click();
  await page.locator(".editor .cm-deletedChunk").first().waitFor();
  await page.getByRole("treeitem", { name: /README/ }).click();
  await page.locator(".editor").getByText("shelfcount").first().waitFor();
  await page.keyboard.press("3");
  await page.getByRole("button", { name: /^Usage/ }).waitFor();
  await page.keyboard.press("u");
  await page.getByRole("dialog", { name: "Continue until" }).getByText("This needs the server").waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("c");
  await page.getByRole("status").getByText("This needs the server").waitFor();
  await page.getByRole("button", { name: "Failed", exact: true }).click();
  await page.getByRole("listbox", { name: "Calls, 17 of them" }).waitFor();
  await page.getByRole("button", { name: "Actions" }).click();
  equal(await page.getByRole("menuitem", { name: /Fork|Rewind|Bisect|Merge|Run|terminal/ }).count(), 0, "verbs in an export");
  await until(async () => page.url().includes("#/s/first"), "deep links in the file");
}
