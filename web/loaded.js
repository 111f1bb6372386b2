// Values that a component waits for, and the contents of files.

import { Cache } from "./cache.js";
import { bytesOf, getKept, ofFile } from "./source.js";
import { useLayoutEffect, useState } from "./vendor/preact.js";

const LARGE = 16 << 20;
const CONTENTS = 48 << 20;
const contents = new Cache(CONTENTS);

// Reloads a value when `keys` change, and shows the old one until then. It does not wait for the next frame.
export function useLoaded(load, keys) {
  const [state, setState] = useState({ value: null, error: null, keys: null });
  useLayoutEffect(() => {
    let current = true;
    Promise.resolve(load()).then(
      (value) => current && setState({ value, error: null, keys }),
      (error) => current && setState({ value: null, error, keys }),
    );
    return () => {
      current = false;
    };
  }, keys);
  return state;
}

// Returns the contents of a file at a position: `{entry, text, bytes}`; null if it does not exist.
export async function fileAt(session, path, at) {
  const entry = await getKept(ofFile(session, path, "stat"), { at }).catch((error) => {
    if (error.status === 404) return null;
    throw error;
  });
  if (!entry || entry.node !== "file") return entry && { entry, text: entry.target ?? null, bytes: null };
  if (entry.size > LARGE) return { entry, text: null, bytes: null, isLarge: true };
  return { entry, ...(await contents.get(entry.content, () => loaded(session, path, at))) };
}

async function loaded(session, path, at) {
  const bytes = await bytesOf(ofFile(session, path), { at });
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    if (!text.includes("\0")) return [{ text, bytes }, bytes.length * 3];
  } catch {
    // Not text.
  }
  return [{ text: null, bytes }, bytes.length];
}
