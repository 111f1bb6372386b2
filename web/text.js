// Text for people: numbers, times, names, and untrusted contents.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

// Escapes control characters, invisible characters, and characters that change the text direction.
export function visible(text) {
  return String(text).replace(HIDDEN, (found) => escaped(found.codePointAt(0)));
}

export function escaped(code) {
  return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
}

// Like `visible`, on one line.
export function oneLine(text, most = 400) {
  const cut = text.length > most ? `${text.slice(0, most)}…` : text;
  return visible(cut.replace(/\s*\n\s*/g, " ⏎ ").replace(/\t/g, " "));
}

export function duration(micros) {
  if (micros === null || micros === undefined) return "";
  if (micros < 1000) return `${micros} µs`;
  if (micros < 1e6) return `${tidy(micros / 1e3)} ms`;
  if (micros < 6e7) return `${tidy(micros / 1e6)} s`;
  const seconds = Math.round(micros / 1e6);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

function tidy(number) {
  return number < 10 ? number.toFixed(1) : String(Math.round(number));
}

export function bytes(count) {
  if (count === null || count === undefined) return "";
  if (count < 1024) return `${count} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let [value, unit] = [count / 1024, 0];
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${tidy(value)} ${units[unit]}`;
}

// A number in at most four signs: 950, 1.2k, 17k, 1.5M.
export function compact(number) {
  const [size, unit] = number < 1e3 ? [1, ""] : number < 999_500 ? [1e3, "k"] : [1e6, "M"];
  return number < 1e3 ? String(number) : `${tidy(number / size)}${unit}`;
}

export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : /(ss|ch)$/.test(noun) ? "es" : "s"}`;
}

export function clock(time) {
  const at = new Date(time);
  const two = (number) => String(number).padStart(2, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

export function day(time) {
  const at = new Date(time);
  const two = (number) => String(number).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`;
}

export function ago(time) {
  const seconds = Math.max(0, (Date.now() - new Date(time)) / 1000);
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return day(time).slice(0, 10);
}

export function failed(call) {
  return (call.status !== "ok" && call.status !== "running") || Boolean(call.exit_code);
}

export function verdict(call) {
  if (call.status === "running") return "running";
  if (call.status !== "ok") return call.status;
  if (call.timed_out === true) return "timed out";
  return call.exit_code ? `exit ${call.exit_code}` : "ok";
}

// Returns the kind of a call, by its effect.
export function kind(call) {
  if (failed(call)) return "failed";
  if (call.paths?.length) return "write";
  return SIGNS.command === sign(call) || sign(call) === SIGNS.code ? "command" : "read";
}

export const SIGNS = { command: "$", code: ">", write: "*", read: "·" };

export const SIGN_WORDS = { $: "a command", ">": "code", "*": "wrote files", "·": "read only" };

// Returns the sign of a call, by its tool: the colour shows the effect.
export function sign(call) {
  const params = call.params ?? {};
  if (params.code !== undefined) return SIGNS.code;
  if (params.command !== undefined || (call.exit_code !== null && call.exit_code !== undefined)) return SIGNS.command;
  return call.paths?.length ? SIGNS.write : SIGNS.read;
}

// Returns the command of a call as a shell reads it: `title` without `sh -c` around it; null without a whole command.
export function commandOf(call) {
  const { command, code } = call.params ?? {};
  const text = command ?? code;
  if (typeof text === "string") return { title: text.trim(), line: text };
  if (!Array.isArray(text) || !text.every((word) => typeof word === "string")) return null;
  const line = text.map(quoted).join(" ");
  const isScript = text.length === 3 && /^(\/(usr\/)?bin\/)?(ba|da|z)?sh$/.test(text[0]) && /^-[a-z]*c$/.test(text[1]);
  return { title: isScript ? text[2].trim() : line, line };
}

// Returns the numbers of a call's changes, as `+1 ~2 -1`.
export function changesOf({ changed = {}, shared = [] }) {
  const counts = [["+", changed.added], ["~", changed.changed], ["-", changed.removed]].filter(([, count]) => count > 0);
  const perhaps = shared.reduce((sum, { paths }) => sum + paths.length, 0);
  return [...counts.map((pair) => pair.join("")), ...(perhaps ? [`~${perhaps}?`] : [])].join(" ");
}

export function summary(call) {
  const command = commandOf(call);
  if (command) return oneLine(command.title, 400);
  if (call.summary) return oneLine(call.summary, 200);
  const params = call.params ?? {};
  const named = params.file_path ?? params.path ?? params.pattern;
  if (typeof named === "string") return oneLine(named, 200);
  const rest = Object.entries(params).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  return oneLine(rest.join(" "), 200);
}

export function quoted(word) {
  if (/^[\w@%+=:,./-]+$/.test(word)) return word;
  if (word.includes("'") && !/["$`\\!]/.test(word)) return `"${word}"`;
  return `'${word.replaceAll("'", "'\\''")}'`;
}

// Returns a glob that matches only this path.
export function asGlob(path) {
  return path.replace(/[*?[\]{}\\!]/g, (sign) => (sign === "\\" ? "\\\\" : `[${sign}]`));
}

export function fits(glob, path) {
  const start = glob.replace(/^\//, "");
  const source = start.replace(/[.+^${}()|\\]/g, "\\$&").replace(/\*\*\/|\*\*|\*|\?/g, (sign) =>
    ({ "**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]" })[sign]);
  try {
    return new RegExp(`^${source}$`).test(path);
  } catch {
    return false;
  }
}
