// The slices of the state, and their changes.

import { html } from "./vendor/preact.js";
import { useLoaded } from "./loaded.js";
import { Since } from "./files.js";
import { differences, JsonTree } from "./json.js";
import { getKept, ofSession } from "./source.js";
import { bytes, count, visible } from "./text.js";

const LARGE = 2_000_000;

export function Slices({ model }) {
  const { session, before, at } = model;
  const state = (position) => getKept(ofSession(session, "/state"), { at: position });
  const { value, error } = useLoaded(() => Promise.all([state(before), state(at)]), [session, before, at]);
  if (error) return html`<p class="problem">${visible(error.message)}</p>`;
  if (!value) return null;
  const was = new Map(value[0].slices.map((slice) => [slice.slice, slice]));
  const slices = value[1].slices.map((slice) => ({ ...slice, isChanged: was.get(slice.slice)?.digest !== slice.digest }));
  const shown = slices.find(({ slice }) => slice === model.slice) ?? slices.find(({ isChanged, slice }) => isChanged && slice !== "ToolCalls") ?? slices[0];
  return html`<div class="slices">
    <div class="browse"><${Since} model=${model} />
      <ul class="slice-list" aria-label="Slices">${slices.map(({ slice, isChanged, json_bytes: size }) => html`<li key=${slice}><button
        aria-pressed=${slice === shown?.slice} onClick=${() => model.show("slices", { slice })}><span class="name">${visible(slice)}</span>
        ${isChanged && html`<span class="letter changed" title="changed">M</span>`}<span class="quiet size">${bytes(size)}</span></button></li>`)}</ul></div>
    <div class="slice">${shown && html`<${Slice} model=${model} slice=${shown} was=${was.get(shown.slice)} />`}</div>
  </div>`;
}

function Slice({ model, slice, was }) {
  const { session, before, at } = model;
  const isLarge = slice.json_bytes > LARGE;
  const of = (position) => getKept(ofSession(session, "/state"), { slice: slice.slice, at: position }).then(({ value }) => value);
  const { value, error } = useLoaded(() => (isLarge ? null : Promise.all([slice.isChanged && was ? of(before) : null, of(at)])), [session, slice.slice, before, at]);
  if (isLarge) return html`<h2>${visible(slice.slice)}</h2><p class="quiet">This slice has ${bytes(slice.json_bytes)}: too large to show here. <code>foldspace state ${visible(session)} ${slice.slice} --at ${at}</code> prints it.</p>`;
  if (error) return html`<p class="problem">${visible(error.message)}</p>`;
  if (!value) return null;
  const changes = slice.isChanged && was ? differences(value[0], value[1]) : [];
  return html`<h2>${visible(slice.slice)}</h2>
    <p class="quiet">version ${slice.version ?? "–"}${slice.on_rewind ? ` · a rewind ${slice.on_rewind === "restore" ? "restores it" : "keeps it"}` : ""}</p>
    ${changes.length > 0 && html`<h3>${count(changes.length, "change")}</h3><ul class="differences">${changes.slice(0, 200).map((change) => html`<li key=${change.pointer}>
      <code>${visible(change.pointer)}</code><div class="sides"><${Side} name="before" value=${change.before} /><${Side} name="after" value=${change.after} /></div></li>`)}</ul>`}
    <h3>Value at ${at}</h3><${JsonTree} key=${slice.slice} value=${value[1]} />`;
}

function Side({ name, value }) {
  if (value === null) return html`<div class="side ${name} nothing quiet">–</div>`;
  return html`<div class="side ${name}"><${JsonTree} value=${value} open=${false} /></div>`;
}
