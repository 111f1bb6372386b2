// A server with sessions, a browser that looks at them, and what is checked of all pages.

import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";

const modules = createRequire(path.join(process.env.FOLDSPACE_WEB_MODULES, "x"));
const { chromium } = modules("playwright-core");
const AXE = fs.readFileSync(path.join(process.env.FOLDSPACE_WEB_MODULES, "axe-core/axe.min.js"), "utf8");
export const ROOT = path.resolve(import.meta.dirname, "../..");
const SHOTS = path.join(ROOT, "target/web-screenshots");
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

export function assert(holds, what) {
  if (!holds) throw new Error(what);
}

export function equal(is, wanted, what) {
  assert(JSON.stringify(is) === JSON.stringify(wanted), `${what}: ${JSON.stringify(is)} instead of ${JSON.stringify(wanted)}`);
}

export async function until(holds, what, seconds = 15) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const found = await holds();
    if (found) return found;
    assert(Date.now() < end, `${what}: not within ${seconds} s`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

export class Rig {
  constructor(program) {
    this.program = program;
    this.home = fs.mkdtempSync(path.join(os.tmpdir(), "foldspace-web-"));
    this.data = path.join(this.home, "data");
    this.token = "t".repeat(8) + Math.random().toString(36).slice(2).padEnd(24, "x");
    fs.writeFileSync(path.join(this.home, "token"), `${this.token}\n`, { mode: 0o600 });
    this.failures = [];
    this.strangers = [];
    this.servers = [];
  }

  // Runs the program; what it says on its error stream is in the error.
  foldspace(...words) {
    return execFileSync(this.program, ["--data", this.data, ...words], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], maxBuffer: 1 << 28 });
  }

  // Runs the program through the server that runs.
  byOwner(...words) {
    const { FOLDSPACE_IN_PROCESS: _, ...env } = process.env;
    return execFileSync(this.program, ["--data", this.data, ...words], { encoding: "utf8", env, stdio: ["ignore", "pipe", "pipe"] });
  }

  // Asks the server that runs for a page's address, with a code in it.
  ui(...words) {
    const said = this.byOwner("ui", "--no-open", ...words);
    const address = said.match(/http:\/\/127\.0\.0\.1:\S+/)?.[0];
    assert(address, `no address in ${said}`);
    return address;
  }

  script(name, calls) {
    const file = path.join(this.home, `${name}.jsonl`);
    fs.writeFileSync(file, calls.map((call) => JSON.stringify(call)).join("\n"));
    return file;
  }

  // Starts the server, by default on a port of its own choice, which it tells.
  async serve({ words = [], port = 0 } = {}) {
    const server = spawn(this.program, ["--data", this.data, "serve", "--http", `127.0.0.1:${port}`, "--token-file", path.join(this.home, "token"), ...words], { stdio: ["ignore", "pipe", "pipe"] });
    this.servers.push(server);
    let told = "";
    server.stdout.on("data", (text) => (told += text));
    server.stderr.on("data", (text) => (told += text));
    const origin = await until(() => told.match(/http:\/\/127\.0\.0\.1:\d+/)?.[0], `the server's address in ${JSON.stringify(told)}`, 30);
    return { origin, stop: () => stopped(server) };
  }

  async api(origin, path, body) {
    const answer = await fetch(`${origin}${path}`, {
      method: body === undefined ? "GET" : "POST",
      headers: { authorization: `Bearer ${this.token}`, "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const document = answer.status === 204 ? null : await answer.json();
    assert(answer.ok, `${path} is answered: ${JSON.stringify(document)}`);
    return document;
  }

  async launch() {
    this.browser = await chromium.launch({ executablePath: process.env.FOLDSPACE_WEB_BROWSER, args: FLAGS });
  }

  async page({ width = 1280, height = 800, scheme = "light" } = {}) {
    const context = await this.browser.newContext({ viewport: { width, height }, colorScheme: scheme, acceptDownloads: true });
    // With FOLDSPACE_WEB_FROM scripts and styles come from that directory: an edit needs no build. The document is still
    // the server's, since browsers refuse websockets to this machine from any other.
    if (process.env.FOLDSPACE_WEB_FROM) await context.route(/^http:[^#?]*\/assets\/[^#?]+$/, fromDisk);
    const page = await context.newPage();
    page.trouble = [];
    page.on("pageerror", (error) => page.trouble.push(String(error.stack)));
    page.on("console", (message) => {
      const isExpected = /Failed to load resource/.test(message.text());
      if (message.type() === "error" && !isExpected) page.trouble.push(message.text());
    });
    page.on("dialog", (dialog) => {
      page.trouble.push(`a script ran: ${dialog.message()}`);
      dialog.dismiss();
    });
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (url.protocol.startsWith("http") && url.hostname !== "127.0.0.1" && !url.hostname.endsWith(".localhost")) this.strangers.push(request.url());
      if (request.url().includes(this.token)) this.strangers.push("the token is in an address");
    });
    page.setDefaultTimeout(15_000);
    return page;
  }

  // A page that is signed in, at an address.
  async signedIn(origin, hash = "#/", size) {
    const page = await this.page(size);
    await page.goto(`${origin}/${hash}`);
    await page.getByLabel("Token of the server").fill(this.token);
    await page.keyboard.press("Enter");
    await page.getByLabel("Token of the server").waitFor({ state: "detached" });
    if (hash.startsWith("#/s/")) await page.getByRole("tabpanel").locator(":scope > *").first().waitFor();
    return page;
  }

  async check(name, work) {
    const started = Date.now();
    try {
      await work();
      console.log(`ok      ${name} (${Date.now() - started} ms)`);
    } catch (error) {
      this.failures.push(name);
      console.log(`FAILED  ${name}: ${error.stack}`);
      const page = this.browser?.contexts().at(-1)?.pages().at(-1);
      await page?.screenshot({ path: this.shotPath(`failed-${this.failures.length}`) }).catch(() => {});
    } finally {
      for (const context of this.browser?.contexts() ?? []) await context.close();
    }
  }

  async part(name, part) {
    try {
      await part(this);
    } catch (error) {
      this.failures.push(name);
      console.log(`FAILED  ${name} can't be checked: ${error.stack}`);
    }
  }

  shotPath(name) {
    fs.mkdirSync(SHOTS, { recursive: true });
    return path.join(SHOTS, `${name}.png`);
  }

  async shot(page, name) {
    await page.waitForTimeout(150);
    await page.screenshot({ path: this.shotPath(name) });
  }

  async axe(page, name) {
    // The Content-Security-Policy keeps scripts of the page out, not those of the test.
    await page.evaluate(AXE);
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
    const told = serious.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html, failureSummary }) => `${html.slice(0, 200)} ${failureSummary}`).join(" | ")}`);
    assert(serious.length === 0, `axe finds in ${name}:\n${told.join("\n")}`);
  }

  sound(page) {
    equal(page.trouble, [], "no error in the page");
  }

  async close() {
    await this.browser?.close();
    for (const server of this.servers) await stopped(server);
    fs.rmSync(this.home, { recursive: true, force: true });
  }
}

async function fromDisk(route) {
  const { pathname } = new URL(route.request().url());
  const file = path.join(process.env.FOLDSPACE_WEB_FROM, pathname.replace("/assets/", ""));
  const contentType = file.endsWith(".css") ? "text/css" : "text/javascript";
  await route.fulfill({ body: fs.readFileSync(file), contentType });
}

function stopped(server) {
  if (server.exitCode !== null || server.signalCode !== null) return undefined;
  const ended = new Promise((done) => server.once("exit", done));
  server.kill("SIGTERM");
  return ended;
}

export function listening(handler) {
  const server = http.createServer(handler);
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done(server)));
}
