// The list of sessions, as a tree of parents and children.

import { html, useEffect, useMemo, useState } from "./vendor/preact.js";
import { connectionIsLost, Lost, useConnection } from "./connection.js";
import { CommandLine, Copy, Dialog, Trouble, useSending } from "./dialog.js";
import { addressOf } from "./runs.js";
import { get, mayWrite, ofSession, remove } from "./source.js";
import { ago, count, day, duration, quoted, visible } from "./text.js";

const FAMILIES = 60;
const AGAIN = 30_000;
const FIGURES = 200;

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

const COLUMNS = [
  { name: "name", title: "Name", of: ({ name }) => name.toLowerCase() },
  { name: "agents", title: "Agents", of: ({ agents }) => agents ?? "" },
  { name: "calls", title: "Calls", isNumber: true, of: ({ calls }) => calls ?? -1 },
  { name: "failed", title: "Failed", isNumber: true, of: ({ failed }) => failed ?? -1 },
  { name: "took", title: "Duration", isNumber: true, of: ({ took }) => took ?? -1 },
  { name: "backend", title: "Backend", of: ({ backend }) => backend },
  { name: "updated", title: "Updated", of: ({ updated }) => updated },
];

// Failures, agents and the duration of the latest sessions; of unchanged sessions they are known.
const figures = new Map();

async function loadFigures(sessions, onLoaded) {
  const wanted = [...sessions].sort((a, b) => (a.updated < b.updated ? 1 : -1)).slice(0, FIGURES).filter(({ session, events }) => figures.get(session)?.events !== events);
  const next = async () => {
    for (let one = wanted.shift(); one && !connectionIsLost(); one = wanted.shift()) {
      const { session, events } = one;
      const line = await get(ofSession(session, "/timeline"), { buckets: 1 }).catch(() => null);
      if (!line) continue;
      const failed = line.buckets.reduce((sum, bucket) => sum + bucket.failed, 0);
      const agents = Object.keys(line.agents).filter(Boolean).join(", ");
      figures.set(session, { events, failed, agents, took: line.calls ? Date.parse(line.ended_at) - Date.parse(line.started_at) : null });
      onLoaded();
    }
  };
  await Promise.all([next(), next()]);
}

export function SessionList() {
  const [sessions, setSessions] = useState(null);
  const [parents, setParents] = useState(new Map());
  const [running, setRunning] = useState([]);
  const [sort, setSort] = useState({ by: "updated", down: true });
  const [wanted, setWanted] = useState("");
  const [problem, setProblem] = useState("");
  const [turn, setTurn] = useState(0);
  const [writable, setWritable] = useState(false);
  const [leaving, setLeaving] = useState(null);
  const [chosen, setChosen] = useState(new Set());
  useEffect(() => {
    document.title = "foldspace";
    const load = () => allSessions().then((all) => {
      setProblem("");
      setSessions(all);
      parentsOf(all).then(setParents, () => {});
      get("/v1/server").then(({ calls }) => setRunning(calls ?? []), () => {});
      loadFigures(all, () => setTurn((turn) => turn + 1));
    }, (error) => setProblem(error.message));
    load();
    mayWrite().then(setWritable, () => {});
    // Polling also keeps the server running.
    const timer = setInterval(() => connectionIsLost() || load(), AGAIN);
    const changed = () => connectionIsLost() || load();
    const pressed = (event) => {
      if (event.key !== "/" || event.target.tagName === "INPUT") return;
      document.querySelector("[type=search]")?.focus();
      event.preventDefault();
    };
    addEventListener("connection", changed);
    addEventListener("keydown", pressed);
    return () => {
      clearInterval(timer);
      removeEventListener("connection", changed);
      removeEventListener("keydown", pressed);
    };
  }, []);
  const rows = useMemo(() => {
    const fitting = (sessions ?? []).filter(({ name, session }) => name.toLowerCase().includes(wanted.toLowerCase()) || session.startsWith(wanted));
    const known = fitting.map((session) => ({ ...session, ...figures.get(session.session), state: stateOf(session, running) }));
    return sort.by === "updated" && sort.down ? ordered(known, parents) : sorted(known, sort);
  }, [sessions, parents, running, wanted, sort, turn]);
  const lost = useConnection();
  return html`<main class="sessions ${lost ? "lost" : ""}">
    ${lost && html`<${Lost} />`}
    <header><h1><span class="brand-mark" aria-hidden="true"></span>foldspace</h1>
      <input type="search" placeholder="Find a session (/)" aria-label="Find a session" value=${wanted} autofocus
        onInput=${(event) => setWanted(event.target.value)} /></header>
    ${problem && !lost && html`<p class="problem" role="alert">${problem}</p>`}
    ${sessions?.length > 0 && html`<p class="quiet">${count(sessions.length, "session")}${wanted ? `, ${rows.length} found` : ""}. <span class="narrow-hide">j and k move, Enter opens${writable ? ", Delete removes" : ""}.</span></p>`}
    ${chosen.size > 1 && html`<p><a class="compare-chosen" href=${addressOf([...chosen])}>Compare ${chosen.size} sessions</a> <button class="small" onClick=${() => setChosen(new Set())}>Clear</button></p>`}
    ${sessions?.length === 0 && html`<${FirstSteps} />`}
    ${rows.length > 0 && html`<div class="table" role="treegrid" aria-label="Sessions" aria-rowcount=${rows.length} onKeyDown=${moveFocus}>
      <div role="row" class="head">${COLUMNS.map((column) => html`<${Head} key=${column.name} column=${column} sort=${sort} onSort=${setSort} />`)}</div>
      ${rows.slice(0, 2000).map((row) => html`<${Row} key=${row.session} row=${row} onRemove=${writable ? () => setLeaving(row) : null} chosen=${chosen.has(row.name)} onChoose=${() => setChosen(toggled(chosen, row.name))} />`)}
    </div>`}
    ${leaving && html`<${Remove} row=${leaving} children=${(sessions ?? []).filter(({ session }) => parents.get(session) === leaving.session)}
      onClose=${() => setLeaving(null)} onRemoved=${() => setSessions((all) => all.filter(({ session }) => session !== leaving.session))} />`}
  </main>`;
}

