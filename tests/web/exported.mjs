// A run in one file, opened without a server.

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
  await page.getByRole("button", { name: "Failed", exact: true }).click();
  await page.getByRole("listbox", { name: "Calls, 17 of them" }).waitFor();
  await page.getByRole("button", { name: "Actions" }).click();
  equal(await page.getByRole("menuitem", { name: /Fork|Rewind|Bisect|Merge|Run/ }).count(), 0, "verbs in an export");
  await until(async () => page.url().includes("#/s/first"), "deep links in the file");
}
