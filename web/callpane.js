// One call: its parameters, the decision, and the result.

import { html, useLayoutEffect, useState } from "./vendor/preact.js";
import { ansi } from "./ansi.js";
import { JsonTree } from "./json.js";
import { Kept, Player } from "./recorded.js";
import { get, getKept, ofSession } from "./source.js";
import { bytes, clock, count, duration, failed, kind, SIGNS, verdict, visible } from "./text.js";
import { eventSummary } from "./timeline.js";

const SHOWN = 60_000;
const BY = {
  policy: "by the policy", auto_confirm: "because all questions are approved", session: "because its programs are allowed for the session",
  answer: "by a person's answer", nobody: "because no one could be asked",
};

// Reloads a value when `keys` change, and shows the old one until then. It does not wait for the next frame.
export function useLoaded(load, keys) {
  const [state, setState] = useState({ value: null, error: null, keys: null });
  useLayoutEffect(() => {
    let current = true;
    Promise.resolve(load()).then(
      (value) => current && setState({ value, error: null, keys }),
      (error) => current && setState({ value: null, error, keys }),
    );
    return () => {
      current = false;
    };
  }, keys);
  return state;
}

export function CallPane({ model }) {
  const { call } = model;
  const path = call && ofSession(model.session, `/calls/${call.call}`);
  const { value: whole, error } = useLoaded(() => call && (call.finished === null ? get(path) : getKept(path)), [call?.call, call?.finished, call?.events?.length]);
  if (!call) return html`<${Beginning} model=${model} />`;
  const shown = whole?.call === call.call ? whole : null;
  return html`<article class="call">
    <header><span class="sign ${kind(call)}" aria-hidden="true">${SIGNS[kind(call)]}</span><h2>${visible(call.tool)}</h2>
      <span class="badge ${failed(call) ? "bad" : call.status}">${verdict(call)}</span>
      <span class="quiet">${duration(call.micros)}</span></header>
    <p class="facts quiet">call ${call.call}${call.finished ? `–${call.finished}` : ""} · ${call.agent ? html`agent <b>${visible(call.agent)}</b> · ` : ""}<time dateTime=${call.started_at}>${clock(call.started_at)}</time></p>
    ${call.message && html`<p class="problem">${visible(call.message)}</p>`}
    ${error && html`<p class="problem">${visible(error.message)}</p>`}
    <${Params} params=${shown?.params ?? call.params} />
    ${shown && html`<${Decision} events=${Object.values(shown.recorded)} />`}
    ${call.status === "running" ? html`<${LiveOutput} model=${model} />` : shown && html`${kinds(shown).TerminalRecorded && html`<${Player} key=${path} path=${`${path}/frames`} />`}<${Result} whole=${shown} path=${path} />`}
    <${Changed} model=${model} call=${call} />
    ${shown && html`<${Events} model=${model} whole=${shown} />`}
  </article>`;
}

function Beginning({ model }) {
  return html`<div class="empty"><p>Before the first call.</p>
    <p class="quiet">The session has ${count(model.head, "event")}. ${model.list.total > 0 && html`<button onClick=${() => model.select(0)}>Go to the first call</button>`}</p></div>`;
}

function Params({ params }) {
  const entries = Object.entries(params ?? {});
  if (!entries.length) return null;
  const { old_string: was, new_string: is } = params;
  const isEdit = typeof was === "string" && typeof is === "string";
  const rest = entries.filter(([name]) => !(isEdit && (name === "old_string" || name === "new_string")));
  return html`<section><h3>Parameters</h3><dl class="params">
    ${rest.map(([name, value]) => html`<div key=${name}><dt>${visible(name)}</dt><dd><${Param} value=${value} /></dd></div>`)}</dl>
    ${isEdit && html`<div class="edit"><pre class="code removed" tabindex="0" aria-label="Old text">${visible(was)}</pre><pre class="code added" tabindex="0" aria-label="New text">${visible(is)}</pre></div>`}
  </section>`;
}

function Param({ value }) {
  if (typeof value === "string") {
    if (!value.includes("\n") && value.length < 300) return html`<code>${visible(value)}</code>`;
    return html`<${Long} text=${value} />`;
  }
  if (value?.$content) return html`<span class="quiet">text of ${bytes(value.bytes)}</span>`;
  if (value === null || typeof value !== "object") return html`<code>${String(value)}</code>`;
  return html`<${JsonTree} value=${value} />`;
}

function Long({ text, label = "Text" }) {
  const [shown, setShown] = useState(SHOWN);
  return html`<pre class="code" tabindex="0" data-scrolls aria-label=${label}>${ansi(text.slice(0, shown))}</pre>
    ${text.length > shown && html`<button class="small" onClick=${() => setShown(shown * 4)}>Show more: ${bytes(text.length - shown)} of ${bytes(text.length)} are not shown</button>`}`;
}

