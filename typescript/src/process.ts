/** Processes that run in the background of a session. */

import type { components } from "./api.js";
import type { Connection } from "./connection.js";
import { FoldspaceError } from "./errors.js";

/** The server's description of a process. */
export type ProcessStatus = components["schemas"]["Process"];
/** Receives a piece of output. */
export type OnOutput = (stream: "stdout" | "stderr", bytes: Uint8Array) => void;

/** The end of a command. */
export class CommandResult {
  /** @internal */
  constructor(
    /** Standard output. */
    readonly stdoutBytes: Uint8Array,
    /** Standard error. */
    readonly stderrBytes: Uint8Array,
    /** The exit code; 124 if it timed out. */
    readonly exitCode: number,
    /** True if it exceeded its time limit. */
    readonly timedOut: boolean,
    /** The signal that ended it; null if it exited. */
    readonly signal: number | null,
    /** The position of the call that ran it. */
    readonly call: number,
    /** The position of the record of its end. */
    readonly finished: number,
    /** Its duration in seconds. */
    readonly seconds: number,
  ) {}

  /** Standard output as text. */
  get stdout(): string {
    return new TextDecoder().decode(this.stdoutBytes);
  }

  /** Standard error as text. */
  get stderr(): string {
    return new TextDecoder().decode(this.stderrBytes);
  }

  /** True if it ended with 0 and did not time out. */
  get ok(): boolean {
    return this.exitCode === 0 && !this.timedOut;
  }
}

/** Returns the bytes of an output event. */
export function bytesOf(event: { text?: string; base64?: string }): Uint8Array {
  return event.base64 === undefined ? Buffer.from(event.text ?? "") : Buffer.from(event.base64, "base64");
}

/** Collects output by stream. */
export class Collected {
  readonly #pieces: Record<"stdout" | "stderr", Uint8Array[]> = { stdout: [], stderr: [] };
  readonly #skipped = { stdout: 0, stderr: 0 };

  constructor(private readonly onOutput?: OnOutput) {}

  /** Skips the output that was taken before, once: a repeated request sends all of it again. */
  again(): void {
    for (const stream of ["stdout", "stderr"] as const) this.#skipped[stream] = this.bytes(stream).length;
  }

  take(event: { stream: "stdout" | "stderr"; text?: string; base64?: string }): void {
    const all = bytesOf(event);
    const bytes = all.subarray(this.#skipped[event.stream]);
    this.#skipped[event.stream] -= all.length - bytes.length;
    if (bytes.length === 0) return;
    this.#pieces[event.stream].push(bytes);
    this.onOutput?.(event.stream, bytes);
  }

  bytes(stream: "stdout" | "stderr"): Uint8Array {
    return new Uint8Array(Buffer.concat(this.#pieces[stream]));
  }
}

/** A background process, running or ended. */
export class Process {
  /** @internal */
  constructor(
    private readonly connection: Connection,
    private readonly session: string,
    /** The description from the last request. */
    public status: ProcessStatus,
  ) {}

  /** Its number: the position of the call that started it. */
  get number(): number {
    return this.status.process;
  }

  get #path(): string {
    return `${this.session}/processes/${this.number}`;
  }

  /** Returns its present description. */
  async show(): Promise<ProcessStatus> {
    return (this.status = await this.connection.document("GET", this.#path));
  }

  /** Waits for its end, or for `timeout` seconds, and returns its description. */
  async wait(timeout?: number, signal?: AbortSignal): Promise<ProcessStatus> {
    const asked = { body: { timeout_seconds: timeout }, signal };
    return (this.status = await this.connection.document("POST", `${this.#path}/wait`, asked));
  }

  /** Sends standard input, and closes it if `end` is true. */
  async send(data: string | Uint8Array, { end = false }: { end?: boolean } = {}): Promise<void> {
    const base64 = Buffer.from(data as Uint8Array).toString("base64");
    await this.connection.document("POST", `${this.#path}/input`, { body: { base64, end } });
  }

  /** Sets the size of its terminal. */
  async resize(rows: number, columns: number): Promise<void> {
    await this.connection.document("POST", `${this.#path}/input`, { body: { window: { rows, columns } } });
  }

  /** Sends a signal to it and its group. */
  async signal(signal: string | number = "TERM"): Promise<void> {
    await this.connection.document("POST", `${this.#path}/signal`, { body: { signal } });
  }

  /** Kills it. */
  async kill(): Promise<void> {
    await this.signal("KILL");
  }

  /** Yields its output: the stored output, then new output, until it ends. */
  async *output(options: { from?: number; signal?: AbortSignal } = {}): AsyncGenerator<{
    /** The stream. */
    stream: "stdout" | "stderr";
    /** A piece of its output. */
    bytes: Uint8Array;
  }> {
    const asked = { query: { from: options.from }, signal: options.signal };
    for await (const event of this.connection.resumed(`${this.#path}/output`, asked, "ended")) {
      if (event.name === "output") {
        yield { stream: event.data.stream, bytes: bytesOf(event.data) };
      } else if (event.name === "ended") this.status = event.data;
    }
  }

  /** Waits for its end, and returns its result with all output. */
  async collect(options: { onOutput?: OnOutput; signal?: AbortSignal } = {}): Promise<CommandResult> {
    const collected = new Collected(options.onOutput);
    for await (const { stream, bytes } of this.output({ signal: options.signal })) {
      collected.take({ stream, base64: Buffer.from(bytes).toString("base64") });
    }
    const end = await this.wait(undefined, options.signal);
    if (end.problem) throw new FoldspaceError("failed", end.problem);
    const code = end.exit_code ?? 128 + (end.signal ?? 0);
    return new CommandResult(
      collected.bytes("stdout"), collected.bytes("stderr"), code, end.timed_out, end.signal ?? null,
      end.process, end.call ?? 0, end.micros / 1e6,
    );
  }
}
