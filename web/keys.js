// The keys; as far as possible they are those of the terminal debugger.

import { html } from "./vendor/preact.js";
import { Fork, Jump, obstacles, Rewind, Search, toBreakpoint, Until } from "./actions.js";
import { Bisect } from "./bisect.js";
import { copy, Dialog } from "./dialog.js";

const PAGE = 20;

export const KEYS = [
  ["Moving", [
    ["j k, ↓ ↑", "next, previous call"],
    ["l h, → ←", "one event forward, back"],
    ["PgDn PgUp", "by a page"],
    ["g G, Home End", "first, last"],
    [":", "go to an event: 12, -3 (before the last), ' (the mark)"],
    ["n N", "next, previous failure"],
    ["] [", "next, previous change of the file"],
    ["u U", "forward, back until a condition is met"],
    ["p", "set or remove a breakpoint"],
    ["c C", "forward, back to the next breakpoint"],
    ["m, '", "set the mark, go to it"],
  ]],
  ["Panes", [
    ["1 2 3 4 5", "call, files, slices, family, compare"],
    ["t", "hide or show the timeline"],
    ["Tab, Shift-Tab", "next, previous control"],
    ["Enter, Space", "open or close a call: its events"],
    ["/", "find calls by text"],
    ["f", "show only failed calls, or all again"],
    ["w", "the whole file, or only its changes"],
    ["s", "the difference side by side, or inline"],
    ["b", "who wrote each line of the file"],
  ]],
  ["Doing", [
    ["a", "the menu of actions"],
    ["d", "compare with another session or moment"],
    ["F", "fork the session at this position"],
    ["R", "rewind the session to this position; both ask first"],
    ["B", "bisect: find the change after which a command fails"],
    ["y", "copy a link to this place"],
    ["r", "follow the last call of a running session"],
    ["?", "these keys"],
    ["Esc", "close, stop, leave a field, all calls again"],
  ]],
];

function change(model, view, name) {
  const why = obstacles(model)[name];
  if (model.writable) return why ? model.say(why) : model.dialog({ view });
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
  n: VERBS.failure,
  N: (model) => model.nextFailure(-1),
  "]": (model) => model.nextChange(1),
  "[": (model) => model.nextChange(-1),
  u: until(1), U: until(-1), p: until(1),
  c: (model) => toBreakpoint(model, 1),
  C: (model) => toBreakpoint(model, -1),
  m: (model) => model.setMark(),
  "'": (model) => (model.mark === null ? model.say("No position is marked: m marks this one.") : model.goTo(model.mark)),
  ":": (model) => model.dialog({ view: Jump }),
  "/": (model) => model.dialog({ view: Search }),
  Enter: (model) => model.set({ open: model.open === model.index ? null : model.index }),
  " ": (model) => model.set({ open: model.open === model.index ? null : model.index }),
  t: VERBS.list,
  f: (model) => model.filter({ failed: !model.filters.failed }),
  w: (model) => view(model, model.fileView === "file" ? "diff" : "file"),
  s: (model) => view(model, model.fileView === "split" ? "diff" : "split"),
  b: (model) => view(model, model.fileView === "blame" ? "diff" : "blame"),
  a: () => document.querySelector(".actions > button")?.click(),
  d: (model) => model.show("compare"),
  F: (model) => model.writable && model.dialog({ view: Fork }),
  R: (model) => change(model, Rewind, "rewind"),
  B: (model) => change(model, Bisect, "bisect"),
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
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    ${KEYS.map(([title, keys]) => html`<section key=${title}><h3>${title}</h3><dl class="keys">
      ${keys.map(([key, what]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl></section>`)}
  </${Dialog}>`;
}
