// The state of the page for a session, and the verbs that change it.

import { CallList } from "./calls.js";
import { LiveRun } from "./live.js";
import * as route from "./route.js";
import { get, getKept, isExport, mayWrite, ofSession } from "./source.js";
import { asGlob, failed } from "./text.js";

const ADDRESS_PAUSE = 200;
const CHANGES_MOST = 1000;
const NO_FILTERS = { tool: "", agent: "", failed: false, changed: false, path: "", text: "" };

export class Model {
  constructor(session) {
    this.session = session;
    this.listeners = new Set();
    this.document = null;
    this.filters = { ...NO_FILTERS };
    this.list = null;
    this.whole = null;
    this.family = null;
    this.at = 0;
    this.index = -1;
    this.call = null;
    this.tab = "call";
    this.path = null;
    this.slice = null;
    this.other = null;
    this.mark = null;
    this.marks = new Map();
    this.search = null;
    this.isSearching = false;
    this.spot = null;
    this.since = "step";
    this.fileView = "diff";
    this.open = null;
    this.follows = false;
    this.writable = false;
    this.problem = null;
    this.ready = false;
    this.notice = "";
    this.live = null;
    this.fileCalls = null;
    this.stops = [];
    this.hidesList = false;
    this.lastUntil = null;
  }

  emit = () => {
    if (this.queued) return;
    this.queued = true;
    queueMicrotask(() => {
      this.queued = false;
      for (const listener of this.listeners) listener();
    });
  };

  set(changes) {
    Object.assign(this, changes);
    this.emit();
  }

  get head() {
    return Math.max(this.live?.head ?? 0, this.whole?.timeline?.head ?? 0, this.document?.events ?? 0);
  }

  // The position to compare the current one with.
  get before() {
    if (this.since === "start") return Math.min(this.start, this.at);
    if (this.since === "mark" && this.mark !== null) return Math.min(this.mark, this.at);
    if (this.call && this.at >= (this.call.finished ?? this.at)) return this.call.call - 1;
    return Math.max(0, this.at - 1);
  }

  async load(wanted) {
    try {
      this.takeOptions(wanted.options);
      const [document, writable] = await Promise.all([get(ofSession(this.session)), mayWrite(), this.loadList()]);
      this.set({ document, writable });
      await this.begin(wanted);
      this.set({ ready: true });
      this.loadFamily();
      if (!isExport) {
        this.live = new LiveRun(this);
        this.live.start();
      }
    } catch (problem) {
      this.set({ problem });
    }
  }

  // The position before the first call, after the mounts.
  get start() {
    return Math.max(0, (this.whole?.buckets[0]?.from ?? 1) - 1);
  }

  async begin(wanted) {
    const { tab, path, slice, other } = wanted;
    this.set({ tab, path, slice, other });
    if (wanted.at !== null) return this.goTo(wanted.at, { replace: true, isLink: true });
    const last = await this.list.ensure(this.list.total - 1);
    const runs = last?.status === "running";
    this.follows = runs;
    await this.select(runs ? this.list.total - 1 : Math.min(0, this.list.total - 1), { replace: true });
  }

  close() {
    this.live?.stop();
    this.closed = true;
  }

  async loadList() {
    const list = await new CallList(this.session, { ...this.filters }, this.emit).load();
    this.list = list;
    if (!list.isFiltered) this.whole = list;
    else this.whole ??= await new CallList(this.session, { ...NO_FILTERS }, this.emit).load();
    this.emit();
  }

  loadFamily() {
    get(ofSession(this.session, "/family")).then((family) => this.set({ family }), () => {});
  }

  // The address holds the whole state, so that a link leads to the same place.
  remember({ replace = false, soon = false } = {}) {
    const options = { stops: this.stops.join("\n"), mark: this.mark ?? "", marks: [...this.marks].flat().join(" "), since: this.since === "step" ? "" : this.since, view: this.fileView === "diff" ? "" : this.fileView };
    for (const [name, value] of Object.entries(this.filters)) options[name] = value || "";
    const { session, at, tab, path, slice, other } = this;
    const hash = route.format({ session, at, tab, path, slice, other, options });
    clearTimeout(this.remembering);
    const put = () => hash !== location.hash && history.replaceState(null, "", hash);
    // Browsers refuse addresses that change many times a second.
    if (soon) this.remembering = setTimeout(() => this.closed || put(), ADDRESS_PAUSE);
    else if (replace) put();
    else if (hash !== location.hash) history.pushState(null, "", hash);
  }

