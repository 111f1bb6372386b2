// A bar between two panes, which moves by pointer and by keys. Widths are remembered in this browser.

import { html, useEffect, useState } from "./vendor/preact.js";

const KEY = "foldspace-widths";
const STEP = 24;
const LEAST = 160;

function remembered() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "{}");
  } catch {
    return {};
  }
}

function remember(name, width) {
  try {
    localStorage.setItem(KEY, JSON.stringify({ ...remembered(), [name]: width }));
  } catch {
    // Without storage the width lasts as long as the page.
  }
}

// The width of the pane before the bar in pixels; null for its usual width.
export function useWidth(name) {
  const [width, setWidth] = useState(() => remembered()[name] ?? null);
  useEffect(() => {
    if (width !== (remembered()[name] ?? null)) remember(name, width);
  }, [width]);
  return [width, setWidth];
}

export function Splitter({ label, width, onWidth }) {
  const bounds = (bar) => {
    const [before, whole] = [bar.previousElementSibling.getBoundingClientRect(), bar.parentElement.getBoundingClientRect()];
    return { now: before.width, left: before.left, most: Math.max(LEAST, whole.width - LEAST) };
  };
  const to = (bar, wanted) => onWidth(Math.round(Math.max(LEAST, Math.min(bounds(bar).most, wanted))));
  const pressed = (event) => {
    const step = { ArrowRight: STEP, ArrowLeft: -STEP }[event.key];
    if (step) to(event.currentTarget, bounds(event.currentTarget).now + step);
    else if (event.key === "Enter") onWidth(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const moved = (event) => event.buttons === 1 && to(event.currentTarget, event.clientX - bounds(event.currentTarget).left);
  return html`<div class="splitter" role="separator" aria-orientation="vertical" aria-label=${label} aria-valuenow=${width ?? 0} aria-valuemin=${LEAST} tabindex="0"
    title="Drag, or use the arrow keys; a double click resets it" onKeyDown=${pressed} onDblClick=${() => onWidth(null)}
    onPointerDown=${(event) => event.currentTarget.setPointerCapture(event.pointerId)} onPointerMove=${moved}></div>`;
}
