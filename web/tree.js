// The files of a workspace as a tree; opening a directory fetches it.

import { html, useEffect, useLayoutEffect, useMemo, useState } from "./vendor/preact.js";
import { getKept, ofSession } from "./source.js";
import { bytes, visible } from "./text.js";
import { VirtualRows } from "./virtual.js";

const ROW = 24;
const NEAR = 200;
const ENTRIES_FEW = 1000;

const rank = ({ node }) => (node === "directory" ? 0 : 1);
const inOrder = (a, b) => rank(a) - rank(b) || (a.path < b.path ? -1 : 1);
const parentOf = (path) => (path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : "");
const nameOf = (path) => path.slice(path.lastIndexOf("/") + 1);

// Lists are fetched for one position. At nearby positions, or for long lists, the changes in between are applied.
class Listing {
  constructor(session, at) {
    this.session = session;
    this.base = at;
    this.at = at;
    this.directories = new Map();
    this.overlay = new Map();
  }

  async move(at) {
    const [from, to] = [this.base, at];
    const entries = [...this.directories.values()].reduce((sum, list) => sum + list.length, 0);
    if (Math.abs(to - from) <= NEAR || entries > ENTRIES_FEW) {
      const { changes, more } = from === to ? { changes: [] } : await getKept(ofSession(this.session, "/changes"), { from, to });
      this.at = at;
      this.overlay = Map.groupBy(changes, ({ path }) => parentOf(path));
      if (!more) return;
    }
    const fresh = new Listing(this.session, at);
    await Promise.all([...this.directories.keys()].map((directory) => fresh.fetch(directory)));
    Object.assign(this, fresh);
  }

  async fetch(directory) {
    if (this.directories.has(directory)) return;
    const found = await getKept(ofSession(this.session, "/files"), { at: this.base, below: directory, recursive: false }).catch((error) => {
      if (error.status === 404) return [];
      throw error;
    });
    const start = directory ? `${directory}/` : "";
    this.directories.set(directory, found.filter(({ path }) => path.startsWith(start) && !path.slice(start.length).includes("/")).sort(inOrder));
  }

  of(directory) {
    const known = this.directories.get(directory) ?? [];
    const changed = new Map(this.overlay.get(directory)?.map((change) => [change.path, change]));
    changed.delete("");
    if (!changed.size) return known;
    const kept = known.filter(({ path }) => !changed.has(path));
    for (const { path, after } of changed.values()) if (after) kept.push({ path, ...after });
    return kept.sort(inOrder);
  }
}

function ancestors(path) {
  const parts = path.split("/");
  return parts.slice(1).map((_, depth) => parts.slice(0, depth + 1).join("/"));
}

export function Tree({ model, changes }) {
  const listing = useMemo(() => new Listing(model.session, model.at), [model.session]);
  const [open, setOpen] = useState(new Set([""]));
  const [cursor, setCursor] = useState(null);
  const [turn, setTurn] = useState(0);
  const [problem, setProblem] = useState(null);
  useEffect(() => {
    const wanted = new Set(open);
    if (model.path) for (const directory of ancestors(model.path)) wanted.add(directory);
    if (wanted.size !== open.size) setOpen(wanted);
  }, [model.path]);
  useLayoutEffect(() => {
    let current = true;
    const load = async () => {
      if (listing.at !== model.at) await listing.move(model.at);
      await Promise.all([...open].map((directory) => listing.fetch(directory)));
      if (current) setTurn((turn) => turn + 1);
      if (current) setProblem(null);
    };
    load().catch((error) => current && setProblem(error));
    return () => {
      current = false;
    };
  }, [model.at, open]);
  const rows = useMemo(() => flattened(listing, open), [turn, open]);
  const marks = useMemo(() => marksOf(changes), [changes]);
  const at = rows.findIndex(({ path }) => path === (cursor ?? model.path));
  const toggle = (path) => {
    const next = new Set(open);
    if (!next.delete(path)) next.add(path);
    setOpen(next);
  };
  const choose = (row) => {
    setCursor(row.path);
    if (row.node === "directory") toggle(row.path);
    else model.openFile(row.path);
  };
  const pressed = (event) => {
    const row = rows[at];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setCursor(rows[Math.max(0, Math.min(rows.length - 1, at + step))]?.path ?? null);
    else if (row && (event.key === "Enter" || event.key === " ")) choose(row);
    else if (row && event.key === "ArrowRight" && row.node === "directory" && !open.has(row.path)) toggle(row.path);
    else if (row && event.key === "ArrowLeft") row.node === "directory" && open.has(row.path) ? toggle(row.path) : setCursor(parentOf(row.path) || row.path);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const render = (index, style) => html`<${TreeRow} key=${rows[index].path} row=${rows[index]} style=${style} id=${`tree-${index}`} open=${open}
    current=${rows[index].path === model.path} focused=${index === at} mark=${marks.get(rows[index].path)} onChoose=${choose} />`;
  return html`${problem && html`<p class="problem">${visible(problem.message)}</p>`}<${VirtualRows} className="tree" height=${ROW} total=${rows.length} render=${render} reveal=${at} label="Files" role="tree"
    active=${at >= 0 ? `tree-${at}` : undefined} onKeyDown=${pressed} />`;
}

function flattened(listing, open, directory = "", depth = 0, rows = []) {
  for (const entry of listing.of(directory)) {
    rows.push({ ...entry, depth });
    if (entry.node === "directory" && open.has(entry.path)) flattened(listing, open, entry.path, depth + 1, rows);
  }
  return rows;
}

function marksOf(changes) {
  const marks = new Map();
  for (const { path, change } of changes ?? []) {
    marks.set(path, change);
    for (const directory of ancestors(path)) if (!marks.has(directory)) marks.set(directory, "inside");
  }
  return marks;
}

function TreeRow({ row, style, id, open, current, focused, mark, onChoose }) {
  const isDirectory = row.node === "directory";
  const sign = isDirectory ? (open.has(row.path) ? "▾" : "▸") : row.node === "symlink" ? "↪" : "";
  return html`<div id=${id} role="treeitem" aria-level=${row.depth + 1} aria-expanded=${isDirectory ? open.has(row.path) : undefined} aria-selected=${current}
    class="row ${mark ?? ""} ${focused ? "focused" : ""}" style=${{ ...style, paddingLeft: `${8 + row.depth * 14}px` }} onClick=${() => onChoose(row)} title=${visible(row.path)}>
    <span class="twist" aria-hidden="true">${sign}</span><span class="name">${visible(nameOf(row.path))}${row.target ? html` <span class="quiet">→ ${visible(row.target)}</span>` : ""}</span>
    <span class="quiet size">${row.node === "file" ? bytes(row.size) : ""}</span><span class="letter ${mark ?? ""}" title=${mark ?? ""}>${{ added: "A", changed: "M", removed: "D", inside: "•" }[mark] ?? ""}</span>
  </div>`;
}
