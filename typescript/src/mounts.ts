/** Mounts of a session: its files as a read-only directory. */

import type { Connection } from "./connection.js";
import type { FoldspaceError } from "./errors.js";
import type { Position } from "./files.js";
import type { Schemas } from "./past.js";

/** A directory with the files of a session; `Session.mounted` makes it. */
export class MountedDirectory implements AsyncDisposable {
  #end: (() => Promise<void>) | undefined;

  /** @internal */
  constructor(
    /** The directory. */
    readonly directory: string,
    end?: () => Promise<void>,
  ) {
    this.#end = end;
  }

  /**
   * Unmounts it, if it is the client's last `MountedDirectory` of the directory, and the mount is not older than the
   * client's first. Processes keep their open files.
   */
  async close(): Promise<void> {
    const end = this.#end;
    this.#end = undefined;
    await end?.();
  }

  /** Unmounts it, as `close` does. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** Lists the mounts of a session. */
export function mountsOf(connection: Connection, session: string): Promise<Schemas["Mount"][]> {
  return connection.document("GET", `${session}/mounted`);
}

/** Ends the mount at a directory. */
export async function unmount(connection: Connection, session: string, directory: string, lazy: boolean): Promise<void> {
  await connection.document("DELETE", `${session}/mounted`, { query: { directory, lazy } });
}

/** Mounts a session. `session` is its path in the API. */
export function mounted(connection: Connection, session: string, body: { at?: Position; all?: boolean }): Promise<MountedDirectory> {
  const users = connection.mountUsers;
  return connection.mounting(async () => {
    const earlier = await mountsOf(connection, session);
    const { directory } = await connection.document<Schemas["Mount"]>("POST", `${session}/mounted`, { body });
    const isOwn = users.has(directory) || !earlier.some((mount) => mount.directory === directory);
    if (!isOwn) return new MountedDirectory(directory);
    users.set(directory, (users.get(directory) ?? 0) + 1);
    return new MountedDirectory(directory, () => connection.mounting(() => leave(connection, session, directory)));
  });
}

async function leave(connection: Connection, session: string, directory: string): Promise<void> {
  const users = (connection.mountUsers.get(directory) ?? 1) - 1;
  connection.mountUsers.set(directory, users);
  if (users) return;
  connection.mountUsers.delete(directory);
  // It may have been unmounted, or its session removed.
  await unmount(connection, session, directory, true).catch((error: FoldspaceError) => {
    if (error.kind !== "not_found") throw error;
  });
}
