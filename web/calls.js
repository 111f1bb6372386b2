// The calls of a session by row number, fetched on demand: 100,000 calls are never held at once.

import { get, ofSession } from "./source.js";

const BUCKETS = 1000;
const BUCKETS_MOST = 2000;
const PAGE = 1000;
const GROUP = 120;
const ROWS_KEPT = 6000;

export class CallList {
  constructor(session, filters, told) {
    this.session = session;
    this.filters = filters;
    this.told = told;
    this.rows = new Map();
    this.pending = new Map();
    this.buckets = [];
    this.starts = [];
    this.groups = [];
    this.total = 0;
    this.timeline = null;
  }

  get isFiltered() {
    return Object.values(this.filters).some((value) => value !== "" && value !== false && value !== undefined);
  }

  query() {
    const given = Object.entries(this.filters).filter(([, value]) => value !== "" && value !== false);
    return Object.fromEntries(given);
  }

  async load() {
    const ask = (buckets) => get(ofSession(this.session, "/timeline"), { buckets, ...this.query() });
    let timeline = await ask(BUCKETS);
    if (timeline.calls > BUCKETS * PAGE) timeline = await ask(BUCKETS_MOST);
    this.timeline = timeline;
    this.buckets = timeline.buckets;
    this.starts = [];
    // Small buckets are fetched together, so that the visible rows need one or two requests.
    this.groups = [];
    let total = 0;
    this.buckets.forEach((bucket, number) => {
      const group = this.groups.at(-1);
      if (group && total + bucket.calls - group.start <= GROUP) group.end = total + bucket.calls;
      else this.groups.push({ from: bucket.from, start: total, end: total + bucket.calls });
      this.starts.push(total);
      total += bucket.calls;
    });
    this.total = total;
    return this;
  }

  // Loads new calls. Existing rows keep their numbers.
  async refresh() {
    const running = [...this.rows].filter(([, call]) => call.status === "running").map(([row]) => row);
    const total = this.total;
    await this.load();
    const first = this.total < total ? 0 : Math.min(...running, Infinity);
    for (const row of [...this.rows.keys()]) if (row >= first) this.rows.delete(row);
    this.pending.clear();
  }

  // Returns the row if it is loaded; else requests it, and calls `told` when it is.
  row(index) {
    const known = this.rows.get(index);
    if (!known && index >= 0 && index < this.total) this.ensure(index).then(this.told, () => {});
    return known ?? null;
  }

  async ensure(index) {
    if (index < 0 || index >= this.total) return null;
    if (!this.rows.has(index)) await this.page(upper(this.groups.map(({ start }) => start), index) - 1);
    return this.rows.get(index) ?? null;
  }

  page(number) {
    if (!this.pending.has(number)) {
      const promise = this.fetchGroup(this.groups[number]).finally(() => this.pending.delete(number));
      this.pending.set(number, promise);
    }
    return this.pending.get(number);
  }

  async fetchGroup({ from: first, start, end }) {
    let [from, row] = [first, start];
    while (from !== null && row < end) {
      const limit = Math.min(PAGE, end - row);
      const page = await get(ofSession(this.session, "/calls"), { from, limit, ...this.query() });
      for (const call of page.calls) this.rows.set(row++, call);
      from = page.next;
    }
    this.forget((start + end) / 2);
  }

  forget(middle) {
    if (this.rows.size <= ROWS_KEPT) return;
    const far = [...this.rows.keys()].sort((a, b) => Math.abs(b - middle) - Math.abs(a - middle));
    for (const row of far.slice(0, this.rows.size - ROWS_KEPT)) this.rows.delete(row);
  }

  bucketOf(index) {
    return upper(this.starts, index) - 1;
  }

  // Returns the row of the last call that began at or before a position; -1 before the first.
  async indexOf(seq) {
    const bucket = upper(this.buckets.map(({ from }) => from), seq) - 1;
    if (bucket < 0) return -1;
    let index = this.starts[bucket];
    const end = index + this.buckets[bucket].calls;
    while (index + 1 < end && (await this.ensure(index + 1))?.call <= seq) index += 1;
    return index;
  }

  // Returns the next or previous row for which `holds` is true; `counted` names the count of such calls in a bucket.
  async search(from, direction, counted, holds) {
    let index = from + direction;
    while (index >= 0 && index < this.total) {
      const bucket = this.bucketOf(index);
      if (!this.buckets[bucket][counted]) {
        index = direction > 0 ? this.starts[bucket] + this.buckets[bucket].calls : this.starts[bucket] - 1;
        continue;
      }
      const call = await this.ensure(index);
      if (call && holds(call)) return index;
      index += direction;
    }
    return null;
  }
}

// Returns the number of sorted values that are at most `value`.
export function upper(values, value) {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}
