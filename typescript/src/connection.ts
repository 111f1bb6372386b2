/** Requests to the server for documents, bytes and streams; problems become errors. */

import { request, type IncomingMessage } from "node:http";
import { join } from "node:path";
import type { Socket } from "node:net";
import { Readable } from "node:stream";
import { FoldspaceError, ofProblem, type Problem } from "./errors.js";
import { attend, dataDirectory } from "./owner.js";

/** The contents of a file or an archive. */
export type Data = string | Uint8Array | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/** The parts of a request. */
export interface Asked {
  query?: Record<string, unknown>;
  body?: unknown;
  content?: Data;
  stream?: boolean;
  lastEventId?: string;
  signal?: AbortSignal;
}

/** An event of a stream. */
export interface StreamEvent {
  name: string;
  id: string;
  // The API's description has the schema.
  data: any;
}

/** Cancels a request, also on the server. */
export interface Cancel {
  /** Cancels the request when it is aborted. */
  signal?: AbortSignal;
}

/** The server of a data directory, or a server over TCP with its token. */
export interface Place {
  /** The data directory; by default `FOLDSPACE_DATA`, else the command line's. */
  data?: string;
  /** The address of a server over TCP, such as `http://127.0.0.1:7300`. */
  url?: string;
  /** The token of a server over TCP. */
  token?: string;
}

/** Connections to a server. */
export class Connection {
  readonly directory: string;
  #attended: Socket | undefined;
  #attending: Promise<void> | undefined;
  #first: Promise<unknown> | undefined;
  /** The number of users of each directory that this client mounted. */
  readonly mountUsers = new Map<string, number>();
  #mounting: Promise<unknown> = Promise.resolve();

  constructor(private readonly place: Place = {}) {
    this.directory = dataDirectory(place.data);
  }

