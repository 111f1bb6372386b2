// Two runs or two positions side by side: their calls aligned, and the files at both ends.

import { html, useEffect, useState } from "./vendor/preact.js";
import { fileAt, useLoaded } from "./loaded.js";
import { fitting, SplitDiff } from "./editor.js";
import { get, getKept, isExport, ofSession } from "./source.js";
import { count, duration, failed, oneLine, verdict, visible } from "./text.js";
import { VirtualRows } from "./virtual.js";

const ROW = 28;

export function Compare({ model }) {
  const { other } = model;
  const [path, setPath] = useState(null);
  if (isExport) return html`<p class="empty quiet">An exported file has one run. <code>foldspace ui</code> compares runs.</p>`;
  return html`<div class="compare">
    <${Chooser} model=${model} />
    ${other && html`<${Aligned} model=${model} other=${other} /><${Ends} model=${model} other=${other} path=${path} onPath=${setPath} />`}
    ${!other && html`<p class="empty quiet">Choose a session, or a position of this one, to compare with ${visible(model.session)}.</p>`}
  </div>`;
}

function Chooser({ model }) {
  const { other } = model;
  const [session, setSession] = useState(other?.session ?? "");
  const [at, setAt] = useState(other?.at ?? "");
  const [known, setKnown] = useState([]);
  useEffect(() => {
    get("/v1/sessions", { limit: 1000 }).then((all) => setKnown(all.map(({ name }) => name)), () => {});
  }, []);
  const submit = (event) => {
    event.preventDefault();
    const position = at === "" ? null : Number(at);
    model.show("compare", { other: { session: session.trim() || model.session, at: Number.isSafeInteger(position) ? position : null } });
  };
  return html`<form class="chooser" onSubmit=${submit}>
    <span><b>${visible(model.session)}</b> <span class="quiet">${at === "" ? "all of it" : `up to event ${model.at}`}</span></span><span class="quiet">with</span>
    <input list="sessions" aria-label="Other session" placeholder=${model.session} value=${session} onInput=${(event) => setSession(event.target.value)} />
    <datalist id="sessions">${known.map((name) => html`<option key=${name} value=${name} />`)}</datalist>
    <input type="number" min="0" aria-label="Position of the other session" placeholder="all of it" title="Only up to this event; empty for all of it" value=${at} onInput=${(event) => setAt(event.target.value)} />
    <button class="primary" type="submit">Compare</button>
    ${at === "" && other && html`<button type="button" onClick=${() => setAt(String(model.at))}>Only up to event ${model.at}</button>`}</form>`;
}

// Without a position of the other run, whole runs are compared.
function endOf(model, other) {
  return other.at === null ? model.head : model.at;
}

function Aligned({ model, other }) {
  const [onlyDiffering, setOnly] = useState(false);
  const to = endOf(model, other);
  const { value, error } = useLoaded(() => get(ofSession(model.session, "/alignment"), { other: other.session, to, other_to: other.at }), [model.session, to, other.session, other.at]);
  if (error) return html`<p class="problem">${visible(error.message)}</p>`;
  if (!value) return html`<p class="quiet">Aligning the calls…</p>`;
  const same = value.rows.filter((row) => row.same).length;
  const rows = onlyDiffering ? value.rows.filter((row) => !row.same || row.result_differs) : value.rows;
  const render = (index, style) => html`<${Pair} key=${index} model=${model} other=${other} row=${rows[index]} style=${style} />`;
  return html`<div class="aligned-head"><h3>Calls</h3><span class="quiet">${count(same, "call")} the same, ${value.rows.filter(({ right }) => !right).length} only here, ${value.rows.filter(({ left }) => !left).length} only there${value.more ? "; more follow" : ""}</span>
      <button aria-pressed=${onlyDiffering} onClick=${() => setOnly(!onlyDiffering)}>Only differences</button></div>
    <${VirtualRows} className=${`aligned ${rows.length < 11 ? "short" : ""}`} height=${ROW} total=${rows.length} render=${render} label="Calls of both runs" />`;
}

