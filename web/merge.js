// The dialog that merges a child, with a choice for each conflict.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { Conflict } from "./conflict.js";
import { CommandLine, Dialog, Trouble, useSending } from "./dialog.js";
import { LETTERS } from "./patch.js";
import { ofSession, post } from "./source.js";
import { asGlob, count, quoted, visible } from "./text.js";

const SIDES = [["", "Open"], ["ours", "Ours"], ["theirs", "Theirs"]];

export function Merge({ model, onClose }) {
  const children = (model.family?.sessions ?? []).filter(({ parent }) => parent === model.document?.session);
  const [child, setChild] = useState(children[0]?.name ?? "");
  const [choices, setChoices] = useState(new Map());
  const [shownPath, setShown] = useState(null);
  const [plan, look] = useSending();
  const [{ busy, problem, done }, send] = useSending();
  // A choice is of a path, or of a hunk as `PATH:1`. Only globs may end so otherwise.
  const chosen = (side) => [...choices.values()].filter((choice) => choice.side === side).map(({ path, hunk }) => (hunk ? `${path}:${hunk}` : asGlob(path).replace(/:(?=\d+$)/, "[:]")));
  const ask = (dryRun) => post(ofSession(model.session, "/merge"), { child, dry_run: dryRun, patch: true, ours: chosen("ours"), theirs: chosen("theirs") });
  useEffect(() => {
    if (child) look(() => ask(true));
  }, [child, choices]);
  // The last preview stays while the next one is on its way.
  const last = useRef(null);
  if (plan.done) last.current = plan.done;
  const shown = done ?? plan.done ?? (plan.busy ? last.current : null);
  const take = (name) => {
    setChoices(new Map());
    setShown(null);
    last.current = null;
    setChild(name);
  };
  const conflicts = shown?.conflicts ?? [];
  const keyOf = ({ path, hunk }) => (hunk ? `${path}:${hunk}` : path);
  const choose = (wanted) => {
    const next = new Map(choices);
    // A side of the whole file replaces those of its hunks.
    if (!wanted.hunk) for (const [key, { path }] of next) if (path === wanted.path) next.delete(key);
    next.delete(keyOf(wanted));
    if (wanted.side) next.set(keyOf(wanted), wanted);
    setChoices(next);
  };
  const all = (side) => setChoices(new Map(conflicts.map(({ path }) => [path, { path, side }])));
  const sides = (place, title) => html`<span class="segments" role="group" aria-label=${`Side for ${visible(title)}`}>${SIDES.map(([side, word]) => html`<button key=${side} type="button" aria-pressed=${(choices.get(keyOf(place))?.side ?? "") === side} onClick=${() => choose({ ...place, side })}>${word}</button>`)}</span>`;
  const hunksOf = (path) => shown.hunks?.filter((hunk) => hunk.path === path);
  const words = ["ours", "theirs"].flatMap((side) => chosen(side).map((path) => ` --${side} ${quoted(path)}`)).join("");
  if (!children.length) return html`<${Dialog} title="Merge a child" onClose=${onClose}><p>This session has no children. A fork can be merged back after it changed something.</p></${Dialog}>`;
  return html`<${Dialog} title="Merge a child" onClose=${onClose} wide>
    <p>Applies the child's changes since it began, or since its last merge, to <b>${visible(model.session)}</b>: files by path, text by line. With an open conflict nothing changes. A rewind to ${model.head} undoes it.</p>
    <label for="merge-child">Child</label><select id="merge-child" value=${child} onChange=${(event) => take(event.target.value)}>${children.map(({ name, session }) => html`<option key=${session} value=${name}>${visible(name)}</option>`)}</select>
    ${shown && html`<p role="status">${done ? "Done: " : "Preview: "}<${Outcome} merge=${shown} /></p>`}
    ${conflicts.length > 0 && html`<section class="conflicts"><div class="titled"><h3>Conflicts</h3>${!done && conflicts.length > 1 && html`<span class="row-buttons"><button class="small" onClick=${() => all("ours")}>All ours</button><button class="small" onClick=${() => all("theirs")}>All theirs</button></span>`}</div>
      <ul>${conflicts.map(({ path, kind, resolved }) => html`<li key=${path}><div class="conflict-head">
        <button class="link" aria-expanded=${shownPath === path} onClick=${() => setShown(shownPath === path ? null : path)}>${visible(path)}</button> <span class="quiet">${kind}</span><span class="grow"></span>
        ${done ? resolved : sides({ path }, path)}</div>
        ${shownPath === path && html`<${Conflict} path=${path} places=${[[model.session, done ? model.at : model.head], [shown.child, shown.base], [shown.child, shown.child_at]]}
          hunks=${hunksOf(path)?.length ? hunksOf(path) : null} choice=${!done && hunksOf(path)?.length > 1 ? (hunk) => html`<div class="conflict-head"><span class="quiet">Part ${hunk}</span>${sides({ path, hunk }, `part ${hunk} of ${path}`)}</div>` : null} />`}</li>`)}</ul>
      <p class="quiet">Ours is this session, theirs is the child. A side of a file holds for its parts without a side.</p></section>`}
    ${shown?.merged.length > 0 && html`<ul class="changed bounded">${shown.merged.slice(0, 200).map(({ path, change }) => html`<li key=${path}><span class="letter ${change}" title=${change}>${LETTERS[change] ?? "·"}</span> ${visible(path)}</li>`)}</ul>`}
    <${Trouble} problem=${problem ?? plan.problem} /><${CommandLine} words=${`foldspace merge ${quoted(child)}${words}`} />
    <div class="row-buttons">${done ? html`<button class="primary" onClick=${onClose}>Close</button>` : html`<button class="primary" disabled=${busy || plan.busy || plan.done?.outcome !== "merged"} onClick=${() => send(async () => { const merge = await ask(false); model.loadFamily(); return merge; })}>Merge</button><button onClick=${onClose}>Cancel</button>`}</div>
  </${Dialog}>`;
}

function Outcome({ merge }) {
  const open = merge.conflicts.filter(({ resolved }) => !resolved).length;
  if (merge.outcome === "nothing") return html`<b>nothing to merge</b>, the child changed nothing since.`;
  const paths = `${count(merge.merged.length, "path")} ${merge.dry_run ? "to merge" : "merged"}`;
  return open ? html`<b>${count(open, "open conflict")}</b>: choose a side for ${open === 1 ? "it" : "each"}.` : html`<b>${paths}</b>.`;
}
