/** Ports of a session's container. */

import { once } from "node:events";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { pipeline } from "node:stream";
import type { Connection } from "./connection.js";
import { FoldspaceError } from "./errors.js";
import type { SessionStatus } from "./past.js";

/** A port of a session that is available on this machine; `Session.forward` makes it. */
export class ForwardedPort implements AsyncDisposable {
  /** @internal */
  constructor(
    /** The address, such as `127.0.0.1:40001`. */
    readonly address: string,
    private readonly listener?: Server,
    private readonly sockets = new Set<Socket>(),
  ) {}

  /** Ends the listener and all its connections. */
  async close(): Promise<void> {
    const closed = new Promise<void>((done) => (this.listener ? this.listener.close(() => done()) : done()));
    for (const socket of this.sockets) socket.destroy();
    await closed;
  }

  /** Ends it, as `close` does. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** Listens on 127.0.0.1, and passes connections on to a port of a session. */
export async function forward(connection: Connection, to: SessionStatus, port: number, localPort: number): Promise<ForwardedPort> {
  const connect = () => connection.upgrade("/v1/port", "foldspace-port", { session: to.session, port });
  const onHost = to.backend === "host";
  if (connection.isRemote) throw notOffered(to, port, onHost);
  try {
    (await connect()).destroy();
  } catch (error) {
    if (!onHost || (error as FoldspaceError).kind !== "refused") throw error;
    // The request has started the services that should run.
    return new ForwardedPort(`127.0.0.1:${port}`);
  }
  const sockets = new Set<Socket>();
  const listener = createServer({ allowHalfOpen: true }, (near) => {
    held(near, sockets);
    // A connection that the port refuses is closed.
    connect().then((far) => join(near, held(far, sockets)), () => near.destroy());
  });
  listener.listen(localPort, "127.0.0.1");
  await once(listener, "listening");
  return new ForwardedPort(`127.0.0.1:${(listener.address() as AddressInfo).port}`, listener, sockets);
}

function notOffered({ name, session }: SessionStatus, port: number, onHost: boolean): FoldspaceError {
  const host = `${port}-${name.includes(".") ? session.slice(0, 12) : name}`;
  const hint = `send requests for the host ${host}.NAME to the server, where NAME is localhost or a --host-name`;
  return new FoldspaceError("unusable", "ports are forwarded on the machine of the server only", onHost ? undefined : hint);
}

function join(near: Socket, far: Socket): void {
  if (near.destroyed) far.destroy();
  else pipeline(near, far, near, () => {});
}

function held(socket: Socket, sockets: Set<Socket>): Socket {
  sockets.add(socket);
  // Its close follows.
  return socket.on("error", () => {}).on("close", () => sockets.delete(socket));
}
