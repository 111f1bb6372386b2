// The filters of the timeline's calls.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { count, visible } from "./text.js";

const PAUSE = 250;

export function Filters({ model }) {
  const { filters, whole, list } = model;
  const tools = Object.entries(whole?.timeline?.tools ?? {}).sort((a, b) => b[1] - a[1]);
  const agents = Object.entries(whole?.timeline?.agents ?? {}).filter(([name]) => name !== "");
  return html`<div class="filters" role="search" aria-label="Filter the calls">
    <${Field} label="Text in calls" hint="Text" value=${filters.text} onValue=${(text) => model.filter({ text })} />
    <${Field} label="Path of changed files, a glob" hint="src/**" value=${filters.path} onValue=${(path) => model.filter({ path })} />
    <${Choice} label="Tool" all="All tools" value=${filters.tool} entries=${tools} onValue=${(tool) => model.filter({ tool })} />
    ${agents.length > 0 && html`<${Choice} label="Agent" all="All agents" value=${filters.agent} entries=${agents} onValue=${(agent) => model.filter({ agent })} />`}
    <button aria-pressed=${filters.failed} title="Only calls that failed (f f)" onClick=${() => model.filter({ failed: !filters.failed })}>Failed</button>
    <button aria-pressed=${filters.changed} title="Only calls that changed files (f w)" onClick=${() => model.filter({ changed: !filters.changed })}>Changed</button>
    <span class="quiet found" role="status">${list?.isFiltered ? `${list.total.toLocaleString("en")} of ${count(whole?.total ?? 0, "call")}` : ""}
      ${list?.isFiltered && html` <button class="small" onClick=${() => model.clearFilters()}>All</button>`}</span>
  </div>`;
}

function Field({ label, hint, value, onValue }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => setText(value), [value]);
  const typed = (event) => {
    const now = event.target.value;
    setText(now);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onValue(now), PAUSE);
  };
  return html`<input type="search" aria-label=${label} placeholder=${hint} value=${text} onInput=${typed} spellcheck="false" />`;
}

function Choice({ label, all, value, entries, onValue }) {
  return html`<select aria-label=${label} value=${value} onChange=${(event) => onValue(event.target.value)}>
    <option value="">${all}</option>
    ${entries.map(([name, number]) => html`<option key=${name} value=${name}>${visible(name)} (${number})</option>`)}
  </select>`;
}
