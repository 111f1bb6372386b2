// All checks of the page: node main.mjs PROGRAM

import { assets } from "./assets.mjs";
import { calls } from "./calls.mjs";
import { container } from "./container.mjs";
import { exported } from "./exported.mjs";
import { hostile } from "./hostile.mjs";
import { large } from "./large.mjs";
import { live } from "./live.mjs";
import { messages } from "./messages.mjs";
import { mounts } from "./mounts.mjs";
import { panes } from "./panes.mjs";
import { Rig } from "./rig.mjs";
import { runs } from "./runs.mjs";
import { search } from "./search.mjs";
import { tabs } from "./tabs.mjs";
import { terminals } from "./terminals.mjs";
import { verbs } from "./verbs.mjs";

const PARTS = { assets, panes, calls, tabs, runs, verbs, search, live, hostile, messages, mounts, container, exported, terminals, large };
const rig = new Rig(process.argv[2]);
const wanted = process.argv.slice(3);
try {
  await rig.launch();
  for (const [name, part] of Object.entries(PARTS)) {
    if (!wanted.length || wanted.includes(name)) await rig.part(name, part);
  }
  await rig.check("no request leaves loopback, and no address has the token", async () => {
    if (rig.strangers.length) throw new Error(rig.strangers.slice(0, 5).join(", "));
  });
} finally {
  await rig.close();
}
if (rig.failures.length) {
  console.log(`${rig.failures.length} failed: ${rig.failures.join("; ")}`);
  process.exitCode = 1;
}
