// One session: its header, its timeline, and the panes at the cursor.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { ActionMenu } from "./actions.js";
import { CallPane } from "./callpane.js";
import { Compare } from "./compare.js";
import { connectionIsLost, Lost, useConnection } from "./connection.js";
import { Family } from "./family.js";
import { Files } from "./files.js";
import { Filters } from "./filters.js";
import { act, KeyHelp, typed } from "./keys.js";
import { Model } from "./model.js";
import { Services } from "./ports.js";
import { Questions } from "./questions.js";
import { SearchPanel } from "./search.js";
import { Slices } from "./slices.js";
import { isExport } from "./source.js";
import { Splitter, useWidth } from "./splitter.js";
import { Strip } from "./strip.js";
import { clock, count, visible } from "./text.js";
import { Timeline } from "./timeline.js";
import { isOfOwner } from "./token.js";

const TABS = [["call", "Call"], ["files", "Files"], ["slices", "Slices"], ["family", "Family"], ["compare", "Compare"]];
const PANES = { call: CallPane, files: Files, slices: Slices, family: Family, compare: Compare };

export function useModel(model) {
  const [, setTurn] = useState(0);
  useEffect(() => {
    const listener = () => setTurn((turn) => turn + 1);
    model.listeners.add(listener);
    return () => model.listeners.delete(listener);
  }, [model]);
}

export function SessionView({ route }) {
  const model = useMemo(() => new Model(route.session), []);
  const [dialog, setDialog] = useState(null);
  const started = useRef(false);
  const lost = useConnection();
  const [width, setWidth] = useWidth("timeline");
  useModel(model);
  model.dialog = setDialog;
  useEffect(() => {
    model.load(route);
    return () => model.close();
  }, []);
  useEffect(() => {
    if (started.current) model.arrive(route);
    started.current = true;
  }, [route]);
  useEffect(() => {
    document.title = `${visible(route.session)} · foldspace`;
    const pressed = (event) => typed(event, model);
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  if (model.problem) return html`<${Failed} session=${model.session} problem=${model.problem} />`;
  // A dialog that closes late must not close its successor.
  const close = () => setDialog((shown) => (shown === dialog ? null : shown));
  return html`<div class="session ${lost ? "lost" : ""}">
    <${Head} model=${model} />
    ${lost && html`<${Lost} session=${model.session} />`}
    <${Strip} model=${model} />
    <div class="split ${model.hidesList ? "alone" : ""}" style=${{ "--left": width ? `${width}px` : undefined }}>
      <section class="left" aria-label="Timeline"><${Filters} model=${model} /><${Timeline} model=${model} /></section>
      <${Splitter} label="Width of the timeline" width=${width} onWidth=${setWidth} />
      <section class="right" aria-label="At the cursor"><${Tabs} model=${model} /><${Questions} model=${model} /></section>
    </div>
    ${model.isSearching && html`<${SearchPanel} model=${model} />`}
    <div class="notice" role="status">${model.notice}</div>
    ${dialog?.kind === "keys" && html`<${KeyHelp} onClose=${close} />`}
    ${dialog?.view && html`<${dialog.view} model=${model} ...${dialog.given} onClose=${close} />`}
  </div>`;
}

function Failed({ session, problem }) {
  const words = problem.status === 404 ? `No session is named ${visible(session)}: it was removed or renamed, or the name is misspelled.` : visible(problem.message);
  return html`<main class="sign-in"><div class="card"><h1>This session can't be shown</h1>
    <p class="problem" role="alert">${words}</p>${problem.hint && problem.status !== 404 && html`<p class="hint">${visible(problem.hint)}</p>`}
    <p>${problem.status === 0 && html`<button onClick=${() => location.reload()}>Try again</button> `}<a href="#/">All sessions</a></p></div></main>`;
}

function Head({ model }) {
  const { document: known, live, moment } = model;
  return html`<header class="head">
    <a class="brand" href=${isExport ? location.hash : "#/"} aria-label="All sessions"><span class="brand-mark" aria-hidden="true"></span></a>
    <h1 title=${known?.session ?? ""}>${visible(known?.name ?? model.session)}</h1>
    ${known && html`<span class="quiet">${known.backend} · ${count(model.whole?.total ?? 0, "call")}</span>`}
    ${isExport && html`<span class="badge">exported</span>`}
    ${live && html`<${LiveBadge} model=${model} />`}
    <${Services} model=${model} />
    <span class="grow"></span>
    <span class="where" aria-live="polite">
      <span class="quiet narrow-hide">event</span> <b>${model.at.toLocaleString("en")}</b> <span class="quiet">of ${model.head.toLocaleString("en")}</span>
      ${moment && html` <time class="quiet narrow-hide" dateTime=${moment}>${clock(moment)}</time>`}
    </span>
    <span class="buttons" role="group" aria-label="Moving">
      <${Move} model=${model} verb="previous" label="Previous call (k)" sign="‹" />
      <${Move} model=${model} verb="next" label="Next call (j)" sign="›" />
      <${Move} model=${model} verb="failure" label="Next failure" sign="!›" />
    </span>
    <button aria-pressed=${model.isSearching} title="Search the whole history (/)" onClick=${() => act("search", model)}>Search</button>
    <${ActionMenu} model=${model} />
    <button class="plain" aria-label="Keys and signs (?)" title="Keys and signs (?)" onClick=${() => model.dialog({ kind: "keys" })}>?</button>
  </header>`;
}

function Move({ model, verb, label, sign }) {
  return html`<button aria-label=${label} title=${label} onClick=${() => act(verb, model)}>${sign}</button>`;
}

function LiveBadge({ model }) {
  const { live } = model;
  const words = { connected: live.running ? "running" : "connected", connecting: "connecting", disconnected: isOfOwner() && connectionIsLost() ? "ended" : "reconnecting", ended: "removed" }[live.state];
  const toggle = () => {
    model.set({ follows: !model.follows });
    if (model.follows) model.select(model.list.total - 1);
  };
  return html`<button class="live ${live.state}" aria-pressed=${model.follows} onClick=${toggle}
    title="New events appear automatically. Press to follow the last call."><span class="dot" aria-hidden="true"></span>${words}${model.follows ? ", following" : ""}</button>`;
}

function Tabs({ model }) {
  const Pane = PANES[model.tab] ?? CallPane;
  const choose = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = TABS.findIndex(([name]) => name === model.tab);
    const [name] = TABS[(at + step + TABS.length) % TABS.length];
    model.show(name);
    event.currentTarget.querySelector(`#tab-${name}`)?.focus();
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<div class="tabs-bar"><button class="plain hide-list" aria-pressed=${model.hidesList} aria-label="Hide the timeline" title="Hide or show the timeline (T)" onClick=${() => act("list", model)}>${model.hidesList ? "⇥" : "⇤"}</button>
    <div class="tabs" role="tablist" aria-label="Views" onKeyDown=${choose}>
      ${TABS.map(([name, title], number) => html`<button key=${name} id=${`tab-${name}`} role="tab" aria-selected=${model.tab === name} aria-controls="pane"
        tabindex=${model.tab === name ? 0 : -1} title=${`${title} (${number + 1})`} onClick=${() => model.show(name)}>${name === "call" && model.message ? "Message" : title}</button>`)}
    </div></div>
    <div id="pane" class="pane" role="tabpanel" aria-labelledby=${`tab-${model.tab}`}>
      ${model.ready && html`<${Pane} model=${model} />`}
    </div>`;
}
