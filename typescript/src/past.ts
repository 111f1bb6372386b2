/** The history of a session: its calls, their changes, and its family. */

import type { components } from "./api.js";
import { encoded, type Connection } from "./connection.js";
import type { Position } from "./files.js";

/** The documents of the HTTP API, by name. */
export type Schemas = components["schemas"];
/** An event of a session. */
export type Event = Schemas["Event"];
/** The server's description of a session. */
export type SessionStatus = Schemas["Session"];

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

  /** Lists its calls from a position on that match all filters. */
  async calls(wishes: { from?: number; tool?: string; agent?: string; failed?: boolean; changed?: boolean; path?: string; text?: string } = {}): Promise<Schemas["ListedCall"][]> {
    const calls: Schemas["ListedCall"][] = [];
    for (let from: number | null | undefined = wishes.from ?? 1; from !== null && from !== undefined; ) {
      const page: Schemas["CallsPage"] = await this.connection.document("GET", `${this.path}/calls`, { query: { ...wishes, from, limit: 1000 } });
      calls.push(...page.calls);
      from = page.next;
    }
    return calls;
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

  /** Returns its events from a position on. */
  async log(from: Position = 1): Promise<Event[]> {
    const events: Event[] = [];
    for (let at: Position | null | undefined = from; at !== null && at !== undefined; ) {
      const page: Schemas["Page"] = await this.connection.document("GET", `${this.path}/events`, { query: { from: at, limit: 1000 } });
      events.push(...page.events);
      at = page.next;
    }
    return events;
  }
}