function stateOf({ session }, running) {
  const calls = running.filter((call) => call.session === session);
  if (calls.some(({ question }) => question)) return "waits for an approval";
  return calls.length ? "running" : "idle";
}

function sorted(rows, { by, down }) {
  const { of } = COLUMNS.find(({ name }) => name === by);
  return rows.map((row) => ({ ...row, depth: 0 })).sort((a, b) => (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : 0) * (down ? -1 : 1));
}

function Head({ column, sort, onSort }) {
  const { name, title, isNumber = false } = column;
  const isHere = sort.by === name;
  const choose = () => onSort({ by: name, down: isHere ? !sort.down : isNumber || name === "updated" });
  return html`<span role="columnheader" class="column-${name} ${isNumber ? "number" : ""}" aria-sort=${isHere ? (sort.down ? "descending" : "ascending") : "none"}>
    <button class="plain small" title=${`Sort by ${title.toLowerCase()}`} onClick=${choose}>${title}${isHere ? (sort.down ? " ↓" : " ↑") : ""}</button></span>`;
}

function FirstSteps() {
  const step = (what, words) => html`<p>${what}</p><p class="try"><code>${words}</code> <${Copy} text=${words} label=${`Copy: ${words}`} /></p>`;
  return html`<div class="empty first-steps"><h2>No sessions yet</h2>
    ${step("Make a session for a directory:", "foldspace new demo --dir .")}
    ${step("Run a command in it, and it is here:", "foldspace exec demo -- make test")}</div>`;
}

// Asks before a session is removed. Nothing brings it back.
function Remove({ row, children, onClose, onRemoved }) {
  const [{ busy, problem }, send] = useSending();
  const names = children.slice(0, 10).map(({ name }) => visible(name)).join(", ");
  const go = () => send(async () => {
    await remove(ofSession(row.session));
    onRemoved();
    onClose();
  });
  return html`<${Dialog} title=${`Remove ${visible(row.name)}`} onClose=${onClose}>
    <p>The session <b>${visible(row.name)}</b> goes for good, with its ${count(row.events, "event")} and the files of its workspace. A directory of yours stays as it is.</p>
    ${children.length > 0 && html`<p>${children.length === 1 ? "Its child" : `Its ${children.length} children`} ${names}${children.length > 10 ? ", …" : ""} ${children.length === 1 ? "remains" : "remain"}, with the history that ${children.length === 1 ? "it shares" : "they share"} with it.</p>`}
    ${row.state !== "idle" && html`<p class="problem">A call of this session ${row.state === "running" ? "is running" : row.state}: it can't be removed before the call ends.</p>`}
    <${Trouble} problem=${problem} /><${CommandLine} words=${`foldspace remove ${quoted(row.name)}`} />
    <div class="row-buttons"><button class="primary danger" disabled=${busy || row.state !== "idle"} onClick=${go}>Remove</button><button autofocus onClick=${onClose}>Cancel</button></div>
  </${Dialog}>`;
}

function toggled(names, name) {
  const changed = new Set(names);
  if (!changed.delete(name)) changed.add(name);
  return changed;
}

function Row({ row, onRemove, chosen, onChoose }) {
  const href = `#/s/${encodeURIComponent(row.name)}`;
  const follow = (event) => {
    if (!event.target.closest("a, button, input")) location.hash = href;
  };
  const pressed = (event) => {
    if (event.key !== "Delete" || !onRemove) return;
    event.preventDefault();
    onRemove();
  };
  const number = (value) => value?.toLocaleString("en") ?? "–";
  return html`<div role="row" class="line" aria-level=${row.depth + 1} onClick=${follow} onKeyDown=${pressed}>
    <span role="gridcell" class="name depth-${Math.min(row.depth, 8)}">${row.depth > 0 && html`<span class="branch" aria-hidden="true">└ </span>`}<span class="state ${row.state.split(" ")[0]}" title=${row.state}><span class="sr">${row.state}</span></span>
      <input type="checkbox" aria-label=${`Choose ${visible(row.name)} to compare`} title="Choose to compare" checked=${chosen} onChange=${onChoose} />
      <a href=${href}>${visible(row.name)}</a> <span class="id">${row.session.slice(0, 8)}</span>${row.state !== "idle" && html` <span class="badge running">${row.state}</span>`}${onRemove && html` <button class="small remove" aria-label=${`Remove ${visible(row.name)}`} title="Remove the session (Delete)" onClick=${onRemove}>Remove…</button>`}</span>
    <span role="gridcell" class="column-agents" title=${visible(row.agents ?? "")}>${visible(row.agents ?? "")}</span>
    <span role="gridcell" class="number column-calls">${number(row.calls)}</span>
    <span role="gridcell" class="number column-failed ${row.failed ? "bad" : "quiet"}">${number(row.failed)}</span>
    <span role="gridcell" class="number column-took">${!row.took ? "–" : duration(row.took * 1000)}</span>
    <span role="gridcell" class="column-backend">${row.backend}</span>
    <span role="gridcell" class="column-updated"><time dateTime=${row.updated} title=${day(row.updated)}>${ago(row.updated)}</time></span>
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
