// What can be done from here. Each dialog says what it does, and the command line that does the same.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { CommandLine, copy, Dialog } from "./dialog.js";
import { Bisect, RunCommand } from "./running.js";
import { ofSession, post } from "./source.js";
import { Terminal } from "./terminal.js";
import { count, quoted, visible } from "./text.js";

export { Bisect };

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
  return html`<div class="actions" ref=${box}>
    <button aria-haspopup="menu" aria-expanded=${open} title="What can be done here (a)" onClick=${() => setOpen(!open)}>Actions</button>
    ${open && html`<div role="menu" aria-label="Actions" onKeyDown=${pressed}>${items.map(([title, key, run]) => html`<button key=${title} role="menuitem" tabindex="-1"
      onClick=${() => { close(); run(); }}>${title}<kbd>${key}</kbd></button>`)}</div>`}
  </div>`;
}

function itemsOf(model) {
  const open = (view) => () => model.dialog({ view });
  const reading = [
    ["Copy a link to here", "y", () => copy(location.href).then(() => model.say("The link is copied."))],
    ["Set the mark", "m", () => model.setMark()],
    ["Go to an event…", ":", open(Jump)],
    ["Compare with…", "d", () => model.show("compare")],
    ["Rerun elsewhere…", "", open(Rerun)],
  ];
  if (!model.writable) return reading;
  return [["Fork from here…", "F", open(Fork)], ["Rewind to here…", "R", open(Rewind)], ["Bisect…", "B", open(Bisect)], ["Merge a child…", "", open(Merge)], ["Run a command…", "", open(RunCommand)], ["Open a terminal…", "", open(Terminal)], ...reading];
}

// Sends once, and keeps what came of it.
export function useSending() {
  const [state, setState] = useState({ busy: false, problem: null, done: null });
  const send = async (work) => {
    setState({ busy: true, problem: null, done: null });
    try {
      setState({ busy: false, problem: null, done: await work() });
    } catch (problem) {
      setState({ busy: false, problem, done: null });
    }
  };
  return [state, send];
}

export function Trouble({ problem }) {
  if (!problem) return null;
  return html`<p class="problem" role="alert">${visible(problem.message)}${problem.hint ? html`<br /><span class="hint">${visible(problem.hint)}</span>` : ""}</p>`;
}

export function Jump({ model, onClose }) {
  const [text, setText] = useState("");
  const submit = (event) => {
    event.preventDefault();
    const number = Number(text);
    const seq = text === "'" ? model.mark : Number.isSafeInteger(number) ? (number < 0 ? model.head + number : number) : null;
    if (seq === null || text === "") return;
    onClose();
    model.goTo(seq);
  };
  return html`<${Dialog} title="Go to an event" onClose=${onClose}><form onSubmit=${submit}>
    <label for="jump">A position from 1 to ${model.head}; -3 is three before the last</label>
    <input id="jump" value=${text} onInput=${(event) => setText(event.target.value)} autofocus autocomplete="off" />
    <div class="row-buttons"><button class="primary" type="submit">Go</button></div></form></${Dialog}>`;
}

export function Search({ model, onClose }) {
  const [text, setText] = useState(model.filters.text);
  const submit = (event) => {
    event.preventDefault();
    onClose();
    model.filter({ text });
  };
  return html`<${Dialog} title="Find calls" onClose=${onClose}><form onSubmit=${submit}>
    <label for="find">A text in a call: its tool, parameters, or message</label>
    <input id="find" value=${text} onInput=${(event) => setText(event.target.value)} autofocus autocomplete="off" />
    <div class="row-buttons"><button class="primary" type="submit">Find</button></div></form></${Dialog}>`;
}

export function Fork({ model, onClose }) {
  const [name, setName] = useState("");
  const [{ busy, problem, done }, send] = useSending();
  const { at, session } = model;
  const words = `foldspace clone ${quoted(session)} --at ${at}${name ? ` --name ${quoted(name)}` : ""}`;
  const fork = () => send(async () => {
    const child = await post(ofSession(session, "/children"), { isolation: "fork", at, ...(name && { name }) });
    model.loadFamily();
    return child;
  });
  return html`<${Dialog} title=${`Fork at event ${at}`} onClose=${onClose}>
    <p>A new session begins with the history and the files as they were at event <b>${at}</b>. This session does not change, and the fork's changes can be merged back.</p>
    ${done ? html`<p role="status">The fork is <a href=${`#/s/${encodeURIComponent(done.name)}`}>${visible(done.name)}</a>.${done.asked ? ` Event ${done.asked} is inside of what was recorded at once, so it begins at ${done.at}.` : ""}</p>`
      : html`<label for="fork-name">Name of the fork</label><input id="fork-name" value=${name} placeholder=${`${session}-1`} onInput=${(event) => setName(event.target.value)} autofocus autocomplete="off" />`}
    <${Trouble} problem=${problem} /><${CommandLine} words=${words} />
    <div class="row-buttons">${done ? html`<button class="primary" onClick=${onClose}>Close</button>` : html`<button class="primary" disabled=${busy} onClick=${fork}>Fork</button><button onClick=${onClose}>Cancel</button>`}</div>
  </${Dialog}>`;
}

const REFUSED = {
  changed_outside: "Files were changed outside of foldspace. They would be recorded first.",
  not_kept: "The contents of some files were not kept. These entries would stay as they are.",
  earlier: "It would remove what was in the directory before the session began.",
};

