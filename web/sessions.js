// The list of sessions, as a tree of parents and children.

import { html, useEffect, useMemo, useState } from "./vendor/preact.js";
import { connectionIsLost, Lost, useConnection } from "./connection.js";
import { Copy } from "./dialog.js";
import { get, ofSession } from "./source.js";
import { ago, count, day, visible } from "./text.js";

const FAMILIES = 60;
const AGAIN = 30_000;

async function allSessions() {
  const all = [];
  for (;;) {
    const page = await get("/v1/sessions", { limit: 1000, after: all.at(-1)?.session });
    all.push(...page);
    if (page.length < 1000) return all;
  }
}

// Returns parents by session: from the sessions themselves, or else from the families of the latest sessions.
async function parentsOf(sessions) {
  const parents = new Map(sessions.filter(({ parent }) => parent).map(({ session, parent }) => [session, parent]));
  if (sessions.some(({ parent }) => parent !== undefined)) return parents;
  const seen = new Set();
  for (const { session } of sessions.slice(-FAMILIES).reverse()) {
    if (seen.has(session)) continue;
    const family = await get(ofSession(session, "/family")).catch(() => ({ sessions: [] }));
    for (const member of family.sessions) {
      seen.add(member.session);
      if (member.parent) parents.set(member.session, member.parent);
    }
  }
  return parents;
}

function ordered(sessions, parents) {
  const here = new Map(sessions.map((session) => [session.session, session]));
  const children = Map.groupBy(sessions, ({ session }) => (here.has(parents.get(session)) ? parents.get(session) : ""));
  const rows = [];
  const add = (list, depth) => {
    for (const session of [...list].sort((a, b) => (a.updated < b.updated ? 1 : -1))) {
      rows.push({ ...session, depth });
      add(children.get(session.session) ?? [], depth + 1);
    }
  };
  add(children.get("") ?? [], 0);
  return rows;
}

export function SessionList() {
  const [sessions, setSessions] = useState(null);
  const [parents, setParents] = useState(new Map());
  const [wanted, setWanted] = useState("");
  const [problem, setProblem] = useState("");
  useEffect(() => {
    document.title = "foldspace";
    const load = () => allSessions().then((all) => {
      setProblem("");
      setSessions(all);
      parentsOf(all).then(setParents, () => {});
    }, (error) => setProblem(error.message));
    load();
    // Polling also keeps the server running.
    const timer = setInterval(() => connectionIsLost() || load(), AGAIN);
    const changed = () => connectionIsLost() || load();
    addEventListener("connection", changed);
    return () => {
      clearInterval(timer);
      removeEventListener("connection", changed);
    };
  }, []);
  const rows = useMemo(() => {
    const fitting = (sessions ?? []).filter(({ name, session }) => name.toLowerCase().includes(wanted.toLowerCase()) || session.startsWith(wanted));
    return ordered(fitting, parents);
  }, [sessions, parents, wanted]);
  const lost = useConnection();
  return html`<main class="sessions ${lost ? "lost" : ""}">
    ${lost && html`<${Lost} />`}
    <header><h1><span class="brand-mark" aria-hidden="true"></span>foldspace</h1>
      <input type="search" placeholder="Find a session" aria-label="Find a session" value=${wanted} autofocus
        onInput=${(event) => setWanted(event.target.value)} /></header>
    ${problem && !lost && html`<p class="problem" role="alert">${problem}</p>`}
    ${sessions?.length > 0 && html`<p class="quiet">${count(sessions.length, "session")}</p>`}
    ${sessions?.length === 0 && html`<${FirstSteps} />`}
    ${rows.length > 0 && html`<div class="table" role="treegrid" aria-label="Sessions" aria-rowcount=${rows.length} onKeyDown=${moveFocus}>
      <div role="row" class="head"><span role="columnheader">Name</span><span role="columnheader">Backend</span>
        <span role="columnheader" class="number">Calls</span><span role="columnheader" class="number">Events</span><span role="columnheader">Updated</span></div>
      ${rows.slice(0, 2000).map((row) => html`<${Row} key=${row.session} row=${row} />`)}
    </div>`}
  </main>`;
}

function FirstSteps() {
  const step = (what, words) => html`<p>${what}</p><p class="try"><code>${words}</code> <${Copy} text=${words} label=${`Copy: ${words}`} /></p>`;
  return html`<div class="empty first-steps"><h2>No sessions yet</h2>
    ${step("Make a session for a directory:", "foldspace new demo --dir .")}
    ${step("Run a command in it, and it is here:", "foldspace exec demo -- make test")}</div>`;
}

function Row({ row }) {
  const href = `#/s/${encodeURIComponent(row.name)}`;
  const follow = (event) => {
    if (event.target.tagName !== "A") location.hash = href;
  };
  return html`<div role="row" class="line" aria-level=${row.depth + 1} onClick=${follow}>
    <span role="gridcell" class="name depth-${Math.min(row.depth, 8)}">${row.depth > 0 && html`<span class="branch" aria-hidden="true">└ </span>`}
      <a href=${href}>${visible(row.name)}</a> <span class="id">${row.session.slice(0, 8)}</span></span>
    <span role="gridcell">${row.backend}</span>
    <span role="gridcell" class="number">${row.calls?.toLocaleString("en") ?? "–"}</span>
    <span role="gridcell" class="number">${row.events.toLocaleString("en")}</span>
    <span role="gridcell"><time dateTime=${row.updated} title=${day(row.updated)}>${ago(row.updated)}</time></span>
  </div>`;
}

function moveFocus(event) {
  const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
  if (!step) return;
  const links = [...event.currentTarget.querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  links[Math.max(0, Math.min(links.length - 1, at + step))]?.focus();
  event.preventDefault();
}
