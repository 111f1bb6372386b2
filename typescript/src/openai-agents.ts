/**
 * Conversations and tools for `@openai/agents`.
 *
 * @module foldspace/openai-agents
 */

import { tool, type AgentInputItem, type FunctionTool, type RunContext, type RunContextAwareSession } from "@openai/agents";
import type { Position } from "./files.js";
import type { Schemas } from "./past.js";
import type { Session } from "./session.js";
import { ThreadLog, type RewindThread, type Turn } from "./thread.js";
import { toolsOf, type ToolOptions } from "./tools.js";

export type { RewindThread, Turn } from "./thread.js";
export type { ToolOptions } from "./tools.js";

/**
 * Returns the tools of a session for agents, or just the tools that `only` names. A failed call returns its error to the
 * model; a failure of the infrastructure throws.
 */
export async function foldspaceTools(session: Session, options: ToolOptions = {}): Promise<FunctionTool[]> {
  return (await toolsOf(session, options)).map(({ name, description, params, execute }) =>
    tool({
      name,
      description,
      parameters: params,
      strict: false,
      errorFunction: null,
      execute: (input: unknown, _context, details) => execute(input, details?.signal),
    }),
  );
}

/**
 * A conversation in the log of the session with its files, so that rewinds and forks apply to both.
 *
 * ```js
 * const thread = new FoldspaceThread(s);
 * const agent = new Agent({ name: "writer", model, tools: await foldspaceTools(s) });
 * await run(agent, "write a note", { session: thread });
 * await run(agent, "write it again", { session: thread });
 * const other = await thread.fork(); // its agent needs `foldspaceTools(other.session)`
 * await thread.rewind({ turns: 1 });
 * ```
 *
 * A rewind or a fork of the session takes the conversation with it, too. A session may have several threads, each with
 * its own `sessionId`.
 */
export class FoldspaceThread implements RunContextAwareSession<any> {
  /** True: the framework passes its run to each method. */
  readonly acceptsRunContext = true;
  readonly #log: ThreadLog;
  // The positions at which runs read the history. The framework stores the items of a turn after the turn's calls.
  readonly #starts = new WeakMap<object, number>();

  /** Opens the thread, or starts it. */
  constructor(
    /** The session with the files and the conversation. */
    readonly session: Session,
    /** The name of the conversation in the session. */
    readonly sessionId = "main",
  ) {
    this.#log = new ThreadLog(session);
  }

  /** Returns the ids of the session and of the conversation. */
  async getSessionId(): Promise<string> {
    return `${this.session.id}/${this.sessionId}`;
  }

  /** Returns the items; with `limit`, the latest items. */
  async getItems(limit?: number, context?: RunContext<any>): Promise<AgentInputItem[]> {
    if (context && !this.#starts.has(context)) this.#starts.set(context, await this.session.head());
    const items = (await this.#log.entries(this.sessionId)).map((entry) => entry.value as AgentInputItem);
    return limit === undefined ? items : items.slice(items.length - Math.min(Math.max(limit, 0), items.length));
  }

  /** Adds items. A turn starts where the runner reads the items before it, or else here, if the items have a user's input. */
  async addItems(items: AgentInputItem[], context?: RunContext<any>): Promise<void> {
    const hasInput = items.some((item) => "role" in item && item.role === "user");
    await this.#log.add(this.sessionId, items, hasInput, hasInput && context ? this.#starts.get(context) : undefined);
    if (hasInput && context) this.#starts.delete(context);
  }

  /** Removes the latest item, and returns it. */
  async popItem(): Promise<AgentInputItem | undefined> {
    return (await this.#log.pop(this.sessionId))?.value as AgentInputItem | undefined;
  }

  /** Removes all items. Earlier positions keep them. */
  clearSession(): Promise<void> {
    return this.#log.clear(this.sessionId);
  }

  /** Returns the turns, oldest first, each with the position before it. */
  turns(): Promise<Turn<AgentInputItem>[]> {
    return this.#log.turns(this.sessionId);
  }

  /**
   * Rewinds conversation and files by a number of turns, one by default, or to a position. The rewind is an event, and can
   * be undone. Fails with `not_found` if there are fewer turns or no such position, `refused` if it would lose files.
   */
  rewind(options: RewindThread = {}): Promise<Schemas["Rewind"]> {
    return this.#log.rewind(this.sessionId, options);
  }

  /** Forks conversation and files, now or at a position, such as a turn's. */
  async fork(options: { at?: Position; name?: string } = {}): Promise<FoldspaceThread> {
    const [fork] = await this.session.fork(options);
    return new FoldspaceThread(fork!, this.sessionId);
  }

  /**
   * Merges a fork's files, then appends the items of the fork that this thread lacks, as one turn. `options` are those of
   * `Session.merge`, which merges only files. Conflicts leave both unchanged.
   */
  merge(fork: FoldspaceThread, options?: Parameters<Session["merge"]>[1]): Promise<Schemas["Merge"]> {
    return this.#log.merge(this.sessionId, fork.#log, options);
  }
}
