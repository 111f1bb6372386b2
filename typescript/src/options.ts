/** The options of commands and children. */

import type { OnOutput } from "./process.js";

/** A command line for `/bin/sh -c`, or a program with its arguments. */
export type Command = string | string[];

/** The rules for a client's commands. */
export interface Rules {
  /** Programs, or programs with their first arguments, that may run without a question. */
  allow?: string[];
  /** Programs, or programs with their first arguments, that may not run. */
  deny?: string[];
  /** Answers every question with yes. */
  autoConfirm?: boolean;
  /** Answers the question about a command. */
  onQuestion?: (question: { command: Command; programs: string[]; call: number }) => Answer | Promise<Answer>;
  /** The client's agent name. */
  agent?: string;
}

/** An answer to the question about a command. */
export type Answer = "once" | "session" | "everything" | "refuse";

/** Limits of a child. A call beyond a limit is refused. */
export interface Limits {
  /** Calls. */
  calls?: number;
  /** The duration of its calls together, in milliseconds. */
  wall_millis?: number;
  /** Bytes that it writes to files. */
  bytes_written?: number;
  /** Generations of children below it; 0 allows none. */
  depth?: number;
  /** The tools that it may call; all by default. */
  tools?: string[];
  /** Programs, or programs with their first arguments, that it may not run. */
  deny?: string[];
}

/** The options of a command. */
export interface RunOptions {
  /** The directory, relative to the workspace; its root by default. */
  cwd?: string;
  /** Additional environment variables. */
  env?: Record<string, string>;
  /** Its standard input; empty by default. */
  stdin?: string;
  /** The time limit in seconds, from 1 to 86,400; none by default. */
  timeout?: number;
  /** True to throw if it fails. */
  check?: boolean;
  /** Receives output as it comes, of both streams or of one. */
  onOutput?: OnOutput;
  /** Receives standard output as it comes. */
  onStdout?: (bytes: Uint8Array) => void;
  /** Receives standard error as it comes. */
  onStderr?: (bytes: Uint8Array) => void;
  /** Cancels it. */
  signal?: AbortSignal;
}

/** The options of a service. */
export interface ServiceOptions {
  /** The directory, relative to the workspace; its root by default. */
  cwd?: string;
  /** Additional environment variables. */
  env?: Record<string, string>;
  /** It is ready when this TCP port accepts a connection. */
  port?: number;
  /** It is ready when it has printed this text. Without both, it is ready if it still runs after 0.2 s. */
  prints?: string;
  /** Names of services that must run before it. */
  after?: string[];
  /** True to start it again for the next command after a rewind, in a fork, and after a restart of the server. */
  restart?: boolean;
  /**
   * The longest wait, from 0 to 300; 30 by default. A service that is not ready by then runs on: `ready` of
   * its document is false.
   */
  readySeconds?: number;
}
