/** The files of a session, now or at a position. */

import { Readable } from "node:stream";
import type { components } from "./api.js";
import { bytesOf, encoded, type Cancel, type Connection, type Data } from "./connection.js";
import { FoldspaceError, succeeded, type CallOutcome } from "./errors.js";

/** An entry of a workspace. */
export type Entry = components["schemas"]["EntryAtPath"];
/** A position: an event number, or text such as `-5`, `10m` or `tag:NAME`. */
export type Position = number | string;
/** A change below a directory. */
export interface Change {
  /** The path, relative to the workspace. */
  path: string;
  /** The kind of the change. */
  kind: "create" | "write" | "remove";
  /** The position of its event. */
  seq: number;
}

/** Options of reads. */
export interface Read extends Cancel {
  /** Reads the workspace's disk as it is now, also while a command runs; by default the files are as recorded. */
  live?: boolean;
}

/** Read-only files. */
export class ReadFiles {
  /** @internal */
  constructor(
    protected readonly connection: Connection,
    protected readonly session: string,
    private readonly at?: Position,
  ) {}

  /** Returns the contents of a file. */
  async read(path: string, { live, signal }: Read = {}): Promise<Uint8Array> {
    const query = { at: this.at, live };
    const response = await this.connection.response("GET", this.#file(path), { query, signal });
    return new Uint8Array(await bytesOf(response, signal));
  }

  /** Returns the contents of a file as text. */
  async readText(path: string, options: Read = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options));
  }

  #file(path: string): string {
    return `${this.session}/files/${encoded(path)}`;
  }

  /** Streams the contents of a file. */
  async stream(path: string, { live, signal }: Read = {}): Promise<ReadableStream<Uint8Array>> {
    const query = { at: this.at, live };
    const response = await this.connection.response("GET", this.#file(path), { query, signal });
    return Readable.toWeb(response) as ReadableStream<Uint8Array>;
  }

  /** Lists the entries of a directory, `depth` levels deep. */
  list(path = "", { depth = 1, live, signal }: { depth?: number } & Read = {}): Promise<Entry[]> {
    const query = { at: this.at, below: path.replace(/^\/+/, "") || undefined, depth, live };
    return this.connection.document("GET", `${this.session}/files`, { query, signal });
  }

  /** Returns the metadata of an entry. Does not follow a link. */
  stat(path: string, { live, signal }: Read = {}): Promise<Entry> {
    const query = { at: this.at, live };
    return this.connection.document("GET", `${this.session}/stat/${encoded(path)}`, { query, signal });
  }

  /** Returns true if an entry exists. */
  async exists(path: string): Promise<boolean> {
    try {
      await this.stat(path);
      return true;
    } catch (error) {
      if (error instanceof FoldspaceError && error.kind === "not_found") return false;
      throw error;
    }
  }

  /** Streams a directory as a tar archive. */
  async tar(below?: string, { signal }: Cancel = {}): Promise<ReadableStream<Uint8Array>> {
    const asked = { body: { at: this.at, below }, signal };
    const response = await this.connection.response("POST", `${this.session}/materialise`, asked);
    return Readable.toWeb(response) as ReadableStream<Uint8Array>;
  }
}

/** The present files. Each change is a recorded call. */
export class Files extends ReadFiles {
  /** @internal */
  constructor(connection: Connection, session: string, private readonly agent?: string) {
    super(connection, session);
  }

  /** Writes a file of at most 1 GiB. With `create`, fails if the path exists. */
  async write(path: string, data: Data, options: { executable?: boolean; create?: boolean } & Cancel = {}): Promise<CallOutcome> {
    const { signal, ...rest } = options;
    const asked = { query: { ...rest, agent: this.agent }, content: data, signal };
    return succeeded(await this.connection.document("PUT", `${this.session}/files/${encoded(path)}`, asked));
  }

  /** Removes an entry; a directory with entries only if `recursive` is set. */
  async remove(path: string, { recursive }: { recursive?: boolean } = {}): Promise<CallOutcome> {
    const asked = { query: { recursive, agent: this.agent } };
    return succeeded(await this.connection.document("DELETE", `${this.session}/files/${encoded(path)}`, asked));
  }

  /** Moves an entry, with everything below it. */
  async move(from: string, to: string, { replace }: { replace?: boolean } = {}): Promise<CallOutcome> {
    return succeeded(await this.connection.document("POST", `${this.session}/move`, { body: { from, to, replace, agent: this.agent } }));
  }

  /** Creates a directory. The directory may exist. */
  async mkdir(path: string): Promise<CallOutcome> {
    return succeeded(await this.connection.document("POST", `${this.session}/directories`, { body: { path, agent: this.agent } }));
  }

  /** Unpacks a tar archive below a directory. */
  async untar(archive: Data, below?: string, { signal }: Cancel = {}): Promise<CallOutcome> {
    const asked = { query: { below, agent: this.agent }, content: archive, signal };
    return succeeded(await this.connection.document("PUT", `${this.session}/tar`, asked));
  }

  /** Yields the changes below a directory as they come. */
  async *watch(below?: string, options: { recursive?: boolean; signal?: AbortSignal } = {}): AsyncGenerator<Change> {
    const { recursive, signal } = options;
    for await (const event of this.connection.resumed(`${this.session}/watch`, { query: { below, recursive }, signal }, "end")) {
      if (event.name === "change") yield event.data as Change;
    }
  }
}
