// A conflict of a merge: its parts with three sides, and nothing of the rest of the file.

import { html, useMemo } from "./vendor/preact.js";
import { conflictsOf, hunksOf, linesOf } from "./lines.js";
import { fileAt, useLoaded } from "./loaded.js";
import { Patch } from "./patch.js";
import { bytes, count, visible } from "./text.js";

const HUNKS = 50;
const CONTEXT = 2;
const LINE_MOST = 1000;
const TITLES = ["Ours", "Base", "Theirs"];

// `places` has session and position of our side, the base, and their side. `hunks` are the server's, if it has told
// them; `choice` renders the choice of a side for one of them.
export function Conflict({ path, places, hunks = null, choice = null }) {
  const { value, error } = useLoaded(() => Promise.all(places.map(([session, at]) => fileAt(session, path, at))), [path, ...places.flat()]);
  if (error) return html`<p class="problem">${visible(error.message)}</p>`;
  if (!value) return null;
  if (value.some((side) => side && side.text === null)) return html`<${Facts} path=${path} sides=${value} />`;
  if (!value[0] || !value[2]) return html`<${Removed} path=${path} sides=${value} />`;
  return html`<${Hunks} path=${path} texts=${value.map((side) => side?.text ?? "")} known=${hunks} choice=${choice} />`;
}

function Facts({ path, sides }) {
  return html`<div class="three">${sides.map((side, number) => html`<figure key=${number} aria-label=${`${TITLES[number]} of ${path}`}><figcaption>${TITLES[number]}</figcaption>
    <p class="quiet">${side ? `${side.entry.node === "file" ? "not text, " : ""}${side.entry.node} ${bytes(side.entry.size)}` : "does not exist"}</p></figure>`)}</div>`;
}

// One side removed what the other changed.
function Removed({ path, sides: [ours, base, theirs] }) {
  const [gone, other] = ours ? ["The child", ours] : ["This session", theirs];
  const hunks = hunksOf(base?.text ?? "", other?.text ?? "");
  return html`<p class="quiet">${gone} removed the file; the other side changed it:</p><div class="file-change"><${Patch} hunks=${hunks} label=${`Changes of ${path}`} /></div>`;
}

// Adds the lines around a hunk of the server.
function withContext({ ours, base, theirs }, texts) {
  return [ours, base, theirs].map(({ first, text }, side) => {
    const all = linesOf(texts[side]);
    const [from, to] = [first - 1, first - 1 + linesOf(text).length];
    const start = Math.max(0, from - CONTEXT);
    return { at: start + 1, lines: all.slice(start, to + CONTEXT).map((line, row) => ({ text: line, isChanged: start + row >= from && start + row < to })) };
  });
}

function Hunks({ path, texts, known, choice }) {
  const [ours, base, theirs] = texts;
  const { hunks, merging } = useMemo(() => conflictsOf(base, ours, theirs), [base, ours, theirs]);
  const shown = useMemo(() => known?.map((hunk) => withContext(hunk, texts)) ?? hunks, [known, hunks]);
  return html`<p class="quiet">${count(shown.length, "part")} in conflict${merging ? `; ${count(merging, "other change")} of the file can be merged` : ""}.</p>
    ${shown.slice(0, HUNKS).map((sides, number) => html`<div key=${number}>${choice?.(number + 1)}<div class="three">${sides.map(({ at, lines }, side) => html`<figure key=${side} role="group" aria-label=${`${TITLES[side]} of ${path}, line ${at}`}><figcaption>${TITLES[side]}</figcaption>
      <div class="patch" tabindex="0" data-scrolls role="group" aria-label=${`${TITLES[side]}, lines`}><div class="hunk">${lines.map(({ text, isChanged }, row) => html`<div key=${row} class="line ${isChanged ? `side-${side}` : ""}"><span class="number">${at + row}</span><code>${visible(text.slice(0, LINE_MOST))}</code></div>`)}
        ${!lines.some(({ isChanged }) => isChanged) && html`<div class="line side-${side}"><span class="number"></span><code class="quiet">no lines</code></div>`}</div></div></figure>`)}</div></div>`)}
    ${shown.length > HUNKS && html`<p class="quiet">and ${count(shown.length - HUNKS, "part")} more</p>`}`;
}
