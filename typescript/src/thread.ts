/** Conversations in a session's log, next to its calls and files. The events are those of the Python client's threads. */

import { randomUUID } from "node:crypto";
import { FoldspaceError } from "./errors.js";
import type { Position } from "./files.js";
import type { Schemas } from "./past.js";
import type { Session } from "./session.js";

const ADDED = "thread.added";
const POPPED = "thread.popped";
const CLEARED = "thread.cleared";
const STARTED = "thread.turn";
const KINDS = [ADDED, POPPED, CLEARED, STARTED, "SessionRewound"].join(",");
// The server stores longer strings apart from their events, and events have at most 1 MiB.
const PIECE = 16_000;
const PIECES = 50;
// Below the server's limits for a commit, with space for one more entry: 10,000 events and 64 MiB.
const BATCH = 8_000;
const BATCH_BYTES = 16 << 20;

/** A turn of a conversation: an input, and all that follows it. */
export interface Turn<T = unknown> {
  /** The position before the turn: `rewind({ to: turn.position })` takes it back. */
  position: number;
  /** The first item of its input. */
  input: T;
}

/** The turns or the position to rewind a conversation to. */
export interface RewindThread {
  /** The number of turns to take back; 1 by default. */
  turns?: number;
  /** The position, in place of `turns`. */
  to?: Position;
  /** True to proceed where `Session.rewind` would refuse. */
  force?: boolean;
}

/** An entry of a thread. Copies in other sessions share its id; the start of a turn has none, and is not an entry itself. */
interface Entry {
  id: string | null;
  value: unknown;
  // Before it, and before the turn or the merge that it came with.
  position: number;
  startsTurn: boolean;
}

/** The last entry of a thread, and the thread before it. */
interface Node {
  entry: Entry;
  before?: Node;
}

/** Runs one function after another. */
export class Queue {
  #last: Promise<unknown> = Promise.resolve();

  run<T>(work: () => Promise<T>): Promise<T> {
    const next = this.#last.then(work);
    this.#last = next.catch(() => {});
    return next;
  }
}

/** The threads of a session: a fold of its log. A rewind restores each thread as of its position. */
export class ThreadLog {
  readonly #reading = new Queue();
  readonly #popping = new Queue();
  #next = 1;
  // The last node of each thread, after each position that changed it.
  readonly #changes = new Map<string, { seq: number; node?: Node }[]>();
  // The pieces of an entry that is being read, and the position before it. Its events are in one commit.
  #pieces: string[] = [];
  #before?: number;

  constructor(readonly session: Session) {}

  /** Returns the entries of a thread. */
  async entries(thread: string): Promise<Entry[]> {
    return (await this.#all(thread)).filter((each) => each.id !== null);
  }

  async #all(thread: string): Promise<Entry[]> {
    await this.#update();
    const found: Entry[] = [];
    for (let node = this.#last(thread); node; node = node.before) found.push(node.entry);
    return found.reverse();
  }

  /** Adds values. The first starts a turn if `startsTurn` is set, at a position or here. */
  async add(thread: string, values: unknown[], startsTurn: boolean, position?: number): Promise<void> {
    const entries = values.map((value, at) => ({ id: randomUUID().replaceAll("-", ""), value, startsTurn: startsTurn && at === 0 }));
    await this.#add(thread, entries, position);
  }

  async #add(thread: string, entries: Omit<Entry, "position">[], position?: number): Promise<void> {
    let batch: { kind: string; data: unknown }[] = [];
    let size = 0;
    for (const { id, value, startsTurn } of entries) {
      const data = { thread, id, turn: startsTurn, position };
      // As ASCII, so that a piece does not end between the halves of a character.
      const text = JSON.stringify(value).replace(/[\u007f-\uffff]/g, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
      size += text.length;
      if (text.length <= PIECE && !/"\$|\\ud[89a-f]/.test(text)) batch.push({ kind: ADDED, data: { ...data, entry: value } });
      else {
        const pieces = Array.from({ length: Math.ceil(text.length / PIECE) }, (_, at) => text.slice(at * PIECE, (at + 1) * PIECE));
        for (let at = 0; at < pieces.length; at += PIECES) {
          const more = at + PIECES < pieces.length;
          batch.push({ kind: ADDED, data: { ...data, pieces: pieces.slice(at, at + PIECES), more } });
        }
      }
      if (size > BATCH_BYTES || batch.length > BATCH) {
        await this.session.emitAll(batch);
        [batch, size] = [[], 0];
      }
    }
    if (batch.length) await this.session.emitAll(batch);
  }

  /** Removes the last entry, and returns it. */
  pop(thread: string): Promise<Entry | undefined> {
    return this.#popping.run(async () => {
      await this.#update();
      const node = this.#last(thread);
      if (node) await this.session.emit(POPPED, { thread });
      return node?.entry;
    });
  }

