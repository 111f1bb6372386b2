// The state of the page for a session, and the verbs that change it.

import { CallList } from "./calls.js";
import { LiveRun } from "./live.js";
import { Conversation, isMessage } from "./messages.js";
import * as route from "./route.js";
import { get, getKept, isExport, mayWrite, ofSession } from "./source.js";
import { asGlob } from "./text.js";
import { Thread } from "./thread.js";

const ADDRESS_PAUSE = 200;
const CHANGES_MOST = 1000;
const SOON = 400;
const NO_FILTERS = { tool: "", agent: "", failed: false, changed: false, path: "", text: "" };
const SHOWS_ALL = { show: "", reasoning: "" };

export class Model {
  constructor(session) {
    this.session = session;
    this.listeners = new Set();
    this.document = null;
    this.filters = { ...NO_FILTERS, ...SHOWS_ALL };
    this.conversation = new Conversation(session);
    this.list = null;
    this.whole = null;
    this.family = null;
    this.effects = [];
    this.services = [];
    this.at = 0;
    this.index = -1;
    this.call = null;
    this.message = null;
    this.wantedMessage = 0;
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
    if (this.message) return this.conversation.before(this.message, ["user", "assistant"])?.seq ?? this.at - 1;
    if (this.call && this.at >= (this.call.finished ?? this.at)) return this.call.call - 1;
    return Math.max(0, this.at - 1);
  }

