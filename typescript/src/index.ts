/**
 * foldspace: sessions of the sandboxes in which AI agents work.
 *
 * @module
 */

import { Connection, type Place } from "./connection.js";
import { create, open, type Session, type NewSession, type Rules, type SessionStatus } from "./session.js";

export type { components } from "./api.js";
export { findFoldspaceBin } from "./binary.js";
export type { Cancel, Data, Place } from "./connection.js";
export { CommandFailedError, FoldspaceError, type CallOutcome, type Problem } from "./errors.js";
export { Files, ReadFiles, type Change, type Entry, type Position } from "./files.js";
export { CommandResult, Process, type OnOutput, type ProcessStatus } from "./process.js";
export { Session, Snapshot, type Answer, type Command, type Event, type NewSession, type Rules, type RunOptions, type SessionStatus } from "./session.js";

/** A client of a server, which is started where none runs: its sessions. */
export class Client implements Disposable {
  readonly #connection: Connection;

  /** `data` is the directory of the data, `url` and `token` a server over TCP; by default that of the command line. */
  constructor(place: Place = {}) {
    this.#connection = new Connection(place);
  }

  /** Begins a session. */
  create(wishes: NewSession = {}): Promise<Session> {
    return create(this.#connection, wishes, false);
  }

  /** Returns a session that is there, by its name or the beginning of its id. */
  open(session: string, rules: Rules = {}): Promise<Session> {
    return open(this.#connection, session, rules, false);
  }

  /** Lists all sessions, the oldest first. */
  async sessions(): Promise<SessionStatus[]> {
    const found: SessionStatus[] = [];
    for (;;) {
      const query = { limit: 500, after: found.at(-1)?.session };
      const page = await this.#connection.document<SessionStatus[]>("GET", "/v1/sessions", { query });
      found.push(...page);
      if (page.length < 500) return found;
    }
  }

  /** Ends the server: calls in flight get some time. */
  async stopServer(): Promise<void> {
    await this.#connection.document("POST", "/v1/server/stop");
    this.close();
  }

  /** Lets the server end when nobody else uses it. */
  close(): void {
    this.#connection.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** Begins a session with a connection of its own: `await using s = await session({ backend: "podman" })`. */
export async function session(wishes: NewSession & Place = {}): Promise<Session> {
  const { data, url, token, ...rest } = wishes;
  return create(new Connection({ data, url, token }), rest, true);
}

/** Opens a session that is there, by its name or the beginning of its id, with a connection of its own. */
export async function attach(session: string, wishes: Rules & Place = {}): Promise<Session> {
  const { data, url, token, ...rules } = wishes;
  return open(new Connection({ data, url, token }), session, rules, true);
}
