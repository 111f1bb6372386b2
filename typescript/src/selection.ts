/** The best of several forks. */

import { FoldspaceError } from "./errors.js";
import type { Schemas } from "./past.js";
import type { Session } from "./session.js";

/** A fork of `forkAndSelect`. */
export interface Candidate<T = unknown> {
  /** The fork. */
  session: Session;
  /** Its score; `null` if it failed. */
  score: number | null;
  /** The return value of `run`. */
  result?: T;
  /** The error of `run` or `score`; without it there is a score. */
  error?: unknown;
}

/** The outcome of `forkAndSelect`. */
export interface Selection<T = unknown> {
  /** The candidate with the highest score. */
  best: Candidate<T>;
  /** All candidates in the order of their forks. The sessions of the others were removed, unless `keep` is set. */
  candidates: Candidate<T>[];
  /** The merge of the best; `null` without `merge`. Conflicts leave the session unchanged. */
  merged: Schemas["Merge"] | null;
}

/** The options of `forkAndSelect`. */
export interface SelectOptions {
  /** The number of forks that work at the same time; 4 by default. */
  parallel?: number;
  /** False to only return the best. */
  merge?: boolean;
  /** True to keep the other forks. */
  keep?: boolean;
  /** The name of the annotations with the scores, which the session and the forks get; `score` by default. */
  name?: string;
  /** Ends the work before the merge and removes all forks, unless `keep` is set. */
  signal?: AbortSignal;
}

/**
 * Forks a session `count` times (1 to 1,000), works in each fork, and merges the fork with the highest score. The first of
 * equal scores wins. An error of `run` or `score` makes a failed candidate; if all fail, the first error is the `cause`.
 *
 * ```js
 * const attempt = (fork) => fork.run(`seq ${fork.name.length} > list.txt`, { check: true });
 * const lines = async (fork) => (await fork.files.readText("list.txt")).split("\n").length;
 * const { best } = await forkAndSelect(s, 4, attempt, lines);
 * ```
 */
export async function forkAndSelect<T>(
  session: Session,
  count: number,
  run: (fork: Session) => Promise<T>,
  score: (fork: Session) => number | Promise<number>,
  { parallel = 4, merge = true, keep = false, name = "score", signal }: SelectOptions = {},
): Promise<Selection<T>> {
  if (!(parallel >= 1)) throw new FoldspaceError("unusable", `parallel is ${parallel}; the minimum is 1`);
  signal?.throwIfAborted();
  const forks = await session.fork({ count });
  let best: Candidate<T> | undefined;
  try {
    const candidates = await unlessAborted(tried(forks, run, score, name, parallel, signal), signal);
    for (const each of candidates) {
      const note = each.score === null ? `${each.session.name}: ${(each.error as Error)?.message ?? each.error}` : each.session.name;
      await session.annotate(name, { score: each.score ?? undefined, note, value: { fork: each.session.id } });
      if (each.score !== null && each.score > (best?.score ?? -Infinity)) best = each;
    }
    if (!best) {
      const { error } = candidates[0]!;
      const failed = new FoldspaceError("error", `all ${count} forks failed: ${(error as Error)?.message ?? error}`);
      throw Object.assign(failed, { cause: error });
    }
    return { best, candidates, merged: merge ? await session.merge(best.session) : null };
  } finally {
    if (!keep) for (const fork of forks) if (fork !== best?.session) await removed(fork);
  }
}

/** Tries all forks, `parallel` at a time. */
async function tried<T>(
  forks: Session[],
  run: (fork: Session) => Promise<T>,
  score: (fork: Session) => number | Promise<number>,
  name: string,
  parallel: number,
  signal?: AbortSignal,
): Promise<Candidate<T>[]> {
  const candidates: Candidate<T>[] = [];
  const waiting = forks.entries();
  const work = async () => {
    for (const [at, fork] of waiting) {
      if (signal?.aborted) return;
      try {
        const result = await run(fork);
        const points = Number(await score(fork));
        await fork.annotate(name, { score: points });
        candidates[at] = { session: fork, score: points, result };
      } catch (error) {
        candidates[at] = { session: fork, score: null, error };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(parallel, forks.length) }, work));
  return candidates;
}

function unlessAborted<T>(work: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return work;
  return new Promise((done, failed) => {
    const stop = () => failed(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
    work.then(done, failed).finally(() => signal.removeEventListener("abort", stop));
  });
}

/** Removes a fork, once its calls are cancelled and its processes killed. */
async function removed(fork: Session): Promise<void> {
  const unless = (...kinds: string[]) => (error: FoldspaceError) => {
    if (!kinds.includes(error.kind)) throw error;
  };
  for (const until = Date.now() + 10_000; ; await new Promise((done) => setTimeout(done, 50))) {
    try {
      // It may have ended by now.
      for (const process of await fork.processes()) await process.kill().catch(unless("refused", "not_found"));
      return await fork.remove();
    } catch (error) {
      if ((error as FoldspaceError).kind === "not_found") return;
      if ((error as FoldspaceError).kind !== "refused" || Date.now() > until) throw error;
    }
    for (const { call, status } of await fork.calls()) {
      if (status === "running") await fork.cancel(call).catch(unless("conflict", "not_found"));
    }
  }
}