  async load(wanted) {
    try {
      this.takeOptions(wanted.options);
      const said = this.loadMessages();
      const [document, writable] = await Promise.all([get(ofSession(this.session)), mayWrite(), this.loadList()]);
      this.set({ document, writable });
      // Of a short run, the messages are there at once. Those of a long one join later.
      await Promise.race([said, new Promise((done) => setTimeout(done, SOON))]);
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
    const { calls } = this.list;
    const last = await calls.ensure(calls.total - 1);
    this.follows = last?.status === "running";
    await this.select(this.follows ? this.list.total - 1 : await this.firstRow(), { replace: true });
  }

  close() {
    this.live?.stop();
    this.closed = true;
  }

  async loadList() {
    const filters = Object.fromEntries(Object.keys(NO_FILTERS).map((name) => [name, this.filters[name]]));
    const isKnown = JSON.stringify(filters) === JSON.stringify(this.list?.calls.filters);
    const calls = isKnown ? this.list.calls : await new CallList(this.session, filters, this.emit).load();
    if (!calls.isFiltered) this.whole = calls;
    else this.whole ??= await new CallList(this.session, { ...NO_FILTERS }, this.emit).load();
    this.thread(calls);
  }

  thread(calls) {
    this.set({ list: new Thread(calls, this.messages(), { hidesCalls: this.filters.show === "messages", told: this.emit }) });
  }

  messages() {
    return this.conversation.matching(this.filters);
  }

  async loadMessages() {
    await this.conversation.load();
    if (!this.list || this.closed) return;
    this.thread(this.list.calls);
    if (!this.ready || !this.conversation.list.length) return;
    const row = this.message || !this.call ? await this.list.messageAt(this.at, this.wantedMessage) : null;
    if (row !== null) await this.select(row, { at: this.at });
    else this.set({ index: await this.list.indexOf(this.at), open: null });
  }

  // The row of the first call, or else the first one.
  async firstRow() {
    const { list } = this;
    return Math.min(list.hidesCalls || !list.calls.total ? 0 : await list.rowOfCall(0), list.total - 1);
  }

  loadFamily() {
    get(ofSession(this.session, "/family")).then((family) => this.set({ family }), () => {});
    for (const name of ["effects", "services"]) get(ofSession(this.session, `/${name}`)).then((all) => this.set({ [name]: all }), () => {});
  }

  // The address holds the whole state, so that a link leads to the same place.
  remember({ replace = false, soon = false } = {}) {
    const options = { stops: this.stops.join("\n"), mark: this.mark ?? "", marks: [...this.marks].flat().join(" "), since: this.since === "step" ? "" : this.since, view: this.fileView === "diff" ? "" : this.fileView };
    for (const [name, value] of Object.entries(this.filters)) options[name] = value || "";
    options.message = this.message?.number || "";
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
    this.wantedMessage = Number(options.message) || 0;
    const text = (name) => options[name] ?? "";
    const one = (name, ...known) => (known.includes(options[name]) ? options[name] : "");
    this.filters = { tool: text("tool"), agent: text("agent"), path: text("path"), text: text("text"), failed: options.failed === "true", changed: options.changed === "true",
      show: one("show", "calls", "messages"), reasoning: one("reasoning", "off") };
  }

  // Takes a place from the address, after Back or a link.
  async arrive(wanted) {
    const before = JSON.stringify(this.filters);
    this.takeOptions(wanted.options);
    if (JSON.stringify(this.filters) !== before) await this.loadList();
    const { tab, path, slice, other } = wanted;
    this.set({ tab, path, slice, other });
    if (wanted.at !== null && (wanted.at !== this.at || this.wantedMessage !== (this.message?.number ?? 0))) await this.goTo(wanted.at, { replace: true, quiet: true, isLink: true });
  }

  async select(index, { replace = true, at = null, quiet = false } = {}) {
    const most = this.list.total - 1;
    const wanted = Math.max(Math.min(index, most), Math.min(0, most));
    this.wanted = wanted;
    this.set({ index: wanted, ...chosen(this.list.known(wanted)) });
    const item = await this.list.ensure(wanted);
    if (this.wanted !== wanted || this.closed) return;
    this.set({ ...chosen(item), at: at ?? (item ? item.seq ?? item.finished ?? this.head : this.head) });
    if (!quiet) this.remember({ replace, soon: replace });
  }

  // Goes to a position. In a link, the number of a call is the position after it.
  async goTo(seq, { replace = false, quiet = false, isLink = false } = {}) {
    const wanted = Math.max(0, Math.min(seq, this.head || seq));
    const call = await this.whole.ensure(await this.whole.indexOf(wanted));
    const at = isLink && call?.call === wanted ? call.finished ?? wanted : wanted;
    const row = await this.list.messageAt(at, isLink ? this.wantedMessage : 0);
    if (row !== null) return this.select(row, { replace, at, quiet });
    const index = await this.list.indexOf(at);
    if (index >= 0 && !this.list.isFiltered) return this.select(index, { replace, at, quiet });
    // A call that the filters hide is still shown, with the row before it.
    this.wanted = index;
    this.set({ index, call, message: null, at });
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

  // Goes to the next or previous call, past messages.
  async nextCall(direction) {
    this.follows = false;
    for (let index = this.index + direction; index >= 0 && index < this.list.total; index += direction) {
      if (!isMessage(await this.list.ensure(index))) return this.select(index);
    }
  }

  async nextFailure(direction) {
    this.follows = false;
    const found = await this.list.nextFailure(this.index, direction);
    if (found === null) return this.say(`No ${direction > 0 ? "later" : "earlier"} ${this.list.hidesCalls ? "message claims success after a failure" : "call failed"}.`);
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
    const now = this.call?.call ?? this.at;
    const found = direction > 0 ? calls.find(({ call }) => call > now) : calls.findLast(({ call }) => call < now);
    if (!found) return this.say(direction > 0 ? "No later call changed this file." : "No earlier call changed this file.");
    return this.goTo(found.finished ?? this.head);
  }

  async filter(changes) {
    this.filters = { ...this.filters, ...changes };
    this.remember({ replace: true });
    const { at, message } = this;
    await this.loadList();
    this.open = null;
    if (this.closed) return;
    const row = message && await this.list.messageAt(message.seq, message.number);
    await this.select(row ?? await this.list.indexOf(at), { replace: true });
  }

  clearFilters() {
    return this.filter({ ...NO_FILTERS, ...SHOWS_ALL });
  }

  // The time at the cursor.
  get moment() {
    return this.call?.started_at ?? this.message?.time;
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

const chosen = (item) => (isMessage(item) ? { call: null, message: item } : { call: item, message: null });
