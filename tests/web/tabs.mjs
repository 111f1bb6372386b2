// Several tabs of one browser, and the end of the owner.

import { assert, equal, listening, until } from "./rig.mjs";

export async function tabs(rig) {
  const script = rig.script("tabs", [{ tool: "write_file", params: { file_path: "/a.txt", content: "a\n" } }, { tool: "ls", params: {} }]);
  rig.foldspace("run", script, "--session", "tabs");
  const served = await rig.serve();
  await rig.check("a second tab and a copied link work after `foldspace ui`", () => byCode(rig));
  await rig.check("a second tab works after a token was typed, which is not stored", () => byToken(rig, served.origin));
  await rig.check("no other server of this machine gets the token", () => elsewhere(rig));
  await rig.check("the end of the owner is said, and the last state stays", () => ended(rig, served));
  await served.stop();
}

const isThere = (page, name) => page.getByRole("heading", { name, exact: true }).waitFor();

async function byCode(rig) {
  const page = await rig.page();
  await page.goto(rig.ui());
  await page.getByRole("link", { name: "tabs", exact: true }).waitFor();
  const [second] = await Promise.all([page.context().waitForEvent("page"), page.getByRole("link", { name: "tabs", exact: true }).click({ modifiers: ["ControlOrMeta"] })]);
  await isThere(second, "tabs");
  await second.keyboard.press("j");
  await until(() => second.url().includes("@"), "a place in the address");
  const third = await page.context().newPage();
  await page.close();
  await third.goto(second.url());
  await isThere(third, "tabs");
  await third.reload();
  await isThere(third, "tabs");
  equal(await third.context().cookies(), [], "cookies");
  const other = await rig.page();
  await other.goto(second.url());
  await other.getByText("opens this page without asking: run it again").waitFor();
  rig.sound(page);
}

async function byToken(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/tabs");
  equal(await page.evaluate(() => Object.values(localStorage)), [], "the token on disk");
  const second = await page.context().newPage();
  await second.goto(page.url());
  await isThere(second, "tabs");
  await page.close();
  const third = await second.context().newPage();
  await third.goto(second.url());
  await isThere(third, "tabs");
  await third.close();
  await second.close();
  const late = await second.context().newPage();
  await late.goto(`${origin}/#/s/tabs`);
  await late.getByLabel("Token of the server").waitFor();
  rig.sound(page);
}

// Browsers send cookies to every port of a host. What the page has stays at its origin.
async function elsewhere(rig) {
  const heads = [];
  const server = await listening((request, answer) => {
    heads.push(JSON.stringify(request.headers));
    answer.setHeader("content-type", "text/html");
    answer.end("<title>another server</title>");
  });
  const page = await rig.page();
  await page.goto(rig.ui("tabs"));
  await isThere(page, "tabs");
  const token = await page.evaluate(() => localStorage.getItem("foldspace-token"));
  assert(token?.length > 20, "the page has a token");
  const other = await page.context().newPage();
  await other.goto(`http://127.0.0.1:${server.address().port}/v1/x`);
  equal(await other.evaluate(() => [localStorage.length, sessionStorage.length, document.cookie]), [0, 0, ""], "what another port sees");
  assert(heads.length > 0 && !heads.join().includes(token) && !heads.join().includes("cookie"), `another port gets ${heads}`);
  server.close();
  rig.sound(page);
}

async function ended(rig, { stop }) {
  const page = await rig.page();
  await page.goto(rig.ui("tabs"));
  await isThere(page, "tabs");
  await page.getByRole("tabpanel").getByRole("heading", { name: /write_file/ }).waitFor();
  await page.keyboard.press("2");
  await page.getByRole("listbox", { name: "Changed files" }).getByRole("option", { name: /a.txt/ }).waitFor();
  await stop();
  await page.getByRole("alert").getByText("The owner has ended; run foldspace ui tabs again. This is the last known state.").waitFor();
  equal(await page.getByRole("listbox", { name: /Calls/ }).getByRole("option").count(), 2, "rows of the last state");
  await page.getByRole("option", { name: /a.txt/ }).first().waitFor();
  await rig.shot(page, "ended");
  let asked = 0;
  page.on("request", () => (asked += 1));
  await page.waitForTimeout(5000);
  assert(asked <= 1, `${asked} requests in 5 s to a server that has ended`);
  await page.keyboard.press("j");
  await page.getByRole("tabpanel").getByText("The server does not answer.").first().waitFor();
  assert(!/Nothing changed|Failed to fetch/.test(await page.getByRole("tabpanel").innerText()), "an error is shown as a fact");
  rig.sound(page);
}
