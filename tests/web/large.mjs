// A long run: rows by need, a bounded heap. Times are told and not checked, as machines differ.

import { assert } from "./rig.mjs";

const CALLS = Number(process.env.FOLDSPACE_WEB_CALLS ?? 100_000);
const HEAP_MOST = 150e6;
const SCRUBS = 60;

export async function large(rig) {
  const call = (number) => (number % 10 === 7
    ? { tool: "write_file", params: { file_path: `/d${Math.floor(number / 10) % 100}/f${Math.floor(number / 10)}.txt`, content: `${number}\n`, mode: "overwrite" }, agent: "ada" }
    : { tool: "read_file", params: { file_path: number % 31 === 0 ? "/not-there" : "/d0/f0.txt" }, agent: number % 2 ? "ada" : "bob" });
  const made = (count, name) => rig.foldspace("run", rig.script(name, Array.from({ length: count }, (_, number) => call(number + 7))), "--session", name, "--no-wait", "--keep-going");
  for (const [count, name] of [[1000, "thousand"], [CALLS, "large"]]) {
    try {
      made(count, name);
    } catch {
      // Calls that fail are meant to, and the exit code tells of them.
    }
  }
  const { origin, stop } = await rig.serve();
  await rig.check("a session of 1,000 calls is soon there", () => paints(rig, origin));
  await rig.check(`a session of ${CALLS.toLocaleString("en")} calls scrolls, steps, and keeps its heap small`, () => scrolls(rig, origin));
  await stop();
}

async function paints(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/thousand");
  const times = [];
  for (let turn = 0; turn < 5; turn++) {
    await page.reload();
    await page.locator(".timeline .row.read, .timeline .row.write").first().waitFor();
    times.push(await page.evaluate(() => new Promise((done) => {
      const paint = performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0;
      requestAnimationFrame(() => done([Math.round(paint), Math.round(performance.now())]));
    })));
  }
  const middle = (at) => times.map((time) => time[at]).sort((a, b) => a - b)[2];
  console.log(`measured: 1,000 calls: first paint ${middle(0)} ms, interactive ${middle(1)} ms (median of 5)`);
  rig.sound(page);
}

async function scrolls(rig, origin) {
  const page = await rig.signedIn(origin, "#/s/large");
  const list = page.getByRole("listbox", { name: /Calls/ });
  const total = Number((await list.getAttribute("aria-label")).match(/\d+/)[0]);
  assert(total === CALLS, `${total} calls are listed`);
  await page.keyboard.press("2");
  await page.locator(".browse[aria-busy=false]").waitFor();
  const times = await page.evaluate(scrubbed, SCRUBS);
  await page.evaluate(async () => {
    const box = document.querySelector(".timeline");
    for (let step = 0; step < 60; step++) {
      box.scrollTop = (box.scrollHeight / 60) * step;
      await new Promise((done) => requestAnimationFrame(done));
    }
  });
  assert((await page.getByRole("option").count()) < 150, "all rows are elements");
  for (const key of ["1", "G", "N"]) await page.keyboard.press(key);
  await page.getByRole("tabpanel").locator(".badge", { hasText: "error" }).waitFor();
  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  const at = (share) => `${times[Math.floor(share * (times.length - 1))].toFixed(0)} ms`;
  console.log(`measured: ${total.toLocaleString("en")} calls: the state at the cursor after a click in the strip: median ${at(0.5)}, p95 ${at(0.95)}, of ${SCRUBS}; heap ${(usedSize / 1e6).toFixed(1)} MB`);
  assert(usedSize < HEAP_MOST, `the heap has ${usedSize} bytes`);
  rig.sound(page);
}

// In the page: clicks at places of the strip, and the time until the row and the changed files are those of the place.
async function scrubbed(turns) {
  const strip = document.querySelector("[role=slider]");
  const box = strip.getBoundingClientRect();
  strip.setPointerCapture = () => {};
  const times = [];
  for (let turn = 0; turn < turns; turn++) {
    const before = strip.getAttribute("aria-valuenow");
    const at = { clientX: box.left + box.width * ((((turn * 37) % 97) + 2) / 100), clientY: box.top + 20, bubbles: true };
    const started = performance.now();
    strip.dispatchEvent(new PointerEvent("pointerdown", at));
    const isThere = () => strip.getAttribute("aria-valuenow") !== before
      && document.querySelector(".timeline [role=option][aria-selected=true] .position")
      && document.querySelector(".browse").getAttribute("aria-busy") === "false";
    while (!isThere() && performance.now() - started < 5000) await new Promise((done) => requestAnimationFrame(done));
    times.push(performance.now() - started);
  }
  return times.sort((a, b) => a - b);
}
