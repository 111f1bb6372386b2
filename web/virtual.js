// A list of rows of equal height; only visible rows are rendered.

import { html, useLayoutEffect, useRef, useState } from "./vendor/preact.js";

const MORE = 6;

export function VirtualRows({ height, total, render, reveal = null, label, role = "list", active, onKeyDown, className = "" }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 400 });
  const measure = () => setView({ top: box.current.scrollTop, height: box.current.clientHeight });
  useLayoutEffect(() => {
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (reveal === null || reveal < 0) return;
    const { scrollTop, clientHeight } = box.current;
    const top = reveal * height;
    if (top < scrollTop || top > scrollTop + clientHeight - height) box.current.scrollTop = Math.max(0, top - clientHeight / 3);
    measure();
  }, [reveal]);
  const first = Math.max(0, Math.floor(view.top / height) - MORE);
  const last = Math.min(total, Math.ceil((view.top + view.height) / height) + MORE);
  const rows = [];
  for (let index = first; index < last; index++) rows.push(render(index, { transform: `translateY(${index * height}px)` }));
  return html`<div class="virtual ${className}" ref=${box} onScroll=${measure} data-scrolls>
    <div class="rows" role=${role} aria-label=${label} tabindex="0" aria-activedescendant=${active} onKeyDown=${onKeyDown} style=${{ height: `${total * height}px` }}>${rows}</div>
  </div>`;
}
