// A session in a container: 200 calls, with children and merges.

import { equal, until } from "./rig.mjs";

const CALLS = 200;

export async function container(rig) {
  const { CONTAINER_HOST: engine, FOLDSPACE_IMAGE: image } = process.env;
  if (!engine || !image) {
    console.log("note: no session in a container: CONTAINER_HOST and FOLDSPACE_IMAGE are not set");
    return;
  }
  const calls = Array.from({ length: CALLS }, (_, number) => [
    { tool: "write_file", params: { file_path: `/src/file${number % 17}.py`, content: `print(${number})\n`, mode: "overwrite" }, agent: "ada" },
    { tool: "shell_execute", params: { command: `cat src/*.py | wc -l; exit ${number % 20 === 1 ? 3 : 0}` }, agent: "bob" },
    { tool: "grep", params: { pattern: String(number) }, agent: "ada" },
  ][number % 3]);
  rig.foldspace("run", rig.script("boxed", calls), "--session", "boxed", "--backend", "podman", "--engine", engine, "--image", image, "--yes", "--keep-going");
  const { origin, stop } = await rig.serve();
  await rig.check(`a session of ${CALLS} calls in a container, with children and merges`, () => look(rig, origin));
  await rig.check("an effect is marked, and the port of a service is a link, and has a preview", () => outside(rig, origin));
  await rig.check("a terminal into a copy of a container", () => terminal(rig, origin));
  await stop();
}

async function look(rig, origin) {
  for (const name of ["boxed-a", "boxed-b"]) {
    await rig.api(origin, "/v1/sessions/boxed/children", { isolation: "fork", name, at: 120 });
    await rig.api(origin, `/v1/sessions/${name}/calls`, { tool: "write_file", params: { file_path: `/${name}.txt`, content: "x\n" } });
  }
  await rig.api(origin, "/v1/sessions/boxed/merge", { child: "boxed-a" });
  const page = await rig.signedIn(origin, "#/s/boxed");
  await page.getByRole("listbox", { name: `Calls, ${CALLS} of them` }).waitFor();
  for (const tab of ["2", "3", "4", "1"]) await page.keyboard.press(tab);
  await page.keyboard.press("n");
  await page.getByRole("tabpanel").getByText("exit 3", { exact: true }).waitFor();
  await page.keyboard.press("4");
  await until(async () => (await page.getByRole("tree", { name: "Family of sessions" }).getByRole("treeitem").count()) === 3, "the family");
  await page.getByLabel("Lanes").selectOption("children");
  equal(await page.getByText("merged", { exact: true }).count(), 1, "one merge");
  await rig.axe(page, "a session in a container");
  await rig.shot(page, "container");
  rig.sound(page);
}

async function outside(rig, origin) {
  const { call } = await rig.api(origin, "/v1/sessions/boxed/calls", { tool: "ls", params: {} });
  await rig.api(origin, "/v1/sessions/boxed/effects", { what: "git push", target: "origin main", outcome: "done", call });
  const service = { name: "web", port: 8000 };
  await rig.api(origin, "/v1/sessions/boxed/processes", { command: ["python3", "-m", "http.server", "8000"], service, auto_confirm: true });
  const page = await rig.signedIn(origin, "#/s/boxed");
  await page.keyboard.press("End");
  await page.getByTitle("Outside of the workspace:\ngit push origin main (done)").waitFor();
  const [opened] = await Promise.all([page.context().waitForEvent("page"), page.getByRole("link", { name: "web :8000" }).click()]);
  await opened.getByText("Directory listing for /").first().waitFor();
  equal(new URL(opened.url()).search, "", "the token is gone from the address");
  await page.getByRole("button", { name: "Preview web" }).click();
  const shown = page.getByRole("dialog", { name: "web" });
  equal(await shown.locator("iframe").getAttribute("sandbox"), "allow-scripts allow-forms allow-same-origin", "the frame's rights");
  await shown.frameLocator("iframe").getByText("Directory listing for /").first().waitFor();
  rig.sound(page);
}

async function terminal(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/boxed@120");
  await page.getByRole("button", { name: "Actions" }).click();
  await page.getByRole("menuitem", { name: "Open a terminal…" }).click();
  const shown = page.getByRole("dialog", { name: "Terminal" });
  await shown.getByLabel(/A throw-away copy/).check();
  await shown.getByRole("button", { name: "Open" }).click();
  await shown.getByText(/^A copy of event 12\d$/).waitFor({ timeout: 60_000 });
  await page.keyboard.type("pwd; tail -n1 src/file0.py; exit");
  await page.keyboard.press("Enter");
  await shown.getByText(/\/workspace$/).waitFor();
  await shown.getByText(/^print\(\d+\)$/).waitFor();
  await shown.getByText(/Exit code 0/).waitFor();
  rig.sound(page);
}
