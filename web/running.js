// Dialogs in which something runs: a bisection with its probes, a command with its output.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { ansi } from "./ansi.js";
import { CommandLine, Dialog } from "./dialog.js";
import { Question } from "./questions.js";
import { ofSession, post, postStreamed } from "./source.js";
import { count, duration, quoted, visible } from "./text.js";

function useStream() {
  const [state, setState] = useState({ busy: false, problem: null, outcome: null });
  const [events, setEvents] = useState([]);
  const abort = useRef(null);
  useEffect(() => () => abort.current?.abort(), []);
  const run = async (path, body) => {
    abort.current = new AbortController();
    setEvents([]);
    setState({ busy: true, problem: null, outcome: null });
    try {
      const outcome = await postStreamed(path, body, (event, data) => setEvents((known) => [...known, { event, data }].slice(-2000)), abort.current.signal);
      setState({ busy: false, problem: null, outcome });
    } catch (problem) {
      setState({ busy: false, problem: problem.name === "AbortError" ? null : problem, outcome: null });
    }
  };
  return { ...state, events, run, stop: () => abort.current?.abort() };
}

function Trouble({ problem }) {
  return problem && html`<p class="problem" role="alert">${visible(problem.message)}${problem.hint ? html`<br /><span class="hint">${visible(problem.hint)}</span>` : ""}</p>`;
}

export function Bisect({ model, onClose }) {
  const [form, setForm] = useState({ command: "", good: "", bad: String(model.at), jobs: "1", confirmed: false });
  const { busy, problem, outcome, events, run, stop } = useStream();
  const put = (name) => (event) => setForm({ ...form, [name]: event.target.type === "checkbox" ? event.target.checked : event.target.value });
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
      <label for="bisect-command">Command, for /bin/sh: 0 is good, 125 can't tell, others are bad</label>
      <input id="bisect-command" class="mono" value=${form.command} onInput=${put("command")} placeholder="make test" required autofocus autocomplete="off" spellcheck="false" />
      <div class="fields"><span><label for="bisect-good">Good at</label><input id="bisect-good" type="number" min="0" value=${form.good} placeholder="first" onInput=${put("good")} /></span>
        <span><label for="bisect-bad">Bad at</label><input id="bisect-bad" type="number" min="1" value=${form.bad} onInput=${put("bad")} /></span>
        <span><label for="bisect-jobs">At once</label><input id="bisect-jobs" type="number" min="1" max="64" value=${form.jobs} onInput=${put("jobs")} /></span></div>
      <label class="check"><input type="checkbox" checked=${form.confirmed} onChange=${put("confirmed")} /> The command may run: I have read it</label>
      <${CommandLine} words=${words} />
      <div class="row-buttons"><button class="primary" type="submit" disabled=${busy}>Find it</button>${busy ? html`<button type="button" onClick=${stop}>Stop</button>` : html`<button type="button" onClick=${onClose}>Close</button>`}</div>
    </form>
    <div role="log" aria-label="Progress">${events.filter(({ event }) => event === "progress").map(({ data }, number) => html`<p key=${number} class="quiet progress">${visible(data.text ?? "")}</p>`)}
      ${busy && html`<p class="quiet">Running…</p>`}</div>
    <${Trouble} problem=${problem} />
    ${outcome && html`<${Found} model=${model} outcome=${outcome} onClose=${onClose} />`}
  </${Dialog}>`;
}

function Found({ model, outcome, onClose }) {
  const probes = [...(outcome.checks ?? []), ...(outcome.probes ?? [])].sort((a, b) => a.seq - b.seq);
  const lead = (seq) => {
    onClose();
    model.goTo(seq);
  };
  return html`<section><h3>Found</h3>
    ${outcome.first_bad ? html`<p>The first bad change is <button class="link" onClick=${() => lead(outcome.first_bad)}>event ${outcome.first_bad}</button>; ${outcome.good} is good.</p>` : html`<p>The first bad change is one of ${count(outcome.bad.length, "change")} after ${outcome.good}.</p>`}
    <table class="probes"><thead><tr><th>Event</th><th>Verdict</th><th>Exit</th><th>Took</th></tr></thead>
    <tbody>${probes.map((probe) => html`<tr key=${`${probe.seq}${probe.micros}`}><td><button class="link" onClick=${() => lead(probe.seq)}>${probe.seq}</button></td><td class=${probe.verdict}>${probe.verdict}</td><td>${probe.exit_code}</td><td>${duration(probe.micros)}</td></tr>`)}</tbody></table></section>`;
}

export function RunCommand({ model, onClose }) {
  const [command, setCommand] = useState("");
  const [answered, setAnswered] = useState(new Set());
  const { busy, problem, outcome, events, run, stop } = useStream();
  const start = (event) => {
    event.preventDefault();
    setAnswered(new Set());
    run(ofSession(model.session, "/calls"), { tool: "shell_execute", params: { command } });
  };
  const answer = async (call, word, reason) => {
    setAnswered(new Set([...answered, call]));
    await post(ofSession(model.session, `/calls/${call}/answer`), reason ? { answer: word, reason } : { answer: word });
  };
  const questions = events.filter(({ event, data }) => event === "question" && !answered.has(data.call));
  const output = events.filter(({ event }) => event === "output").map(({ data }) => data.text ?? "").join("");
  return html`<${Dialog} title="Run a command" onClose=${onClose} wide>
    <p>Runs in the workspace of <b>${visible(model.session)}</b> as it is now, as a call that is recorded. The policy may ask.</p>
    <form onSubmit=${start}><label for="run-command">Command</label>
      <input id="run-command" class="mono" value=${command} onInput=${(event) => setCommand(event.target.value)} required autofocus autocomplete="off" spellcheck="false" />
      <${CommandLine} words=${`foldspace exec ${quoted(model.session)} --sh -- ${quoted(command || "make")}`} />
      <div class="row-buttons"><button class="primary" type="submit" disabled=${busy}>Run</button>${busy ? html`<button type="button" onClick=${stop}>Stop</button>` : html`<button type="button" onClick=${onClose}>Close</button>`}</div></form>
    ${busy && questions.map(({ data }) => html`<${Question} key=${data.call} question=${data} onAnswer=${answer} />`)}
    ${output && html`<pre class="code live-output" tabindex="0" aria-label="Output" data-scrolls>${ansi(output)}</pre>`}
    <${Trouble} problem=${problem} />
    ${outcome && html`<p role="status">${outcome.status === "ok" ? `Exit code ${outcome.result?.exit_code ?? 0}` : visible(outcome.text ?? outcome.status)}, ${duration(outcome.micros)}.</p>`}
  </${Dialog}>`;
}
