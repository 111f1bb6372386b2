// A run that is embedded in the page: it answers like the server, for one session.

import { failed, fits } from "./text.js";

const BUCKETS = 400;

class ExportedRun {
  constructor(document) {
    Object.assign(this, document);
    this.prefix = `GET /v1/sessions/${document.session}`;
    this.calls = this.of("/calls")?.calls ?? [];
    // Incomplete lists of files; a missing content is reported where it would be shown.
    this.missing = this.left_out.filter(({ size }) => size === null).map(({ path }) => path);
  }

  of(rest) {
    return this.answers[this.prefix + rest];
  }

  get(path, params) {
    const rest = path.replace(/^\/v1\/sessions\/[^/]+/, "");
    if (path === "/v1/sessions") return [this.of("")];
    if (path === "/v1/server") return { read_only: true, calls: [] };
    const first = rest.split("/")[1] ?? "";
    const computed = this[`answer_${first}`];
    const known = computed ? computed.call(this, rest, params) : this.of(rest);
    if (known === undefined || known === null) throw new Error("this is not in the exported file");
    return known;
  }

  answer_timeline(_, params) {
    const whole = this.of("/timeline");
    const calls = this.matching(params);
    const size = Math.max(1, Math.ceil(calls.length / (params.buckets ?? BUCKETS)));
    const buckets = [];
    for (let first = 0; first < calls.length; first += size) {
      const part = calls.slice(first, first + size);
      const changed = part.filter((call) => call.paths.length).length;
      const ended = Math.max(...part.map((call) => Date.parse(call.started_at) + (call.micros ?? 0) / 1000));
      const micros = part.reduce((sum, call) => sum + (call.micros ?? 0), 0);
      buckets.push({ from: part[0].call, at: part[0].started_at, ended_at: new Date(ended).toISOString(), micros, calls: part.length, failed: part.filter(failed).length, changed });
    }
    return { ...whole, calls: calls.length, buckets };
  }

  answer_calls(rest, params) {
    const number = rest.split("/")[2];
    if (rest.split("/")[3]) return this.of(rest);
    if (number) return this.of(`/calls/${number}`) ?? this.listed(Number(number));
    const from = params.from ?? 1;
    const all = this.matching(params).filter((call) => call.call >= from);
    const limit = params.limit ?? 200;
    return { head: this.to, calls: all.slice(0, limit), next: all[limit]?.call ?? null };
  }

  // Of a large call, only its row was exported.
  listed(number) {
    const call = this.calls.find((known) => known.call === number);
    return call && { ...call, result: null, recorded: {} };
  }

  matching({ tool, agent, failed: onlyFailed, changed, path, text }) {
    const wanted = text?.toLowerCase();
    return this.calls.filter((call) => {
      if (tool && call.tool !== tool) return false;
      if (agent !== undefined && agent !== "" && call.agent !== agent) return false;
      if (onlyFailed && !failed(call)) return false;
      if (changed && !call.paths.length) return false;
      if (path && !call.paths.some((changedPath) => fits(path, changedPath))) return false;
      return !wanted || JSON.stringify([call.tool, call.params, call.message, call.summary]).toLowerCase().includes(wanted);
    });
  }

  // The steps that changed files, in order: calls, and what happened between them, such as rewinds and merges.
  steps() {
    if (!this.allSteps) {
      const ofCalls = this.calls.filter(({ finished }) => finished !== null);
      const steps = ofCalls.map(({ call, finished }) => ({ end: finished, changes: [], ...this.of(`/changes/${call}`) }));
      for (const changes of this.between) steps.push({ end: changes.to, ...changes });
      this.allSteps = steps.sort((a, b) => a.end - b.end);
    }
    return this.allSteps;
  }

