// One message: its text, and beside it what the calls before it did.

import { html, useState } from "./vendor/preact.js";
import { plain } from "./ansi.js";
import { Copy } from "./dialog.js";
import { useLoaded } from "./loaded.js";
import { wholeMessage } from "./messages.js";
import { RoleIcon, ROLES, usageOf } from "./messagerow.js";
import { Changed } from "./patch.js";
import { get, getKept, ofSession } from "./source.js";
import { bytes, changesOf, clock, count, failed, kind, oneLine, sign, SIGN_WORDS, summary, verdict, visible } from "./text.js";

const SHOWN = 60_000;
const CALLS_MOST = 1000;
const CALLS_LISTED = 100;
const FEW = 10;
const OUTPUTS = 3;
const LINES = 8;
const TITLES = { user: "Prompt", assistant: "Message", reasoning: "Reasoning", system: "System" };
const SPEAKS = ["user", "assistant"];
// Lines of test programs and compilers that name a failure.
const FAILS = /^\s*(FAILED:? |FAIL:? |--- FAIL: |not ok |[✕✗✘×●] |test .* \.\.\. FAILED|error(\[\w+\])?: )|\b[1-9]\d* (tests? )?(failed|failures?)\b/;

export function MessagePane({ model, message }) {
  const { role, seq } = message;
  const [full, setFull] = useState(null);
  const [problem, setProblem] = useState(null);
  const { text: known, cut } = full ?? message;
  const text = known.replaceAll("\r\n", "\n").trim();
  const more = () => wholeMessage(model.session, message).then((found) => setFull(found ?? message), setProblem);
  return html`<article class="call said"><header><div class="ran"><${RoleIcon} role=${role} />
      <h2>${TITLES[role] ?? visible(ROLES[role]?.word ?? role)}</h2><${Copy} text=${text} label="Copy the text" /></div>
    <p class="facts">${message.agent && html`<span class="quiet">${role === "user" ? "to" : "agent"} <b>${visible(message.agent)}</b></span>`}
      ${usageOf(message).map((fact) => html`<span key=${fact}>${fact}</span>`)}
      <span class="quiet">event ${seq}</span>${message.run && html`<span class="quiet">run <code>${visible(message.run)}</code></span>`}
      <time class="quiet" dateTime=${message.time}>${clock(message.time)}</time></p></header>
    ${message.claim && html`<${Claim} model=${model} claim=${message.claim} />`}
    <${Text} text=${text} />
    ${cut && html`<p>${!full && html`<button onClick=${more}>Show the whole text</button> `}<span class="quiet">${full ? "The rest was not stored." : `These are its first ${count(known.length, "character")}.`}</span></p>`}
    ${problem && html`<p class="problem">${visible(problem.message)}</p>`}
    ${role === "assistant" && html`<${Effect} model=${model} message=${message} />`}
  </article>`;
}

