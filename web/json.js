// JSON values as a collapsible tree, and the differences between two values.

import { html, useState } from "./vendor/preact.js";
import { bytes, oneLine, visible } from "./text.js";

const SHOWN = 100;
const LONG = 300;

export function JsonTree({ value, name = null, depth = 0, open = depth < 2 }) {
  const [limit, setLimit] = useState(SHOWN);
  const count = value !== null && typeof value === "object" ? Object.keys(value).length : 0;
  const [isOpen, setOpen] = useState(open && count <= SHOWN);
  if (value === null || typeof value !== "object") {
    return html`<div class="json-line">${name !== null && html`<span class="json-key">${visible(name)}</span>`}<${JsonValue} value=${value} /></div>`;
  }
  const entries = Object.entries(value);
  const many = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  if (!entries.length) return html`<div class="json-line">${name !== null && html`<span class="json-key">${visible(name)}</span>`}<span class="quiet">${many === "[0]" ? "[]" : "{}"}</span></div>`;
  // A closed node renders no children.
  return html`<details class="json" open=${isOpen} onToggle=${(event) => setOpen(event.target.open)}>
    <summary>${name !== null && html`<span class="json-key">${visible(name)}</span>`}<span class="quiet">${many}</span></summary>
    ${isOpen && entries.slice(0, limit).map(([key, inner]) => html`<${JsonTree} key=${key} name=${key} value=${inner} depth=${depth + 1} />`)}
    ${isOpen && entries.length > limit && html`<button class="small" onClick=${() => setLimit(limit * 10)}>${entries.length - limit} more</button>`}
  </details>`;
}

function JsonValue({ value }) {
  const [whole, setWhole] = useState(false);
  if (typeof value !== "string") return html`<span class="json-${typeof value}">${String(value)}</span>`;
  if (value.length <= LONG && !value.includes("\n")) return html`<span class="json-string">${visible(value)}</span>`;
  if (!whole) return html`<span class="json-string">${oneLine(value, 120)}</span> <button class="small" onClick=${() => setWhole(true)}>${bytes(value.length)}</button>`;
  return html`<pre class="code" tabindex="0">${visible(value.slice(0, 200_000))}</pre>`;
}

// Returns `{ pointer, before, after }` for each difference.
export function differences(before, after, pointer = "", found = []) {
  if (found.length > 2000 || same(before, after)) return found;
  const both = [before, after].every((value) => value !== null && typeof value === "object" && !Array.isArray(value));
  const lists = Array.isArray(before) && Array.isArray(after);
  if (!both && !lists) {
    found.push({ pointer: pointer || "/", before: before ?? null, after: after ?? null });
    return found;
  }
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    differences(before[key], after[key], `${pointer}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`, found);
  }
  return found;
}

function same(one, other) {
  return one === other || JSON.stringify(one) === JSON.stringify(other);
}