  /** Removes all entries of a thread. */
  async clear(thread: string): Promise<void> {
    await this.session.emit(CLEARED, { thread });
  }

  /** Returns the turns of a thread, oldest first. */
  async turns<T>(thread: string): Promise<Turn<T>[]> {
    const starts = (await this.#all(thread)).filter((each) => each.startsTurn);
    return starts.map(({ position, value }) => ({ position, input: value as T }));
  }

  /** Rewinds threads and files. */
  async rewind(thread: string, { turns, to, force }: RewindThread): Promise<Schemas["Rewind"]> {
    if (turns !== undefined && to !== undefined) throw new FoldspaceError("unusable", "rewind takes turns or to, not both");
    if (to !== undefined) return this.session.rewind(to, { force });
    const known = await this.turns(thread);
    const turn = (turns ?? 1) > 0 ? known.at(-(turns ?? 1)) : undefined;
    if (!turn) throw new FoldspaceError("not_found", `turns is ${turns ?? 1}; the thread has ${known.length}`);
    return this.session.rewind(turn.position, { force });
  }

  /** Merges a child's files, then appends the child's entries that the thread lacks, as one turn. */
  async merge(thread: string, child: ThreadLog, options?: Parameters<Session["merge"]>[1]): Promise<Schemas["Merge"]> {
    const merged = await this.session.merge(child.session, options);
    if (merged.outcome !== "conflicted" && !merged.dry_run) {
      const has = new Set((await this.entries(thread)).map((each) => each.id));
      const lacking = (await child.entries(thread)).filter((each) => !has.has(each.id));
      const added = lacking.map((each, at) => ({ ...each, startsTurn: at === 0 }));
      await this.#add(thread, added, merged.seq ? merged.seq - 1 : undefined);
    }
    return merged;
  }

  #update(): Promise<void> {
    return this.#reading.run(async () => {
      for (const { seq, kind, event } of await this.session.log(this.#next, { kind: KINDS })) {
        this.#fold(seq, kind, event);
        this.#next = seq + 1;
      }
    });
  }

  #last(thread: string): Node | undefined {
    return this.#changes.get(thread)?.at(-1)?.node;
  }

  // The shape of the data depends on the kind.
  #fold(seq: number, kind: string, data: any): void {
    if (kind === "SessionRewound") {
      for (const changes of this.#changes.values()) {
        let at = changes.length;
        while (at > 0 && changes[at - 1]!.seq > data.to) at -= 1;
        changes.push({ seq, node: changes[at - 1]?.node });
      }
      return;
    }
    const before = this.#last(data.thread);
    let node: Node | undefined;
    if (kind === POPPED) node = before?.before;
    else if (kind === STARTED) node = { entry: { id: null, value: data.input, position: seq - 1, startsTurn: true }, before };
    else if (kind === ADDED) {
      this.#before ??= data.position ?? seq - 1;
      this.#pieces.push(...(data.pieces ?? []));
      if (data.more) return;
      const value = this.#pieces.length ? JSON.parse(this.#pieces.join("")) : data.entry;
      node = { entry: { id: data.id, value, position: this.#before!, startsTurn: data.turn }, before };
      [this.#pieces, this.#before] = [[], undefined];
    }
    const changes = this.#changes.get(data.thread) ?? [];
    this.#changes.set(data.thread, changes);
    changes.push({ seq, node });
  }
}
