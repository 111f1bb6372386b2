// The actions at the cursor. Each dialog explains its action, and shows the equivalent command line.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { ansi } from "./ansi.js";
import { Bisect } from "./bisect.js";
import { CommandLine, copy, Dialog, Trouble, useSending } from "./dialog.js";
import { Merge } from "./merge.js";
import { Told, useForm, useStream } from "./progress.js";
import { Question } from "./questions.js";
import { openSearch } from "./search.js";
import { get, isExport, ofSession, post } from "./source.js";
import { Terminal } from "./terminal.js";
import { count, duration, quoted, visible } from "./text.js";

export function ActionMenu({ model }) {
  const [open, setOpen] = useState(false);
  const box = useRef(null);
  useEffect(() => {
    if (!open) return undefined;
    box.current.querySelector("[role=menuitem]")?.focus();
    const outside = (event) => !box.current.contains(event.target) && setOpen(false);
    addEventListener("pointerdown", outside);
    return () => removeEventListener("pointerdown", outside);
  }, [open]);
  const pressed = (event) => {
    if (!open) return;
    const items = [...box.current.querySelectorAll("[role=menuitem]")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) items[(items.indexOf(document.activeElement) + step + items.length) % items.length].focus();
    else if (event.key === "Escape" || event.key === "Tab") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const close = () => {
    setOpen(false);
    box.current.querySelector("button").focus();
  };
  const items = itemsOf(model);
  return html`<div class="actions" ref=${box} onKeyDown=${pressed}>
    <button aria-haspopup="menu" aria-expanded=${open} title="Actions (a)" onClick=${() => setOpen(!open)}>Actions</button>
    ${open && html`<div role="menu" aria-label="Actions">${items.map(([title, key, run, why]) => html`<button key=${title} role="menuitem" tabindex="-1" aria-disabled=${Boolean(why)}
      onClick=${() => { if (!why) close(), run(); }}><span>${title}${why && html`<span class="why quiet">${why}</span>`}</span><kbd>${key}</kbd></button>`)}</div>`}
  </div>`;
}

// Returns why an action is impossible now, by its name; empty texts for possible actions.
export function obstacles(model) {
  const hasCalls = (model.whole?.total ?? 0) > 0;
  const hasChildren = !model.family || model.family.sessions.some(({ parent }) => parent === model.document?.session);
  const noCalls = hasCalls ? "" : "This session has no calls yet.";
  return { rewind: noCalls, bisect: noCalls, rerun: noCalls, merge: hasChildren ? "" : "This session has no children: fork it first." };
}

function itemsOf(model) {
  const why = obstacles(model);
  const open = (view) => () => model.dialog({ view });
  const reading = [
    ["Copy a link to here", "y", () => copy(location.href).then(() => model.say("The link is copied."))],
    ["Mark this position", "m", () => model.setMark("a")],
    ["Search…", "/", () => openSearch(model)],
    ["Go to an event…", ":", open(Jump)],
    ["Compare with…", "d", () => model.show("compare")],
    ["Continue until…", "u", open(Until)],
    ["Rerun…", "", open(Rerun), why.rerun],
  ];
  if (!model.writable) return reading;
  return [["Fork from here…", "F", open(Fork)], ["Rewind to here…", "R", open(Rewind), why.rewind], ["Bisect…", "x", open(Bisect), why.bisect], ["Merge a child…", "", open(Merge), why.merge], ["Run a command…", "", open(RunCommand)], ["Open a terminal…", "", open(Terminal)], ...reading];
}

function Ask({ title, label, word, begins = "", take, onClose }) {
  const [text, setText] = useState(begins);
  const submit = (event) => {
    event.preventDefault();
    if (take(text) !== null) onClose();
  };
  return html`<${Dialog} title=${title} onClose=${onClose}><form onSubmit=${submit}>
    <label for="ask">${label}</label><input id="ask" value=${text} onInput=${(event) => setText(event.target.value)} autofocus autocomplete="off" />
    <div class="row-buttons"><button class="primary" type="submit">${word}</button></div></form></${Dialog}>`;
}

export function Jump({ model, onClose }) {
  const take = (text) => {
    const number = Number(text);
    const seq = text.startsWith("'") ? model.marks.get(text.slice(1)) ?? (text === "'" ? model.mark : null) : text !== "" && Number.isSafeInteger(number) ? (number < 0 ? model.head + number : number) : null;
    return seq === null ? null : void model.goTo(seq, { isLink: true });
  };
  return html`<${Ask} title="Go to an event" label=${`A position from 1 to ${model.head}, or the number of a call; -3 is three before the last`} word="Go" take=${take} onClose=${onClose} />`;
}

export function Fork({ model, onClose }) {
  const [name, setName] = useState("");
  const [{ busy, problem, done }, send] = useSending();
  const { at, session } = model;
  const words = `foldspace fork ${quoted(session)} --at @${at}${name ? ` --name ${quoted(name)}` : ""}`;
  const fork = () => send(async () => {
    const child = await post(ofSession(session, "/children"), { isolation: "fork", at: `@${at}`, ...(name && { name }) });
    model.loadFamily();
    return child;
  });
  return html`<${Dialog} title=${`Fork at event ${at}`} onClose=${onClose}>
    <p>A new session begins with the history and the files at event <b>${at}</b>. This session does not change, and the fork's changes can be merged back.</p>
    ${done ? html`<p role="status">The fork is <a href=${`#/s/${encodeURIComponent(done.name)}`}>${visible(done.name)}</a>.${done.asked ? ` Event ${done.asked} is inside a commit: the fork begins at its end, ${done.at}.` : ""}</p>`
      : html`<label for="fork-name">Name of the fork</label><input id="fork-name" value=${name} placeholder=${`${session}-1`} onInput=${(event) => setName(event.target.value)} autofocus autocomplete="off" />`}
    <${Trouble} problem=${problem} /><${CommandLine} words=${words} />
    <div class="row-buttons">${done ? html`<button class="primary" onClick=${onClose}>Close</button>` : html`<button class="primary" disabled=${busy} onClick=${fork}>Fork</button><button onClick=${onClose}>Cancel</button>`}</div>
  </${Dialog}>`;
}

const REFUSED = {
  changed_outside: "Files were changed outside of foldspace. They would be recorded first.",
  not_kept: "The contents of some files were not stored. These entries would stay as they are.",
  earlier: "The rewind would remove files that existed before the session began.",
};

export function Rewind({ model, onClose }) {
  const { session, head, call } = model;
  const [at, setAt] = useState(model.at);
  const [force, setForce] = useState(false);
  const [plan, look] = useSending();
  const [{ busy, problem, done }, send] = useSending();
  const ask = (dryRun) => post(ofSession(session, "/rewind"), { to: `@${at}`, dry_run: dryRun, ...(force && { force }) });
  useEffect(() => {
    look(() => ask(true));
  }, [force, at]);
  const isInside = call && at > call.call - 1 && at < (call.finished ?? 0);
  const files = (plan.done?.changes ?? []).filter(({ after, before }) => (after ?? before)?.node !== "directory");
  const refused = plan.problem?.document?.refused ?? plan.done?.refused;
  return html`<${Dialog} title=${`Rewind to event ${at}`} onClose=${onClose}>
    <p>Files and state return to event <b>${at}</b> of ${head}. No history is lost: the rewind is recorded as new events, and a rewind to ${head} undoes it.</p>
    ${plan.busy && html`<p class="quiet">Checking what will change…</p>`}
    ${plan.done && html`<p>${files.length ? `${count(files.length, "file")} will change:` : "No file will change."} ${plan.done.slices?.length > 0 && html`<span class="quiet">Slices to restore: ${plan.done.slices.join(", ")}.</span>`}</p>
      <ul class="changed bounded">${files.slice(0, 200).map(({ path, change }) => html`<li key=${path}><span class="letter ${change}">${{ added: "A", changed: "M", removed: "D" }[change]}</span> ${visible(path)}</li>`)}</ul>`}
    ${(refused || plan.problem) && html`<p class="problem">${refused ? REFUSED[refused] ?? refused : visible(plan.problem.message)}${plan.problem?.hint ? html`<br /><span class="hint">${visible(plan.problem.hint)}</span>` : ""}</p>
      ${isInside && html`<div class="row-buttons"><button onClick=${() => setAt(call.call - 1)}>To ${call.call - 1}, before this call</button><button onClick=${() => setAt(call.finished)}>To ${call.finished}, after it</button></div>`}
      ${(refused || force) && html`<label class="check"><input type="checkbox" checked=${force} onChange=${(event) => setForce(event.target.checked)} /> Rewind anyway</label>`}`}
    ${done && html`<p role="status">The session is as it was at ${done.to}. A rewind to ${done.from} undoes it.</p>`}
    <${Trouble} problem=${problem} /><${CommandLine} words=${`foldspace rewind ${quoted(session)} --to @${at}${force ? " --force" : ""}`} />
    <div class="row-buttons">${done ? html`<button class="primary" onClick=${onClose}>Close</button>` : html`<button class="primary danger" disabled=${busy || plan.busy || (Boolean(plan.problem) && !force)} onClick=${() => send(() => ask(false))}>Rewind</button><button onClick=${onClose}>Cancel</button>`}</div>
  </${Dialog}>`;
}

// -- A command with its output, and a rerun.

export function RunCommand({ model, onClose }) {
  const [command, setCommand] = useState("");
  const [answered, setAnswered] = useState(new Set());
  const { busy, problem, outcome, events, run, stop } = useStream();
  const start = (event) => {
    event.preventDefault();
    setAnswered(new Set());
    run(ofSession(model.session, "/calls"), { tool: "shell_execute", params: { command } });
  };
  const [unanswered, setUnanswered] = useState(null);
  const answer = async (call, word, reason) => {
    try {
      await post(ofSession(model.session, `/calls/${call}/answer`), reason ? { answer: word, reason } : { answer: word });
      setAnswered(new Set([...answered, call]));
      setUnanswered(null);
    } catch (error) {
      // The call waits for another answer.
      setUnanswered(error);
    }
  };
  const questions = events.filter(({ event, data }) => event === "question" && !answered.has(data.call));
  const output = events.filter(({ event }) => event === "output").map(({ data }) => data.text ?? "").join("");
  return html`<${Dialog} title="Run a command" onClose=${onClose} wide>
    <p>Runs in the present workspace of <b>${visible(model.session)}</b>, as a recorded call. The policy may ask for approval.</p>
    <form onSubmit=${start}><label for="run-command">Command</label>
      <input id="run-command" class="mono" value=${command} onInput=${(event) => setCommand(event.target.value)} required autofocus autocomplete="off" spellcheck="false" />
      <${CommandLine} words=${`foldspace exec ${quoted(model.session)} --sh -- ${quoted(command || "make")}`} />
      <div class="row-buttons"><button class="primary" type="submit" disabled=${busy}>Run</button>${busy ? html`<button type="button" onClick=${stop}>Stop</button>` : html`<button type="button" onClick=${onClose}>Close</button>`}</div></form>
    ${busy && questions.map(({ data }) => html`<${Question} key=${data.call} question=${data} onAnswer=${answer} />`)}
    ${output && html`<pre class="code live-output" tabindex="0" aria-label="Output" data-scrolls>${ansi(output)}</pre>`}
    <${Trouble} problem=${problem ?? unanswered} />
    ${outcome && html`<p role="status">${outcome.status === "ok" ? `Exit code ${outcome.result?.exit_code ?? 0}` : visible(outcome.text ?? outcome.status)}, ${duration(outcome.micros)}.</p>`}
  </${Dialog}>`;
}

export function Rerun({ model, onClose }) {
  const [form, put] = useForm({ until: "", backend: "", image: "", keep: `${model.session}-rerun`, confirmed: false });
  const { busy, problem, outcome, events, run, stop } = useStream();
  const { until, backend, keep, confirmed } = form;
  const image = backend === "container" ? form.image : "";
  const start = (event) => {
    event.preventDefault();
    run(ofSession(model.session, "/rerun"), {
      auto_confirm: confirmed, ...(until && { until: Number(until) }), ...(keep && { keep }), ...(backend && { backend, options: image ? { image } : {} }),
    });
  };
  const given = model.writable ? [["until", until], ["backend", backend], ["image", image], ["keep", keep]].map(([name, value]) => (value ? ` --${name} ${quoted(value)}` : "")).join("") : "";
  return html`<${Dialog} title="Rerun" onClose=${onClose} wide>
    <p>Makes the recorded calls again in a fresh workspace, and shows every difference. This session does not change. Recorded answers about commands apply again, approvals only in a sandbox.</p>
    <form onSubmit=${start}>${model.writable && html`
      <div class="fields"><span><label for="rerun-until">Calls up to event</label><input id="rerun-until" type="number" min="1" value=${until} placeholder="all" onInput=${put("until")} autofocus /></span>
        <span><label for="rerun-backend">Workspace</label><select id="rerun-backend" value=${backend} onChange=${put("backend")}><option value="">as it was recorded</option>${["memory", "host", "container"].map((name) => html`<option key=${name}>${name}</option>`)}</select></span>
        <span><label for="rerun-keep">Keep it as</label><input id="rerun-keep" value=${keep} placeholder="not kept" onInput=${put("keep")} autocomplete="off" /></span>
        ${backend === "container" && html`<span><label for="rerun-image">Image</label><input id="rerun-image" value=${image} placeholder="default" onInput=${put("image")} /></span>`}</div>
      <label class="check"><input type="checkbox" checked=${confirmed} onChange=${put("confirmed")} /> The commands may run: I have read them</label>`}
      <${CommandLine} words=${`foldspace rerun ${quoted(model.session)}${given}${confirmed ? " --yes" : ""}`} />
      <div class="row-buttons">${model.writable && html`<button class="primary" type="submit" disabled=${busy}>Rerun</button>`}<button type="button" onClick=${busy ? stop : onClose}>${busy ? "Stop" : "Close"}</button></div></form>
    <${Told} events=${events} busy=${busy} /><${Trouble} problem=${problem} />
    ${outcome && html`<${Outcome} model=${model} outcome=${outcome} onClose=${onClose} />`}</${Dialog}>`;
}

function Outcome({ model, outcome, onClose }) {
  const { name, differing, files } = outcome;
  const away = (go) => () => {
    onClose();
    go();
  };
  return html`<section><h3>${outcome.same ? "Nothing differs" : "Differences"}</h3>
    <p role="status">${count(outcome.calls, "call")}: ${outcome.diverged} diverged, ${outcome.skipped} skipped. Paths that differ at the end: ${files.length}.${outcome.more ? " The list is incomplete." : ""}</p>
    ${name && html`<p>Kept as <a href=${`#/s/${encodeURIComponent(name)}`}>${visible(name)}</a>. <button onClick=${away(() => model.show("compare", { other: { session: name, at: null } }))}>Compare</button></p>`}
    <ul class="divergences">${differing.map((call) => html`<li key=${call.call}><button class="link" onClick=${away(() => model.goTo(call.call, { isLink: true }))}>call ${call.call}</button> <b>${visible(call.tool)}</b> ${visible(call.summary)}
      ${name && call.rerun && html` <a href=${`#/s/${encodeURIComponent(name)}@${call.rerun}`}>there</a>`} <span class="quiet">${visible(call.reason ?? "")}</span>
      ${call.divergences.map((one, number) => html`<${Difference} key=${number} one=${one} />`)}</li>`)}
      ${files.map((one) => html`<li key=${one.path}><${Difference} one=${{ ...one, differs: "at the end" }} /></li>`)}</ul></section>`;
}

function Difference({ one }) {
  const lines = (sign, value) => (typeof value === "string" ? value : JSON.stringify(value)).replace(/^/gm, sign);
  return html`<details><summary>${one.differs} ${visible(one.path ?? one.at ?? "")}</summary><pre class="code" tabindex="0">${visible(one.patch ?? `${lines("- ", one.was)}\n${lines("+ ", one.is)}`)}</pre></details>`;
}

// -- Runs through the history until a condition is met: the server searches one part per request.

const EXPORTED = "This needs the server, which an exported file does not have.";

// Goes to the next event that meets one of the conditions; returns true if there is one.
export async function runUntil(model, conditions, way) {
  if (isExport) return model.say(EXPORTED);
  if (!conditions.length) return model.say("No breakpoint is set: b sets one.");
  model.run?.abort();
  const run = (model.run = new AbortController());
  let from = model.at;
  try {
    while (from !== null && !model.closed) {
      const found = await get(ofSession(model.session, "/until"), { conditions: conditions.join("\n"), from, backward: way < 0 }, { signal: run.signal });
      if (found.seq) {
        model.say(`Stopped at ${found.seq}: ${visible(found.because)}`);
        await model.goTo(found.seq);
        return true;
      }
      from = found.next;
      model.say(from === null ? `No ${way < 0 ? "earlier" : "later"} event meets the condition.` : `Searched up to ${from}. Esc stops.`);
    }
  } catch (problem) {
    if (problem.name !== "AbortError") throw problem;
    model.say("Stopped.");
  } finally {
    if (model.run === run) model.run = null;
  }
  return false;
}

export function toBreakpoint(model, way) {
  return runUntil(model, model.stops, way).catch((problem) => model.say(problem.message));
}

export function Until({ model, way = 1, onClose }) {
  const [text, setText] = useState("");
  const [{ busy, problem, done }, send] = useSending();
  const { stops, session, at } = model;
  const own = useRef(null);
  useEffect(() => () => own.current?.abort(), []);
  const put = (list) => {
    model.set({ stops: list });
    model.remember({ replace: true });
  };
  const wanted = text.trim() ? [text.trim()] : stops;
  const add = () => send(async () => {
    // Only validates the condition.
    await get(ofSession(session, "/until"), { conditions: text, from: model.head });
    put([...stops, ...wanted]);
    setText("");
  });
  const go = (event) => {
    event.preventDefault();
    send(async () => {
      model.lastUntil = wanted;
      const going = runUntil(model, wanted, Number(event.submitter.value));
      own.current = model.run;
      return (await going) && onClose();
    });
  };
  if (isExport) return html`<${Dialog} title="Continue until" onClose=${onClose}><p>${EXPORTED}</p></${Dialog}>`;
  return html`<${Dialog} title="Continue until" onClose=${onClose}><form onSubmit=${go}>
    <p>Goes to the next event that meets a condition: <code>path GLOB</code>, <code>kind KIND</code>, <code>agent NAME</code>, <code>tool NAME</code>, <code>failed</code>, <code>/REGEX/</code>, or a predicate over a slice, such as <code>Usage.calls > 5</code>.</p>
    <label for="until">Condition</label><input id="until" required=${!stops.length} class="mono" value=${text} placeholder=${stops.length ? "one of the breakpoints" : "failed"} onInput=${(event) => setText(event.target.value)} autofocus autocomplete="off" spellcheck="false" />
    <div class="row-buttons">${[way, -way].map((direction) => html`<button key=${direction} value=${direction} class=${direction === way ? "primary" : ""} disabled=${busy}>${direction > 0 ? "Forward" : "Back"}</button>`)}
      <button type="button" disabled=${busy || !text.trim()} onClick=${add}>Set a breakpoint</button>${busy && html`<button type="button" onClick=${() => model.run?.abort()}>Stop</button>`}</div></form>
    <${Trouble} problem=${problem} /><p role="status" class="quiet">${(busy || done === false) && model.notice}</p>
    ${stops.length > 0 && html`<h3>Breakpoints</h3><ul class="changed bounded">${stops.map((stop, number) => html`<li key=${number}><code class="grow">${visible(stop)}</code><button class="small" aria-label=${`Remove ${visible(stop)}`} onClick=${() => put(stops.toSpliced(number, 1))}>Remove</button></li>`)}</ul><p class="quiet">c continues to the next one, C goes back.</p>`}
    <${CommandLine} words=${`foldspace replay ${quoted(session)} --at ${Math.max(1, at)}${wanted.map((stop) => ` --until ${quoted(stop)}`).join("")}${way < 0 ? " --backward" : ""}`} /></${Dialog}>`;
}
