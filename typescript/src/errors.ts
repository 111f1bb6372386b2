/** Errors, with their kind and advice. */

import type { components } from "./api.js";

/** A problem that the server reports (RFC 9457). */
export type Problem = components["schemas"]["Problem"];
/** The outcome of a call. */
export type CallOutcome = components["schemas"]["CallOutcome"];

/**
 * An error of foldspace. `kind` is the problem's kind (`not_found`, `refused`, `conflict`, ...), the reason of a failed
 * call, or `start` or `connection`.
 */
export class FoldspaceError extends Error {
  /** The name of the class. */
  override readonly name: string = "FoldspaceError";

  /** @internal */
  constructor(
    /** The kind of the problem. */
    readonly kind: string,
    /** The problem, without advice. */
    readonly detail: string,
    /** Advice, if the server has any. */
    readonly hint?: string | null,
    /** The outcome of the call that failed. */
    readonly outcome?: CallOutcome,
    /** The position that the problem is about, if any. */
    readonly position?: number | null,
    /** The session's last position, if the problem is that the session ends there. */
    readonly head?: number | null,
  ) {
    super(hint ? `${detail} (${hint})` : detail);
  }

  /** True if the store, the workspace or its backend failed, not the request. */
  get isInfrastructure(): boolean {
    return INFRASTRUCTURE.has(this.kind);
  }
}

const INFRASTRUCTURE = new Set(["failed", "abandoned", "backend", "broken", "full", "ending", "store_failed", "cluster_lost", "other_host", "too_slow", "start", "connection"]);

/** The error of a failed command, if the caller set `check`. */
export class CommandFailedError extends FoldspaceError {
  /** The name of the class. */
  override readonly name = "CommandFailedError";

  /** @internal */
  constructor(
    /** The exit code and standard error of the command. */
    readonly result: {
      /** The exit code. */
      exitCode: number;
      /** Standard error as text. */
      stderr: string;
    },
  ) {
    const said = result.stderr.trim().split("\n").at(-1);
    super("command", `the command ended with ${result.exitCode}${said ? `: ${said}` : ""}`);
  }
}

/** Returns the error of a problem document. */
export function ofProblem(problem: Partial<Problem>, status = 0): FoldspaceError {
  const { kind = "error", detail = `the server answered with ${status}`, hint, position, head } = problem;
  return new FoldspaceError(kind, detail, hint, undefined, position, head);
}

/** Returns a successful outcome, or throws the error of a failed one. */
export function succeeded(outcome: CallOutcome): CallOutcome {
  if (outcome.status === "ok") return outcome;
  throw new FoldspaceError(outcome.reason ?? outcome.status, outcome.text, undefined, outcome);
}