function Pair({ model, other, row, style }) {
  const state = !row.right ? "left-only" : !row.left ? "right-only" : row.result_differs ? "differs" : "same";
  const words = { "left-only": "only here", "right-only": "only there", differs: "different result", same: "" }[state];
  return html`<div role="listitem" class="row ${state}" style=${style}>
    <${End} call=${row.left} href=${row.left && `#/s/${encodeURIComponent(model.session)}@${row.left.finished ?? row.left.call}`} />
    <span class="relation" title=${words}>${{ "left-only": "−", "right-only": "+", differs: "≠", same: "=" }[state]}<span class="sr"> ${words}</span></span>
    <${End} call=${row.right} href=${row.right && `#/s/${encodeURIComponent(other.session)}@${row.right.finished ?? row.right.call}`} /></div>`;
}

function End({ call, href }) {
  if (!call) return html`<span class="end nothing"></span>`;
  return html`<span class="end"><a class="position" href=${href}>${call.call}</a> <b>${visible(call.tool)}</b> <span class="summary">${oneLine(call.summary ?? "", 120)}</span>
    <span class="took ${failed(call) ? "bad" : ""}">${failed(call) ? verdict(call) : duration(call.micros)}</span></span>`;
}

async function differing(model, other) {
  if (other.session === model.session) {
    const to = other.at ?? model.head;
    const { changes } = await getKept(ofSession(model.session, "/changes"), { from: endOf(model, other), to });
    return changes.filter(({ kind }) => kind !== "directory").map(({ path, change }) => ({ path, change }));
  }
  const list = (session, at) => get(ofSession(session, "/files"), { at });
  const [here, there] = await Promise.all([list(model.session, endOf(model, other)), list(other.session, other.at)]);
  const [left, right] = [here, there].map((entries) => new Map(entries.filter(({ node }) => node !== "directory").map((entry) => [entry.path, entry.content ?? entry.target ?? entry.node])));
  const paths = [...new Set([...left.keys(), ...right.keys()])].filter((path) => left.get(path) !== right.get(path)).sort();
  return paths.map((path) => ({ path, change: !left.has(path) ? "added" : !right.has(path) ? "removed" : "changed" }));
}

function Ends({ model, other, path, onPath }) {
  const { value, error } = useLoaded(() => differing(model, other), [model.session, endOf(model, other), other.session, other.at]);
  if (error) return html`<p class="problem">${visible(error.message)}</p>`;
  if (!value) return null;
  return html`<h3>Files that differ at both ends <span class="quiet">${value.length}</span></h3>
    <ul class="changed">${value.slice(0, 300).map((change) => html`<li key=${change.path}><span class="letter ${change.change}" title=${change.change}>${{ added: "A", changed: "M", removed: "D" }[change.change]}</span>
      <button class="link" aria-pressed=${path === change.path} onClick=${() => onPath(path === change.path ? null : change.path)}>${visible(change.path)}</button></li>`)}</ul>
    ${path && html`<${BothEnds} key=${path} model=${model} other=${other} path=${path} />`}`;
}

function BothEnds({ model, other, path }) {
  const { value, error } = useLoaded(async () => {
    const at = other.at ?? (await get(ofSession(other.session))).events;
    return Promise.all([fileAt(model.session, path, endOf(model, other)), fileAt(other.session, path, at)]);
  }, [path, endOf(model, other), other.session, other.at]);
  if (error) return html`<p class="problem">${visible(error.message)}</p>`;
  if (!value) return null;
  if (value.some((side) => side && side.text === null)) return html`<p class="quiet">These contents are not text.</p>`;
  return html`<${SplitDiff} path=${path} before=${fitting(value[0]?.text ?? "").text} after=${fitting(value[1]?.text ?? "").text} labels=${["Here", "There"]} />`;
}
