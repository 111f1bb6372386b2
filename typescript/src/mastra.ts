/**
 * The tools of a session for Mastra.
 *
 * @module foldspace/mastra
 */

import { createTool, type Tool } from "@mastra/core/tools";
import type { Session } from "./session.js";
import { toolsOf, type ToolOptions } from "./tools.js";

export type { ToolOptions } from "./tools.js";

/**
 * Returns the tools of a session for an `Agent`, or just the tools that `only` names. A failed call returns its error to
 * the model; a failure of the infrastructure throws.
 */
export async function foldspaceTools(session: Session, options: ToolOptions = {}): Promise<Record<string, Tool>> {
  const tools = (await toolsOf(session, options)).map(({ name, description, params, execute }) => [
    name,
    createTool({ id: name, description, inputSchema: params, execute: (input, context) => execute(input, context?.abortSignal) }),
  ]);
  return Object.fromEntries(tools);
}