  /** Connects, or reconnects if the server has ended. */
  async attend(): Promise<void> {
    if (this.place.url || (this.#attended && !this.#attended.destroyed && !this.#attended.readableEnded)) return;
    this.#attending ??= attend(this.directory)
      .then((socket) => {
        this.close();
        this.#attended = socket;
      })
      .finally(() => (this.#attending = undefined));
    await this.#attending;
  }

  /** Allows the server to end. */
  close(): void {
    this.#attended?.destroy();
    this.#attended = undefined;
  }

  /** Makes a request and returns its document. */
  async document<T = any>(method: string, path: string, asked: Asked = {}): Promise<T> {
    const read = await bytesOf(await this.response(method, path, asked), asked.signal);
    return (read.length ? JSON.parse(read.toString("utf8")) : undefined) as T;
  }

  /** Gets a document that is older than all that later requests change: they wait for it. */
  first<T>(path: string): Promise<T> {
    const document = this.document<T>("GET", path);
    this.#first = document.catch(() => {});
    return document;
  }

  /** Runs work on mounts after all earlier work on them. */
  mounting<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#mounting.then(work);
    this.#mounting = done.catch(() => {});
    return done;
  }

  /** Makes a request and returns its unread response. */
  async response(method: string, path: string, asked: Asked = {}): Promise<IncomingMessage> {
    await this.#first;
    await this.attend();
    const response = await this.#send(method, path, asked).catch(async (error) => {
      // The server ended after `attend`, so it has nothing of the request. A stream can't be sent twice.
      const isGone = ["ENOENT", "ECONNREFUSED"].includes(error.cause?.code) && !this.place.url;
      if (!isGone || (asked.content !== undefined && !isWhole(asked.content))) throw error;
      this.close();
      await this.attend();
      return this.#send(method, path, asked);
    });
    if ((response.statusCode ?? 500) < 400) return response;
    throw await problemOf(response);
  }

  /** True for a server over TCP. */
  get isRemote(): boolean {
    return this.place.url !== undefined;
  }

  /** Upgrades a new connection to another protocol, which only the unix socket offers. */
  async upgrade(path: string, protocol: string, body: unknown): Promise<Socket> {
    await this.attend();
    const headers = { connection: "upgrade", upgrade: protocol, "content-type": "application/json" };
    return new Promise((done, failed) => {
      const asked = request({ socketPath: this.#socket, agent: false, method: "POST", path, headers });
      asked.on("upgrade", (_, socket: Socket, first: Buffer) => {
        if (first.length) socket.unshift(first);
        done(socket);
      });
      asked.on("response", (response) => problemOf(response).then(failed, failed));
      asked.on("error", (error) => failed(lost(error)));
      asked.end(JSON.stringify(body));
    });
  }

  get #socket(): string {
    return join(this.directory, "http.sock");
  }

  /** Yields the events of a stream. */
  async *events(method: string, path: string, asked: Asked = {}): AsyncGenerator<StreamEvent> {
    const response = await this.response(method, path, { ...asked, stream: true });
    try {
      if (response.headers["content-type"]?.startsWith("text/event-stream")) yield* eventsOf(response);
      // Work that ends before its first message is answered with its outcome alone.
      else yield { name: "outcome", id: "", data: JSON.parse((await bytesOf(response)).toString("utf8")) };
    } catch (error) {
      throw lost(error, asked.signal);
    } finally {
      response.destroy();
    }
  }

  /** Yields the events of a stream, and resumes a broken stream; `last` names the event that ends it. */
  async *resumed(path: string, asked: Asked, last: string): AsyncGenerator<StreamEvent> {
    let lastEventId: string | undefined;
    for (let failures = 0; ; ) {
      try {
        for await (const event of this.events("GET", path, { ...asked, lastEventId })) {
          failures = 0;
          lastEventId = event.id || lastEventId;
          yield event;
          if (event.name === last || event.name === "problem") return;
        }
      } catch (error) {
        const isLost = error instanceof FoldspaceError && ["connection", "ending"].includes(error.kind);
        if (!isLost || ++failures > 5) throw error;
      }
      asked.signal?.throwIfAborted();
      await new Promise((done) => setTimeout(done, 100));
    }
  }

  #send(method: string, path: string, asked: Asked): Promise<IncomingMessage> {
    const { query = {}, body, content, signal } = asked;
    const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
    const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
    const headers: Record<string, string> = { host: "localhost" };
    if (body !== undefined) headers["content-type"] = "application/json";
    if (content !== undefined) headers["content-type"] = "application/octet-stream";
    if (asked.stream) headers.accept = "text/event-stream";
    if (asked.lastEventId) headers["last-event-id"] = asked.lastEventId;
    if (this.place.token) headers.authorization = `Bearer ${this.place.token}`;
    const base = this.place.url ? new URL(this.place.url) : undefined;
    const to = base ? { host: base.hostname, port: base.port } : { socketPath: this.#socket };
    if (base) headers.host = base.host;
    return new Promise((done, failed) => {
      // A reused connection may be closed by now, and a request that changes something must not be sent twice.
      const sent = request({ ...to, agent: false, method, path: search ? `${path}?${search}` : path, headers, signal });
      sent.on("response", done);
      sent.on("error", (error) => failed(lost(error, signal)));
      if (content === undefined) sent.end(body === undefined ? undefined : JSON.stringify(body));
      else if (isWhole(content)) sent.end(content);
      else Readable.from(content as AsyncIterable<Uint8Array>).on("error", failed).pipe(sent);
    });
  }
}

async function problemOf(response: IncomingMessage): Promise<FoldspaceError> {
  let problem: Partial<Problem> = {};
  try {
    problem = JSON.parse((await bytesOf(response)).toString("utf8")) as Problem;
  } catch {
    // The status describes the problem.
  }
  return ofProblem(problem, response.statusCode);
}

function isWhole(content: Data): content is string | Uint8Array {
  return typeof content === "string" || content instanceof Uint8Array;
}

function lost(error: unknown, signal?: AbortSignal): unknown {
  if (signal?.aborted) return signal.reason;
  if (error instanceof FoldspaceError) return error;
  return Object.assign(new FoldspaceError("connection", `the server hung up: ${(error as Error).message}`), { cause: error });
}

/** Returns all bytes of a response. */
export async function bytesOf(response: IncomingMessage, signal?: AbortSignal): Promise<Buffer> {
  const pieces: Buffer[] = [];
  try {
    for await (const piece of response) pieces.push(piece as Buffer);
  } catch (error) {
    throw lost(error, signal);
  }
  return Buffer.concat(pieces);
}

async function* eventsOf(response: IncomingMessage): AsyncGenerator<StreamEvent> {
  let rest = "";
  for await (const piece of response.setEncoding("utf8")) {
    rest += piece as string;
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const lines = rest.slice(0, end).split("\n");
      rest = rest.slice(end + 2);
      const field = (name: string) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      const data = field("data");
      // A comment keeps the connection alive.
      if (data !== undefined) yield { name: field("event") ?? "message", id: field("id") ?? "", data: JSON.parse(data) };
    }
  }
}

/** Encodes a name as one part of a URL's path. Empty names and dots would make the path of another route. */
export function part(name: string): string {
  if (["", ".", ".."].includes(name)) throw new FoldspaceError("unusable", `the name is "${name}"`);
  return encodeURIComponent(name);
}

/** Encodes a path for a URL, except for its slashes. */
export function encoded(path: string): string {
  return path.replace(/^\/+/, "").split("/").map(encodeURIComponent).join("/");
}
