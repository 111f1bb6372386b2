/** A session: a workspace with its history. */

import { randomUUID } from "node:crypto";
import { resolve } from "node:path";
import { part, type Cancel, type Connection } from "./connection.js";
import { CommandFailedError, FoldspaceError, ofProblem, succeeded, type CallOutcome } from "./errors.js";
import type { Command, Limits, RunOptions, Rules, ServiceOptions } from "./options.js";
import { Files, ReadFiles, type Position } from "./files.js";
import { mounted, mountsOf, unmount, type MountedDirectory } from "./mounts.js";
import { allSessions, SessionPast, type Event, type Schemas, type SessionStatus } from "./past.js";
import { forward, type ForwardedPort } from "./ports.js";
import { listsOf, rolloutsOf, type Call, type Rollout, type RolloutOptions } from "./rollouts.js";
import { Collected, CommandResult, Process, type OnOutput, type ProcessStatus } from "./process.js";
import { TypedSlice, type Schema, type SliceOptions } from "./slices.js";

/** The pauses in milliseconds before a call is repeated after its answer was lost. */
const PAUSES = [100, 500, 2000];

function outputOf({ onOutput, onStdout, onStderr }: RunOptions): OnOutput {
  return (stream, bytes) => {
    onOutput?.(stream, bytes);
    (stream === "stdout" ? onStdout : onStderr)?.(bytes);
  };
}

/** A session as it was at a position. */
export class Snapshot {
  /** @internal */
  constructor(private readonly connection: Connection, private readonly path: string, private readonly at: Position) {}

  /** The files as they were. */
  get files(): ReadFiles {
    return new ReadFiles(this.connection, this.path, this.at);
  }

  /** The state as it was: all slices, one slice, or a part of one. */
  state(slice?: string, pointer?: string): Promise<any> {
    return this.connection.document("GET", `${this.path}/state`, { query: { slice, pointer, at: this.at } });
  }
}

/** A session: a workspace with its history. */
export class Session extends SessionPast implements AsyncDisposable {
  /** @internal */
  constructor(connection: Connection, status: SessionStatus, private readonly rules: Rules = {}, private readonly disposes = false) {
    super(connection, status);
  }

  /** The agent that its calls name, if any. */
  get agent(): string | undefined {
    return this.rules.agent;
  }

