// The filters of the timeline.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { count, visible } from "./text.js";

const PAUSE = 250;

export function Filters({ model }) {
  const { filters, whole, list } = model;
  const tools = Object.entries(whole?.timeline?.tools ?? {}).sort((a, b) => b[1] - a[1]);
  const agents = Object.entries(whole?.timeline?.agents ?? {}).filter(([name]) => name !== "");
  return html`<div class="filters" role="search" aria-label="Filter the timeline">
    <${Field} label="Text in calls and messages" hint="Text" value=${filters.text} onValue=${(text) => model.filter({ text })} />
    <${Field} label="Path of changed files, a glob" hint="src/**" value=${filters.path} onValue=${(path) => model.filter({ path })} />
    <${Choice} label="Tool" all="All tools" value=${filters.tool} entries=${tools} onValue=${(tool) => model.filter({ tool })} />
    ${agents.length > 0 && html`<${Choice} label="Agent" all="All agents" value=${filters.agent} entries=${agents} onValue=${(agent) => model.filter({ agent })} />`}
    <button aria-pressed=${filters.failed} title="Only calls that failed (f f)" onClick=${() => model.filter({ failed: !filters.failed })}>Failed</button>
    <button aria-pressed=${filters.changed} title="Only calls that changed files (f w)" onClick=${() => model.filter({ changed: !filters.changed })}>Changed</button>
    <${Shown} model=${model} />
    <span class="quiet found" role="status">${found(model)}
      ${list?.isFiltered && html` <button class="small" onClick=${() => model.clearFilters()}>All</button>`}</span>
  </div>`;
}

const SHOWS = [["", "All", "Calls, with the messages between them"], ["calls", "Calls", "Only calls"], ["messages", "Messages", "Only messages: prompts, answers and reasoning"]];

// Which rows there are, in a session with messages.
function Shown({ model }) {
  const { conversation, filters } = model;
  if (conversation.problem) return html`<span class="quiet">Messages can't be read: ${visible(conversation.problem.message)}</span>`;
  if (!conversation.list.length) return null;
  return html`<div class="segments" role="group" aria-label="Rows">${SHOWS.map(([show, title, hint]) => html`<button key=${show} title=${hint}
      aria-pressed=${filters.show === show} onClick=${() => model.filter({ show })}>${title}</button>`)}</div>
    ${filters.show !== "calls" && html`<button aria-pressed=${filters.reasoning === ""} title="Show or hide the reasoning of agents" onClick=${() => model.filter({ reasoning: filters.reasoning ? "" : "off" })}>Reasoning</button>`}
    ${conversation.isCut && html`<span class="quiet">The first ${count(conversation.list.length, "message")} are here.</span>`}`;
}

function found({ list, whole, conversation }) {
  if (!list?.isFiltered) return "";
  const ofAll = (number, all, noun) => `${number === all ? "" : `${number.toLocaleString("en")} of `}${count(all, noun)}`;
  const parts = [!list.hidesCalls && ofAll(list.calls.total, whole?.total ?? 0, "call"),
    (list.hidesCalls || list.messages.length > 0) && ofAll(list.messages.length, conversation.list.length, "message")];
  return parts.filter(Boolean).join(", ");
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
