/** The tools of a session for frameworks. */

import { FoldspaceError } from "./errors.js";
import type { Schemas } from "./past.js";
import type { Session } from "./session.js";

/** Options of the tools of a session. */
export interface ToolOptions {
  /** The names of the tools; all by default. */
  only?: string[];
}

/** A tool of a session. */
export interface SessionTool extends Omit<Schemas["Tool"], "params"> {
  // Each framework has its own type of a JSON Schema.
  params: any;
  /** Makes a call. A failed call returns its error to the model; a failure of the infrastructure throws. */
  execute(input: unknown, signal?: AbortSignal): Promise<string>;
}

/** Lists the tools of a session. */
export async function toolsOf(session: Session, { only }: ToolOptions = {}): Promise<SessionTool[]> {
  const tools = (await session.tools()).filter((tool) => !only || only.includes(tool.name));
  return tools.map((tool) => ({
    ...tool,
    async execute(input, signal) {
      try {
        return (await session.call(tool.name, input as object, { signal })).text;
      } catch (error) {
        if (error instanceof FoldspaceError && error.outcome && !error.isInfrastructure) return `error: ${error.detail}`;
        throw error;
      }
    },
  }));
}
