/**
 * A checkpointer for LangGraph.js that records file positions.
 *
 * @module foldspace/langgraph
 */

import type { RunnableConfig } from "@langchain/core/runnables";
import {
  BaseCheckpointSaver, compareWritesSortKeys, getCheckpointId, maxChannelVersion, TASKS, WRITES_IDX_MAP, writesSortKey,
  type ChannelVersions, type Checkpoint, type CheckpointListOptions, type CheckpointMetadata, type CheckpointPendingWrite,
  type CheckpointTuple, type PendingWrite, type SerializerProtocol,
} from "@langchain/langgraph-checkpoint";
import { FoldspaceError } from "./errors.js";
import type { Client } from "./index.js";
import { quoted, tar, unquoted, untar } from "./packing.js";
import type { Session } from "./session.js";
import { Queue } from "./thread.js";

/** The field of a checkpoint's metadata: `{ session: id, position: seq }`. */
export const POSITION = "foldspace";

/** The options of a checkpointer. */
export interface SaverOptions {
  /** The name of the session with the checkpoints; `langgraphjs-checkpoints` by default. */
  name?: string;
  /** The serializer; the framework's own by default. */
  serde?: SerializerProtocol;
}

// The number of remembered positions. With the durability `exit`, most steps store no checkpoint.
const STEPS = 1_000;

/**
 * Stores checkpoints in a separate session, each with the position of the agent's session.
 *
 * ```js
 * const saver = new FoldspaceSaver(client, s); // the graph's tools change the files of `s`
 * const graph = builder.compile({ checkpointer: saver });
 * await graph.invoke(null, await saver.rewind(config)); // files and state continue from a checkpoint
 * const fork = await saver.fork(config, { thread: "other" });
 * const other = builderOf(fork).compile({ checkpointer: new FoldspaceSaver(client, fork) });
 * await other.invoke(null, { configurable: { thread_id: "other" } });
 * ```
 *
 * The graph's tools need the `session` itself, or one of the same client, so that a step waits for the position before it.
 */
export class FoldspaceSaver extends BaseCheckpointSaver<number> {
  readonly #client: Client;
  readonly #name: string;
  #opened?: Promise<Session>;
  // Held between the check for earlier writes and the write.
  readonly #writing = new Queue();
  // The positions at the ends of steps, by the versions that the steps gave to channels.
  readonly #positions = new Map<number, Promise<number>>();
  #stepEnd?: { fraction: number; position: Promise<number> };