  get #rules(): Record<string, unknown> {
    const { allow = [], deny = [], autoConfirm = false, agent } = this.rules;
    return { allow, deny, auto_confirm: autoConfirm, agent };
  }

  #post<T = any>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
    return this.connection.document("POST", `${this.path}/${path}`, { body, signal });
  }

  /** Its present files. */
  get files(): Files {
    return new Files(this.connection, this.path, this.rules.agent);
  }

  /** The session as it was at a position. */
  at(position: Position): Snapshot {
    return new Snapshot(this.connection, this.path, position);
  }

  /** Returns its present description. */
  async show(): Promise<SessionStatus> {
    return (this.status = await this.connection.document("GET", this.path));
  }

  /** Returns the position of its last event. */
  async head(): Promise<number> {
    return (await this.show()).events;
  }

  /** @internal Returns it as of now: later requests of this client wait for it. */
  async headFirst(): Promise<number> {
    return (await this.connection.first<SessionStatus>(this.path)).events;
  }

  /**
   * Runs a command to its end. A failed command has a result; a failure of the infrastructure throws, with
   * `isInfrastructure`. `signal` cancels the command.
   */
  async run(command: Command, options: RunOptions = {}): Promise<CommandResult> {
    const { cwd = "", env = {}, stdin = "", timeout, check, signal } = options;
    const onOutput = outputOf(options);
    const collected = new Collected(onOutput);
    const params = { command, cwd, env, stdin, timeout_seconds: timeout };
    const limits = { no_time_limit: timeout === undefined, timeout_seconds: 86_400, max_timeout_seconds: 86_400 };
    const outcome = succeeded(await this.#call({ tool: "shell_execute", params, ...limits }, collected, signal));
    const ran = outcome.result as { exit_code: number; timed_out: boolean; signal?: number; duration_seconds: number; lost?: boolean };
    if (ran.lost) throw new FoldspaceError("failed", "the container ended while the command ran", undefined, outcome);
    const result = new CommandResult(
      collected.bytes("stdout"), collected.bytes("stderr"), ran.exit_code, ran.timed_out, ran.signal ?? null,
      outcome.call, outcome.finished, ran.duration_seconds,
    );
    return this.#checked(result, check);
  }

  #checked(result: CommandResult, check = false): CommandResult {
    if (check && !result.ok) throw new CommandFailedError(result);
    return result;
  }

  /**
   * Makes a tool call, and throws if it fails. `timeout` is the time limit of the whole call in seconds. With `onFailure:
   * "undo"` a call that fails, or whose command exits non-zero, leaves the files as they were.
   */
  async call(
    tool: string,
    params: object = {},
    options: { onOutput?: OnOutput; timeout?: number; onFailure?: "keep" | "undo" } & Cancel = {},
  ): Promise<CallOutcome> {
    const { onOutput, timeout, onFailure, signal } = options;
    const asked = { tool, params, timeout_seconds: timeout, on_failure: onFailure };
    return succeeded(await this.#call(asked, new Collected(onOutput), signal));
  }

  /** Makes a call, and repeats the request if its answer is lost: the server makes the call once. */
  async #call(asked: object, collected: Collected, signal?: AbortSignal): Promise<CallOutcome> {
    const body = { ...this.#rules, call_id: randomUUID(), ...asked, all_output: true };
    for (const pause of PAUSES) {
      try {
        return await this.#callOnce(body, collected, signal);
      } catch (error) {
        const isLost = error instanceof FoldspaceError && ["connection", "ending", "other_host"].includes(error.kind);
        if (!isLost || error.outcome) throw error;
      }
      await new Promise((done) => setTimeout(done, pause));
      signal?.throwIfAborted();
      collected.again();
    }
    return this.#callOnce(body, collected, signal);
  }

  async #callOnce(body: object, collected: Collected, signal?: AbortSignal): Promise<CallOutcome> {
    for await (const { name, data } of this.connection.events("POST", `${this.path}/calls`, { body, signal })) {
      if (name === "output") collected.take(data);
      else if (name === "question") await this.#answer(data);
      else if (name === "outcome") return data as CallOutcome;
      else if (name === "problem") throw ofProblem(data);
    }
    throw new FoldspaceError("connection", "the server hung up before the outcome");
  }

  async #answer(question: { command: Command; programs: string[]; call: number }): Promise<void> {
    const reason = "the client does not ask: pass allow, autoConfirm or onQuestion";
    const answer = (await this.rules.onQuestion?.(question)) ?? "refuse";
    await this.#post(`calls/${question.call}/answer`, answer === "refuse" ? { answer, reason } : { answer }).catch((error) => {
      // Another client may have answered first, or the call may have ended.
      if (!["conflict", "not_found"].includes(error.kind)) throw error;
    });
  }

  /** Starts a command in the background. */
  async start(
    command: Command,
    options: { cwd?: string; env?: Record<string, string>; stdin?: string; input?: boolean; window?: { rows: number; columns: number }; timeout?: number } & Cancel = {},
  ): Promise<Process> {
    const { timeout, signal, ...rest } = options;
    const status = await this.#post<ProcessStatus>("processes", { ...this.#rules, command, ...rest, timeout_seconds: timeout }, signal);
    return new Process(this.connection, this.path, status);
  }

  /** Lists background processes that are running or ended recently. */
  async processes(): Promise<Process[]> {
    const all = await this.connection.document<ProcessStatus[]>("GET", `${this.path}/processes`);
    return all.map((status) => new Process(this.connection, this.path, status));
  }

  /** Returns a process by its number. */
  async process(number: number): Promise<Process> {
    const status = await this.connection.document<ProcessStatus>("GET", `${this.path}/processes/${number}`);
    return new Process(this.connection, this.path, status);
  }

  /**
   * Starts a command with a name in the background, such as a database, and waits until it is ready. It throws if the
   * command ends before.
   */
  async startService(name: string, command: Command, options: ServiceOptions & Cancel = {}): Promise<Process> {
    const { cwd, env, readySeconds, signal, ...rest } = options;
    const body = { ...this.#rules, command, cwd, env, service: { name, ready_seconds: readySeconds, ...rest } };
    return new Process(this.connection, this.path, await this.#post<ProcessStatus>("processes", body, signal));
  }

  /** Lists the services that were started and not stopped, in the order of their starts. */
  services(): Promise<Schemas["Service"][]> {
    return this.connection.document("GET", `${this.path}/services`);
  }

  /** Stops a service for good: SIGTERM, and SIGKILL after 10 seconds. */
  async stopService(name: string): Promise<void> {
    await this.connection.document("DELETE", `${this.path}/services/${part(name)}`);
  }

  /**
   * Makes a TCP port of its container available on this machine: `await using web = await s.forward(8000)`, then
   * `web.address`. `localPort` is the port of 127.0.0.1 to listen at; a free one by default. Commands of the backend `host`
   * use this machine's own ports: there the address is 127.0.0.1 and `port`, and `localPort` is ignored. It throws if
   * nothing listens at the port of the container, and for a server over TCP.
   */
  forward(port: number, options: { localPort?: number } = {}): Promise<ForwardedPort> {
    return forward(this.connection, this.status, port, options.localPort ?? 0);
  }

  /**
   * Mounts its files as a read-only directory on the server's machine: `await using past = await s.mounted({ at: 42 })`,
   * then `past.directory`. By default the directory follows the session. `all` adds the hidden directories `.at/POSITION`,
   * `.call/N/before`, `.call/N/after` and `.sessions/NAME`. Equal mounts share one directory. The client's last
   * `MountedDirectory` of it unmounts it when it is disposed, also for other programs that use it. A mount that existed
   * before the client's first stays.
   */
  mounted(options: { at?: Position; all?: boolean } = {}): Promise<MountedDirectory> {
    return mounted(this.connection, this.path, options);
  }

  /** Lists all mounts of the session, including those that other programs made. */
  mounts(): Promise<Schemas["Mount"][]> {
    return mountsOf(this.connection, this.path);
  }

  /** Unmounts a mount of the session. With `lazy`, processes may use it; they keep their open files. */
  unmount(directory: string, options: { lazy?: boolean } = {}): Promise<void> {
    return unmount(this.connection, this.path, directory, options.lazy ?? false);
  }

  /** Lists its tools. */
  tools(): Promise<Schemas["Tool"][]> {
    return this.connection.document("GET", "/v1/tools", { query: { session: this.id } });
  }

  /** Cancels a call in flight. */
  async cancel(call: number): Promise<void> {
    await this.connection.document("DELETE", `${this.path}/calls/${call}`);
  }

  /**
   * Forks it `count` times (1 by default), now or at a position: all or none. `name` is the name of the only fork; with
   * `count` it is a prefix, and the forks are numbered from 1. With `mount`, forks of a session on the host have their
   * files in mounts, which share files instead of copying them; the server must be root.
   */
  async fork(options: { count?: number; at?: Position; name?: string; agent?: string; limits?: Limits; policy?: Schemas["ToolPolicy"]; mount?: boolean; createId?: string } & Cancel = {}): Promise<Session[]> {
    const { createId, signal, ...rest } = options;
    if (rest.name !== undefined && rest.count === undefined && createId === undefined) return [await this.clone(options)];
    const { children } = await this.#post<Schemas["Forks"]>("forks", { ...rest, create_id: createId }, signal);
    return children.map((child) => this.#child(child));
  }

  #child(child: Schemas["Child"]): Session {
    const { session, name, backend } = child;
    const parent = session === this.id ? this.parent : this.id;
    return this.#related({ ...this.status, session, name, backend, parent, events: child.at ?? 0 }, child.agent);
  }

  #related(status: SessionStatus, agent?: string): Session {
    return new Session(this.connection, status, { ...this.rules, agent: agent || this.rules.agent });
  }

  /**
   * Lists its children, oldest first: forks and full clones that were not removed. `agent` of each is the agent that it
   * was created for. A shared clone is not a child: it is the session itself.
   */
  async children(): Promise<Session[]> {
    const started = (await this.log(1, { kind: "ChildStarted" })).map(({ event }) => event as { child: string; agent?: string });
    const agents = new Map(started.map((each) => [each.child, each.agent]));
    const children = (await allSessions(this.connection)).filter((each) => each.parent === this.id);
    return children.map((each) => this.#related(each, agents.get(each.session)));
  }

  /**
   * Clones it: as a `fork`, from the same mounts (`full`), or itself for another agent (`shared`). The calls of a session
   * run one after another, so commands of the agents that share it never run at the same time.
   */
  async clone(options: { isolation?: "fork" | "full" | "shared"; at?: Position; name?: string; agent?: string; limits?: Limits; policy?: Schemas["ToolPolicy"]; mount?: boolean } & Cancel = {}): Promise<Session> {
    const { signal, ...rest } = options;
    return this.#child(await this.#post("children", { isolation: "fork", ...rest }, signal));
  }

  /**
   * Makes calls in a batch of new children, `parallel` children at a time, and returns the result of each. `merge` merges
   * the children that are done. A child that fails throws nothing: its `status` and `reason` say so.
   */
  dispatch(
    children: Schemas["NewSubagent"][],
    options: { parallel?: number; merge?: boolean; theirs?: string[]; ours?: string[] } & Cancel = {},
  ): Promise<Schemas["Dispatched"]> {
    const { signal, ...rest } = options;
    const { allow, deny, auto_confirm } = this.#rules;
    return this.#post("subagents", { children, ...rest, allow, deny, auto_confirm }, signal);
  }

  /**
   * Forks it at one position, makes calls in each fork, and yields each rollout as it ends. The score is recorded as the
   * fork's annotation `score`. `run` is a command or a call, or a list of these, for all rollouts; or a list of lists, one
   * for each. A rollout that fails throws nothing: its `status` and `reason` say so. Leaving the loop, or aborting
   * `signal`, cancels the other rollouts.
   *
   * ```js
   * const rolled = [];
   * for await (const each of s.rollouts([["seq 2 > list.txt"], ["seq 3 > list.txt"]], { score: "wc -l < list.txt", keep: 1 })) rolled.push(each);
   * const best = rolled.find((each) => each.kept);
   * await s.merge(best.session);
   * ```
   */
  rollouts(run: Call | Call[] | Call[][], options: RolloutOptions = {}): AsyncGenerator<Rollout> {
    const { score, signal, ...rest } = options;
    const { allow, deny, auto_confirm } = this.#rules;
    const body = { run: listsOf(run), ...rest, score, allow, deny, auto_confirm };
    const forkOf = ({ session, name }: Schemas["Rollout"]) =>
      this.#related({ ...this.status, session, name, parent: this.id, events: 0 }, rest.agent);
    return rolloutsOf(this.connection, this.path, body, signal, forkOf);
  }

  /** Merges its changes into the host directory that it started from, or another: all or none. See `merge` for rules. */
  apply(
    options: { to?: string; take?: string[]; keep?: string[]; generated?: string[]; dryRun?: boolean } & Cancel = {},
  ): Promise<Schemas["Applied"]> {
    const { dryRun, signal, ...rest } = options;
    return this.#post("apply", { ...rest, dry_run: dryRun, agent: this.rules.agent }, signal);
  }

  /** Folds its history again, and compares with everything stored. */
  verify(options: Cancel = {}): Promise<Schemas["Verification"]> {
    return this.#post("verify", undefined, options.signal);
  }

  /**
   * Merges a child's changes. `theirs` and `ours` are paths and globs (`src`, `*.lock`) that resolve conflicts at or
   * below them for that side; a path or glob without a match is an error. Generated files don't conflict: the session's
   * version stays. They are `__pycache__` and other caches of tools, files that `.gitignore` files ignore, and files
   * that match the globs of `generated`.
   */
  merge(
    child: Session | string,
    options: { theirs?: string[]; ours?: string[]; generated?: string[]; dryRun?: boolean } & Cancel = {},
  ): Promise<Schemas["Merge"]> {
    const { dryRun, signal, ...rest } = options;
    const id = typeof child === "string" ? child : child.id;
    return this.#post("merge", { child: id, ...rest, dry_run: dryRun, agent: this.rules.agent }, signal);
  }

  /**
   * Takes back changes that calls made to files, and keeps all other changes: one call, the calls of an agent's run, or
   * all calls after a position; by default the latest call that is not undone. `external` takes back changes made
   * outside of any call, `redo` the latest undo. `left` lists changes that stay, with the reason for each path.
   */
  undo(
    options: {
      call?: number;
      run?: string;
      to?: Position;
      external?: boolean | number;
      redo?: boolean;
      overwrite?: boolean;
      force?: boolean;
      dryRun?: boolean;
    } & Cancel = {},
  ): Promise<Schemas["Undone"]> {
    const { dryRun, signal, ...rest } = options;
    return this.#post("undo", { ...rest, dry_run: dryRun }, signal);
  }

  /** Restores paths, and everything below them, as of a position. Newer entries stay. */
  revert(
    paths: string[],
    at: Position,
    options: { force?: boolean; dryRun?: boolean } & Cancel = {},
  ): Promise<Schemas["Undone"]> {
    return this.#post("undo", { paths, to: at, force: options.force, dry_run: options.dryRun }, options.signal);
  }

  /**
   * Rewinds state and files to a position. The rewind is an event, and can be undone. `force` proceeds where it would
   * refuse; `keepEarlier` still protects files of a directory of yours that are older than the session. `git` also rewinds
   * the `.git` of a directory of yours.
   */
  rewind(
    to: Position,
    options: { force?: boolean; keepEarlier?: boolean; git?: boolean; dryRun?: boolean } & Cancel = {},
  ): Promise<Schemas["Rewind"]> {
    const { force, keepEarlier, git, dryRun, signal } = options;
    return this.#post("rewind", { to, force, keep_earlier: keepEarlier, git, dry_run: dryRun }, signal);
  }

  /** Finds the first change after which a command fails, or a predicate over slices holds. `jobs` are tried at a time. */
  bisect(options: { command?: Command; slice?: string; good?: Position; bad?: Position; jobs?: number; timeout?: number } & Cancel): Promise<Schemas["Bisect"]> {
    const { timeout, signal, ...rest } = options;
    const { allow, auto_confirm } = this.#rules;
    return this.#post("bisect", { ...rest, timeout_seconds: timeout, allow, auto_confirm }, signal);
  }

  /**
   * Reruns its recorded calls in a fresh session, kept as `keep`, and returns every difference. It is refused if effects
   * outside of the workspace would take place again, unless `repeatEffects` is true. `offline` replays
   * recorded HTTP responses, and refuses all other connections.
   */
  rerun(options: { until?: Position; backend?: string; options?: object; keep?: string; rules?: object; repeatEffects?: boolean; offline?: boolean } & Cancel = {}): Promise<Schemas["Rerun"]> {
    const { repeatEffects, signal, ...rest } = options;
    const { allow, auto_confirm } = this.#rules;
    return this.#post("rerun", { ...rest, repeat_effects: repeatEffects, allow, auto_confirm }, signal);
  }

  /** Yields its events, or those of some kinds (with commas), an agent, a tool or a path, from a position on, then new events until it is removed. Reconnects if necessary. */
  async *events(options: { from?: Position; kind?: string; agent?: string; tool?: string; path?: string; signal?: AbortSignal } = {}): AsyncGenerator<Event> {
    const { signal, ...query } = options;
    const asked = { query, signal };
    for await (const event of this.connection.resumed(`${this.path}/events/stream`, asked, "end")) {
      if (event.name === "message") yield event.data as Event;
      else if (event.name === "problem") throw ofProblem(event.data);
    }
  }

  /** Its state: all slices, one slice, or a part of one. */
  state(slice?: string, pointer?: string): Promise<any> {
    return this.connection.document("GET", `${this.path}/state`, { query: { slice, pointer } });
  }

  /** Records an event of a kind of your own, and returns its position. The kind begins with a lower-case letter. */
  async emit(kind: string, data: unknown = null, options: { call?: number; callId?: string } = {}): Promise<number> {
    const body = { kind, data, call: options.call, call_id: options.callId, agent: this.rules.agent };
    return (await this.#post("events", body)).last;
  }

  /** Records events of your own in one commit, and returns the first and the last position. */
  async emitAll(events: { kind: string; data?: unknown }[], options: { call?: number } = {}): Promise<Schemas["RecordedRange"]> {
    return this.#post("events", { events, call: options.call, agent: this.rules.agent });
  }

  /** Declares a slice of your own, and folds the past into it; `state(name)` then returns its value. */
  declare(name: string, declaration: Omit<Schemas["DeclareSlice"], "agent">): Promise<Schemas["DeclaredSlice"]> {
    const body = { ...declaration, agent: this.rules.agent };
    return this.connection.document("PUT", `${this.path}/reducers/${part(name)}`, { body });
  }

  /** Returns a slice of your own whose items a schema checks, such as one of zod. It is declared on first use. */
  slice<T, const O extends SliceOptions>(name: string, schema: Schema<T>, options: O): TypedSlice<T, O> {
    return new TypedSlice(this, name, schema, options);
  }

  /** Lists the declared slices, without their values. */
  declared(): Promise<Schemas["DeclaredSlice"][]> {
    return this.connection.document("GET", `${this.path}/reducers`);
  }

  /** Removes a declared slice; earlier positions keep it. */
  async undeclare(name: string): Promise<void> {
    await this.connection.document("DELETE", `${this.path}/reducers/${part(name)}`);
  }

  /** Sets its policy for tools: which tools may run, on which paths, in which order and how often. */
  setPolicy(policy: Schemas["ToolPolicy"]): Promise<Schemas["Policies"]> {
    return this.connection.document("PUT", `${this.path}/policy`, { body: policy });
  }

  /** Returns its policy for tools, and those of its ancestors. */
  policy(): Promise<Schemas["Policies"]> {
    return this.connection.document("GET", `${this.path}/policy`);
  }

  /** Removes its policy for tools; those of its ancestors stay. */
  async removePolicy(): Promise<void> {
    await this.connection.document("DELETE", `${this.path}/policy`);
  }

  /**
   * Records an effect outside of the workspace, which no rewind takes back, and returns its position. `what` is the action,
   * such as `git push`, `target` the place; `outcome` is `done` by default, `undo` advice about undoing it. A second record for
   * the same `call`, `what` and `target` settles an `unknown` outcome.
   */
  async recordEffect(
    what: string,
    target = "",
    options: { outcome?: "done" | "failed" | "unknown"; undo?: string; call?: number } = {},
  ): Promise<number> {
    return (await this.#post("effects", { what, target, outcome: "done", ...options, agent: this.rules.agent })).seq;
  }

  /** Records a score, a note or a value for a position, and returns the annotation's own position. */
  async annotate(name: string, what: { score?: number; note?: string; value?: unknown; at?: Position }): Promise<number> {
    return (await this.#post("annotations", { name, ...what, agent: this.rules.agent })).seq;
  }

  /** Lists the annotations. */
  annotations(name?: string): Promise<Schemas["Annotation"][]> {
    return this.connection.document("GET", `${this.path}/annotations`, { query: { name } });
  }

  /** Names a position; then `tag:NAME` works as a position. */
  async tag(name: string, at?: Position): Promise<number> {
    return (await this.#post("tags", { name, at })).seq;
  }

  /** Returns the named positions. */
  tags(): Promise<Record<string, number>> {
    return this.connection.document("GET", `${this.path}/tags`);
  }

  /** Removes a name of a position. */
  async untag(name: string): Promise<void> {
    await this.connection.document("DELETE", `${this.path}/tags/${part(name)}`);
  }

  /** Copies a directory of this machine into the workspace, if that is still empty; `exclude` has globs to leave out. */
  async mount(hostPath: string, options: { mountPath?: string; exclude?: string[] } = {}): Promise<void> {
    const mount = { host_path: resolve(hostPath), mount_path: options.mountPath, exclude_glob: options.exclude ?? [] };
    await this.#post("mounts", { mounts: [mount], allow_roots: [mount.host_path] });
  }

  /** Removes it, with its history. */
  async remove(): Promise<void> {
    await this.connection.document("DELETE", this.path);
  }

  /** Closes the connection, if this session has its own. The server ends when it is unused. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.disposes) this.connection.close();
  }
}

/** The options of a new session. */
export interface NewSession extends Rules {
  /** 1 to 80 letters, digits, dots, underscores or hyphens; the beginning of its id by default. */
  name?: string;
  /** `memory` (the default, which runs no commands), `host`, `mount` (as `host`, in an overlay that forks share), `podman`, `docker`, `mock` or `container`. */
  backend?: string;
  /** A directory of this machine to copy into it. */
  mount?: string;
  /** A directory of this machine to work in. */
  directory?: string;
  /** The container's image. */
  image?: string;
  /** Variables of all its commands. */
  env?: Record<string, string>;
  /** The default directory of its commands. */
  workdir?: string;
  /** Other options of the backend. */
  options?: Record<string, unknown>;
  /** An id of this request: the same id again returns the session that was started with it. */
  createId?: string;
  /** Its policy for tools. */
  policy?: Schemas["ToolPolicy"];
}

/** Starts a session. */
export async function create(connection: Connection, wishes: NewSession, disposes: boolean): Promise<Session> {
  const { name, backend, mount, directory, image, env, workdir, options = {}, createId, policy, ...rules } = wishes;
  const roots = [mount, directory].filter((each) => each !== undefined).map((each) => resolve(each));
  const own = { ...options, image, environment: env, workdir, directory: directory && resolve(directory) };
  const given = Object.fromEntries(Object.entries(own).filter(([, value]) => value !== undefined));
  const mounts = mount === undefined ? [] : [{ host_path: resolve(mount) }];
  const body = { name, backend, options: given, mounts, allow_roots: roots, create_id: createId, policy };
  return new Session(connection, await connection.document("POST", "/v1/sessions", { body }), rules, disposes);
}

/** Opens an existing session. */
export async function open(connection: Connection, session: string, rules: Rules, disposes: boolean): Promise<Session> {
  const status = await connection.document<SessionStatus>("GET", `/v1/sessions/${part(session)}`);
  return new Session(connection, status, rules, disposes);
}
