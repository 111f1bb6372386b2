// The ancestors and descendants of this session, with the positions of forks and merges.

import { html, useState } from "./vendor/preact.js";
import { Conflict } from "./conflict.js";
import { useLoaded } from "./loaded.js";
import { get, ofSession } from "./source.js";
import { count, oneLine, visible } from "./text.js";

const STEP = 34;
const LEFT = 150;
const WIDTH = 640;

export function Family({ model }) {
  const { family, document: known } = model;
  const [chosen, setChosen] = useState(null);
  if (!family) return html`<p class="empty quiet">Loading the family…</p>`;
  const rows = ordered(family);
  if (rows.length === 1 && !rows[0].merges.length) return html`<p class="empty quiet">This session has no parent and no children. Fork it from a call, and the fork is shown here.</p>`;
  return html`<div class="family">
    <${Graph} rows=${rows} here=${known?.session} at=${model.at} />
    <ul class="members" role="tree" aria-label="Family of sessions">${rows.map((row) => html`<${Member} key=${row.session} row=${row} here=${known?.session} rows=${rows} chosen=${chosen} onMerge=${setChosen} />`)}</ul>
    ${chosen && html`<${Merge} key=${`${chosen.session}@${chosen.at}`} chosen=${chosen} />`}
  </div>`;
}

function ordered(family) {
  const children = Map.groupBy(family.sessions, ({ parent }) => parent ?? "");
  const here = new Set(family.sessions.map(({ session }) => session));
  const rows = [];
  const add = (session, depth) => {
    rows.push({ ...session, depth });
    const below = [...(children.get(session.session) ?? [])].sort((a, b) => (a.at ?? 0) - (b.at ?? 0));
    for (const child of below) add(child, depth + 1);
  };
  for (const session of family.sessions) if (!session.parent || !here.has(session.parent)) add(session, 0);
  return rows;
}

const hrefOf = (name, at) => `#/s/${encodeURIComponent(name)}${at ? `@${at}` : ""}`;

function Member({ row, here, rows, onMerge, chosen }) {
  const parent = rows.find(({ session }) => session === row.parent);
  const names = new Map(rows.map(({ session, name }) => [session, name]));
  return html`<li role="treeitem" aria-level=${row.depth + 1} aria-selected=${row.session === here} class="depth-${Math.min(row.depth, 8)} ${row.session === here ? "here" : ""}">
    <a href=${hrefOf(row.name)}>${visible(row.name)}</a>
    <span class="quiet"> ${row.isolation ? `${row.isolation}${row.at !== null && parent ? " at " : ""}` : ""}${row.at !== null && parent ? html`<a href=${hrefOf(parent.name, row.at)}>${row.at}</a>` : ""}
      ${row.agent ? ` · ${visible(row.agent)}` : ""} · ${count(row.calls ?? 0, "call")} · ${count(row.head, "event")}</span>
    ${row.merges.length > 0 && html`<ul class="merges">${row.merges.map((merge) => html`<li key=${merge.at}>
      <a href=${hrefOf(row.name, merge.at)}>${merge.at}</a> <span class="fork ${merge.outcome}">${merge.outcome}</span> ${visible(names.get(merge.child) ?? merge.child.slice(0, 8))}
      <button class="small" aria-pressed=${chosen?.at === merge.at && chosen?.session === row.session} onClick=${() => onMerge({ ...merge, session: row.session, name: row.name, childName: names.get(merge.child) })}>
        ${merge.conflicts ? count(merge.conflicts, "conflict") : "Show"}</button></li>`)}</ul>`}
  </li>`;
}

// One line per session, over all positions: a fork's positions continue its parent's.
function Graph({ rows, here, at }) {
  const most = Math.max(1, ...rows.map(({ head }) => head));
  const x = (seq) => LEFT + (seq / most) * (WIDTH - LEFT - 12);
  const lines = new Map(rows.map(({ session }, number) => [session, 16 + number * STEP]));
  const shapes = rows.slice(0, 60).map((row) => {
    const y = lines.get(row.session);
    const from = lines.get(row.parent);
    const start = from !== undefined && row.at !== null ? row.at : 0;
    return html`<g key=${row.session} class=${row.session === here ? "here" : ""}>
      ${from !== undefined && html`<path d=${`M${x(start)} ${from}V${y - 8}q0 8 8 8`} />`}
      <path class="life" d=${`M${x(start) + (from === undefined ? 0 : 8)} ${y}H${Math.max(x(row.head), x(start) + 12)}`} />
      <circle cx=${Math.max(x(row.head), x(start) + 12)} cy=${y} r="4" />
      <text x="4" y=${y + 4}>${oneLine(row.name, 20)}</text>
      ${row.merges.map((merge) => lines.has(merge.child) && html`<path key=${merge.at} class=${merge.outcome} d=${`M${x(merge.at)} ${lines.get(merge.child)}V${y}`} />
        <rect key=${`r${merge.at}`} class=${merge.outcome} x=${x(merge.at) - 4} y=${y - 4} width="8" height="8" />`)}
    </g>`;
  });
  return html`<svg class="graph" viewBox=${`0 0 ${WIDTH} ${16 + Math.min(rows.length, 60) * STEP}`} role="img" aria-label=${`Graph of ${count(rows.length, "session")}; the list below has the same sessions`}>
    ${shapes}${lines.has(here) && html`<path class="cursor" d=${`M${x(at)} ${lines.get(here) - 9}v18`} />`}</svg>`;
}

function Merge({ chosen }) {
  const { value, error } = useLoaded(() => get(ofSession(chosen.session, "/events"), { from: chosen.at, limit: 1 }), [chosen.session, chosen.at]);
  const [path, setPath] = useState(null);
  if (error) return html`<p class="problem">${visible(error.message)}</p>`;
  if (!value) return null;
  const { merged = [], conflicts = [], base, child, child_at: childAt } = value.events[0].event;
  const conflict = conflicts.find((entry) => entry.path === path) ?? conflicts[0];
  return html`<section class="merge"><h2>${visible(chosen.childName ?? "A child")} into ${visible(chosen.name)} at ${chosen.at}</h2>
    <p class="quiet">Its changes from ${base} to ${childAt}: ${count(merged.length, "entr").replace(/entrs?$/, merged.length === 1 ? "entry" : "entries")} merged, ${count(conflicts.length, "conflict")}.</p>
    ${merged.length > 0 && html`<ul class="changed">${merged.slice(0, 100).map((entry) => html`<li key=${entry.path}><span class="letter ${entry.change}">${{ added: "A", changed: "M", removed: "D" }[entry.change] ?? "·"}</span> ${visible(entry.path)}</li>`)}</ul>`}
    ${conflicts.length > 0 && html`<h3>Conflicts</h3><div class="segments" role="group" aria-label="Conflicts">${conflicts.map((entry) => html`<button key=${entry.path} aria-pressed=${entry === conflict} onClick=${() => setPath(entry.path)}>
      ${visible(entry.path)} <span class="quiet">${entry.kind}${entry.resolved ? `, ${entry.resolved}` : ""}</span></button>`)}</div>
      <${Conflict} key=${conflict.path} path=${conflict.path} places=${[[chosen.session, chosen.at - 1], [child, base], [child, childAt]]} />`}
  </section>`;
}
