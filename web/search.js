// The search panel: lines in parameters, output and files of the whole history, grouped by call.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { plain } from "./ansi.js";
import { CommandLine } from "./dialog.js";
import { get, isExport, ofSession } from "./source.js";
import { count, oneLine, quoted, summary, visible } from "./text.js";
import { VirtualRows } from "./virtual.js";

const PAGE = 500;
const MOST = 20_000;
const PAUSE = 300;
const ROW = 24;
const APPEARS = 4000;
const PLACES = [["", "Everywhere"], ["parameters", "Parameters"], ["output", "Output"], ["file", "Files"], ["event", "Other events"]];

// A search, whose pages arrive one after the other.
class HistoryFinder {
  constructor(model) {
    this.model = model;
    this.form = { pattern: "", regex: false, exact: false, place: "" };
    this.begin();
  }

  begin() {
    this.abort?.abort();
    Object.assign(this, { rows: [], hits: 0, calls: 0, groups: new Map(), searched: 0, head: this.model.head, next: 1, busy: false, problem: null, isCut: false, active: -1 });
    this.outside = null;
  }

  get pattern() {
    return this.form.regex ? this.form.pattern : this.form.pattern.replace(/[\\^$.*+?()[\]{}|#&~-]/g, "\\$&");
  }

  take(changes) {
    this.form = { ...this.form, ...changes };
    this.begin();
    if (this.form.pattern) this.run();
    else this.model.emit();
  }

  stop() {
    this.abort?.abort();
    this.busy = false;
    this.model.emit();
  }

  // Reads pages up to the end, or until there are enough matches.
  async run() {
    const { exact, place } = this.form;
    const abort = (this.abort = new AbortController());
    const most = this.hits + MOST;
    this.busy = true;
    this.model.emit();
    try {
      while (this.next !== null && this.hits < most) {
        const asked = { pattern: this.pattern, ignore_case: !exact, in: place, from: this.next, limit: PAGE };
        const page = await get(ofSession(this.model.session, "/search"), asked, { signal: abort.signal });
        if (abort.signal.aborted) return;
        page.hits.forEach((hit) => this.add(hit));
        Object.assign(this, { next: page.next, searched: page.searched, head: page.head, isCut: this.isCut || page.more });
        this.model.emit();
      }
    } catch (problem) {
      if (abort.signal.aborted) return;
      this.problem = problem;
    }
    this.busy = false;
    this.model.emit();
  }

  // Hits of a call follow its head, also if another call's hits are between them.
  add(hit) {
    const group = hit.call === null ? this.outside : this.groups.get(hit.call);
    this.hits += 1;
    if (group) {
      group.hits += 1;
      this.rows.push({ hit, group });
      return;
    }
    const begun = { call: hit.call, seq: hit.seq, hits: 1, title: null };
    if (hit.call === null) this.outside = begun;
    else this.groups.set(hit.call, begun);
    this.calls += hit.call === null ? 0 : 1;
    this.rows.push({ group: begun }, { hit, group: begun });
  }

  // Rows of a group are adjacent.
  get ordered() {
    if (this.sorted?.rows === this.rows && this.sorted.length === this.rows.length) return this.sorted.list;
    const lists = Map.groupBy(this.rows, ({ group }) => group);
    this.sorted = { rows: this.rows, length: this.rows.length, list: [...lists.values()].flat() };
    return this.sorted.list;
  }

  // Loads the title of a group once its row is visible.
  titleOf(group) {
    if (group.call === null) return "Outside of calls";
    if (group.title === null) {
      group.title = "";
      const { whole } = this.model;
      whole.indexOf(group.call).then((index) => whole.ensure(index)).then((call) => {
        if (call?.call === group.call) group.title = commandOrTool(call);
        this.model.emit();
      }, () => {});
    }
    return group.title;
  }

  // Goes to the next or previous match.
  step(way) {
    const rows = this.ordered;
    let at = this.active + way;
    while (at >= 0 && at < rows.length && !rows[at].hit) at += way;
    if (!rows[at]) return this.model.say(way > 0 ? "No later match." : "No earlier match.");
    this.go(at);
  }

  async go(at) {
    const { model } = this;
    const { hit, group } = this.ordered[at];
    this.active = at;
    model.follows = false;
    if (!hit || hit.place !== "file") {
      model.show("call");
      await model.goTo(hit && group.call === null ? hit.seq : group.call ?? group.seq, { isLink: true });
      if (hit) reveal(hit, model);
      return;
    }
    model.set({ spot: { path: hit.path, at: hit.seq, line: hit.line_number } });
    model.show("files", { path: hit.path, fileView: "file" });
    await model.goTo(hit.seq);
  }
}

const commandOrTool = (call) => (call.params?.command === undefined ? `${visible(call.tool)} ${summary(call)}` : summary(call));

export function openSearch(model) {
  model.set({ search: model.search ?? new HistoryFinder(model), isSearching: true });
  document.querySelector(".search-panel input")?.select();
}

// Marks the matches of a hit in the pane of the call, once it shows them.
function reveal(hit, model) {
  const wanted = [...new Set(pieces(hit).filter(({ isMatch }) => isMatch).map(({ text }) => visible(plain(text))))];
  const line = visible(plain(hit.line.replace(/^…|…$/g, "")));
  const end = performance.now() + APPEARS;
  const look = () => {
    const ranges = rangesOf(document.getElementById("pane"), line, wanted);
    if (ranges.length) return show(ranges);
    if (performance.now() < end) return setTimeout(look, 50);
    model.say("The match is in a part that the page does not show: see the events of the call.");
  };
  look();
}

function show(ranges) {
  globalThis.CSS?.highlights?.set("found", new Highlight(...ranges));
  const element = ranges[0].startContainer.parentElement;
  for (let box = element.closest("[data-scrolls], #pane"); box; box = box.parentElement?.closest("[data-scrolls], #pane")) {
    const [{ top }, { top: own }] = [ranges[0].getBoundingClientRect(), box.getBoundingClientRect()];
    if (top < own || top > own + box.clientHeight - ROW) box.scrollTop += top - own - box.clientHeight / 3;
  }
}

// Returns the ranges of the matches, those of the line first; a text may be in several nodes.
function rangesOf(pane, line, wanted) {
  const nodes = [];
  let text = "";
  const walker = document.createTreeWalker(pane, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    nodes.push([text.length, walker.currentNode]);
    text += walker.currentNode.data;
  }
  const at = text.indexOf(line);
  const begin = Math.max(0, at);
  const place = (offset) => {
    const [start, node] = nodes.findLast(([from]) => from <= offset);
    return [node, Math.min(offset - start, node.length)];
  };
  const found = wanted.filter((word) => word !== "").flatMap((word) => {
    const from = text.indexOf(word, begin);
    if (from < 0 || (at >= 0 && from > at + line.length)) return [];
    const range = document.createRange();
    range.setStart(...place(from));
    range.setEnd(...place(from + word.length - 1));
    range.setEnd(range.endContainer, Math.min(range.endOffset + 1, range.endContainer.length));
    return [range];
  });
  return found;
}

// Returns the pieces of a line: `{ text, isMatch }`. The server counts characters, not UTF-16 units.
export function pieces({ line, ranges }) {
  const letters = [...line];
  const list = [];
  let at = 0;
  for (const [start, end] of ranges) {
    list.push({ text: letters.slice(at, start).join(""), isMatch: false }, { text: letters.slice(start, end).join(""), isMatch: true });
    at = end;
  }
  list.push({ text: letters.slice(at).join(""), isMatch: false });
  return list.filter(({ text }) => text !== "");
}

// Returns a text with the part marked that a filter looks for.
export function markedText(text, wanted) {
  const at = wanted ? text.toLowerCase().indexOf(wanted.toLowerCase()) : -1;
  if (at < 0) return text;
  return html`${text.slice(0, at)}<mark>${text.slice(at, at + wanted.length)}</mark>${text.slice(at + wanted.length)}`;
}

export function SearchPanel({ model }) {
  const { search } = model;
  const { form } = search;
  const [pattern, setPattern] = useState(form.pattern);
  const timer = useRef(0);
  const field = useRef(null);
  useLayoutEffect(() => field.current?.select(), []);
  useEffect(() => () => clearTimeout(timer.current), []);
  const typed = (event) => {
    setPattern(event.target.value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => search.take({ pattern: field.current.value }), PAUSE);
  };
  const submit = (event) => {
    event.preventDefault();
    clearTimeout(timer.current);
    if (field.current.value !== form.pattern) return search.take({ pattern: field.current.value });
    search.step(event.submitter?.value === "back" ? -1 : 1);
  };
  const close = () => {
    search.stop();
    globalThis.CSS?.highlights?.delete("found");
    model.set({ isSearching: false, spot: null });
  };
  const pressed = (event) => {
    if (event.key !== "Escape") return;
    close();
    event.preventDefault();
    event.stopPropagation();
  };
  if (isExport) return html`<section class="search-panel" aria-label="Search" onKeyDown=${pressed}><p class="quiet">Search needs the server, which an exported file does not have.</p><button class="small" onClick=${close}>Close</button></section>`;
  const flag = (name, title, words) => html`<button type="button" aria-pressed=${form[name]} title=${words} aria-label=${words} onClick=${() => search.take({ pattern: field.current.value, [name]: !form[name] })}>${title}</button>`;
  return html`<section class="search-panel" aria-label="Search" onKeyDown=${pressed}>
    <form role="search" aria-label="Search the whole history" onSubmit=${submit}>
      <input ref=${field} type="search" class="mono" aria-label="Text to find" placeholder="Search commands, output and files" value=${pattern} onInput=${typed} spellcheck="false" autocomplete="off" />
      ${flag("exact", "Aa", "Match case")}${flag("regex", ".*", "Regular expression")}
      <select aria-label="Place" value=${form.place} onChange=${(event) => search.take({ pattern: field.current.value, place: event.target.value })}>${PLACES.map(([name, title]) => html`<option key=${name} value=${name}>${title}</option>`)}</select>
      <button value="back" title="Previous match (N)" aria-label="Previous match">‹</button><button value="on" title="Next match (n)" aria-label="Next match">›</button>
      <span class="grow"></span>
      <${Found} search=${search} />
      <button type="button" class="plain" aria-label="Close the search" title="Close the search (Esc)" onClick=${close}>×</button>
    </form>
    ${search.problem && html`<p class="problem" role="alert">${visible(search.problem.message)}</p>`}
    <${Hits} search=${search} />
    ${form.pattern && html`<${CommandLine} words=${`foldspace grep ${quoted(model.session)} ${quoted(search.pattern)}${form.exact ? "" : " -i"} --all-history`} />`}
  </section>`;
}

function Found({ search }) {
  const { hits, calls, busy, next, searched, head, form, isCut, problem } = search;
  if (!form.pattern || problem) return null;
  const part = next !== null && head ? `, ${Math.floor((100 * searched) / head)} % searched` : "";
  return html`<span class="quiet found" role="status">${!busy && !hits ? "No match" : `${count(hits, "match")} in ${count(calls, "call")}`}${part}${isCut ? "; of a text, the first 1,000" : ""}</span>
    ${busy ? html`<button type="button" class="small" onClick=${() => search.stop()}>Stop</button>` : next !== null && html`<button type="button" class="small" onClick=${() => search.run()}>Search on</button>`}`;
}

function Hits({ search }) {
  const rows = search.ordered;
  if (!rows.length) return null;
  const pressed = (event) => {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (step) search.active = Math.max(0, Math.min(rows.length - 1, search.active + step));
    else if (event.key === "Enter" && search.active >= 0) search.go(search.active);
    else return;
    search.model.emit();
    event.preventDefault();
    event.stopPropagation();
  };
  const render = (at, style) => html`<div key=${at} id=${`hit-${at}`} role="option" aria-selected=${at === search.active} class="row ${rows[at].hit ? "hit" : "group"}" style=${style} onClick=${() => search.go(at)}>
    ${rows[at].hit ? html`<${HitCells} hit=${rows[at].hit} />` : html`<${GroupCells} search=${search} group=${rows[at].group} />`}</div>`;
  return html`<${VirtualRows} className="hits" height=${ROW} total=${rows.length} render=${render} reveal=${search.active} role="listbox" label="Matches" active=${search.active < 0 ? undefined : `hit-${search.active}`} onKeyDown=${pressed} />`;
}

function GroupCells({ search, group }) {
  return html`<span class="position">${group.call ?? ""}</span><b class="what">${search.titleOf(group)}</b><span class="badge">${group.hits.toLocaleString("en")}</span>`;
}

function HitCells({ hit }) {
  const where = oneLine(hit.path ?? hit.field.replace(hit.place === "event" ? /^$/ : /^\S+ (params\.)?/, ""), 200);
  return html`<span class="place" title=${hit.path === null ? visible(hit.field) : `${where}, at ${hit.seq}`}><bdi>${where}</bdi>:${hit.line_number}</span>
    <code>${pieces(hit).map(({ text, isMatch }, number) => (isMatch ? html`<mark key=${number}>${oneLine(text)}</mark>` : oneLine(text)))}</code>`;
}
