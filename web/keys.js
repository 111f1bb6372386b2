// The keys and the signs.

import { html } from "./vendor/preact.js";
import { Fork, Jump, obstacles, Rewind, runUntil, Search, toBreakpoint, Until } from "./actions.js";
import { Bisect } from "./bisect.js";
import { copy, Dialog } from "./dialog.js";
import { RoleIcon, ROLES } from "./messagerow.js";

const PAGE = 20;

// Keys of the terminal's debugger mean the same here, as far as both have the action.
export const KEYS = [
  ["Moving", [
    ["j k, ↓ ↑", "next, previous call"],
    ["l h, → ←", "one event forward, back"],
    ["PgDn PgUp", "by a page"],
    ["g G, Home End", "first, last"],
    [":", "go to an event or call: 12, -3 (before the last)"],
    ["] [", "next, previous change of the file"],
    ["u U", "forward, back until a condition is met"],
    ["n N", "the last condition again, or the next failure"],
    ["b B", "set a breakpoint, clear all"],
    ["c C", "forward, back to the next breakpoint"],
    ["m, '", "pin this position, go to the pinned one"],
  ]],
  ["Panes", [
    ["1 2 3 4 5", "call, files, slices, family, compare"],
    ["Tab, Shift-Tab", "next, previous control"],
    ["Enter, Space", "open or close a call: its events"],
    ["/", "find calls and messages by text"],
    ["w", "the whole file, or only its changes"],
    ["f", "show only failed calls, or all again"],
    ["s", "the difference side by side, or inline"],
    ["o", "who wrote each line of the file"],
    ["t", "hide or show the timeline"],
  ]],
  ["Doing", [
    ["a", "the menu of actions"],
    ["d", "compare with another session or position"],
    ["F", "fork the session at this position"],
    ["R", "rewind the session to this position; both ask first"],
    ["x", "bisect: find the change after which a command fails"],
    ["y", "copy a link to this place"],
    ["r", "follow the last call of a running session"],
    ["?", "these keys"],
    ["Esc", "close, stop, leave a field, all calls again"],
  ]],
];

const LEGEND = [
  ["$ > * ·", "a call that ran a command, ran code, wrote files, only read"],
  [Object.keys(ROLES).map((role) => html`<${RoleIcon} key=${role} role=${role} /> `), "a prompt, an agent's message, its reasoning, a system message"],
  ["teal", "files changed"],
  ["red", "the call failed, or its command did"],
  ["but exit 1", "a message that claims success after this end of a command"],
  ["+1 ~2 -1", "entries added, changed, removed"],
  ["~2?", "changes that another call or program may have made"],
  ["A M D •", "added, changed, removed; changes inside of a directory"],
  ["bars", "in the strip: the mean duration; below a row's duration: its length, on a logarithmic scale"],
  ["dashes", "in the strip: what was there at the start, or time without calls"],
];

function change(model, view, name) {
  const why = obstacles(model)[name];
  if (model.writable) return why ? model.say(why) : model.dialog({ view });
}

// Runs to the next event that meets the last condition of `u`; without one, to the next failure.
function again(model, way) {
  return model.lastUntil ? runUntil(model, model.lastUntil, way).catch((problem) => model.say(problem.message)) : model.nextFailure(way);
}

function clearBreakpoints(model) {
  if (!model.stops.length) return model.say("No breakpoint is set.");
  model.set({ stops: [] });
  model.remember({ replace: true });
  model.say("All breakpoints are cleared.");
}

const until = (way) => (model) => model.dialog({ view: Until, given: { way } });

const VERBS = {
  next: (model) => model.move(1),
  previous: (model) => model.move(-1),
  failure: (model) => model.nextFailure(1),
  event: (model) => model.stepEvent(1),
  eventBack: (model) => model.stepEvent(-1),
  list: (model) => model.set({ hidesList: !model.hidesList }),
};

export function act(verb, model) {
  return VERBS[verb](model);
}

