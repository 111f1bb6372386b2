/** Rollouts: scored runs of a session in forks. */

import type { Asked, Connection } from "./connection.js";
import { FoldspaceError, ofProblem } from "./errors.js";
import type { Position } from "./files.js";
import type { Limits } from "./options.js";
import type { Schemas } from "./past.js";
import type { Session } from "./session.js";

/** A call to make in a fork: a command line for `/bin/sh -c`, or a tool with its parameters. */
export type Call = string | Schemas["SubagentCall"];

/** A rollout of `Session.rollouts`; `kept` is final after the last rollout. */
export interface Rollout extends Omit<Schemas["Rollout"], "session"> {
  /** Its fork. It was removed if `kept` is false. */
  session: Session;
}

/** The options of `Session.rollouts`. */
export interface RolloutOptions {
  /** The number of rollouts, from 1 to 1,000; by default the number of lists in `run`. */
  count?: number;
  /** The position to fork at; the present by default. */
  at?: Position;
  /**
   * A command that prints the score as the last line of its output; made after the calls, also if one failed. Without
   * it the score is 1 if all calls succeeded, else 0.
   */
  score?: Call;
  /** The number of best rollouts to keep; all by default. The sessions of the others are removed. */
  keep?: number;
  /** The number of rollouts that work at the same time, from 1 to 64; 4 by default. */
  parallel?: number;
  /** The beginning of the forks' names. */
  name?: string;
  /** The agent that works in the forks. */
  agent?: string;
  /** Limits of each fork. */
  limits?: Limits;
  /** A policy for the forks' tools, in addition to the session's own. */
  policy?: Schemas["ToolPolicy"];
  /** True for forks of a session on the host with their files in mounts; the server must be root. */
  mount?: boolean;
  /** Cancels all rollouts. */
  signal?: AbortSignal;
}

const callOf = (call: Call) => (typeof call === "string" ? { tool: "shell_execute", params: { command: call } } : call);

/** Returns the calls of each rollout, or one list for all. */
export function listsOf(run: Call | Call[] | Call[][]): Schemas["SubagentCall"][][] {
  const lists = Array.isArray(run) ? run : [run];
  const isEach = (all: Call[] | Call[][]): all is Call[][] => all.every((each) => Array.isArray(each));
  return isEach(lists) ? lists.map((each) => each.map(callOf)) : [lists.map(callOf)];
}

/** Yields rollouts as they end, then sets `kept` of each. */
export async function* rolloutsOf(
  connection: Connection,
  path: string,
  body: object & { score?: Call },
  signal: AbortSignal | undefined,
  forkOf: (rollout: Schemas["Rollout"]) => Session,
): AsyncGenerator<Rollout> {
  const asked: Asked = { body: { ...body, score: body.score && callOf(body.score) }, signal };
  const ended = new Map<number, Rollout>();
  const rolloutOf = (document: Schemas["Rollout"]) => {
    const rollout = { ...document, session: forkOf(document) };
    ended.set(rollout.number, rollout);
    return rollout;
  };
  for await (const { name, data } of connection.events("POST", `${path}/rollouts`, asked)) {
    if (name === "result") yield rolloutOf(data);
    else if (name === "problem") throw ofProblem(data);
    else if (name === "outcome") {
      const { rollouts } = data as Schemas["RolloutsDocument"];
      const late = rollouts.filter(({ number }) => !ended.has(number)).map(rolloutOf);
      for (const { number, kept } of rollouts) ended.get(number)!.kept = kept;
      yield* late;
      return;
    }
  }
  throw new FoldspaceError("connection", "the server hung up before the outcome");
}
