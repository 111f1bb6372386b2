// Whether the server answers. Without an answer the page keeps its last state and asks seldom.

import { html, useEffect, useState } from "./vendor/preact.js";
import { Copy } from "./dialog.js";
import { quoted } from "./text.js";
import { isOfOwner } from "./token.js";

const TRIES = 3;
const PAUSE = 400;
const SOON = 2000;
const SELDOM = 15_000;

let isLost = false;
let checking = null;

const pause = (millis) => new Promise((done) => setTimeout(done, millis));

async function answers() {
  return fetch("/healthz", { cache: "no-store" }).then(() => true, () => false);
}

function become(lost) {
  if (isLost === lost) return;
  isLost = lost;
  dispatchEvent(new CustomEvent("connection"));
}

// Checks the server after a request without an answer. One failure can be a broken connection only.
export function noteFailure() {
  checking ??= check().finally(() => {
    checking = null;
  });
}

async function check() {
  for (let turn = 0; turn < TRIES; turn += 1) {
    if (await answers()) return;
    await pause(PAUSE);
  }
  become(true);
  // An owner's next address has another port, but a tunnel may come back.
  for (let wait = isOfOwner() ? SELDOM : SOON; isLost; wait = Math.min(2 * wait, SELDOM)) {
    await pause(wait);
    if (await answers()) become(false);
  }
}

export function connectionIsLost() {
  return isLost;
}

// Waits until the server answers again.
export function restored() {
  if (!isLost) return Promise.resolve();
  return new Promise((done) => addEventListener("connection", () => done(), { once: true }));
}

export function useConnection() {
  const [lost, setLost] = useState(isLost);
  useEffect(() => {
    const changed = () => setLost(isLost);
    addEventListener("connection", changed);
    return () => removeEventListener("connection", changed);
  }, []);
  return lost;
}

export function Lost({ session = null }) {
  if (!isOfOwner()) return html`<div class="lost-bar" role="alert">The server does not answer. This is the last known state; the page tries again.</div>`;
  const words = `foldspace ui${session ? ` ${quoted(session)}` : ""}`;
  return html`<div class="lost-bar" role="alert"><span>The owner has ended; run <code>${words}</code> again. This is the last known state.</span> <${Copy} text=${words} /></div>`;
}