function Decision({ events }) {
  const decided = events.filter(({ kind: name }) => name === "CommandDecided");
  if (!decided.length) return null;
  return html`<section><h3>Decision</h3>${decided.map(({ seq, event }) => html`<p key=${seq} class="decision ${event.decision}">
    <b>${event.decision === "allow" ? "Allowed" : "Denied"}</b> ${BY[event.by] ?? event.by}${event.reason ? `: ${visible(event.reason)}` : ""}</p>`)}</section>`;
}

const kinds = ({ recorded }) => Object.fromEntries(Object.values(recorded).map(({ kind: name, event }) => [name, event]));

function Result({ whole, path }) {
  const { result } = whole;
  if (result === null || result === undefined) return null;
  if (typeof result === "string") return html`<section><h3>Result</h3><${Long} text=${result} /></section>`;
  const texts = ["stdout", "stderr", "output", "content", "text", "value"].filter((name) => typeof result[name] === "string" && result[name] !== "");
  const rest = Object.fromEntries(Object.entries(result).filter(([name]) => !texts.includes(name) && result[name] !== ""));
  const titles = { stdout: "Output", stderr: "Error output", content: "Contents" };
  const found = kinds(whole);
  const ran = found.CommandResult ?? found.EvalResult ?? {};
  const shown = (name, title) => {
    const long = html`<${Long} text=${result[name]} label=${title} />`;
    if (!result.truncated || !(ran[name]?.kept > result[name].length)) return long;
    return html`<${Kept} key=${path} path=${`${path}/recorded/${name}`} kept=${ran[name].kept} written=${ran[name].bytes} label=${title}>${long}</${Kept}>`;
  };
  return html`${texts.map((name) => html`<section key=${name}><h3>${titles[name] ?? name}</h3>${shown(name, titles[name] ?? name)}</section>`)}
    <${Rest} values=${rest} />`;
}

function Rest({ values }) {
  const entries = Object.entries(values).filter(([, value]) => value !== null);
  if (!entries.length) return null;
  const isFlat = entries.every(([, value]) => typeof value !== "object" && String(value).length < 200);
  if (!isFlat) return html`<section><h3>Result</h3><${JsonTree} value=${values} /></section>`;
  return html`<section><h3>Result</h3><p class="flat">${entries.map(([name, value]) => html`<span key=${name}><span class="quiet">${visible(name)}</span> <code>${visible(value)}</code></span>`)}</p></section>`;
}

function LiveOutput({ model }) {
  const output = model.live?.output;
  const mine = output?.call === model.call.call ? output : null;
  return html`<section aria-live="polite"><h3>Output so far</h3>
    ${mine?.parts.length ? html`<pre class="code live-output" tabindex="0" data-scrolls>${ansi(mine.parts.map(({ text }) => text).join(""))}</pre>` : html`<p class="quiet">The call is running.</p>`}
    ${mine?.missed > 0 && html`<p class="quiet">${bytes(mine.missed)} were missed.</p>`}</section>`;
}

const LETTERS = { added: "A", changed: "M", removed: "D" };

function Changed({ model, call }) {
  const [from, to] = [call.call - 1, call.finished ?? call.events?.at(-1) ?? call.call];
  const { value } = useLoaded(() => (call.paths?.length ? getKept(ofSession(model.session, "/changes"), { from, to }) : null), [call.call, to]);
  const files = (value?.changes ?? []).filter(({ kind: node }) => node !== "directory");
  if (!call.paths?.length || !files.length || value.to !== to) return null;
  return html`<section><h3>Changed files</h3><ul class="changed">${files.slice(0, 200).map((change) => html`<li key=${change.path}>
    <span class="letter ${change.change}" title=${change.change}>${LETTERS[change.change]}</span>
    <button class="link" onClick=${() => model.openFile(change.path)}>${visible(change.path)}</button> <span class="quiet">${bytes(change.size)}</span></li>`)}</ul>
    ${files.length > 200 && html`<p class="quiet">and ${count(files.length - 200, "file")} more</p>`}</section>`;
}

function Events({ model, whole }) {
  const [isOpen, setOpen] = useState(false);
  const events = Object.values(whole.recorded).sort((a, b) => a.seq - b.seq);
  return html`<section><details class="events" open=${isOpen} onToggle=${(event) => event.target.matches(".events") && setOpen(event.target.open)}><summary><h3>${count(events.length, "event")}</h3></summary>
    <ul>${isOpen && events.slice(0, 500).map((event) => html`<li key=${event.seq} class=${event.seq === model.at ? "here" : ""}>
      <button class="link" onClick=${() => model.goTo(event.seq)}>${event.seq}</button> ${event.kind} <span class="quiet">${eventSummary(event)}</span>
      <${JsonTree} value=${event.event} open=${false} /></li>`)}</ul></details></section>`;
}