// The text, with code between fences in frames.
function Text({ text }) {
  const [most, setMost] = useState(SHOWN);
  const parts = text.slice(0, most).split(/^```.*\n?/m);
  return html`<div class="text">${parts.map((part, number) => part.trim() !== "" && (number % 2
    ? html`<pre key=${number} class="code" tabindex="0" data-scrolls>${visible(part.replace(/\n$/, ""))}</pre>`
    : html`<p key=${number}>${visible(part.trim())}</p>`))}</div>
    ${text.length > most && html`<button class="small" onClick=${() => setMost(most * 4)}>Show more: ${bytes(text.length - most)} of ${bytes(text.length)} are not shown</button>`}`;
}

function Claim({ model, claim }) {
  return html`<div class="problem contradicted" role="note"><p>It says “${visible(claim.sentence)}”, but the last command before it ended with <b>${visible(claim.ended)}</b>:</p>
    <p><button class="link" onClick=${() => model.goTo(claim.call, { isLink: true })}><code>$ ${oneLine(claim.command || claim.tool, 200)}</code></button> <span class="quiet">call ${claim.call}</span></p>
    <${Failure} session=${model.session} call=${claim.call} /></div>`;
}

// The calls since the previous message, or since the prompt. A claim begins where its failed command is shown.
function Effect({ model, message }) {
  const { conversation } = model;
  const previous = conversation.before(message, SPEAKS);
  const prompt = conversation.before(message, ["user"]);
  const [isLong, setLong] = useState(Boolean(message.claim && previous && message.claim.call < previous.seq));
  const from = (isLong ? prompt : previous)?.seq ?? 0;
  const { value, error } = useLoaded(() => callsBetween(model, message, from), [message.seq, from]);
  const ways = [[false, "Since the previous message"], [true, "Since the prompt"]];
  const hasBoth = previous && prompt && prompt.seq < previous.seq;
  if (error) return html`<p class="problem">${visible(error.message)}</p>`;
  if (!value || (!value.calls.length && !hasBoth)) return null;
  return html`<section class="effect"><div class="titled"><h3>What its calls did</h3>
      ${hasBoth && html`<div class="segments" role="group" aria-label="Calls">${ways.map(([way, title]) => html`<button key=${title} aria-pressed=${isLong === way} onClick=${() => setLong(way)}>${title}</button>`)}</div>`}</div>
    ${value.calls.length ? html`<${Did} key=${from} model=${model} message=${message} value=${value} from=${from} />` : html`<p class="quiet">No calls.</p>`}</section>`;
}

async function callsBetween({ session, whole }, { seq, agent }, from) {
  const isOne = Object.keys(whole?.timeline?.agents ?? {}).length < 2;
  const page = await get(ofSession(session, "/calls"), { from: from + 1, limit: CALLS_MOST, agent: isOne ? "" : agent });
  const calls = page.calls.filter(({ call }) => call < seq);
  return { calls, isCut: calls.length === page.calls.length && page.next !== null && page.next < seq };
}

// The calls that failed or changed files; of many, the others on demand.
function Did({ model, message, value: { calls, isCut }, from }) {
  const [isAll, setAll] = useState(calls.length <= FEW);
  const failures = calls.filter(failed);
  const shown = isAll ? calls : calls.filter((call) => failed(call) || call.paths.length > 0).slice(-CALLS_LISTED);
  const paths = [...new Set(calls.flatMap((call) => call.paths))];
  const outputs = new Set(failures.filter(({ call }) => call !== message.claim?.call).slice(-OUTPUTS));
  const facts = [`${isCut ? "the first " : ""}${count(calls.length, "call")}`, paths.length > 0 && `${count(paths.length, "path")} changed`].filter(Boolean).join(", ");
  return html`<p>${facts}, ${failures.length ? html`<b class="bad">${failures.length} failed</b>` : "none failed"}</p>
    <ul>${shown.map((call) => html`<li key=${call.call} class=${kind(call)}><div><span class="sign ${kind(call)}" title=${SIGN_WORDS[sign(call)]} aria-hidden="true">${sign(call)}</span>
        <button class="link" title=${`Call ${call.call}`} onClick=${() => model.goTo(call.call, { isLink: true })}>${summary(call) || visible(call.tool)}</button>
        <span class="counts">${changesOf(call)}</span>${(failed(call) || call.status === "running") && html`<span class="badge ${failed(call) ? "bad" : "running"}">${verdict(call)}</span>`}</div>
        ${outputs.has(call) && html`<${Failure} session=${model.session} call=${call.call} />`}</li>`)}</ul>
    ${shown.length < calls.length && html`<p><button class="small" onClick=${() => setAll(true)}>Show all ${count(calls.length, "call")}</button></p>`}
    ${paths.length > 0 && html`<${Changed} model=${model} call=${{ call: from + 1, finished: message.seq, paths }} only=${paths} />`}`;
}

// The lines of a failed call's output that name failures; without any, its last ones.
function Failure({ session, call }) {
  const { value } = useLoaded(() => getKept(ofSession(session, `/calls/${call}`)), [session, call]);
  if (!value) return null;
  const { result } = value;
  const texts = typeof result === "string" ? [result] : [result?.output, result?.stdout, result?.stderr].filter((text) => typeof text === "string");
  const lines = plain([...texts, value.message].join("\n")).split("\n").filter((line) => line.trim() !== "");
  const named = lines.filter((line) => FAILS.test(line));
  const shown = named.length ? named.slice(0, LINES) : lines.slice(-3);
  if (!shown.length) return null;
  return html`<pre class="code" tabindex="0" data-scrolls aria-label=${`Failures of call ${call}`}>${shown.map((line) => oneLine(line, 300)).join("\n")}${named.length > LINES ? `\n… ${named.length - LINES} more` : ""}</pre>`;
}
