// The source of all data: the server, or the run that is embedded in this page.

import { Cache } from "./cache.js";
import { noteFailure, restored } from "./connection.js";
import { exported } from "./export.js";
import { askOtherTabs, keepOfOwner, token } from "./token.js";

const KEPT = 24 << 20;
const kept = new Cache(KEPT);
let serverDocument = null;

export class Problem extends Error {
  constructor(status, document) {
    super(document?.detail ?? document?.title ?? `the server answered ${status}`);
    this.status = status;
    this.kind = document?.kind ?? "";
    this.hint = document?.hint ?? "";
    this.document = document;
  }
}

export const isExport = exported !== null;

export function hasToken() {
  return isExport || token() !== null;
}

// Exchanges the code in the address for a token, and removes it from the address first. Without a code, another tab may
// have a token.
export async function signIn() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const code = fragment.get("code");
  if (code === null) return hasToken() ? undefined : askOtherTabs();
  const session = fragment.get("s");
  const rest = session ? `#/s/${encodeURIComponent(session)}` : "#/";
  history.replaceState(null, "", location.pathname + rest);
  const answer = await fetch("/v1/sign-in", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ code }),
  });
  const document = await answer.json().catch(() => null);
  if (answer.ok) keepOfOwner(document.token);
  else if (!hasToken()) throw new Problem(answer.status, document);
}

export async function mayWrite() {
  if (isExport) return false;
  serverDocument ??= await get("/v1/server");
  return serverDocument.read_only !== true;
}

// The page steps through events: its positions are exact, and not the ends of calls.
function exact(path, name, value) {
  const isPosition = name === "at" || name === "to" || (name === "from" && /\/(changes|until)$/.test(path));
  return isPosition && typeof value === "number" ? `@${value}` : String(value);
}

function address(path, params) {
  const given = Object.entries(params ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(given.map(([name, value]) => [name, exact(path, name, value)])).toString();
  return query ? `${path}?${query}` : path;
}

async function asked(path, { method = "GET", body, accept, headers = {}, signal } = {}) {
  const all = { authorization: `Bearer ${token() ?? ""}`, ...headers };
  if (accept) all.accept = accept;
  if (body !== undefined) all["content-type"] = "application/json";
  const text = body === undefined ? undefined : JSON.stringify(body);
  const early = method === "GET" ? globalThis.foldspaceEarly?.get(path) : undefined;
  globalThis.foldspaceEarly?.delete(path);
  const answer = await (early ?? fetch(path, { method, headers: all, body: text, signal, cache: "no-store" })).catch((error) => {
    if (signal?.aborted) throw error;
    noteFailure();
    throw new Problem(0, { detail: "The server does not answer." });
  });
  if (answer.ok) return answer;
  if (answer.status === 401) dispatchEvent(new CustomEvent("signed-out"));
  throw new Problem(answer.status, await answer.json().catch(() => null));
}

export async function get(path, params, options) {
  if (isExport) return exported.get(path, params ?? {});
  const answer = await asked(address(path, params), { accept: "application/json", ...options });
  return answer.json();
}

// Gets an immutable document through a cache: a state at a position, a difference between two positions.
export function getKept(path, params) {
  if (isExport) return get(path, params);
  const key = address(path, params);
  return kept.get(key, async () => {
    const text = await (await asked(key, { accept: "application/json" })).text();
    return [JSON.parse(text), text.length];
  });
}

export async function bytesOf(path, params) {
  if (isExport) return exported.bytes(path, params ?? {});
  const answer = await asked(address(path, params), { accept: "application/octet-stream" });
  return new Uint8Array(await answer.arrayBuffer());
}

export async function post(path, body, options) {
  const answer = await asked(path, { method: "POST", body, accept: "application/json", ...options });
  return answer.status === 204 ? null : answer.json();
}

export async function remove(path) {
  await asked(path, { method: "DELETE", accept: "application/json" });
}

// Sends a request and passes on its progress events; returns the outcome.
export async function postStreamed(path, body, told, signal) {
  const answer = await asked(path, { method: "POST", body, accept: "text/event-stream", signal });
  if (!answer.headers.get("content-type")?.startsWith("text/event-stream")) return answer.json();
  let outcome = null;
  for await (const { event, data } of frames(answer.body)) {
    if (event === "problem") throw new Problem(data.status, data);
    if (event === "outcome") outcome = data;
    else told(event, data);
  }
  return outcome;
}

// A page can't set headers on a websocket request: the token is sent as a subprotocol.
export function socketOf(path) {
  const shown = btoa(token() ?? "").replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return new WebSocket(location.origin.replace("http", "ws") + path, ["foldspace.terminal", `foldspace.bearer.${shown}`]);
}

// Follows a stream, and reconnects where it broke off. Ends with the signal or an `end` event.
export async function follow(path, params, signal, told) {
  let [last, wait] = [null, 500];
  while (!signal.aborted) {
    try {
      const headers = last === null ? {} : { "last-event-id": last };
      const answer = await asked(address(path, params), { accept: "text/event-stream", headers, signal });
      told("connected", null);
      wait = 500;
      for await (const { event, data, id } of frames(answer.body)) {
        if (id !== null) last = id;
        told(event, data);
        if (event === "end" || event === "ended") return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status > 0 && error.status < 500) throw error;
      if (!(error instanceof Problem)) noteFailure();
    }
    told("disconnected", null);
    await restored();
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 2, 10_000);
  }
}

async function* frames(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const frame = parsed(part);
        if (frame) yield frame;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(part) {
  let [event, id] = ["message", null];
  const data = [];
  for (const line of part.split("\n")) {
    if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
    else if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("id:")) id = line.slice(3).trim();
  }
  return data.length ? { event, id, data: JSON.parse(data.join("\n")) } : null;
}

export function ofSession(session, rest = "") {
  return `/v1/sessions/${encodeURIComponent(session)}${rest}`;
}

export function ofFile(session, path, verb = "files") {
  return ofSession(session, `/${verb}/${path.split("/").map(encodeURIComponent).join("/")}`);
}