  /** Makes a checkpointer; without a session it stores checkpoints only. */
  constructor(
    client: Client,
    /** The agent's session. */
    readonly session?: Session,
    { name = "langgraphjs-checkpoints", serde }: SaverOptions = {},
  ) {
    super(serde);
    [this.#client, this.#name] = [client, name];
  }

  /** Returns the position of the agent's session at a checkpoint. */
  async position(config: RunnableConfig): Promise<number> {
    const found = await this.getTuple(config);
    const known = (found?.metadata as Record<string, { session: string; position: number } | undefined> | undefined)?.[POSITION];
    if (!known || known.position > (await this.#shared(known.session))) {
      throw new FoldspaceError("not_found", "the checkpoint has no position of this session");
    }
    return known.position;
  }

  /** Returns the last position that the agent's session has in common with a session: itself, or an ancestor. */
  async #shared(session: string): Promise<number> {
    if (!this.session) return -1;
    if (session === this.session.id) return Infinity;
    const { sessions } = await this.session.family();
    let last = Infinity;
    for (let id = this.session.id; id !== session; ) {
      const member = sessions.find((each) => each.session === id);
      if (!member?.parent || member.isolation !== "fork") return -1;
      [last, id] = [Math.min(last, member.at ?? -1), member.parent];
    }
    return last;
  }

  /**
   * Rewinds the agent's files to a checkpoint, and returns its config, from which the graph continues. The rewind is an
   * event, and can be undone.
   */
  async rewind(config: RunnableConfig): Promise<RunnableConfig> {
    const position = await this.position(config);
    if (position < (await this.session!.head())) await this.session!.rewind(position);
    return config;
  }

  /**
   * Forks the agent's session as it was at a checkpoint. With `thread`, a thread with that id starts as a copy of the
   * checkpoints up to this one, for a graph that works in the fork.
   */
  async fork(config: RunnableConfig, { name, thread }: { name?: string; thread?: string } = {}): Promise<Session> {
    const [fork] = await this.session!.fork({ at: await this.position(config), name });
    if (thread !== undefined) {
      const { thread_id, checkpoint_ns, checkpoint_id } = given((await this.getTuple(config))!.config);
      await this.copyThread(thread_id, thread);
      for (const ns of await this.#names(place(thread))) {
        const later = (await this.#names(place(thread, ns))).filter((each) => each > checkpoint_id!);
        for (const each of later) await this.#remove(place(thread, ns, each));
      }
      // Tasks whose writes are stored would not run again, and the fork lacks their changes to files.
      await this.#remove(place(thread, checkpoint_ns!, checkpoint_id!, "writes"));
    }
    return fork!;
  }

  /** Returns the checkpoint that the config names, else the latest. */
  async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    const { thread_id: thread, checkpoint_ns: ns = "" } = given(config);
    const wanted = getCheckpointId(config) || (await this.#names(place(thread, ns))).sort().at(-1);
    return wanted ? this.#load(thread, ns, wanted) : undefined;
  }

  /** Lists checkpoints of a thread or of all threads, latest first. */
  async *list(config: RunnableConfig, options: CheckpointListOptions = {}): AsyncGenerator<CheckpointTuple> {
    const { before, filter = {} } = options;
    const { thread_id, checkpoint_ns } = given(config);
    const [only, until] = [getCheckpointId(config), before && getCheckpointId(before)];
    let left = options.limit ?? Infinity;
    for (const thread of thread_id === undefined ? await this.#names("") : [thread_id]) {
      for (const ns of checkpoint_ns === undefined ? await this.#names(place(thread)) : [checkpoint_ns]) {
        for (const id of (await this.#names(place(thread, ns))).sort().reverse()) {
          if ((only && id !== only) || (until && id >= until)) continue;
          if (left <= 0) return;
          const found = await this.#load(thread, ns, id);
          const metadata = found?.metadata as Record<string, unknown> | undefined;
          if (!found || Object.entries(filter).some(([key, value]) => metadata?.[key] !== value)) continue;
          left -= 1;
          yield found;
        }
      }
    }
  }

  /** Returns a channel's next version. LangGraph calls this between two steps; the fraction identifies the step's end. */
  override getNextVersion(current: number | undefined): number {
    const whole = Math.floor(super.getNextVersion(current));
    if (!this.session) return whole;
    if (!this.#stepEnd) {
      const position = this.session.headFirst();
      // `put` reports a failure.
      position.catch(() => {});
      this.#stepEnd = { fraction: Math.random(), position };
      queueMicrotask(() => (this.#stepEnd = undefined));
    }
    const version = whole + this.#stepEnd.fraction;
    this.#positions.set(version, this.#stepEnd.position);
    for (const each of this.#positions.keys()) if (this.#positions.size > STEPS) this.#positions.delete(each);
    return version;
  }

  /** Stores a checkpoint, with the position of the agent's session. */
  async put(config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, _newVersions?: ChannelVersions): Promise<RunnableConfig> {
    const { thread_id: thread, checkpoint_ns: ns = "", checkpoint_id: parent = "" } = given(config, "thread_id");
    let recorded: object = metadata;
    if (this.session) {
      // The graph saves a checkpoint while its next step runs.
      const version = Number(maxChannelVersion(0, ...Object.values(checkpoint.channel_versions)));
      const position = await (this.#positions.get(version) ?? this.session.headFirst());
      this.#positions.delete(version);
      recorded = { ...metadata, [POSITION]: { session: this.session.id, position } };
    }
    const files = { checkpoint: await this.#packed(checkpoint), metadata: await this.#packed(recorded), parent: Buffer.from(parent) };
    await (await this.#store()).files.untar(tar(files), place(thread, ns, checkpoint.id));
    return configOf(thread, ns, checkpoint.id);
  }

  /** Stores the writes of a task. */
  async putWrites(config: RunnableConfig, writes: PendingWrite[], taskId: string, taskPath = ""): Promise<void> {
    const { thread_id: thread, checkpoint_ns: ns = "", checkpoint_id: id } = given(config, "thread_id", "checkpoint_id");
    const to = place(thread, ns, id!, "writes", taskId);
    await this.#writing.run(async () => {
      const known = await this.#names(to);
      const files: Record<string, Uint8Array> = {};
      for (const [number, [channel, value]] of writes.entries()) {
        const index = WRITES_IDX_MAP[channel] ?? number;
        // A rerun task does not write twice, but replaces its errors and interrupts.
        if (index < 0 || !known.includes(`${index}`)) files[index] = await this.#packed(value, [taskId, channel, taskPath]);
      }
      if (Object.keys(files).length) await (await this.#store()).files.untar(tar(files), to);
    });
  }

  /** Removes a thread. */
  async deleteThread(threadId: string): Promise<void> {
    await this.#remove(place(threadId));
  }

  /** Copies a thread. */
  async copyThread(sourceThreadId: string, targetThreadId: string): Promise<void> {
    const archive = await this.#archive(place(sourceThreadId));
    if (archive) await (await this.#store()).files.untar(archive, place(targetThreadId));
  }

  // The store: a directory for each thread, namespace and checkpoint.

  #store(): Promise<Session> {
    this.#opened ??= this.#client.create({ name: this.#name, backend: "memory", createId: `langgraph:${this.#name}` });
    this.#opened.catch(() => (this.#opened = undefined));
    return this.#opened;
  }

  async #load(thread: string, ns: string, id: string): Promise<CheckpointTuple | undefined> {
    const files = await this.#files(place(thread, ns, id));
    if (!files.has("checkpoint")) return undefined;
    const checkpoint: Checkpoint = (await this.#unpacked(files.get("checkpoint")!)).value;
    const metadata: CheckpointMetadata = (await this.#unpacked(files.get("metadata")!)).value;
    const parent = Buffer.from(files.get("parent")!).toString();
    if (checkpoint.v < 4 && parent) {
      // Older checkpoints have messages between nodes in the writes of their parents.
      const sent = (await this.#writes(await this.#files(place(thread, ns, parent)))).filter(([, channel]) => channel === TASKS);
      checkpoint.channel_values[TASKS] = sent.map(([, , value]) => value);
      checkpoint.channel_versions[TASKS] = maxChannelVersion(1, ...Object.values(checkpoint.channel_versions));
    }
    const pendingWrites = await this.#writes(files);
    const tuple: CheckpointTuple = { config: configOf(thread, ns, id), checkpoint, metadata, pendingWrites };
    return parent ? { ...tuple, parentConfig: configOf(thread, ns, parent) } : tuple;
  }

  async #writes(files: Map<string, Uint8Array>): Promise<CheckpointPendingWrite[]> {
    const packed = [...files].filter(([path]) => path.startsWith("writes/"));
    const writes = await Promise.all(
      packed.map(async ([path, bytes]) => {
        const { head, value } = await this.#unpacked(bytes);
        const [task, channel, taskPath] = head as [string, string, string];
        const write: CheckpointPendingWrite = [task, channel, value];
        return { key: writesSortKey(taskPath, task, Number(path.split("/").at(-1))), write };
      }),
    );
    return writes.sort((one, two) => compareWritesSortKeys(one.key, two.key)).map(({ write }) => write);
  }

  /** Returns a value as bytes, with a JSON header. */
  async #packed(value: unknown, head: unknown = null): Promise<Uint8Array> {
    const [kind, bytes] = await this.serde.dumpsTyped(value);
    return Buffer.concat([Buffer.from(`${JSON.stringify([head, kind])}\n`), bytes]);
  }

  async #unpacked(packed: Uint8Array): Promise<{ head: unknown; value: any }> {
    const end = packed.indexOf(10);
    const [head, kind] = JSON.parse(Buffer.from(packed.subarray(0, end)).toString());
    return { head, value: await this.serde.loadsTyped(kind, packed.subarray(end + 1)) };
  }

  async #files(below: string): Promise<Map<string, Uint8Array>> {
    const archive = await this.#archive(below);
    return archive ? untar(archive) : new Map();
  }

  async #archive(below: string): Promise<Uint8Array | undefined> {
    const { files } = await this.#store();
    return unlessMissing(async () => new Uint8Array(await new Response(await files.tar(below)).arrayBuffer()), undefined);
  }

  /** Lists the names in a directory. Writes may be stored before their checkpoint, so an id may have no checkpoint yet. */
  async #names(below: string): Promise<string[]> {
    const { files } = await this.#store();
    const entries = await unlessMissing(() => files.list(below), []);
    return entries.map((entry) => unquoted(entry.path.split("/").at(-1)!));
  }

  async #remove(below: string): Promise<void> {
    const { files } = await this.#store();
    await unlessMissing<unknown>(() => files.remove(below, { recursive: true }), undefined);
  }
}

interface Given {
  thread_id: string;
  checkpoint_ns?: string;
  checkpoint_id?: string;
}

function given(config: RunnableConfig, ...required: (keyof Given)[]): Given {
  const found = (config.configurable ?? {}) as Given;
  const missing = required.find((each) => found[each] === undefined);
  if (missing) throw new FoldspaceError("unusable", `the config has no ${missing}`);
  return found;
}

function configOf(thread_id: string, checkpoint_ns: string, checkpoint_id: string): RunnableConfig {
  return { configurable: { thread_id, checkpoint_ns, checkpoint_id } };
}

/** Returns a directory for any texts: texts that are not valid names are encoded in base 32. */
function place(...parts: string[]): string {
  return parts.map(quoted).join("/");
}

async function unlessMissing<T>(work: () => Promise<T>, otherwise: T): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof FoldspaceError && error.kind === "not_found") return otherwise;
    throw error;
  }
}
