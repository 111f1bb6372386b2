// The dialog that finds the change after which a command fails.

import { html } from "./vendor/preact.js";
import { CommandLine, Dialog, Trouble } from "./dialog.js";
import { rowsOfPatch } from "./lines.js";
import { LETTERS, Patch } from "./patch.js";
import { Told, useForm, useStream } from "./progress.js";
import { ofSession } from "./source.js";
import { commandOf, count, duration, oneLine, quoted, visible } from "./text.js";

const CHANGES = 20;

export function Bisect({ model, onClose }) {
  const [form, put] = useForm({ command: "", good: "", bad: String(model.at), jobs: "1", confirmed: false });
  const { busy, problem, outcome, events, run, stop } = useStream();
  const start = (event) => {
    event.preventDefault();
    const body = { command: form.command, jobs: Number(form.jobs) || 1, bad: Number(form.bad) || undefined, auto_confirm: form.confirmed };
    if (form.good !== "") body.good = Number(form.good);
    run(ofSession(model.session, "/bisect"), body);
  };
  const words = `foldspace bisect ${quoted(model.session)}${form.good === "" ? "" : ` --good ${form.good}`}${form.bad ? ` --bad ${form.bad}` : ""} --jobs ${form.jobs || 1} --sh -- ${quoted(form.command || "make test")}`;
  return html`<${Dialog} title="Bisect" onClose=${onClose} wide>
    <p>Finds the first change after which a command fails. It runs in throw-away copies of the workspace, so the session does not change.</p>
    <form onSubmit=${start}>
      <label for="bisect-command">Command, for /bin/sh: exit code 0 is good, 125 skips, others are bad</label>
      <input id="bisect-command" class="mono" value=${form.command} onInput=${put("command")} placeholder="make test" required autofocus autocomplete="off" spellcheck="false" />
      <div class="fields"><span><label for="bisect-good">Good at</label><input id="bisect-good" type="number" min="0" value=${form.good} placeholder="first" onInput=${put("good")} /></span>
        <span><label for="bisect-bad">Bad at</label><input id="bisect-bad" type="number" min="1" value=${form.bad} onInput=${put("bad")} /></span>
        <span><label for="bisect-jobs">Parallel</label><input id="bisect-jobs" type="number" min="1" max="64" value=${form.jobs} onInput=${put("jobs")} /></span></div>
      <label class="check"><input type="checkbox" checked=${form.confirmed} onChange=${put("confirmed")} /> The command may run: I have read it</label>
      <${CommandLine} words=${words} />
      <div class="row-buttons"><button class="primary" type="submit" disabled=${busy}>Find it</button>${busy ? html`<button type="button" onClick=${stop}>Stop</button>` : html`<button type="button" onClick=${onClose}>Close</button>`}</div>
    </form>
    ${!outcome && html`<${Told} events=${events} busy=${busy} />`}
    <${Trouble} problem=${problem} />
    ${problem?.kind === "refused" && !form.confirmed && html`<p class="hint">A command that nothing allows runs if you tick <b>The command may run</b>.</p>`}
    ${outcome && html`<${Found} model=${model} outcome=${outcome} onClose=${onClose} />`}
  </${Dialog}>`;
}

function Found({ model, outcome, onClose }) {
  const probes = [...(outcome.checks ?? []), ...(outcome.probes ?? [])].sort((a, b) => a.seq - b.seq);
  const lead = (seq) => {
    onClose();
    model.goTo(seq, { isLink: true });
  };
  const Position = ({ seq }) => html`<button class="link" onClick=${() => lead(seq)}>${seq}</button>`;
  return html`<section class="found-change"><h3>${outcome.bad.length === 1 ? "The first bad change" : `The first bad change is one of ${outcome.bad.length}`}</h3>
    ${outcome.bad.slice(0, CHANGES).map((bad) => html`<${Bad} key=${bad.seq} bad=${bad} onGo=${lead} />`)}
    ${outcome.bad.length > CHANGES && html`<p class="quiet">and ${count(outcome.bad.length - CHANGES, "change")} more</p>`}
    <p class="quiet">Event <${Position} seq=${outcome.good} /> is good.${outcome.several ? " A later position was good, too: there are several first bad changes." : ""}</p>
    <details><summary>${count(probes.length, "probe")}</summary><table class="probes"><thead><tr><th>Event</th><th>Verdict</th><th>Exit</th><th>Took</th></tr></thead>
    <tbody>${probes.map((probe) => html`<tr key=${`${probe.seq}${probe.micros}`}><td><${Position} seq=${probe.seq} /></td><td class=${probe.verdict}>${probe.verdict}</td><td>${probe.exit_code}</td><td>${duration(probe.micros)}</td></tr>`)}</tbody></table></details></section>`;
}

// The call, its agent, and what it changed.
function Bad({ bad, onGo }) {
  const { seq, agent, call, changes } = bad;
  const { tool, params } = call?.event ?? {};
  const command = call && commandOf({ params });
  const subject = params?.file_path ?? params?.path;
  const title = command ? oneLine(command.title) : `${tool ?? ""} ${typeof subject === "string" ? oneLine(subject) : ""}`.trim();
  return html`<p><button class="link" onClick=${() => onGo(call ? call.call : seq)}>${call ? `call ${call.call}` : `event ${seq}`}</button>
      ${call ? html` <code>${command ? "$ " : ""}${visible(title)}</code>` : " a change from outside of calls"}${agent && html` <span class="quiet">by <b>${visible(agent)}</b></span>`}</p>
    ${changes.map((change) => html`<div key=${change.path} class="file-change"><header><span class="letter ${change.change}" title=${change.change}>${LETTERS[change.change]}</span><code>${visible(change.path)}</code> <span class="quiet">${change.binary ? "not text" : `+${change.lines_added} -${change.lines_removed}`}</span></header>
      ${!change.binary && html`<${Patch} hunks=${rowsOfPatch(change.patch)} label=${`Changes of ${change.path}`} />`}</div>`)}`;
}
