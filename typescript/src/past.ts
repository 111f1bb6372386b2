/** The history of a session: its calls, their changes, and its family. */

import type { components } from "./api.js";
import { encoded, type Cancel, type Connection } from "./connection.js";
import { ofProblem } from "./errors.js";
import type { Position } from "./files.js";
import { bytesOf } from "./process.js";

/** The documents of the HTTP API, by name. */
export type Schemas = components["schemas"];
/** An event of a session. */
export type Event = Schemas["Event"];
/** The server's description of a session. */
export type SessionStatus = Schemas["Session"];

/** Filters of calls; a call matches all that are set. */
export interface CallFilters {
  /** The tool. */
  tool?: string;
  /** The agent that made it. */
  agent?: string;
  /** True for calls that failed. */
  failed?: boolean;
  /** True for calls that changed files. */
  changed?: boolean;
  /** A glob of changed paths. */
  path?: string;
  /** A text in the tool, the parameters, the result or the error. */
  text?: string;
}

/** The history of a session, read-only. */
export class SessionPast {
  /** @internal */
  constructor(
    protected readonly connection: Connection,
    /** The description from the last request. */
    public status: SessionStatus,
  ) {}

  /** Its id: 32 hexadecimal digits. */
  get id(): string {
    return this.status.session;
  }

  /** Its name. */
  get name(): string {
    return this.status.name;
  }

  /** The backend of its workspace. */
  get backend(): string {
    return this.status.backend;
  }

  /** The id of the session that it is a child of; `null` for a root. */
  get parent(): string | null {
    return this.status.parent;
  }

  protected get path(): string {
    return `/v1/sessions/${this.id}`;
  }

  /** Finds the next event that meets one of the conditions, such as `failed`, `path src/**` or `Usage.calls > 5`. */
  async until(conditions: string | string[], options: { from?: Position; backward?: boolean } = {}): Promise<Schemas["Stop"] | undefined> {
    const query = { ...options, conditions: [conditions].flat().join("\n") };
    for (let from = options.from; ; ) {
      const found: Schemas["Stop"] = await this.connection.document("GET", `${this.path}/until`, { query: { ...query, from } });
      if (found.next === null || found.next === undefined) return found.seq === null ? undefined : found;
      from = found.next;
    }
  }

  /** Lists the effects of its calls outside of the workspace, such as pushes, which no rewind takes back: the last 1,000. */
  effects(): Promise<Schemas["EffectEntry"][]> {
    return this.connection.document("GET", `${this.path}/effects`);
  }

  /** Lists its calls from a position on that match all filters. */
  async calls(wishes: { from?: number } & CallFilters = {}): Promise<Schemas["ListedCall"][]> {
    return (await this.#pages<Schemas["CallsPage"]>("calls", { limit: 1000, from: 1, ...wishes })).flatMap((page) => page.calls);
  }

  /** Counts the calls that match all filters in `buckets` (1 to 2,000) from the start of the session to its end. */
  timeline(wishes: { buckets?: number } & CallFilters = {}): Promise<Schemas["Timeline"]> {
    return this.connection.document("GET", `${this.path}/timeline`, { query: { ...wishes } });
  }

  /** Describes a call, with its result. */
  showCall(call: number): Promise<Schemas["WholeCall"]> {
    return this.connection.document("GET", `${this.path}/calls/${call}`);
  }

  /** Yields the output of a call in flight from now on, until the call ends. Fails if no such call is in flight. */
  async *output(call: number, { signal }: Cancel = {}): AsyncGenerator<{
    /** The stream. */
    stream: "stdout" | "stderr";
    /** A piece of its output. */
    bytes: Uint8Array;
  }> {
    for await (const { name, data } of this.connection.resumed(`${this.path}/calls/${call}/output`, { signal }, "ended")) {
      if (name === "output") yield { stream: data.stream, bytes: bytesOf(data) };
      else if (name === "problem") throw ofProblem(data);
    }
  }

  /**
   * Returns the prompts, answers and reasoning of agents' runs from a position on. `claims` keeps only messages that speak
   * of success after their agent's last command failed. Without `whole` long texts are cut.
   */
  async messages(wishes: { from?: number; run?: string; claims?: boolean; whole?: boolean } = {}): Promise<Schemas["Message"][]> {
    const pages = await this.#pages<Schemas["MessagesPage"]>("messages", { limit: 1000, from: 1, ...wishes });
    return pages.flatMap((page) => page.messages);
  }

  /**
   * Finds lines that match a regular expression (in Rust's syntax) from a position on: in the parameters and output of
   * calls, in lines that files gained, and in other events. `path` is a glob that keeps only matches in files.
   */
  async search(
    pattern: string,
    wishes: { from?: number; ignoreCase?: boolean; place?: "parameters" | "output" | "file" | "event"; path?: string } = {},
  ): Promise<Schemas["SearchMatch"][]> {
    const { ignoreCase, place, ...rest } = wishes;
    const query = { limit: 1000, from: 1, ...rest, pattern, ignore_case: ignoreCase, in: place };
    return (await this.#pages<Schemas["SearchPage"]>("search", query)).flatMap((page) => page.hits);
  }

  /** Lists the changes between two positions, or with `live` those not recorded yet, without contents. */
  changes(options: { from?: Position; to?: Position; live?: boolean } = {}): Promise<Schemas["ChangeList"]> {
    return this.connection.document("GET", `${this.path}/changes`, { query: options });
  }

  /** Returns the change that wrote each line of a file. */
  blame(path: string, at?: Position): Promise<Schemas["Blame"]> {
    return this.connection.document("GET", `${this.path}/blame/${encoded(path)}`, { query: { at } });
  }

  /** Aligns its calls with the calls of another session. */
  align(other: { id: string } | string, options: { to?: Position; otherTo?: Position } = {}): Promise<Schemas["Alignment"]> {
    const query = { other: typeof other === "string" ? other : other.id, to: options.to, other_to: options.otherTo };
    return this.connection.document("GET", `${this.path}/alignment`, { query });
  }

  /** Lists its tree: the oldest ancestor and all sessions that descend from it, with their merges. */
  family(): Promise<Schemas["Family"]> {
    return this.connection.document("GET", `${this.path}/family`);
  }

  /** Returns the changes between two positions, by default from the start to now. */
  diff(options: { from?: Position; to?: Position; path?: string } = {}): Promise<Schemas["Diff"]> {
    return this.connection.document("GET", `${this.path}/diff`, { query: options });
  }

  /** Returns its events from a position on; `kind` (several with commas) selects kinds. */
  async log(from: Position = 1, options: { kind?: string } = {}): Promise<Event[]> {
    return (await this.#pages<Schemas["Page"]>("events", { limit: 1000, from, ...options })).flatMap((page) => page.events);
  }

  async #pages<P extends { next?: number | null }>(what: string, query: Record<string, unknown>): Promise<P[]> {
    const pages: P[] = [];
    for (let from = query.from; from !== null && from !== undefined; from = pages.at(-1)?.next) {
      pages.push(await this.connection.document("GET", `${this.path}/${what}`, { query: { ...query, from } }));
    }
    return pages;
  }
}

/** Lists the sessions of a server, oldest first. */
export async function allSessions(connection: Connection): Promise<SessionStatus[]> {
  const found: SessionStatus[] = [];
  for (;;) {
    const query = { limit: 500, after: found.at(-1)?.session };
    const page = await connection.document<SessionStatus[]>("GET", "/v1/sessions", { query });
    found.push(...page);
    if (page.length < 500) return found;
  }
}
