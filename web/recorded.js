// A call's stored output beyond its result: the whole text, and a player for its terminal.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { ansi } from "./ansi.js";
import { BLANK, framed, Screen } from "./screen.js";
import { bytesOf, getKept, isExport } from "./source.js";
import { bytes, visible } from "./text.js";
import { VirtualRows } from "./virtual.js";

const WIDTH = 400;
const ROWS = 1_000_000;
const PAUSE = 1e6;
const STEP = 5e6;
const SPEEDS = { 1: 2, 2: 4, 4: 1 };

function rowsOf(text) {
  const rows = [];
  for (const line of text.split("\n")) {
    let at = 0;
    do rows.push(line.slice(at, (at += WIDTH)));
    while (at < line.length);
  }
  return rows;
}

// Output that the result has only in part.
export function Kept({ path, kept, written, label, children }) {
  const [rows, setRows] = useState(null);
  const [problem, setProblem] = useState(null);
  if (isExport) return children;
  const show = () => bytesOf(path).then((data) => setRows(rowsOf(new TextDecoder().decode(data))), setProblem);
  if (problem) return html`<p class="problem">${visible(problem.message)}</p>`;
  if (!rows) return html`${children}<p><button class="small" onClick=${show}>${kept === written ? `All of the output is kept: show ${bytes(kept)}` : `The beginning and the end are kept: show ${bytes(kept)} of ${bytes(written)}`}</button></p>`;
  return html`<${VirtualRows} className="kept" height=${19} total=${Math.min(rows.length, ROWS)} label=${`All of ${label}`}
    render=${(index, style) => html`<div class="row" role="listitem" key=${index} style=${style}>${ansi(rows[index])}</div>`} />
    ${rows.length > ROWS && html`<p class="quiet">Only the first ${ROWS.toLocaleString("en")} lines are shown.</p>`}`;
}

const time = (micros) => `${Math.floor(micros / 6e7)}:${String(Math.floor(micros / 1e6) % 60).padStart(2, "0")}`;

function useReel(path) {
  const [reel, setReel] = useState({ frames: [], ends: [0] });
  useEffect(() => {
    let current = true;
    const load = async () => {
      const [frames, ends] = [[], []];
      for (let from = 0; from !== null && current; ) {
        const page = await getKept(path, { from });
        for (const frame of page.frames) {
          // Shorten long pauses.
          ends.push((ends.at(-1) ?? 0) + Math.min(PAUSE, frame.micros - (frames.at(-1)?.micros ?? 0)));
          frames.push(frame);
        }
        from = page.next;
        if (current) setReel({ frames, ends: [...ends], truncated: page.truncated, whole: from === null });
      }
    };
    load().catch((problem) => current && setReel({ frames: [], ends: [0], problem }));
    return () => {
      current = false;
    };
  }, [path]);
  return reel;
}

export function Player({ path }) {
  const { frames, ends, truncated, whole, problem } = useReel(path);
  const [at, setAt] = useState(0);
  const [speed, setSpeed] = useState(1);
  const [plays, setPlays] = useState(!matchMedia("(prefers-reduced-motion: reduce)").matches);
  const shown = useRef({ count: 0, screen: BLANK });
  const end = ends.at(-1) ?? 0;
  useEffect(() => {
    if (whole && at >= end) setPlays(false);
  }, [whole, at]);
  useEffect(() => {
    if (!plays) return undefined;
    let last = performance.now();
    const timer = setInterval(() => {
      const now = performance.now();
      const passed = (now - last) * 1000 * speed;
      last = now;
      setAt((before) => Math.min(end, before + passed));
    }, 33);
    return () => clearInterval(timer);
  }, [plays, speed, end]);
  let count = ends.findIndex((moment) => moment > at);
  if (count < 0) count = frames.length;
  if (count < shown.current.count) shown.current = { count: 0, screen: BLANK };
  let { screen } = shown.current;
  for (const frame of frames.slice(shown.current.count, count)) screen = framed(screen, frame);
  shown.current = { count, screen };
  const drawn = useMemo(() => html`<${Screen} screen=${screen} />`, [screen]);
  const toggle = () => {
    if (!plays && at >= end) setAt(0);
    setPlays(!plays);
  };
  const pressed = (event) => {
    const step = { ArrowRight: STEP, ArrowLeft: -STEP }[event.key];
    if (step) setAt(Math.max(0, Math.min(end, at + step)));
    else if (event.key === " " && event.target.tagName !== "BUTTON") toggle();
    else return;
    event.preventDefault();
  };
  if (problem) return html`<section><h3>Terminal</h3><p class="quiet">${visible(problem.message)}</p></section>`;
  return html`<section onKeyDown=${pressed}><h3>Terminal</h3>
    <div class="terminal" tabindex="0" role="group" aria-label="Recorded terminal" data-scrolls>${drawn}</div>
    <div class="player"><button aria-label=${plays ? "Pause" : "Play"} title="Space" onClick=${toggle}>${plays ? "❚❚" : "▶"}</button>
      <input type="range" aria-label="Time in the recording" min="0" max=${end} step="any" value=${at} aria-valuetext=${time(at)} onInput=${(event) => setAt(Number(event.target.value))} />
      <span class="quiet">${time(at)} / ${time(end)}</span><button aria-label=${`Speed: ${speed}`} onClick=${() => setSpeed(SPEEDS[speed])}>${speed}×</button></div>
    ${truncated && html`<p class="quiet">The recording was cut short.</p>`}</section>`;
}
