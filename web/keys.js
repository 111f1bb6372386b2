// The keys and the signs.

import { html } from "./vendor/preact.js";
import { Fork, Jump, obstacles, Rewind, runUntil, toBreakpoint, Until } from "./actions.js";
import { Bisect } from "./bisect.js";
import { copy, Dialog } from "./dialog.js";
import { RoleIcon, ROLES } from "./messagerow.js";
import { openSearch } from "./search.js";

const PAGE = 20;

// A key of the terminal's debugger means the same here. The words before `:` or `;` are the same there, as a test checks.
export const KEYS = [
  ["Moving", [
    ["j k, Down Up", "next, previous row: a call or a message"],
    ["l h, Right Left", "one event forward, back"],
    ["J K", "next, previous call"],
    ["PgDn PgUp", "by a page"],
    ["g G, Home End", "first, last; the last follows a running session"],
    [":", "go to an event: 12, -3 (before the last), 'a, or a call"],
    ["] [", "next, previous change of the file"],
    ["/", "search: text in commands, output and files; also Ctrl+Shift+F"],
    ["n N", "next, previous match; without a search, of the last condition, or failure"],
    ["u U", "run until, run back until a condition"],
    ["b B", "set a breakpoint, remove all"],
    ["c C", "continue forward, back to the next breakpoint"],
    ["m '", "set a mark, go to a mark; a letter names it"],
  ]],
  ["Panes", [
    ["1 2 3 4 5", "the pane with this number: call, files, slices, family, compare"],
    ["Enter, Space", "open or close: the events of a call"],
    ["w", "the whole file, or only its changes"],
    ["f", "show only some rows; then f failed, w changed files, / text, p path, t tool, a agent, x all"],
    ["s", "the difference side by side, or inline"],
    ["o", "who wrote each line of the file"],
    ["t", "hide or show the prompts and messages of agents"],
    ["T", "hide or show the timeline"],
  ]],
  ["Doing", [
    ["a", "a menu of actions"],
    ["d", "compare: with another session or position"],
    ["F", "fork the session as it was here"],
    ["R", "rewind the session to here; both ask first"],
    ["x", "bisect: find the change after which a command fails"],
    ["y", "copy the position: as a link"],
    ["r", "check for new events"],
    ["?", "this help"],
    ["Esc", "close, stop, show all rows; leave a field"],
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

// Goes to the next match of a search; without one, to the next event that meets the last condition of `u`, or failure.
function again(model, way) {
  if (model.isSearching && model.search.form.pattern) return model.search.step(way);
  return model.lastUntil ? runUntil(model, model.lastUntil, way).catch((problem) => model.say(problem.message)) : model.nextFailure(way);
}

function clearBreakpoints(model) {
  if (!model.stops.length) return model.say("No breakpoint is set.");
  model.set({ stops: [] });
  model.remember({ replace: true });
  model.say("All breakpoints are cleared.");
}

// Takes the next key as a letter.
let waiting = null;

const letter = (words, take) => (model) => {
  model.say(words);
  waiting = take;
};

const FILTERS = {
  f: (model) => model.filter({ failed: !model.filters.failed }),
  w: (model) => model.filter({ changed: !model.filters.changed }),
  x: (model) => model.clearFilters(),
  "/": () => inFilters("[aria-label^=Text]"), p: () => inFilters("[aria-label^=Path]"),
  t: () => inFilters("[aria-label=Tool]"), a: () => inFilters("[aria-label=Agent]"),
};

const inFilters = (field) => document.querySelector(`.filters ${field}`)?.focus();

function filterBy(model, key) {
  if (!FILTERS[key]) return model.say(`${key} filters nothing.`);
  model.set({ hidesList: false, notice: "" });
  // The timeline may only now be shown.
  requestAnimationFrame(() => FILTERS[key](model));
}

function goToMark(model, name) {
  const at = name === "'" ? model.mark : model.marks.get(name) ?? null;
  return at === null ? model.say(`There is no mark ${name}: m and a letter set one.`) : model.goTo(at);
}

function last(model) {
  model.set({ follows: Boolean(model.live?.running) });
  return model.select(model.list.total - 1, { replace: false });
}

async function refresh(model) {
  await model.list.calls.refresh();
  if (model.whole !== model.list.calls) await model.whole.refresh();
  model.say(`The last event is ${model.head.toLocaleString("en")}.`);
}

const until = (way) => (model) => model.dialog({ view: Until, given: { way } });

const VERBS = {
  next: (model) => model.move(1),
  previous: (model) => model.move(-1),
  failure: (model) => model.nextFailure(1),
  search: openSearch,
  event: (model) => model.stepEvent(1),
  eventBack: (model) => model.stepEvent(-1),
  list: (model) => model.set({ hidesList: !model.hidesList }),
};

export function act(verb, model) {
  return VERBS[verb](model);
}

const BY_KEY = {
  j: VERBS.next, ArrowDown: VERBS.next, J: (model) => model.nextCall(1),
  k: VERBS.previous, ArrowUp: VERBS.previous, K: (model) => model.nextCall(-1),
  l: VERBS.event, ArrowRight: VERBS.event,
  h: VERBS.eventBack, ArrowLeft: VERBS.eventBack,
  PageDown: (model) => model.move(PAGE),
  PageUp: (model) => model.move(-PAGE),
  g: (model) => model.select(0, { replace: false }), Home: (model) => model.select(0, { replace: false }),
  G: last, End: last,
  n: (model) => again(model, 1),
  N: (model) => again(model, -1),
  "]": (model) => model.nextChange(1),
  "[": (model) => model.nextChange(-1),
  u: until(1), U: until(-1), b: until(1),
  B: (model) => clearBreakpoints(model),
  c: (model) => toBreakpoint(model, 1),
  C: (model) => toBreakpoint(model, -1),
  m: letter("Mark this position: press a letter.", (model, name) => model.setMark(name)),
  "'": letter("Go to a mark: press its letter, or ' for the last one.", goToMark),
  ":": (model) => model.dialog({ view: Jump }),
  "/": VERBS.search,
  Enter: (model) => model.set({ open: model.open === model.index ? null : model.index }),
  " ": (model) => model.set({ open: model.open === model.index ? null : model.index }),
  t: (model) => model.filter({ show: model.filters.show === "calls" ? "" : "calls" }),
  T: VERBS.list,
  f: letter("Show only: f failed, w changed files, / text, p path, t tool, a agent, x all.", filterBy),
  w: (model) => view(model, model.fileView === "file" ? "diff" : "file"),
  s: (model) => view(model, model.fileView === "split" ? "diff" : "split"),
  o: (model) => view(model, model.fileView === "blame" ? "diff" : "blame"),
  a: () => document.querySelector(".actions > button")?.click(),
  d: (model) => model.show("compare"),
  F: (model) => model.writable && model.dialog({ view: Fork }),
  R: (model) => change(model, Rewind, "rewind"),
  x: (model) => change(model, Bisect, "bisect"),
  y: (model) => copy(location.href).then(() => model.say("The link is copied.")),
  r: (model) => refresh(model).catch((problem) => model.say(problem.message)),
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
  if (event.key.toLowerCase() === "f" && event.shiftKey && (event.ctrlKey || event.metaKey) && !document.querySelector("dialog[open]") && model.ready) {
    event.preventDefault();
    return openSearch(model);
  }
  if (event.defaultPrevented || isTaken(event) || !model.list) return;
  if (waiting && event.key !== "Shift") {
    const take = waiting;
    waiting = null;
    if (event.key.length !== 1) return model.set({ notice: "" });
    event.preventDefault();
    return take(model, event.key);
  }
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
