// A session under way, whose calls another client makes.

import { equal, until } from "./rig.mjs";

export async function live(rig) {
  const { origin, stop } = await rig.serve();
  await rig.api(origin, "/v1/sessions", { name: "live", backend: "host" });
  await rig.api(origin, "/v1/sessions/live/calls", { tool: "write_file", params: { file_path: "/a.txt", content: "a\n" } });
  await rig.check("new calls come by themselves, and the page follows them", () => comes(rig, origin));
  await rig.check("a question of another client's call is answered in the page", () => answers(rig, origin));
  await rig.check("the page comes again when the stream breaks off", () => again(rig, origin, stop));
}

const total = async (page) => Number((await page.getByRole("listbox", { name: /Calls/ }).getAttribute("aria-label")).match(/\d+/)[0]);

async function comes(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/live");
  await page.getByRole("button", { name: "connected", exact: true }).click();
  const running = rig.api(origin, "/v1/sessions/live/calls", { tool: "shell_execute", params: { command: "for i in 1 2 3 4 5 6 7 8; do echo tick $i; sleep 0.5; done" }, auto_confirm: true });
  await until(async () => (await total(page)) === 2, "the new call");
  await page.getByRole("tabpanel").getByText("running", { exact: true }).waitFor();
  await page.getByRole("tabpanel").locator(".live-output").getByText(/tick/).waitFor({ timeout: 4000 });
  await rig.shot(page, "live");
  await running;
  await page.getByRole("tabpanel").getByText("tick 8").waitFor();
  await rig.axe(page, "a live session");
  rig.sound(page);
}

async function answers(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/live");
  for (const [button, status] of [["Allow once", "ok"], ["No", "error"]]) {
    // Only a call that is streamed may ask.
    const asked = fetch(`${origin}/v1/sessions/live/calls`, {
      method: "POST", headers: { authorization: `Bearer ${rig.token}`, "content-type": "application/json", accept: "text/event-stream" },
      body: JSON.stringify({ tool: "shell_execute", params: { command: "touch asked" } }),
    }).then((answer) => answer.text());
    await page.getByRole("alert").getByText("touch asked").waitFor();
    if (button === "No") await rig.axe(page, "a question");
    if (button === "No") await rig.shot(page, "question");
    await page.getByRole("alert").getByRole("button", { name: button, exact: true }).click();
    const outcome = JSON.parse((await asked).match(/event: outcome\ndata: (.*)/)[1]);
    equal(outcome.status, status, `the call after ${button}`);
    await page.getByRole("alert").waitFor({ state: "detached" });
  }
  rig.sound(page);
}

async function again(rig, origin, stop) {
  const page = await rig.signedIn(origin, "#/s/live");
  const port = new URL(origin).port;
  const before = await total(page);
  await stop();
  await page.getByRole("button", { name: /reconnecting/ }).waitFor();
  await page.getByRole("alert").getByText("The server does not answer. This is the last known state; the page tries again.").waitFor();
  const back = await rig.serve({ port });
  await rig.api(back.origin, "/v1/sessions/live/calls", { tool: "read_file", params: { file_path: "/a.txt" } });
  await until(async () => (await total(page)) === before + 1, "the call after the server came back", 30);
  await page.getByRole("alert").waitFor({ state: "detached" });
  await back.stop();
}