const BY_KEY = {
  j: VERBS.next, ArrowDown: VERBS.next, J: VERBS.next,
  k: VERBS.previous, ArrowUp: VERBS.previous, K: VERBS.previous,
  l: VERBS.event, ArrowRight: VERBS.event,
  h: VERBS.eventBack, ArrowLeft: VERBS.eventBack,
  PageDown: (model) => model.move(PAGE),
  PageUp: (model) => model.move(-PAGE),
  g: (model) => model.select(0, { replace: false }), Home: (model) => model.select(0, { replace: false }),
  G: (model) => model.select(model.list.total - 1, { replace: false }), End: (model) => model.select(model.list.total - 1, { replace: false }),
  n: (model) => again(model, 1),
  N: (model) => again(model, -1),
  "]": (model) => model.nextChange(1),
  "[": (model) => model.nextChange(-1),
  u: until(1), U: until(-1), b: until(1),
  B: (model) => clearBreakpoints(model),
  c: (model) => toBreakpoint(model, 1),
  C: (model) => toBreakpoint(model, -1),
  m: (model) => model.setMark(),
  "'": (model) => (model.mark === null ? model.say("No position is pinned: m pins this one.") : model.goTo(model.mark)),
  ":": (model) => model.dialog({ view: Jump }),
  "/": (model) => model.dialog({ view: Search }),
  Enter: (model) => model.set({ open: model.open === model.index ? null : model.index }),
  " ": (model) => model.set({ open: model.open === model.index ? null : model.index }),
  t: VERBS.list,
  f: (model) => model.filter({ failed: !model.filters.failed }),
  w: (model) => view(model, model.fileView === "file" ? "diff" : "file"),
  s: (model) => view(model, model.fileView === "split" ? "diff" : "split"),
  o: (model) => view(model, model.fileView === "blame" ? "diff" : "blame"),
  a: () => document.querySelector(".actions > button")?.click(),
  d: (model) => model.show("compare"),
  F: (model) => model.writable && model.dialog({ view: Fork }),
  R: (model) => change(model, Rewind, "rewind"),
  x: (model) => change(model, Bisect, "bisect"),
  y: (model) => copy(location.href).then(() => model.say("The link is copied.")),
  r: (model) => {
    model.set({ follows: !model.follows });
    if (model.follows) model.select(model.list.total - 1);
  },
  "?": (model) => model.dialog({ kind: "keys" }),
  1: (model) => model.show("call"), 2: (model) => model.show("files"), 3: (model) => model.show("slices"),
  4: (model) => model.show("family"), 5: (model) => model.show("compare"),
  Escape: (model) => (model.run ? model.run.abort() : model.open !== null ? model.set({ open: null }) : model.list.isFiltered ? model.clearFilters() : null),
};

function view(model, name) {
  model.set({ fileView: name });
  model.show("files");
}

// A focused field, menu, tree or editor handles its own keys.
function isTaken(event) {
  const { target, key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey) return true;
  if (document.querySelector("dialog[open]")) return true;
  if (target.closest?.("input, textarea, select, [role=menu]")) return key !== "Escape" || Boolean(target.closest("[role=menu]"));
  const moves = /^Arrow|^Page|^Home$|^End$|^Enter$|^ $/.test(key);
  if (!moves) return false;
  return Boolean(target.closest?.("button, a, summary, [role=tree], [role=tablist], [data-scrolls]"));
}

export function typed(event, model) {
  if (event.defaultPrevented || isTaken(event) || !model.list) return;
  if (event.key === "Escape" && event.target.closest?.("input, select")) return event.target.blur();
  const verb = BY_KEY[event.key];
  if (!verb) return;
  event.preventDefault();
  verb(model);
}

export function KeyHelp({ onClose }) {
  const list = (title, rows) => html`<section key=${title}><h3>${title}</h3><dl class="keys">
    ${rows.map(([key, what]) => html`<div key=${what}><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl></section>`;
  return html`<${Dialog} title="Keys and signs" onClose=${onClose} wide><div class="key-columns">
    ${KEYS.map(([title, keys]) => list(title, keys))}${list("Signs", LEGEND)}</div></${Dialog}>`;
}
