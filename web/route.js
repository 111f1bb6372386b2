// The place in the page, as in the address: `#/s/NAME@42/file/src/x.py?mark=7`, or `#/compare/NAME,NAME`.

const TABS = ["call", "files", "file", "slices", "family", "compare"];

export function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter((part) => part !== "");
  if (parts[0] === "compare" && parts[1]) return { session: null, runs: decoded(parts[1]) };
  if (parts[0] !== "s" || !parts[1]) return { session: null };
  const [session, at] = place(parts[1]);
  const tab = TABS.includes(parts[2]) ? parts[2] : "call";
  const options = Object.fromEntries(new URLSearchParams(query ?? ""));
  const route = { session, at, tab: tab === "file" ? "files" : tab, path: null, other: null, slice: null, options };
  const rest = parts.slice(3).map(decoded);
  if (tab === "file" && rest.length) route.path = rest.join("/");
  if (tab === "slices") route.slice = rest[0] ?? null;
  if (tab === "compare" && parts[3]) {
    const [other, otherAt] = place(parts[3]);
    route.other = { session: other, at: otherAt };
  }
  return route;
}

function place(word) {
  const at = word.lastIndexOf("@");
  if (at < 1) return [decoded(word), null];
  const position = Number(word.slice(at + 1));
  return Number.isSafeInteger(position) ? [decoded(word.slice(0, at)), position] : [decoded(word), null];
}

function decoded(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

export function format({ session, at, tab, path, other, slice, options }) {
  if (!session) return "#/";
  const where = at === null || at === undefined ? "" : `@${at}`;
  const parts = ["s", encodeURIComponent(session) + where];
  if (tab === "files" && path) parts.push("file", ...path.split("/").map(encodeURIComponent));
  else if (tab === "compare" && other) parts.push("compare", `${encodeURIComponent(other.session)}${other.at === null ? "" : `@${other.at}`}`);
  else if (tab === "slices" && slice) parts.push("slices", encodeURIComponent(slice));
  else if (tab && tab !== "call") parts.push(tab);
  const given = Object.entries(options ?? {}).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  const query = new URLSearchParams(given).toString();
  return `#/${parts.join("/")}${query ? `?${query}` : ""}`;
}