export function Rewind({ model, onClose }) {
  const { session, head, call } = model;
  const [at, setAt] = useState(model.at);
  const [force, setForce] = useState(false);
  const [plan, look] = useSending();
  const [{ busy, problem, done }, send] = useSending();
  const ask = (dryRun) => post(ofSession(session, "/rewind"), { to: at, dry_run: dryRun, ...(force && { force }) });
  useEffect(() => {
    look(() => ask(true));
  }, [force, at]);
  const isInside = call && at > call.call - 1 && at < (call.finished ?? 0);
  const files = (plan.done?.changes ?? []).filter(({ after, before }) => (after ?? before)?.node !== "directory");
  const refused = plan.problem?.document?.refused ?? plan.done?.refused;
  return html`<${Dialog} title=${`Rewind to event ${at}`} onClose=${onClose}>
    <p>Files and state go back to what they were at event <b>${at}</b> of ${head}. Nothing of the history is lost: the rewind is recorded as new events, and a rewind to ${head} undoes it.</p>
    ${plan.busy && html`<p class="quiet">Looking at what will change…</p>`}
    ${plan.done && html`<p>${files.length ? `${count(files.length, "file")} will change:` : "No file will change."} ${plan.done.slices?.length > 0 && html`<span class="quiet">Slices that go back: ${plan.done.slices.join(", ")}.</span>`}</p>
      <ul class="changed bounded">${files.slice(0, 200).map(({ path, change }) => html`<li key=${path}><span class="letter ${change}">${{ added: "A", changed: "M", removed: "D" }[change]}</span> ${visible(path)}</li>`)}</ul>`}
    ${(refused || plan.problem) && html`<p class="problem">${refused ? REFUSED[refused] ?? refused : visible(plan.problem.message)}${plan.problem?.hint ? html`<br /><span class="hint">${visible(plan.problem.hint)}</span>` : ""}</p>
      ${isInside && html`<div class="row-buttons"><button onClick=${() => setAt(call.call - 1)}>To ${call.call - 1}, before this call</button><button onClick=${() => setAt(call.finished)}>To ${call.finished}, after it</button></div>`}
      ${(refused || force) && html`<label class="check"><input type="checkbox" checked=${force} onChange=${(event) => setForce(event.target.checked)} /> Go on all the same</label>`}`}
    ${done && html`<p role="status">The session is as it was at ${done.to}. A rewind to ${done.from} undoes it.</p>`}
    <${Trouble} problem=${problem} /><${CommandLine} words=${`foldspace rewind ${quoted(session)} --to ${at}${force ? " --force" : ""}`} />
    <div class="row-buttons">${done ? html`<button class="primary" onClick=${onClose}>Close</button>` : html`<button class="primary danger" disabled=${busy || plan.busy || (Boolean(plan.problem) && !force)} onClick=${() => send(() => ask(false))}>Rewind</button><button onClick=${onClose}>Cancel</button>`}</div>
  </${Dialog}>`;
}

export function Merge({ model, onClose }) {
  const children = (model.family?.sessions ?? []).filter(({ parent }) => parent === model.document?.session);
  const [child, setChild] = useState(children[0]?.name ?? "");
  const [side, setSide] = useState("");
  const [plan, look] = useSending();
  const [{ busy, problem, done }, send] = useSending();
  const ask = (dryRun) => post(ofSession(model.session, "/merge"), { child, dry_run: dryRun, ...(side && { [side]: ["/"] }) });
  useEffect(() => {
    if (child) look(() => ask(true));
  }, [child, side]);
  const shown = done ?? plan.done;
  if (!children.length) return html`<${Dialog} title="Merge a child" onClose=${onClose}><p>This session has no children. A fork can be merged back after it changed something.</p></${Dialog}>`;
  return html`<${Dialog} title="Merge a child" onClose=${onClose}>
    <p>What the child changed since it began, or since it was merged last, comes into <b>${visible(model.session)}</b>: files by paths, texts by lines. With a conflict nothing is changed. A rewind to ${model.head} undoes it.</p>
    <label for="merge-child">Child</label><select id="merge-child" value=${child} onChange=${(event) => setChild(event.target.value)}>${children.map(({ name, session }) => html`<option key=${session} value=${name}>${visible(name)}</option>`)}</select>
    <label for="merge-side">Conflicts</label><select id="merge-side" value=${side} onChange=${(event) => setSide(event.target.value)}><option value="">stop the merge</option><option value="theirs">the child's side wins</option><option value="ours">this session's side wins</option></select>
    ${shown && html`<p role="status">${done ? "Done: " : "It will be: "}<b>${shown.outcome}</b>, ${count(shown.merged.length, "path")} merged, ${count(shown.conflicts.length, "conflict")}.</p>
      <ul class="changed bounded">${[...shown.conflicts.map(({ path, kind }) => [path, `conflict: ${kind}`]), ...shown.merged.map(({ path, change }) => [path, change])].slice(0, 200).map(([path, word]) => html`<li key=${path}>${visible(path)} <span class="quiet">${word}</span></li>`)}</ul>`}
    <${Trouble} problem=${problem ?? plan.problem} /><${CommandLine} words=${`foldspace merge ${quoted(child)}${side ? ` --${side} /` : ""}`} />
    <div class="row-buttons">${done ? html`<button class="primary" onClick=${onClose}>Close</button>` : html`<button class="primary" disabled=${busy || plan.done?.outcome !== "merged"} onClick=${() => send(async () => { const merge = await ask(false); model.loadFamily(); return merge; })}>Merge</button><button onClick=${onClose}>Cancel</button>`}</div>
  </${Dialog}>`;
}

function Rerun({ model, onClose }) {
  const session = quoted(model.session);
  return html`<${Dialog} title="Rerun elsewhere" onClose=${onClose}>
    <p>These make the recorded calls again in a fresh workspace, and show every difference. They run at a terminal, as they may ask before commands; this session does not change.</p>
    <${CommandLine} words=${`foldspace rerun ${session}`} />
    <${CommandLine} words=${`foldspace shell ${session} --at ${model.at}`} /></${Dialog}>`;
}
