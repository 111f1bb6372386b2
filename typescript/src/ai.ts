/**
 * The tools of a session for Vercel's AI SDK.
 *
 * @module foldspace/ai
 */

import { dynamicTool, jsonSchema, type ToolSet } from "ai";
import type { Session } from "./session.js";
import { toolsOf, type ToolOptions } from "./tools.js";

export type { ToolOptions } from "./tools.js";

/**
 * Returns the tools of a session for `generateText`, `streamText` and agents, or just the tools that `only` names. A
 * failed call returns its error to the model; a failure of the infrastructure throws.
 */
export async function foldspaceTools(session: Session, options: ToolOptions = {}): Promise<ToolSet> {
  const tools = (await toolsOf(session, options)).map(({ name, description, params, execute }) => [
    name,
    dynamicTool({ description, inputSchema: jsonSchema(params), execute: (input, { abortSignal }) => execute(input, abortSignal) }),
  ]);
  return Object.fromEntries(tools);
}
