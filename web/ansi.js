// Output in its program's colours; other control sequences are dropped or shown escaped.

import { html } from "./vendor/preact.js";
import { visible } from "./text.js";

const SEQUENCE = /\u001b\[([0-9;:?]*)([@-~])|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)/g;
const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

function styled(state, codes) {
  const next = { ...state };
  for (const code of (codes === "" ? "0" : codes).split(/[;:]/).map(Number)) {
    if (code === 0) Object.assign(next, { bold: false, dim: false, underline: false, colour: "" });
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 4) next.underline = true;
    else if (code === 22) Object.assign(next, { bold: false, dim: false });
    else if (code === 24) next.underline = false;
    else if (code === 39) next.colour = "";
    else if (code >= 30 && code <= 37) next.colour = NAMES[code - 30];
    else if (code >= 90 && code <= 97) next.colour = NAMES[code - 90];
    else if (code === 38 || code === 48) break;
  }
  return next;
}

function classes({ bold, dim, underline, colour }) {
  return [bold && "bold", dim && "dim", underline && "underline", colour && `ansi-${colour}`].filter(Boolean).join(" ");
}

// Drops text that carriage returns overwrite, as a terminal would.
function overwritten(text) {
  return text.replace(/\r+\n/g, "\n").replace(/[^\n]*\r(?=[^\n])/g, "");
}

export function ansi(text) {
  const parts = [];
  let [state, at] = [{ colour: "" }, 0];
  const clean = overwritten(text);
  const push = (piece) => {
    if (!piece) return;
    const name = classes(state);
    parts.push(name ? html`<span class=${name}>${visible(piece)}</span>` : visible(piece));
  };
  for (const found of clean.matchAll(SEQUENCE)) {
    push(clean.slice(at, found.index));
    at = found.index + found[0].length;
    if (found[2] === "m") state = styled(state, found[1]);
  }
  push(clean.slice(at));
  return parts;
}

// Returns output as text, without its colours and control sequences.
export function plain(text) {
  return overwritten(text).replace(SEQUENCE, "");
}
