// A running session: its new events, and its commands' questions and output.

import { connectionIsLost } from "./connection.js";
import { follow, get, ofSession, post } from "./source.js";

const REFRESH = 250;
const QUESTIONS = 1500;
const OUTPUT_KEPT = 400_000;

export class LiveRun {
  constructor(model) {
    this.model = model;
    this.head = model.head;
    this.state = "connecting";
    this.questions = [];
    this.output = null;
    this.abort = new AbortController();
  }

  start() {
    const told = (event, data) => this.told(event, data);
    const path = ofSession(this.model.session, "/events/stream");
    follow(path, { from: this.head + 1 }, this.abort.signal, told).catch(() => this.become("ended"));
    this.timer = setInterval(() => this.poll(), QUESTIONS);
    this.poll();
  }

  stop() {
    this.abort.abort();
    this.outputAbort?.abort();
    clearInterval(this.timer);
    clearTimeout(this.refreshing);
  }

  become(state) {
    if (this.state === state) return;
    this.state = state;
    this.model.emit();
  }

  told(event, data) {
    if (event === "connected" || event === "disconnected") return this.become(event);
    if (event === "end") return this.become("ended");
    if (!data?.seq) return;
    this.head = data.seq;
    this.spoke ||= /^(RunPrompted|TranscriptRecord)$/.test(data.kind);
    if (/^Child|^Merge|^ExternalEffect|^Service/.test(data.kind)) this.model.loadFamily();
    this.isStale = true;
    this.refreshing ??= setTimeout(() => this.refresh(), REFRESH);
  }

  async refresh() {
    const { model } = this;
    const started = performance.now();
    this.isStale = false;
    try {
      const { spoke } = this;
      this.spoke = false;
      if (spoke) await model.conversation.load();
      await model.list.calls.refresh();
      if (model.whole !== model.list.calls) await model.whole.refresh();
      // A filter may have made another list since.
      model.list.take(model.messages());
      if (model.follows) await model.select(model.list.total - 1);
      else if (model.call?.status === "running") await model.select(model.index);
      model.emit();
    } catch {
      // The next event retries.
    }
    // For a long run the server recounts the calls each time: pause in proportion.
    setTimeout(() => {
      this.refreshing = null;
      if (this.isStale) this.refresh();
    }, 3 * (performance.now() - started));
    this.poll();
  }

  get running() {
    const { whole } = this.model;
    const last = whole?.rows.get(whole.total - 1) ?? null;
    return last?.status === "running" || this.model.call?.status === "running";
  }

  async poll() {
    if (connectionIsLost()) return;
    const { whole } = this.model;
    await whole?.ensure(whole.total - 1).catch(() => null);
    if (!this.running) {
      if (this.questions.length) this.take([]);
      return;
    }
    const server = await get("/v1/server").catch(() => null);
    const id = this.model.document?.session;
    const calls = (server?.calls ?? []).filter(({ session }) => session === id);
    this.take(calls.map(({ question }) => question).filter(Boolean));
    const wanted = calls.find(({ call }) => call === this.model.call?.call)?.call ?? calls.at(-1)?.call;
    if (wanted) this.followOutput(wanted);
  }

  take(questions) {
    if (JSON.stringify(questions) === JSON.stringify(this.questions)) return;
    this.questions = questions;
    this.model.emit();
  }

  followOutput(call) {
    if (this.output?.call === call) return;
    this.outputAbort?.abort();
    this.outputAbort = new AbortController();
    const output = { call, parts: [], size: 0, missed: 0 };
    this.output = output;
    const told = (event, data) => {
      if (event === "missed") output.missed += data.bytes;
      if (event !== "output") return;
      const text = data.text ?? new TextDecoder().decode(Uint8Array.from(atob(data.base64), (sign) => sign.charCodeAt(0)));
      output.parts.push({ stream: data.stream, text });
      output.size += text.length;
      while (output.size > OUTPUT_KEPT && output.parts.length > 1) output.size -= output.parts.shift().text.length;
      this.model.emit();
    };
    follow(ofSession(this.model.session, `/calls/${call}/output`), {}, this.outputAbort.signal, told).catch(() => {});
  }

  answer(call, answer, reason) {
    this.take(this.questions.filter((question) => question.call !== call));
    const body = reason ? { answer, reason } : { answer };
    return post(ofSession(this.model.session, `/calls/${call}/answer`), body);
  }
}
