/** The program of this package. */

import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { FoldspaceError } from "./errors.js";

/** Returns the path of the program: `FOLDSPACE_BIN`, else the platform's package. */
export function findFoldspaceBin(): string {
  const named = process.env.FOLDSPACE_BIN;
  if (named) return named;
  const platform = `@foldspace/${process.platform}-${process.arch}`;
  try {
    const path = createRequire(import.meta.url).resolve(`${platform}/foldspace`);
    if (existsSync(path)) return path;
  } catch {
    // Reported below.
  }
  const hint = "install it with optional dependencies, or name the program in FOLDSPACE_BIN";
  throw new FoldspaceError("start", `no program found for this machine (${platform})`, hint);
}