  // Entries by path at a position: the first entries, with the changes of each step.
  entries(at) {
    if (this.lastEntries?.at === at) return this.lastEntries.map;
    const start = this.lastEntries && this.lastEntries.at < at ? this.lastEntries : null;
    const map = new Map(start ? start.map : (this.of("/files") ?? []).map((entry) => [entry.path, entry]));
    for (const { end, changes } of this.steps()) {
      if (end > at) break;
      if (start && end <= start.at) continue;
      for (const change of changes) {
        if (change.after) map.set(change.path, { path: change.path, ...change.after });
        else map.delete(change.path);
      }
    }
    this.lastEntries = { at, map };
    return map;
  }

  answer_changes(_, { from = 0, to = this.to }) {
    const [before, after] = [new Map(this.entries(from)), this.entries(to)];
    const changes = [];
    for (const path of new Set([...before.keys(), ...after.keys()])) {
      const [was, is] = [before.get(path), after.get(path)];
      const same = was && is && was.node === is.node && was.content === is.content && was.target === is.target && was.executable === is.executable;
      if (same) continue;
      const change = was && is ? "changed" : is ? "added" : "removed";
      changes.push({ path, change, kind: (is ?? was).node, size: is?.size ?? null, before: was ?? null, after: is ?? null });
    }
    changes.sort((a, b) => (a.path < b.path ? -1 : 1));
    return { from, to, changes, more: this.steps().some(({ end, more }) => more && end > from && end <= to) };
  }

  answer_files(rest, { at = this.to, below = "", recursive = true }) {
    const path = rest.split("/").slice(2).map(decodeURIComponent).join("/");
    if (path) return this.file(path, at);
    const start = below ? `${below}/` : "";
    const inside = [...this.entries(at).values()].filter((entry) => entry.path.startsWith(start) && entry.path !== below);
    return inside.filter((entry) => recursive || !entry.path.slice(start.length).includes("/"));
  }

  answer_stat(rest, { at = this.to }) {
    const path = rest.split("/").slice(2).map(decodeURIComponent).join("/");
    const entry = this.entries(at).get(path);
    if (!entry) throw Object.assign(new Error(`${path} does not exist there`), { status: 404 });
    return entry;
  }

  file(path, at) {
    const entry = this.answer_stat(`/stat/${encodeURIComponent(path)}`, { at });
    const blob = entry.content ? this.blobs[entry.content] : null;
    if (entry.node === "file" && !blob && entry.size > 0) throw new Error("this file's contents were left out of the export: it is too large");
    return { ...entry, contents_text: blob ? blob.text ?? null : entry.size === 0 ? "" : null, contents_base64: blob?.base64 ?? null };
  }

  bytes(path, params) {
    const file = this.get(path, params);
    if (file.contents_text !== null) return new TextEncoder().encode(file.contents_text);
    return decodedBytes(file.contents_base64 ?? "");
  }

  answer_state(rest, { at = this.to, slice }) {
    const latest = new Map();
    const start = `${this.prefix}/state/`;
    for (const [key, value] of Object.entries(this.answers)) {
      if (!key.startsWith(start)) continue;
      const [name, position] = key.slice(start.length).split("@");
      const seq = Number(position);
      if (seq <= at && (latest.get(name)?.seq ?? -1) <= seq) latest.set(name, { seq, value });
    }
    const wanted = slice ?? rest.split("/")[2];
    if (wanted) return rest.split("/")[2] ? latest.get(wanted)?.value : { slices: [], value: latest.get(wanted)?.value };
    const slices = [...latest].map(([name, { seq, value }]) => ({ slice: name, json_bytes: JSON.stringify(value).length, digest: `${name}@${seq}`, on_rewind: "" }));
    return { session: this.session, seq: at, slices };
  }
}

function decodedBytes(base64) {
  return Uint8Array.from(atob(base64), (sign) => sign.charCodeAt(0));
}

async function read() {
  const element = globalThis.document?.getElementById("foldspace-export");
  if (!element) return null;
  const packed = decodedBytes(element.textContent.trim());
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new ExportedRun(JSON.parse(await new Response(stream).text()));
}

export const exported = await read();
