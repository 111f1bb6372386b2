// One call: its parameters, the decision, and the result.

import { html, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { ansi, plain } from "./ansi.js";
import { Copy } from "./dialog.js";
import { JsonTree } from "./json.js";
import { useLoaded } from "./loaded.js";
import { Changed } from "./patch.js";
import { MessagePane } from "./messagepane.js";
import { Kept, Player } from "./recorded.js";
import { get, getKept, ofSession } from "./source.js";
import { bytes, clock, commandOf, count, duration, failed, kind, quoted, sign, SIGN_WORDS, summary, verdict, visible } from "./text.js";
import { eventSummary } from "./timeline.js";

const SHOWN = 60_000;
const BY = {
  policy: "by the policy", auto_confirm: "because all questions are approved", session: "because its programs are allowed for the session",
  answer: "by a person's answer", nobody: "because no one could be asked",
};

export function CallPane({ model }) {
  const { call } = model;
  const path = call && ofSession(model.session, `/calls/${call.call}`);
  const { value: whole, error } = useLoaded(() => call && (call.finished === null ? get(path) : getKept(path)), [call?.call, call?.finished, call?.events?.length]);
  if (model.message) return html`<${MessagePane} key=${`${model.message.seq} ${model.message.number}`} model=${model} message=${model.message} />`;
  if (!call) return html`<${Beginning} model=${model} />`;
  const shown = whole?.call === call.call ? whole : null;
  return html`<article class="call">
    <${Ran} call=${call} params=${shown?.params ?? call.params} />
    ${call.message && html`<p class="problem">${visible(call.message)}</p>`}
    ${error && html`<p class="problem">${visible(error.message)}</p>`}
    <${Changed} model=${model} call=${call} />
    ${call.status === "running" ? html`<${LiveOutput} model=${model} />` : shown && html`${kinds(shown).TerminalRecorded && html`<${Player} key=${path} path=${`${path}/frames`} />`}<${Result} whole=${shown} path=${path} />`}
    <${Params} call=${call} params=${shown?.params ?? call.params} />
    ${shown && html`<${Approval} events=${Object.values(shown.recorded)} />`}
    ${shown && html`<${Events} model=${model} whole=${shown} />`}
  </article>`;
}

// The command, or the tool and its subject; the verdict; and the circumstances.
function Ran({ call, params }) {
  const whole = { ...call, params };
  const command = commandOf(whole);
  const title = command ? visible(command.title) : summary(call);
  const { cwd } = params ?? {};
  return html`<header><div class="ran"><span class="sign ${kind(call)}" title=${SIGN_WORDS[sign(call)]} aria-hidden="true">${sign(call)}</span>
      <h2>${command ? "" : html`<span class="tool">${visible(call.tool)}</span> `}<code>${title}</code></h2>
      ${command && html`<${Copy} text=${command.line} label="Copy the command" />`}</div>
    <p class="facts"><span class="badge ${failed(call) ? "bad" : call.status}">${verdict(call)}</span>
      ${call.micros !== null && html`<span>${duration(call.micros)}</span>`}
      <span class="quiet">call ${call.call}${call.finished ? `–${call.finished}` : ""}</span>${command && html`<span class="quiet">${visible(call.tool)}</span>`}
      ${call.agent && html`<span class="quiet">agent <b>${visible(call.agent)}</b></span>`}
      ${typeof cwd === "string" && cwd && html`<span class="quiet">in <code>${visible(cwd)}</code></span>`}
      <time class="quiet" dateTime=${call.started_at}>${clock(call.started_at)}</time></p></header>`;
}

function Beginning({ model }) {
  if (model.list.calls.total > 0) return html`<div class="empty"><p>Before the first call.</p>
    <p class="quiet">The session has ${count(model.head, "event")}. <button onClick=${async () => model.select(await model.firstRow())}>Go to the first call</button></p></div>`;
  if (model.whole.total > 0) return html`<p class="empty quiet">No call matches the filters.</p>`;
  const words = `foldspace exec ${quoted(model.session)} -- make test`;
  return html`<div class="empty first-steps"><h2>No calls yet</h2><p>Run a command in this session, and it is here:</p>
    <p class="try"><code>${words}</code> <${Copy} text=${words} label=${`Copy: ${words}`} /></p></div>`;
}

const isNothing = (value) => value === null || value === "" || (typeof value === "object" && Object.keys(value).length === 0);

// The parameters that neither the title nor the changes show.
function Params({ call, params }) {
  const { old_string: was, new_string: is } = params ?? {};
  const isEdit = typeof was === "string" && typeof is === "string";
  const isCommand = Boolean(commandOf({ params }));
  const isShown = (name, value) => isNothing(value)
    || (isCommand && ["command", "code", "cwd"].includes(name))
    || ((isEdit || call.paths?.length > 0) && ["old_string", "new_string"].includes(name))
    || (name === "content" && call.paths?.length > 0);
  const rest = Object.entries(params ?? {}).filter(([name, value]) => !isShown(name, value));
  const edit = isEdit && !call.paths?.length;
  if (!rest.length && !edit) return null;
  return html`<section><h3>Parameters</h3>${rest.length > 0 && html`<dl class="params">
    ${rest.map(([name, value]) => html`<div key=${name}><dt>${visible(name)}</dt><dd><${Param} value=${value} /></dd></div>`)}</dl>`}
    ${edit && html`<div class="edit"><pre class="code removed" tabindex="0" aria-label="Old text">${visible(was)}</pre><pre class="code added" tabindex="0" aria-label="New text">${visible(is)}</pre></div>`}
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

// Of a failed call, the end is in view.
function Long({ text, label = "Text", fromEnd = false }) {
  const [most, setMost] = useState(SHOWN);
  const box = useRef(null);
  useLayoutEffect(() => {
    if (fromEnd) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);
  const more = text.length > most && html`<button class="small" onClick=${() => setMost(most * 4)}>Show more: ${bytes(text.length - most)} of ${bytes(text.length)} are not shown</button>`;
  return html`${fromEnd && more}<pre class="code" tabindex="0" data-scrolls aria-label=${label} ref=${box}>${ansi(fromEnd ? text.slice(-most) : text.slice(0, most))}</pre>${!fromEnd && more}`;
}

function Approval({ events }) {
  const decided = events.filter(({ kind: name }) => name === "CommandDecided");
  if (!decided.length) return null;
  return html`<section><h3>Approval</h3>${decided.map(({ seq, event }) => html`<p key=${seq} class="decision ${event.decision}">
    <b>${event.decision === "allow" ? "Allowed" : "Denied"}</b> ${BY[event.by] ?? event.by}${event.reason ? `: ${visible(event.reason)}` : ""}</p>`)}</section>`;
}

const kinds = ({ recorded }) => Object.fromEntries(Object.values(recorded).map(({ kind: name, event }) => [name, event]));

const TITLES = { stdout: "Output", stderr: "Error output", output: "Output", content: "Contents", text: "Text", value: "Value" };
const IN_VERDICT = ["exit_code", "timed_out", "truncated", "duration_seconds"];

function Result({ whole, path }) {
  const { result, params } = whole;
  if (result === null || result === undefined) return null;
  if (typeof result === "string") return html`<section><${Titled} title="Result" text=${result} /><${Long} text=${result} fromEnd=${failed(whole)} /></section>`;
  const texts = ["stdout", "stderr", "output", "content", "text", "value"].filter((name) => typeof result[name] === "string" && result[name] !== "");
  const isSaid = (name, value) => texts.includes(name) || isNothing(value) || (IN_VERDICT.includes(name) && value !== true) || (name === "cwd" && value === "/") || params?.[name] === value;
  const rest = Object.fromEntries(Object.entries(result).filter(([name, value]) => !isSaid(name, value)));
  const found = kinds(whole);
  const ran = found.CommandResult ?? found.EvalResult ?? {};
  const shown = (name, title) => {
    const long = html`<${Long} text=${result[name]} label=${title} fromEnd=${failed(whole)} />`;
    if (!result.truncated || !(ran[name]?.kept > result[name].length)) return long;
    return html`<${Kept} key=${path} path=${`${path}/recorded/${name}`} kept=${ran[name].kept} written=${ran[name].bytes} label=${title}>${long}</${Kept}>`;
  };
  return html`${texts.map((name) => html`<section key=${name}><${Titled} title=${TITLES[name] ?? name} text=${result[name]} />${shown(name, TITLES[name] ?? name)}</section>`)}
    ${texts.length === 0 && "stdout" in result && html`<p class="quiet">No output.</p>`}
    <${Rest} values=${rest} />`;
}

function Titled({ title, text }) {
  return html`<div class="titled"><h3>${title}</h3><${Copy} text=${plain(text)} label=${`Copy: ${title}`} /></div>`;
}

function Rest({ values }) {
  const entries = Object.entries(values);
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

function Events({ model, whole }) {
  const [isOpen, setOpen] = useState(false);
  const events = Object.values(whole.recorded).sort((a, b) => a.seq - b.seq);
  return html`<section><details class="events" open=${isOpen} onToggle=${(event) => event.target.matches(".events") && setOpen(event.target.open)}><summary><h3>${count(events.length, "event")}</h3></summary>
    <ul>${isOpen && events.slice(0, 500).map((event) => html`<li key=${event.seq} class=${event.seq === model.at ? "here" : ""}>
      <button class="link" onClick=${() => model.goTo(event.seq)}>${event.seq}</button> ${event.kind} <span class="quiet">${eventSummary(event)}</span>
      <${JsonTree} value=${event.event} open=${false} /></li>`)}</ul></details></section>`;
}
