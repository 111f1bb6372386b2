/**
 * foldspace: sessions of the sandboxes of AI agents.
 *
 * @module foldspace
 */

import type { components } from "./api.js";
import { Connection, type Place } from "./connection.js";
import { allSessions, type SessionStatus } from "./past.js";
import type { Rules } from "./options.js";
import { create, open, type Session, type NewSession } from "./session.js";

export type { components } from "./api.js";
export { findFoldspaceBin } from "./binary.js";
export type { Cancel, Data, Place } from "./connection.js";
export { CommandFailedError, FoldspaceError, type CallOutcome, type Problem } from "./errors.js";
export { Files, ReadFiles, type Change, type Entry, type Position, type Read } from "./files.js";
export { MountedDirectory } from "./mounts.js";
export type { Answer, Command, Limits, Rules, RunOptions, ServiceOptions } from "./options.js";
export type { CallFilters, Event, Schemas, SessionStatus } from "./past.js";
export { ForwardedPort } from "./ports.js";
export { CommandResult, Process, type OnOutput, type ProcessStatus } from "./process.js";
export type { Call, Rollout, RolloutOptions } from "./rollouts.js";
export { forkAndSelect, type Candidate, type SelectOptions, type Selection } from "./selection.js";
export { Session, Snapshot, type NewSession } from "./session.js";
export { TypedSlice, type Schema, type SliceOptions, type SliceValue } from "./slices.js";

/** A client of a server and its sessions. Starts the server if none runs. */
export class Client implements Disposable {
  readonly #connection: Connection;

  /** `data` is the data directory, by default the command line's; `url` and `token` select a server over TCP. */
  constructor(place: Place = {}) {
    this.#connection = new Connection(place);
  }

  /** Starts a session. */
  create(wishes: NewSession = {}): Promise<Session> {
    return create(this.#connection, wishes, false);
  }

  /** Opens an existing session, by its name or the beginning of its id. */
  open(session: string, rules: Rules = {}): Promise<Session> {
    return open(this.#connection, session, rules, false);
  }

  /** Lists all sessions, oldest first. */
  sessions(): Promise<SessionStatus[]> {
    return allSessions(this.#connection);
  }

  /** Runs an SQL query over all sessions; docs/sql.md has the tables. `limit` is 10,000 rows by default, `timeout` 30 s. */
  sql(query: string, options: { limit?: number; timeout?: number } = {}): Promise<components["schemas"]["SqlAnswer"]> {
    const body = { query, limit: options.limit, timeout_seconds: options.timeout };
    return this.#connection.document("POST", "/v1/sql", { body });
  }

  /**
   * Compares sessions as a tree: the calls that all made first, where they part, how each ends, and its scores. A string
   * is a name, the beginning of an id, or a glob of names (`rollout-*`).
   */
  compare(sessions: (Session | string)[]): Promise<components["schemas"]["ComparedRuns"]> {
    const names = sessions.map((session) => (typeof session === "string" ? session : session.id));
    return this.#connection.document("GET", "/v1/compare", { query: { sessions: names.join(",") } });
  }

  /** Ends the server, after a grace period for calls in flight. */
  async stopServer(): Promise<void> {
    await this.#connection.document("POST", "/v1/server/stop");
    this.close();
  }

  /** Closes the connection. The server ends when it is unused. */
  close(): void {
    this.#connection.close();
  }

  /** Closes the connection, as `close` does. */
  [Symbol.dispose](): void {
    this.close();
  }
}

/** Starts a session with its own connection: `await using s = await session({ backend: "podman" })`. */
export async function session(wishes: NewSession & Place = {}): Promise<Session> {
  const { data, url, token, ...rest } = wishes;
  return create(new Connection({ data, url, token }), rest, true);
}

/** Opens an existing session, by its name or the beginning of its id, with its own connection. */
export async function attach(session: string, wishes: Rules & Place = {}): Promise<Session> {
  const { data, url, token, ...rules } = wishes;
  return open(new Connection({ data, url, token }), session, rules, true);
}
