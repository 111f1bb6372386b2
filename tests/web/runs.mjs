// A group of runs: chosen in the list, and shown as a tree.

import { assert, equal } from "./rig.mjs";

const write = (path) => ({ tool: "write_file", params: { file_path: path, content: "x" } });

export async function runs(rig) {
  rig.foldspace("run", rig.script("lead", [write("/a.txt")]), "--session", "lead");
  const { origin, stop } = await rig.serve();
  await rig.check("sessions that are chosen in the list are compared as a tree", () => chosen(rig, origin));
  await rig.check("runs without a common call, and wrong names, are shown", () => apart(rig, origin));
  await stop();
}

async function chosen(rig, origin) {
  const children = [
    { name: "try-1", calls: [write("x.txt")], annotations: [{ name: "reward", score: 1 }] },
    { name: "try-2", go_on: true, calls: [write("x.txt"), { tool: "read_file", params: { file_path: "<b>none</b>" } }], annotations: [{ name: "reward", score: 0, note: "a\u202eb" }] },
    { name: "try-3", calls: [write("y.txt")] },
  ];
  const done = await rig.api(origin, "/v1/sessions/lead/subagents", { children });
  equal(done.children.map(({ status }) => status), ["done", "done", "done"], "the batch");
  const page = await rig.signedIn(origin, "#/");
  for (const name of ["lead", "try-1", "try-2", "try-3"]) await page.getByRole("checkbox", { name: `Choose ${name} to compare` }).check();
  await page.getByRole("link", { name: "Compare 4 sessions" }).click();
  await page.getByText("4 runs, 1 call in common").waitFor();
  const rows = await page.getByRole("treeitem").allInnerTexts();
  const words = rows.map((row) => row.replace(/\s+/g, " ").replace(/^\d+ /, "").replace(/\d+(\.\d+)? (ms|µs|s)\b/, "TIME"));
  equal(words, [
    "write_file /a.txt · 4 runs reward 0.5 (0 to 1) in 2 runs",
    "ends here: lead 1 call, TIME ok",
    "write_file x.txt · 2 runs reward 0.5 (0 to 1)",
    "ends here: try-1 2 calls, TIME ok reward 1",
    "read_file <b>none</b> · try-2 3 calls, TIME, 1 failed error reward 0",
    "write_file y.txt · try-3 2 calls, TIME ok",
  ], "the tree");
  equal(await page.getByText("reward 0", { exact: true }).getAttribute("title"), "a\\u{202e}b", "the note");
  await rig.shot(page, "runs");
  await rig.axe(page, "a tree of runs");
  await page.reload();
  await page.getByText("4 runs, 1 call in common").waitFor();
  await page.getByRole("link", { name: "try-2" }).click();
  await page.getByRole("heading", { name: "try-2", exact: true }).waitFor();
  await page.goBack();
  await page.getByText("4 runs, 1 call in common").waitFor();
  rig.sound(page);
}

async function apart(rig, origin) {
  rig.byOwner("run", rig.script("far", [{ tool: "ls", params: {} }]), "--session", "far");
  const page = await rig.signedIn(origin, "#/compare/far,try-*");
  await page.getByText("4 runs, no call in common").waitFor();
  equal(await page.getByRole("treeitem").count(), 6, "rows");
  const wrong = await rig.signedIn(origin, "#/compare/far");
  await wrong.getByRole("alert").getByText("a comparison needs at least two sessions").waitFor();
  assert(await wrong.getByRole("link", { name: "foldspace" }).isVisible(), "a way back");
  rig.sound(page);
}
