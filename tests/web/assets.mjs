// The page's files: their size, their manifest, and that index.html knows all of them.

import { createHash } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { changedRanges, conflictsOf, hunksOf } from "../../web/lines.js";
import { byEvent, byTime, placeOf, ticksOf, valueAt } from "../../web/scale.js";
import { assert, equal, ROOT } from "./rig.mjs";

const WEB = path.join(ROOT, "web");
const SCRIPT_MOST = 250_000;
const LINES_MOST = 500;

export async function assets(rig) {
  const read = (file) => fs.readFileSync(path.join(WEB, file));
  const scripts = fs.readdirSync(WEB, { recursive: true }).filter((file) => file.endsWith(".js"));
  await rig.check("all JavaScript together is small", async () => {
    const size = scripts.reduce((sum, file) => sum + gzipSync(read(file), { level: 9 }).length, 0);
    console.log(`measured: ${scripts.length} modules, ${(size / 1000).toFixed(1)} kB with gzip`);
    assert(size <= SCRIPT_MOST, `${size} bytes of JavaScript`);
  });
  await rig.check("differences of lines turn one text into the other, and conflicts have three sides", async () => differences());
  await rig.check("scales fold idle time and the entries at the start", async () => scales());
  await rig.check("no file of the page is long", async () => {
    for (const file of [...scripts, "app.css"].filter((name) => !name.startsWith("vendor"))) {
      const lines = read(file).toString().split("\n").length;
      assert(lines <= LINES_MOST, `${file} has ${lines} lines`);
    }
  });
  await rig.check("the manifest has the digests of the bundles", async () => {
    const { files } = JSON.parse(read("vendor/manifest.json"));
    for (const { file, sha256 } of files) equal(createHash("sha256").update(read(`vendor/${file}`)).digest("hex"), sha256, file);
    const known = files.map(({ file }) => file).sort();
    equal(known, fs.readdirSync(path.join(WEB, "vendor")).filter((file) => !/^(manifest\.json|make\.sh)$/.test(file)).sort(), "the bundles");
  });
  await rig.check("index.html loads every module at once", async () => {
    const named = [...read("index.html").toString().matchAll(/"\/assets\/([^"]+\.js)"/g)].map(([, file]) => file);
    equal(named.sort(), scripts.sort(), "the modules in index.html");
  });
  await rig.check("no contents become HTML", async () => {
    for (const file of scripts.filter((name) => !name.startsWith("vendor"))) {
      assert(!/innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function/.test(read(file).toString()), `${file} makes HTML of texts`);
    }
  });
}

function differences() {
  let seed = 1;
  const random = (most) => (seed = (seed * 1103515245 + 12345) % 2 ** 31) % most;
  const text = () => Array.from({ length: random(14) }, () => "abcd"[random(4)]);
  for (let turn = 0; turn < 3000; turn += 1) {
    const [one, other] = [text(), text()];
    const made = [];
    let at = 0;
    for (const { a, aEnd, b, bEnd } of changedRanges(one, other)) {
      made.push(...one.slice(at, a));
      equal(made.length, b, `the place of a change from ${one} to ${other}`);
      made.push(...other.slice(b, bEnd));
      at = aEnd;
    }
    equal([...made, ...one.slice(at)], other, `the change of ${one}`);
    for (const rows of hunksOf(one.join("\n"), other.join("\n"), 1)) {
      for (const row of rows) equal([row.old && one[row.old - 1], row.now && other[row.now - 1]].filter((line) => line !== null).every((line) => line === row.text), true, `a numbered row of ${one} to ${other}`);
    }
  }
  const base = "head\none\ntwo\nthree\n4\n5\n6\n7\n8\ntail\n";
  const { hunks, merging } = conflictsOf(base, base.replace("two", "TWO").replace("tail", "end"), `new\n${base.replace("two", "2")}`);
  equal([hunks.length, merging], [1, 2], "one conflict, and two changes that merge");
  equal(hunks[0].map(({ at, lines }) => [at, lines.find(({ isChanged }) => isChanged).text]), [[1, "TWO"], [1, "two"], [2, "2"]], "the three sides");
}

function scales() {
  const day = 864e5;
  const spans = [[0, 1000], [1500, 4000], [3_600_000, 3_602_000], [day, day + 500]];
  const map = byTime(spans);
  equal(map.folds, [{ from: 4000, to: 3_600_000 }, { from: 3_602_000, to: day }], "idle time");
  assert(placeOf(map, 4000) > 0.5 && placeOf(map, 3_600_000) - placeOf(map, 4000) < 0.02, "idle time is narrow");
  for (const value of [0, 700, 4000, 3_601_000, day + 500]) assert(Math.abs(valueAt(map, placeOf(map, value)) - value) < 1, `the time ${value} and back`);
  const events = byEvent(121, 54);
  assert(placeOf(events, 54) <= 0.04 && placeOf(events, 121) === 1, "what was there at the start is one block");
  equal(byEvent(1000, 1).folds, [], "no block without entries at the start");
  const ticks = ticksOf(events, false, [0, 1], 1000).map(({ value }) => value);
  equal(ticks, [60, 70, 80, 90, 100, 110, 120], "labels at round events");
}
