// The rows of the timeline: calls with the messages between them.
//
// Calls are loaded on demand, in buckets. How many rows a bucket has is known at once; where its messages are between its
// calls, when the calls are loaded.

import { upper } from "./calls.js";
import { isMessage } from "./messages.js";
import { failed } from "./text.js";

export class Thread {
  constructor(calls, messages, { hidesCalls, told }) {
    Object.assign(this, { calls, hidesCalls, told });
    this.take(messages);
  }

  // Takes the messages, or new calls.
  take(messages) {
    const buckets = this.hidesCalls ? [] : this.calls.buckets;
    const seqs = messages.map(({ seq }) => seq);
    this.messages = messages;
    this.seqs = seqs;
    // The first part is before the first call; then each bucket is one.
    this.parts = [];
    this.starts = [];
    this.orders = new Map();
    let [start, said] = [0, 0];
    for (let number = -1; number < buckets.length; number += 1) {
      const calls = buckets[number]?.calls ?? 0;
      const end = number + 1 < buckets.length ? upper(seqs, buckets[number + 1].from) : messages.length;
      this.parts.push({ start, calls, firstCall: number < 0 ? 0 : this.calls.starts[number], said, messages: end - said });
      this.starts.push(start);
      start += calls + end - said;
      said = end;
    }
    this.total = start;
  }

  get isFiltered() {
    return this.hidesCalls || this.calls.isFiltered;
  }

  partOf(index) {
    return this.parts[upper(this.starts, index) - 1];
  }

  // Returns the rows of a part in order: the number of a call, or `~` of that of a message; null until its calls are loaded.
  order(part) {
    const known = this.orders.get(part);
    if (known) return known;
    const order = [];
    let said = part.said;
    const end = said + part.messages;
    for (let row = part.firstCall; row < part.firstCall + part.calls; row += 1) {
      const call = this.calls.rows.get(row);
      if (!call) return null;
      while (said < end && this.seqs[said] < call.call) order.push(~said++);
      order.push(row);
    }
    while (said < end) order.push(~said++);
    this.orders.set(part, order);
    return order;
  }

  async ordered(part) {
    for (let row = part.firstCall; !this.order(part) && row < part.firstCall + part.calls; row += 1) await this.calls.ensure(row);
    return this.order(part) ?? [];
  }

  // Returns the number of a row's call, or `~` of that of its message; null if it is not known yet.
  at(index) {
    if (index < 0 || index >= this.total) return null;
    const part = this.partOf(index);
    const offset = index - part.start;
    if (part.messages === 0) return part.firstCall + offset;
    return this.order(part)?.[offset] ?? null;
  }

  // Returns the call or message of a row if it is loaded.
  known(index) {
    const at = this.at(index);
    return at === null ? null : at < 0 ? this.messages[~at] : this.calls.rows.get(at) ?? null;
  }

  // Like `known`; else requests it, and calls `told` when it is there.
  row(index) {
    const known = this.known(index);
    if (!known && index >= 0 && index < this.total) this.ensure(index).then(this.told, () => {});
    return known;
  }

  async ensure(index) {
    if (index < 0 || index >= this.total) return null;
    const part = this.partOf(index);
    const at = part.messages === 0 ? part.firstCall + index - part.start : (await this.ordered(part))[index - part.start];
    return at === undefined ? null : at < 0 ? this.messages[~at] : this.calls.ensure(at);
  }

  async rowOf(part, at) {
    return part.messages === 0 ? part.start + at - part.firstCall : part.start + (await this.ordered(part)).indexOf(at);
  }

  rowOfCall(number) {
    return this.rowOf(this.parts[this.calls.bucketOf(number) + 1], number);
  }

  rowOfMessage(number) {
    return this.rowOf(this.parts[upper(this.parts.map(({ said }) => said), number) - 1], ~number);
  }

  // Returns the row of a message; null if it is not shown.
  async messageAt(seq, number = 0) {
    let found = upper(this.seqs, seq - 1);
    while (this.messages[found]?.seq === seq && this.messages[found].number < number) found += 1;
    return this.messages[found]?.seq === seq ? this.rowOfMessage(found) : null;
  }

  // Returns the row of the last call that began at or before a position, or of the last message if calls are hidden; -1
  // before the first.
  async indexOf(seq) {
    if (this.hidesCalls) return upper(this.seqs, seq) - 1;
    const call = await this.calls.indexOf(seq);
    return call < 0 ? -1 : this.rowOfCall(call);
  }

  // Returns the next or previous row of a failed call, or of a false claim if calls are hidden.
  async nextFailure(from, direction) {
    if (this.hidesCalls) {
      let index = from + direction;
      while (index >= 0 && index < this.total && !this.messages[index].claim) index += direction;
      return index >= 0 && index < this.total ? index : null;
    }
    let near = from;
    while (near >= 0 && isMessage(await this.ensure(near))) near -= 1;
    const isBetween = near !== from && direction < 0;
    const found = await this.calls.search((near < 0 ? -1 : this.at(near)) + (isBetween ? 1 : 0), direction, "failed", failed);
    return found === null ? null : this.rowOfCall(found);
  }

  // Returns the number of the call after a row, if it is loaded.
  nextCall(index) {
    let next = index + 1;
    while (isMessage(this.known(next))) next += 1;
    return this.known(next)?.call ?? Infinity;
  }
}
