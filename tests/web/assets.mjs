// The page's files: their size, their manifest, and that index.html knows all of them.

import { createHash } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { assert, equal, ROOT } from "./rig.mjs";

const WEB = path.join(ROOT, "web");
const SCRIPT_MOST = 200_000;
const LINES_MOST = 500;

export async function assets(rig) {
  const read = (file) => fs.readFileSync(path.join(WEB, file));
  const scripts = fs.readdirSync(WEB, { recursive: true }).filter((file) => file.endsWith(".js"));
  await rig.check("all JavaScript together is small", async () => {
    const size = scripts.reduce((sum, file) => sum + gzipSync(read(file), { level: 9 }).length, 0);
    console.log(`measured: ${scripts.length} modules, ${(size / 1000).toFixed(1)} kB with gzip`);
    assert(size <= SCRIPT_MOST, `${size} bytes of JavaScript`);
  });
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
