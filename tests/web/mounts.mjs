// Mounts from the page: the directory, an unmount while it is used, and refusals.

import fs from "node:fs";
import path from "node:path";
import { assert, equal, until } from "./rig.mjs";

export async function mounts(rig) {
  if (!fs.existsSync("/dev/fuse")) {
    console.log("note: no mounts: this machine has no /dev/fuse");
    return;
  }
  const script = rig.script("kept", [1, 2].map((number) => ({ tool: "write_file", params: { file_path: "/n.txt", content: `${number}\n`, mode: "overwrite" } })));
  rig.foldspace("run", script, "--session", "kept", "--backend", "host");
  const { origin, stop } = await rig.serve();
  await rig.check("the files of a position are mounted, and unmounted although they are used", () => past(rig, origin));
  await rig.check("a mount follows the session, and its end elsewhere is shown", () => present(rig, origin));
  await rig.check("a read-only server refuses a mount", () => refused(rig));
  await stop();
}

async function opened(page) {
  await page.getByRole("button", { name: "Mount", exact: true }).click();
  const shown = page.getByRole("dialog", { name: "Mount these files" });
  await shown.waitFor();
  return shown;
}

const directoryIn = (shown) => shown.getByRole("status").locator("code").textContent();

async function past(rig, origin) {
  const first = (await rig.api(origin, "/v1/sessions/kept/calls")).calls[0];
  const page = await rig.signedIn(origin, `#/s/kept@${first.finished}/files`);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  const shown = await opened(page);
  await shown.getByText(`foldspace mount kept --all --at @${first.finished}`).waitFor();
  await page.keyboard.press("Enter");
  await shown.getByText(`The files at event ${first.finished}:`).waitFor();
  const directory = await directoryIn(shown);
  equal(fs.readFileSync(path.join(directory, "n.txt"), "utf8"), "1\n", "the file at the position");
  equal(fs.readFileSync(path.join(directory, ".at/-0/n.txt"), "utf8"), "2\n", "the file now");
  await rig.axe(page, "a mount");
  await rig.shot(page, "mount");
  await shown.getByRole("button", { name: "Copy the path" }).click();
  await shown.getByText("Copied").waitFor();
  equal(await page.evaluate(() => navigator.clipboard.readText()), directory, "the copied path");
  await page.keyboard.press("Escape");
  await shown.waitFor({ state: "detached" });
  await until(() => page.evaluate(() => document.activeElement.textContent === "Mount"), "the button has the focus again");
  equal((await rig.api(origin, "/v1/sessions/kept/mounted")).length, 1, "the mount stays");

  await opened(page);
  await page.keyboard.press("Enter");
  await shown.getByRole("button", { name: "Unmount" }).waitFor();
  equal(await directoryIn(shown), directory, "an equal mount is shared");
  const held = fs.openSync(path.join(directory, "n.txt"));
  await shown.getByRole("button", { name: "Unmount" }).click();
  await shown.getByRole("alert").getByText(/is in use/).waitFor();
  await shown.getByRole("button", { name: "Unmount anyway" }).click();
  await shown.getByText("Unmounted.").waitFor();
  fs.closeSync(held);
  await until(async () => (await rig.api(origin, "/v1/sessions/kept/mounted")).length === 0, "no mount");
  rig.sound(page);
}

async function present(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/kept/files");
  await page.keyboard.press("G");
  const shown = await opened(page);
  assert(await shown.getByLabel(/Follow the session/).isChecked(), "at the end it follows the session");
  await shown.getByRole("button", { name: "Mount", exact: true }).click();
  await shown.getByText("The files now, following the session:").waitFor();
  const file = path.join(await directoryIn(shown), "n.txt");
  await rig.api(origin, "/v1/sessions/kept/calls", { tool: "write_file", params: { file_path: "/n.txt", content: "3\n", mode: "overwrite" } });
  await until(() => fs.readFileSync(file, "utf8") === "3\n", "the change in the mount");
  rig.byOwner("umount", path.dirname(file));
  await shown.getByRole("button", { name: "Unmount" }).click();
  await shown.getByRole("alert").getByText(/no mount of foldspace is at/).waitFor();
  rig.sound(page);
}

async function refused(rig) {
  const page = await rig.page();
  await page.goto(rig.ui("kept", "--read-only"));
  await page.getByRole("tab", { name: "Files" }).click();
  const shown = await opened(page);
  await page.keyboard.press("Enter");
  assert(/read-only/.test(await shown.getByRole("alert").textContent()), "the refusal is shown");
  rig.sound(page);
}