  takeOptions(options) {
    const number = options.mark ? Number(options.mark) : null;
    this.mark = Number.isSafeInteger(number) ? number : null;
    const marks = (options.marks ?? "").split(" ");
    this.marks = new Map(marks.flatMap((name, index) => (index % 2 === 0 && Number(marks[index + 1]) > 0 ? [[name, Number(marks[index + 1])]] : [])));
    this.since = ["mark", "start"].includes(options.since) ? options.since : "step";
    this.fileView = options.view || "diff";
    this.stops = options.stops?.split("\n") ?? [];
    const text = (name) => options[name] ?? "";
    this.filters = { tool: text("tool"), agent: text("agent"), path: text("path"), text: text("text"), failed: options.failed === "true", changed: options.changed === "true" };
  }

  // Takes a place from the address, after Back or a link.
  async arrive(wanted) {
    const before = JSON.stringify(this.filters);
    this.takeOptions(wanted.options);
    if (JSON.stringify(this.filters) !== before) await this.loadList();
    const { tab, path, slice, other } = wanted;
    this.set({ tab, path, slice, other });
    if (wanted.at !== null && wanted.at !== this.at) await this.goTo(wanted.at, { replace: true, quiet: true, isLink: true });
  }

  async select(index, { replace = true, at = null, quiet = false } = {}) {
    const most = this.list.total - 1;
    const wanted = Math.max(Math.min(index, most), Math.min(0, most));
    this.wanted = wanted;
    this.set({ index: wanted, call: this.list.rows.get(wanted) ?? null });
    const call = await this.list.ensure(wanted);
    if (this.wanted !== wanted || this.closed) return;
    this.set({ call, at: at ?? (call ? call.finished ?? this.head : this.head) });
    if (!quiet) this.remember({ replace, soon: replace });
  }

  // Goes to a position. In a link, the number of a call is the position after it.
  async goTo(seq, { replace = false, quiet = false, isLink = false } = {}) {
    const wanted = Math.max(0, Math.min(seq, this.head || seq));
    const call = await this.whole.ensure(await this.whole.indexOf(wanted));
    const at = isLink && call?.call === wanted ? call.finished ?? wanted : wanted;
    const index = await this.list.indexOf(at);
    if (index >= 0 && !this.list.isFiltered) return this.select(index, { replace, at, quiet });
    // A call that the filters hide is still shown, with the row before it.
    this.wanted = index;
    this.set({ index, call, at });
    if (!quiet) this.remember({ replace, soon: replace });
  }

  move(rows) {
    this.follows = false;
    return this.select(Math.max(0, this.index) + (this.index < 0 ? 0 : rows));
  }

  // Moves one event forward or back, also inside of a call.
  async stepEvent(direction) {
    this.follows = false;
    const at = this.at + direction;
    if (at < 0 || at > this.head) return;
    return this.goTo(at, { replace: true });
  }

  async nextFailure(direction) {
    this.follows = false;
    const found = await this.list.search(this.index, direction, "failed", failed);
    if (found === null) return this.say(direction > 0 ? "No later call failed." : "No earlier call failed.");
    return this.select(found, { replace: false });
  }

  async changesOfFile(path) {
    if (this.fileCalls?.path !== path || this.fileCalls.head !== this.head) {
      const head = this.head;
      const calls = [];
      let from = 1;
      while (from !== null && calls.length < CHANGES_MOST) {
        const page = await get(ofSession(this.session, "/calls"), { path: asGlob(path), limit: 1000, from });
        calls.push(...page.calls);
        from = page.next;
      }
      this.fileCalls = { path, head, calls, more: from !== null };
      this.emit();
    }
    return this.fileCalls.calls;
  }

  async nextChange(direction) {
    if (!this.path) return this.say("Open a file first: [ and ] move between its changes.");
    const calls = await this.changesOfFile(this.path);
    const now = this.call?.call ?? 0;
    const found = direction > 0 ? calls.find(({ call }) => call > now) : calls.findLast(({ call }) => call < now);
    if (!found) return this.say(direction > 0 ? "No later call changed this file." : "No earlier call changed this file.");
    return this.goTo(found.finished ?? this.head);
  }

  async filter(changes) {
    this.filters = { ...this.filters, ...changes };
    this.remember({ replace: true });
    const at = this.at;
    await this.loadList();
    this.open = null;
    if (this.closed) return;
    const index = await this.list.indexOf(at);
    await this.select(index, { replace: true });
  }

  clearFilters() {
    return this.filter({ ...NO_FILTERS });
  }

  show(tab, more = {}) {
    this.set({ tab, ...more });
    this.remember();
  }

  openFile(path) {
    this.show("files", { path });
  }

  setMark(name) {
    this.set({ mark: this.at, marks: new Map([...this.marks, [name, this.at]]) });
    this.remember({ replace: true });
    this.say(`Position ${this.at} is the mark ${name}. Files can show the changes since then.`);
  }

  say(notice) {
    this.set({ notice });
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.set({ notice: "" }), 4000);
  }

  changes() {
    const [from, to] = [this.before, this.at];
    return getKept(ofSession(this.session, "/changes"), { from, to });
  }
}
