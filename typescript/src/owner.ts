/** Finds the server of a data directory, or starts it, and stays connected to it. */

import { spawn } from "node:child_process";
import { request } from "node:http";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import type { Socket } from "node:net";
import { findFoldspaceBin } from "./binary.js";
import { FoldspaceError } from "./errors.js";

const START_MS = 30_000;
const PAUSE = 50;
/** The exit code of a start when another process has the data. */
const TAKEN = 4;

const pause = () => new Promise((done) => setTimeout(done, PAUSE));

/** Returns the data directory, by the command line's rules. */
export function dataDirectory(data?: string): string {
  const named = data ?? process.env.FOLDSPACE_DATA;
  if (named) return resolve(named);
  return join(process.env.XDG_DATA_HOME || join(homedir(), ".local", "share"), "foldspace");
}

/** Connects to the server of the data directory, and starts it if none runs. The connection keeps it running. */
export async function attend(directory: string): Promise<Socket> {
  const until = Date.now() + START_MS;
  for (;;) {
    const attended = await greet(join(directory, "http.sock"));
    if (attended) return attended;
    await start(directory, until);
    if (Date.now() >= until) {
      throw new FoldspaceError("start", "the server ends as soon as it is ready", `see ${join(directory, "owner.log")}`);
    }
    await pause();
  }
}

function greet(socketPath: string): Promise<Socket | undefined> {
  return new Promise((done, failed) => {
    const headers = { connection: "upgrade", upgrade: "foldspace-attend", "content-type": "application/json" };
    const asked = request({ socketPath, method: "POST", path: "/v1/attend", headers, timeout: 10_000 });
    asked.on("upgrade", (_, socket: Socket) => {
      // The socket must not keep this process running.
      socket.unref();
      socket.on("error", () => socket.destroy());
      done(socket);
    });
    asked.on("response", (response) => {
      response.resume();
      if (response.statusCode === 503) done(undefined);
      else failed(new FoldspaceError("start", `the server refused the connection: ${response.statusCode}`));
    });
    asked.on("timeout", () => asked.destroy(new FoldspaceError("start", "the server has not answered for 10 s")));
    asked.on("error", (error: NodeJS.ErrnoException) => {
      // The server is not running, or is just ending.
      const isGone = ["ENOENT", "ECONNREFUSED", "ECONNRESET", "ENOTDIR", "EPIPE"].includes(error.code ?? "");
      if (isGone) done(undefined);
      else failed(new FoldspaceError("start", `the server can't be reached: ${error.message}`));
    });
    asked.end("{}");
  });
}

type Words = "ready" | { failed: { exit: number; message: string; hint?: string | null } };

async function start(directory: string, until: number): Promise<void> {
  // Rules come with each call, since the server has other clients, too.
  const { FOLDSPACE_AUTO_CONFIRM: _confirm, FOLDSPACE_MAX_TIMEOUT: _most, ...env } = process.env;
  const program = findFoldspaceBin();
  const child = spawn(program, ["--data", directory, "serve", "--background"], {
    cwd: "/",
    env,
    stdio: ["ignore", "pipe", "ignore"],
    detached: true,
  });
  const said = await new Promise<string>((done, failed) => {
    let text = "";
    child.stdout.setEncoding("utf8").on("data", (piece: string) => (text += piece));
    child.stdout.on("close", () => done(text));
    child.on("error", (error) =>
      failed(new FoldspaceError("start", `failed to start ${program}: ${error.message}`, "FOLDSPACE_BIN names the program")),
    );
  });
  child.unref();
  if (!said) {
    throw new FoldspaceError("start", "the server ended before it was ready", `see ${join(directory, "owner.log")}`);
  }
  const words = JSON.parse(said) as Words;
  if (words === "ready") return;
  // Another process may be about to serve, or to end.
  if (words.failed.exit === TAKEN && Date.now() < until) return;
  throw new FoldspaceError("start", words.failed.message, words.failed.hint);
}
