// The list of calls and messages. Only visible rows are rendered.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { isMessage } from "./messages.js";
import { MessageRow } from "./messagerow.js";
import { markedText } from "./search.js";
import { get, getKept, ofSession } from "./source.js";
import { changesOf, clock, count, duration, failed, kind, oneLine, sign, SIGN_WORDS, SIGNS, summary, verdict, visible } from "./text.js";

const ROW = 30;
const MORE = 8;
const SHORTEST = 100;
const LONGEST = 6e8;

export function Timeline({ model }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const { list } = model;
  const events = useEvents(model);
  useLayoutEffect(() => {
    const measure = () => setView({ top: box.current.scrollTop, height: box.current.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    reveal(box.current, model.index, model.open, events.length);
    if (box.current.scrollTop !== view.top) setView({ ...view, top: box.current.scrollTop });
  }, [model.index, list, list?.total]);
  const total = list?.total ?? 0;
  const shift = (index) => (model.open !== null && index > model.open ? events.length : 0);
  const first = Math.max(0, Math.floor(view.top / ROW) - MORE - events.length);
  const last = Math.min(total, Math.ceil((view.top + view.height) / ROW) + MORE);
  const rows = [];
  for (let index = first; index < last; index++) {
    const [item, top] = [list.row(index), (index + shift(index)) * ROW];
    rows.push(isMessage(item) ? html`<${MessageRow} key=${index} model=${model} message=${item} index=${index} top=${top} />` : html`<${CallRow} key=${index} model=${model} call=${item} index=${index} top=${top} />`);
    if (index === model.open) rows.push(...events.map((event, number) => html`<${EventRow} key=${`e${event.seq}`} model=${model} event=${event} top=${(index + 1 + number) * ROW} />`));
  }
  const id = model.index >= first && model.index < last ? `row-${model.index}` : undefined;
  return html`<div class="timeline" ref=${box} onScroll=${(event) => setView({ top: event.target.scrollTop, height: event.target.clientHeight })}>
    ${total === 0 && list && html`<${Nothing} model=${model} />`}
    <div class="rows" role="listbox" tabindex="0" aria-label=${`${list?.hidesCalls ? "Messages" : list?.messages.length ? "Calls and messages" : "Calls"}, ${total} of them`} aria-activedescendant=${id} style=${{ height: `${(total + events.length) * ROW}px` }}>${rows}</div>
  </div>`;
}

function Nothing({ model }) {
  const { isFiltered, hidesCalls } = model.list;
  if (!isFiltered) return html`<p class="empty quiet">This session has no calls yet.</p>`;
  return html`<p class="empty">No ${hidesCalls ? "message" : "call"} matches. <button class="small" onClick=${() => model.clearFilters()}>Show all calls</button></p>`;
}

function reveal(box, index, open, events) {
  if (!box || index < 0) return;
  const top = (index + (open !== null && index > open ? events : 0)) * ROW;
  if (top < box.scrollTop + ROW) box.scrollTop = Math.max(0, top - ROW * 2);
  else if (top > box.scrollTop + box.clientHeight - ROW * 2) box.scrollTop = top - box.clientHeight + ROW * 3;
}

function useEvents(model) {
  const [events, setEvents] = useState([]);
  const item = model.open === null ? null : model.list?.row(model.open);
  const call = isMessage(item) ? null : item;
  useEffect(() => {
    let current = true;
    if (!call) return setEvents([]);
    const ask = call.finished === null ? get : getKept;
    ask(ofSession(model.session, `/calls/${call.call}`)).then((whole) => {
      if (current) setEvents(Object.values(whole.recorded).sort((a, b) => a.seq - b.seq));
    }, () => {});
    return () => {
      current = false;
    };
  }, [call?.call, call?.finished]);
  return events;
}

function CallRow({ model, call, index, top }) {
  const selected = index === model.index;
  const place = { transform: `translateY(${top}px)` };
  const choose = () => model.set({ follows: false }) ?? model.select(index, { replace: false });
  const open = () => model.set({ open: model.open === index ? null : index });
  return html`<div id=${`row-${index}`} role="option" aria-selected=${selected} aria-setsize=${model.list.total} aria-posinset=${index + 1}
    class="row ${call ? kind(call) : "loading"}" style=${place} onClick=${choose} onDblClick=${open}>
    ${call ? html`<${CallCells} model=${model} call=${call} index=${index} />` : html`<span class="sr">loading</span>`}
  </div>`;
}

function CallCells({ model, call, index }) {
  const mark = sign(call);
  const isCommand = mark === SIGNS.command || mark === SIGNS.code;
  const agents = Object.keys(model.whole?.timeline?.agents ?? {}).length > 1;
  const marked = (text) => markedText(text, model.filters.text);
  return html`<span class="position">${call.call}</span>
    <span class="sign" title=${`${visible(call.tool)}: ${SIGN_WORDS[mark]}`} aria-hidden="true">${mark}</span>
    <span class="what">${isCommand ? "" : html`<span class="tool">${marked(visible(call.tool))}</span> `}<b>${marked(summary(call))}</b></span>
    ${agents && html`<span class="agent" title=${visible(call.agent || "no agent")}>${visible(call.agent)}</span>`}
    <${Changes} call=${call} />
    <${Forks} model=${model} call=${call} index=${index} />
    <${Effects} model=${model} call=${call} />
    <span class="verdict">${failed(call) || call.status === "running" ? verdict(call) : ""}</span>
    <span class="took" title=${`${duration(call.micros)}, began at ${clock(call.started_at)}`}>${call.status === "running" ? "" : duration(call.micros)}
      <i style=${{ width: `${100 * share(call.micros)}%` }}></i></span>`;
}

// The numbers of changes, and the first path unless the row has it already.
function Changes({ call }) {
  const counts = changesOf(call);
  if (!counts) return null;
  const [path] = call.paths;
  const isNamed = !path || (call.paths.length === 1 && summary(call).endsWith(oneLine(path)));
  return html`<span class="changes" title=${call.paths.slice(0, 20).map((name) => oneLine(name)).join("\n")}><span class="counts">${counts}</span>${!isNamed && html` <span class="path"><bdi>${oneLine(path)}</bdi></span>`}</span>`;
}

// Logarithmic: a long call is wider than a short one, but an hour still has to fit.
export function share(micros) {
  if (!micros) return 0;
  const scaled = Math.log(Math.max(micros, SHORTEST) / SHORTEST) / Math.log(LONGEST / SHORTEST);
  return Math.max(0.03, Math.min(1, scaled));
}

// The forks and merges at a call.
function Forks({ model, call, index }) {
  const { family, document } = model;
  if (!family || family.sessions.length < 2) return null;
  const next = model.list.isFiltered ? (call.finished ?? call.call) + 1 : model.list.nextCall(index);
  const here = (at) => at >= call.call && at < next;
  const names = new Map(family.sessions.map(({ session, name }) => [session, name]));
  const left = family.sessions.filter(({ parent, at }) => parent === document?.session && here(at));
  const back = family.sessions.find(({ session }) => session === document?.session)?.merges.filter(({ at }) => here(at)) ?? [];
  const open = (event) => {
    event.stopPropagation();
    model.show("family");
  };
  const all = left.map(({ name }) => oneLine(name, 40)).join(", ");
  return html`${left.length > 0 && html`<span class="fork" title=${`Forked here: ${all}`} onClick=${open}><${Icon} path="M3 1v10M3 4q0 3 5 3v4" />${left.length > 1 ? count(left.length, "fork") : all}</span>`}
    ${back.length === 1 && back.map(({ at, child, outcome }) => html`<span key=${at} class="fork ${outcome}" title=${`${outcome} at ${at}`} onClick=${open}><${Icon} path="M3 1v10M8 1v3q0 3 -5 3" />${oneLine(names.get(child) ?? child.slice(0, 8), 40)}</span>`)}
    ${back.length > 1 && html`<span class="fork ${back.some(({ outcome }) => outcome !== "merged") ? "conflicted" : "merged"}" title="Merges" onClick=${open}><${Icon} path="M3 1v10M8 1v3q0 3 -5 3" />${count(back.length, "merge")}</span>`}`;
}

// What the call did outside of the workspace, which no rewind takes back.
function Effects({ model, call }) {
  const effects = model.effects.filter((effect) => effect.call === call.call && effect.outcome !== "failed");
  if (!effects.length) return null;
  const words = effects.map(({ what, target, outcome }) => `${what} ${target} (${outcome})`);
  return html`<span class="effect" title=${`Outside of the workspace:\n${words.map((line) => oneLine(line)).join("\n")}`}><${Icon} path="M2 10L9 3M4 3h5v5" />${effects.length > 1 ? count(effects.length, "effect") : oneLine(effects[0].what, 40)}</span>`;
}

function Icon({ path }) {
  return html`<svg class="icon" width="11" height="12" viewBox="0 0 11 12" aria-hidden="true"><path d=${path} /></svg>`;
}

function EventRow({ model, event, top }) {
  const place = { transform: `translateY(${top}px)` };
  return html`<div role="option" aria-selected=${model.at === event.seq} class="row event" style=${place} onClick=${() => model.goTo(event.seq, { replace: true })}>
    <span class="position">${event.seq}</span><span class="what">${event.kind} <span class="summary">${eventSummary(event)}</span></span></div>`;
}

export function eventSummary({ event }) {
  const named = event.path ?? event.tool ?? event.status ?? event.decision ?? event.name ?? "";
  return oneLine(String(named), 120);
}
