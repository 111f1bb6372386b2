// A terminal's screen: lines of styled text, updated by the server's frames.

import { html } from "./vendor/preact.js";
import { visible } from "./text.js";

export const BLANK = { columns: 80, rows: 24, lines: [], cursor: null };

// Returns the screen after a frame.
export function framed(screen, { size, cursor, rows }) {
  const lines = screen.lines.slice(0, size?.rows);
  for (const [number, line] of Object.entries(rows)) lines[number] = line;
  return { ...screen, ...size, cursor, lines };
}

const colour = (name, set) => name && (name[0] === "#" ? name : `var(--${set}-${name})`);

function part({ text, foreground, background, style = [] }) {
  const look = { color: background && foreground === "black" ? "#000" : colour(foreground, "t"), backgroundColor: colour(background, "b") };
  if (style.includes("wide")) look.width = `${2 * [...text].length}ch`;
  return html`<span class=${style.join(" ")} style=${look}>${visible(text)}</span>`;
}

export const textOf = (line) => (line ?? []).map(({ text }) => text).join("");

export function Screen({ screen, cell }) {
  const { lines, rows, columns, cursor } = screen;
  const place = { left: `${cursor?.[0] ?? 0}ch`, top: `${1.25 * (cursor?.[1] ?? 0)}em`, opacity: cursor ? 0.6 : 0 };
  return html`<div class="screen" style=${{ width: `${columns}ch` }}>
    ${Array.from({ length: rows }, (_, number) => html`<div key=${number}>${(lines[number] ?? []).map(part)}</div>`)}<i ref=${cell} style=${place}></i></div>`;
}
