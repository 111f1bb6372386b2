/**
 * The tools of a session for Vercel's AI SDK.
 *
 * @module foldspace/ai
 */

import { dynamicTool, jsonSchema, type ToolSet } from "ai";
import { FoldspaceError } from "./errors.js";
import type { Session } from "./session.js";

/**
 * Returns the tools of a session for `generateText`, `streamText` and agents, or just the tools that `only` names. A
 * failed call returns its error to the model; a failure of the infrastructure throws.
 */
export async function foldspaceTools(session: Session, { only }: { only?: string[] } = {}): Promise<ToolSet> {
  const tools = (await session.tools()).filter((tool) => !only || only.includes(tool.name));
  return Object.fromEntries(
    tools.map((tool) => [
      tool.name,
      dynamicTool({
        description: tool.description,
        inputSchema: jsonSchema(tool.params as Parameters<typeof jsonSchema>[0]),
        execute: async (input, { abortSignal }) => {
          try {
            return (await session.call(tool.name, input as object, { signal: abortSignal })).text;
          } catch (error) {
            if (error instanceof FoldspaceError && error.outcome && !error.isInfrastructure) return `error: ${error.detail}`;
            throw error;
          }
        },
      }),
    ]),
  );
}
