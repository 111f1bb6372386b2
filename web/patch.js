// The changes of a call, as hunks with the line numbers of both sides.

import { html, useMemo, useState } from "./vendor/preact.js";
import { hunksOf } from "./lines.js";
import { fileAt, useLoaded } from "./loaded.js";
import { getKept, ofSession } from "./source.js";
import { bytes, changesOf, count, visible } from "./text.js";

export const LETTERS = { added: "A", changed: "M", removed: "D" };
const OPEN = 5;
const LISTED = 200;
const TEXT_MOST = 1 << 20;
const ROWS = 300;
const LINE_MOST = 2000;

// A range of events is shown like a call, with the changes of some paths only.
export function Changed({ model, call, only = null }) {
  const [from, to] = [call.call - 1, call.finished ?? call.events?.at(-1) ?? call.call];
  const { value, error } = useLoaded(() => (call.paths?.length ? getKept(ofSession(model.session, "/changes"), { from, to }) : null), [call.call, to]);
  if (!call.paths?.length) return null;
  if (error) return html`<p class="problem">${visible(error.message)}</p>`;
  const files = (value?.changes ?? []).filter(({ kind: node, path }) => node !== "directory" && (!only || only.includes(path)));
  if (!files.length || value.to !== to) return null;
  return html`<section class="changes-of-call"><h3>Changes <span class="counts">${changesOf(call)}</span></h3>
    ${files.slice(0, LISTED).map((change, number) => html`<${FileChange} key=${`${to}${change.path}`} model=${model} change=${change} from=${from} to=${to} isFirst=${number < OPEN} />`)}
    ${files.length > LISTED && html`<p class="quiet">and ${count(files.length - LISTED, "file")} more</p>`}</section>`;
}

function FileChange({ model, change, from, to, isFirst }) {
  const [isOpen, setOpen] = useState(isFirst);
  const { path, size } = change;
  return html`<div class="file-change"><header>
      <button class="plain twist" aria-expanded=${isOpen} aria-label=${`Changes of ${visible(path)}`} onClick=${() => setOpen(!isOpen)}>${isOpen ? "▾" : "▸"}</button>
      <span class="letter ${change.change}" title=${change.change}>${LETTERS[change.change]}</span>
      <button class="link" title="Open in Files" onClick=${() => model.openFile(path)}>${visible(path)}</button> <span class="quiet">${bytes(size)}</span></header>
    ${isOpen && html`<${Hunks} session=${model.session} change=${change} from=${from} to=${to} />`}</div>`;
}

async function sidesOf(session, { path, before, after }, from, to) {
  if (Math.max(before?.size ?? 0, after?.size ?? 0) > TEXT_MOST) return null;
  return Promise.all([before ? fileAt(session, path, from) : null, after ? fileAt(session, path, to) : null]);
}

function Hunks({ session, change, from, to }) {
  const [most, setMost] = useState(ROWS);
  const { value, error } = useLoaded(() => sidesOf(session, change, from, to).then((sides) => ({ sides })), [session, change.path, from, to]);
  const hunks = useMemo(() => {
    const [was, is] = value?.sides ?? [];
    return !value?.sides || [was, is].some((side) => side && side.text === null) ? null : hunksOf(was?.text ?? "", is?.text ?? "");
  }, [value]);
  if (error) return html`<p class="problem">${visible(error.message)}</p>`;
  if (!value) return null;
  if (!hunks) return html`<p class="quiet none">${value.sides ? "Not text." : "Too large to show here."} Files shows it.</p>`;
  if (!hunks.length) return html`<p class="quiet none">${change.change === "changed" ? "The text is the same: the mode or type changed." : "An empty file."}</p>`;
  const total = hunks.reduce((sum, rows) => sum + rows.length, 0);
  let left = most;
  const shown = hunks.map((rows) => rows.slice(0, Math.max(0, (left -= rows.length) + rows.length))).filter((rows) => rows.length);
  return html`<${Patch} hunks=${shown} label=${`Changes of ${change.path}`} />
    ${total > most && html`<button class="small" onClick=${() => setMost(most * 4)}>Show more: ${count(total - most, "line")} ${total - most === 1 ? "is" : "are"} not shown</button>`}`;
}

const SIGNS = { same: " ", removed: "-", added: "+" };

export function Patch({ hunks, label }) {
  return html`<div class="patch" role="group" aria-label=${label} tabindex="0" data-scrolls>${hunks.map((rows, number) => html`<div key=${number} class="hunk">
    ${number > 0 && html`<div class="line gap" aria-hidden="true"><span class="number">⋯</span><span class="number"></span><span></span><span></span></div>`}
    ${marked(rows).map((row, at) => html`<div key=${at} class="line ${row.kind}"><span class="number">${row.old ?? ""}</span><span class="number">${row.now ?? ""}</span><span class="edge">${SIGNS[row.kind]}</span><code>${row.parts}</code></div>`)}</div>`)}</div>`;
}

// Marks the text that differs in a line that replaces another.
function marked(rows) {
  const parts = rows.map(({ text }) => [cut(text)]);
  for (let at = 0; at < rows.length; ) {
    let [gone, come] = [at, at];
    while (rows[gone]?.kind === "removed") gone += 1;
    come = gone;
    while (rows[come]?.kind === "added") come += 1;
    if (gone > at && come - gone === gone - at) for (let row = at; row < gone; row += 1) [parts[row], parts[row + gone - at]] = inside(rows[row].text, rows[row + gone - at].text);
    at = Math.max(come, at + 1);
  }
  return rows.map((row, at) => ({ ...row, parts: parts[at] }));
}

function inside(was, is) {
  const most = Math.min(was.length, is.length);
  let [start, end] = [0, 0];
  while (start < most && was[start] === is[start]) start += 1;
  while (end < most - start && was.at(-1 - end) === is.at(-1 - end)) end += 1;
  if (most > LINE_MOST || start + end < most / 3) return [[cut(was)], [cut(is)]];
  return [was, is].map((text) => [visible(text.slice(0, start)), html`<mark>${visible(text.slice(start, text.length - end))}</mark>`, visible(text.slice(text.length - end))]);
}

function cut(text) {
  return text.length > LINE_MOST ? `${visible(text.slice(0, LINE_MOST))} … ${text.length - LINE_MOST} more characters` : visible(text);
}
