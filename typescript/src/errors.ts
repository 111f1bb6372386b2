/** Errors: what was wrong, its kind, and what to do. */

import type { components } from "./api.js";

/** A problem as the server tells it (RFC 9457). */
export type Problem = components["schemas"]["Problem"];
/** The outcome of a call. */
export type CallOutcome = components["schemas"]["CallOutcome"];

/**
 * An error of foldspace. `kind` is that of the problem (`not_found`, `refused`, `conflict`, ...), the reason of a call
 * that failed, or one of `start` and `connection`.
 */
export class FoldspaceError extends Error {
  override readonly name: string = "FoldspaceError";

  constructor(
    readonly kind: string,
    readonly detail: string,
    readonly hint?: string | null,
    readonly outcome?: CallOutcome,
  ) {
    super(hint ? `${detail} (${hint})` : detail);
  }

  /** Tells whether the store, the workspace or its backend failed, and not what was asked for. */
  get isInfrastructure(): boolean {
    return INFRASTRUCTURE.has(this.kind);
  }
}

const INFRASTRUCTURE = new Set(["failed", "abandoned", "backend", "broken", "full", "ending", "other_host", "too_slow", "start", "connection"]);

/** A command that failed, where the caller asked for success. */
export class CommandFailedError extends FoldspaceError {
  override readonly name = "CommandFailedError";

  constructor(readonly result: { exitCode: number; stderr: string }) {
    const said = result.stderr.trim().split("\n").at(-1);
    super("command", `the command ended with ${result.exitCode}${said ? `: ${said}` : ""}`);
  }
}

/** Returns the error of a problem document. */
export function ofProblem(problem: Partial<Problem>, status = 0): FoldspaceError {
  return new FoldspaceError(problem.kind ?? "error", problem.detail ?? `the server answered with ${status}`, problem.hint);
}

/** Returns the outcome of a success, and throws that of a failure. */
export function succeeded(outcome: CallOutcome): CallOutcome {
  if (outcome.status === "ok") return outcome;
  throw new FoldspaceError(outcome.reason ?? outcome.status, outcome.text, undefined, outcome);
}
