// The messages of agents' runs: prompts, answers and reasoning.

import { get, isExport, ofSession } from "./source.js";

const PAGE = 1000;
const MOST = 20_000;

export const isMessage = (item) => item?.role !== undefined;

export class Conversation {
  constructor(session) {
    this.session = session;
    this.list = [];
    this.from = 1;
    this.isCut = false;
    this.loading = Promise.resolve();
    this.problem = null;
  }

  // Loads what is new. An exported file has no messages.
  load() {
    if (isExport) return Promise.resolve();
    this.loading = this.loading.then(() => this.pages());
    return this.loading;
  }

  async pages() {
    try {
      let next = this.from;
      while (next !== null && !this.isCut) {
        const page = await get(ofSession(this.session, "/messages"), { from: next, limit: PAGE });
        for (const message of page.messages) this.add(message);
        next = page.next;
        this.from = next ?? page.head + 1;
      }
      this.problem = null;
    } catch (problem) {
      this.problem = problem;
    }
  }

  // An event may have several messages, which `number` tells apart.
  add(message) {
    const last = this.list.at(-1);
    this.isCut ||= this.list.length >= MOST;
    if (!this.isCut) this.list.push({ ...message, number: last?.seq === message.seq ? last.number + 1 : 0 });
  }

  // Returns the messages that the filters show. A message has no tool and no paths; a false claim counts as failed.
  matching({ show, reasoning, tool, agent, failed, changed, path, text }) {
    if (show === "calls" || tool || changed || path) return [];
    const wanted = text.toLowerCase();
    return this.list.filter((message) => (!failed || message.claim)
      && (!agent || message.agent === agent)
      && (reasoning !== "off" || message.role !== "reasoning")
      && (!wanted || message.text.toLowerCase().includes(wanted)));
  }

  // Returns the last message before one in the same run, of these roles.
  before({ seq, number, run }, roles) {
    return this.list.findLast((other) => other.run === run && roles.includes(other.role) && (other.seq < seq || (other.seq === seq && other.number < number))) ?? null;
  }
}

// Returns a message with its full text.
export async function wholeMessage(session, { seq, number }) {
  const page = await get(ofSession(session, "/messages"), { from: seq, limit: 1, whole: true });
  return page.messages.filter((message) => message.seq === seq)[number];
}
