// The whole run on one line, with durations, file changes and failures; and lanes.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { byEvent, byTime, placeOf, ticksOf, valueAt } from "./scale.js";
import { get, ofSession } from "./source.js";
import { clock, count, day, duration, failed, visible } from "./text.js";
import { share } from "./timeline.js";

const LANES_MOST = 8;
const ROWS_DRAWN = 1500;
const BARS = 40;
const STRIP = BARS + 15;
const BRUSH_LEAST = 6;
const LANE = 18;
const NONE = [];

export function Strip({ model }) {
  const canvas = useRef(null);
  const [lanes, setLanes] = useState("");
  const [axis, setAxis] = useState("event");
  const [zoom, setZoom] = useState([0, 1]);
  const [width, setWidth] = useState(0);
  const laneRows = useLanes(model, lanes);
  const height = STRIP + laneRows.length * LANE;
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => setWidth(canvas.current.clientWidth));
    observer.observe(canvas.current);
    return () => observer.disconnect();
  }, []);
  const [tip, setTip] = useState(null);
  const scale = scaleOf(model, axis, zoom, width);
  const scheme = useScheme();
  const { whole } = model;
  const list = model.list?.calls;
  useEffect(() => {
    if (width && whole) draw(canvas.current, model, scale, laneRows, width, height);
  }, [list, list?.timeline, whole?.timeline, laneRows, width, height, axis, zoom, scheme, model.head]);
  const { brush, ...drag } = useScrubber(model, canvas, scale, setZoom, setTip);
  const nearer = (factor) => setZoom(zoomed(zoom, factor, scale.share(model.at, model.moment)));
  const wheel = (event) => {
    event.preventDefault();
    const box = canvas.current.getBoundingClientRect();
    const [from, to] = zoom;
    const middle = from + ((event.clientX - box.left) / box.width) * (to - from);
    setZoom(zoomed(zoom, event.deltaY < 0 ? 0.75 : 1.33, middle));
  };
  useEffect(() => {
    const element = canvas.current;
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  });
  return html`<div class="strip">
    <div class="strip-box"><canvas ref=${canvas} style=${{ height: `${height}px` }} role="slider" tabindex="0" aria-label="Position in the run" aria-valuemin="0"
      aria-valuemax=${model.head} aria-valuenow=${model.at} aria-valuetext=${`event ${model.at} of ${model.head}`} ...${drag}></canvas>
      ${model.mark !== null && html`<i class="mark" style=${placed(scale.x(model.mark, null), width)}></i>`}
      ${brush && html`<i class="brush" style=${{ transform: `translateX(${Math.min(...brush)}px)`, width: `${Math.abs(brush[1] - brush[0])}px` }}></i>`}
      <i class="cursor" style=${placed(scale.x(model.at, model.moment), width)}></i></div>
    ${tip && html`<div class="strip-tip" role="presentation" style=${{ left: `${Math.max(0, Math.min(tip.x, width - 180))}px`, top: `${height + 10}px` }}>${tip.text}</div>`}
    <div class="strip-tools" role="group" aria-label="The strip">
      <select aria-label="Lanes" title="A lane below the strip for each agent, tool or child" value=${lanes} onChange=${(event) => setLanes(event.target.value)}>
        <option value="">No lanes</option><option value="agents">Agents</option><option value="tools">Tools</option><option value="children">Children</option></select>
      <select aria-label="Axis" title="The strip's axis: events in order, or times with folded pauses" value=${axis} onChange=${(event) => setAxis(event.target.value)}><option value="event">by event</option><option value="time">by time</option></select>
      <button aria-label="Zoom out" title="Zoom out" disabled=${zoom[0] === 0 && zoom[1] === 1} onClick=${() => nearer(2)}>−</button>
      <button aria-label="Zoom in" title="Zoom in, also with the wheel, or Shift and a drag" onClick=${() => nearer(0.5)}>+</button>
    </div>
  </div>`;
}

function placed(x, width) {
  return { transform: `translateX(${x}px)`, display: x < 0 || x > width ? "none" : "block" };
}

// A canvas does not follow the colour scheme automatically.
function useScheme() {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const [isDark, setDark] = useState(query.matches);
  useEffect(() => {
    const changed = (event) => setDark(event.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return isDark;
}

function zoomed([from, to], factor, middle) {
  const length = Math.min(1, Math.max((to - from) * factor, 0.0005));
  const part = (middle - from) / (to - from);
  const start = Math.max(0, Math.min(1 - length, middle - part * length));
  return length >= 1 ? [0, 1] : [start, start + length];
}

const millis = (time) => Date.parse(time ?? 0);

// Maps positions, or times, to the width of the strip, and back.
function scaleOf(model, axis, [from, to], width) {
  const { buckets = [], timeline } = model.whole ?? {};
  const isTime = axis === "time" && buckets.length > 0;
  const head = Math.max(1, model.head);
  const map = isTime ? byTime(buckets.map(({ at, ended_at: end }) => [millis(at), millis(end ?? at)])) : byEvent(head, model.start);
  const share = (seq, time) => placeOf(map, isTime ? (typeof time === "number" ? time : millis(time ?? timeline.started_at)) : seq);
  const x = (seq, time) => ((share(seq, time) - from) / (to - from)) * width;
  const bucketAt = (pixels) => {
    const value = valueAt(map, from + (pixels / Math.max(1, width)) * (to - from));
    const next = buckets.findIndex((bucket) => (isTime ? millis(bucket.at) : bucket.from) > value);
    return { value, number: (next < 0 ? buckets.length : next) - 1 };
  };
  const seqAt = (pixels) => {
    const { value, number } = bucketAt(pixels);
    return isTime ? buckets[Math.max(0, number)]?.from ?? 0 : Math.round(value);
  };
  return { x, share, seqAt, bucketAt, isTime, map, ticks: () => ticksOf(map, isTime, [from, to], width), zoom: [from, to], width };
}

// What is at a place of the strip, in words.
function words(model, scale, pixels) {
  const { value, number } = scale.bucketAt(pixels);
  const fold = scale.map.folds.find(({ from, to }) => value >= from && value < to);
  if (fold?.isStart) return `${count(fold.to, "event")} before the first call: what was there at the start`;
  if (fold) return `no call for ${duration((fold.to - fold.from) * 1000)}`;
  const bucket = model.whole.buckets[number];
  if (!bucket) return "before the first call";
  const facts = [bucket.calls > 1 && `${count(bucket.calls, "call")} from ${bucket.from}`, bucket.failed > 0 && (bucket.calls > 1 ? `${bucket.failed} failed` : "failed"),
    bucket.changed > 0 && count(bucket.changed, "change"), bucket.micros > 0 && `${bucket.calls > 1 ? "on average " : ""}${duration(Math.round(bucket.micros / bucket.calls))}`];
  return `${bucket.calls > 1 ? "" : `call ${bucket.from}, `}${facts.filter(Boolean).join(", ")}, ${clock(bucket.at).slice(0, 8)}`;
}

function useScrubber(model, canvas, scale, onZoom, onTip) {
  const wanted = useRef({ seq: null, isGoing: false });
  const [brush, setBrush] = useState(null);
  // Loads one position at a time: positions that the pointer passes while loading are skipped.
  const go = async () => {
    const { current } = wanted;
    if (current.isGoing) return;
    current.isGoing = true;
    while (current.seq !== null) {
      const { seq } = current;
      current.seq = null;
      await model.goTo(seq, { replace: true }).catch(() => {});
    }
    current.isGoing = false;
  };
  const placeIn = (event) => event.clientX - canvas.current.getBoundingClientRect().left;
  const to = (event) => {
    wanted.current.seq = Math.max(0, Math.min(model.head, scale.seqAt(placeIn(event))));
    go();
  };
  const zoomIn = () => {
    const [from, end] = scale.zoom;
    const [left, right] = [Math.min(...brush), Math.max(...brush)].map((pixels) => from + (Math.max(0, Math.min(scale.width, pixels)) / scale.width) * (end - from));
    if (Math.abs(brush[1] - brush[0]) >= BRUSH_LEAST) onZoom([left, right]);
    setBrush(null);
  };
  return {
    brush,
    onPointerDown: (event) => {
      canvas.current.setPointerCapture(event.pointerId);
      onTip(null);
      if (event.shiftKey) return setBrush([placeIn(event), placeIn(event)]);
      model.follows = false;
      to(event);
    },
    onPointerMove: (event) => {
      if (brush) setBrush([brush[0], placeIn(event)]);
      else if (event.buttons === 1) to(event);
      else if (model.whole) onTip({ x: placeIn(event), text: words(model, scale, placeIn(event)) });
    },
    onPointerUp: () => brush && zoomIn(),
    onPointerLeave: () => onTip(null),
  };
}

// The lanes: for each agent or tool its calls, for each child the span from its fork to its last merge or to the head.
function useLanes(model, by) {
  const [rows, setRows] = useState([]);
  const { family, document: known, whole } = model;
  useEffect(() => {
    let current = true;
    lanesOf(model, by).then((found) => current && setRows(found), () => current && setRows([]));
    return () => {
      current = false;
    };
  }, [by, whole?.total, family]);
  return by && known ? rows : NONE;
}

async function lanesOf(model, by) {
  if (by === "children") {
    const children = (model.family?.sessions ?? []).filter(({ parent }) => parent === model.document.session);
    const merges = model.family?.sessions.find(({ session }) => session === model.document.session)?.merges ?? [];
    return children.slice(0, LANES_MOST).map(({ name, session, at }) => ({ name, from: at, merges: merges.filter(({ child }) => child === session) }));
  }
  const names = Object.entries(model.whole?.timeline?.[by] ?? {}).sort((a, b) => b[1] - a[1]).slice(0, LANES_MOST);
  if (!by) return [];
  if (model.whole.total <= ROWS_DRAWN) {
    for (let row = 0; row < model.whole.total; row += 1) await model.whole.ensure(row);
    const key = by === "agents" ? "agent" : "tool";
    const calls = [...model.whole.rows.values()];
    return names.map(([name]) => ({ name, calls: calls.filter((call) => call[key] === name) }));
  }
  const param = by === "agents" ? "agent" : "tool";
  const ask = ([name]) => get(ofSession(model.session, "/timeline"), { buckets: 1000, [param]: name });
  return Promise.all(names.filter(([name]) => name !== "").map(async (entry) => ({ name: entry[0], buckets: (await ask(entry)).buckets })));
}

function draw(canvas, model, scale, lanes, width, height) {
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  const style = getComputedStyle(canvas);
  const colours = new Map();
  const colour = (name) => colours.get(name) ?? colours.set(name, style.getPropertyValue(`--${name}`).trim()).get(name);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const pen = { context, colour, width, scale };
  drawAxis(pen);
  drawBuckets(pen, model.whole, model.list.calls.isFiltered ? 0.25 : 1);
  if (model.list.calls.isFiltered) drawBuckets(pen, model.list.calls, 1);
  lanes.forEach((lane, number) => drawLane(pen, lane, STRIP + number * LANE, model));
}

// Labels below the bars, and bands for what is folded.
function drawAxis({ context, colour, width, scale }) {
  context.fillStyle = colour("line");
  context.fillRect(0, BARS, width, 1);
  for (const { from, to, isStart } of scale.map.folds) {
    const [left, right] = [from, to].map((value) => scale.x(value, value));
    context.fillStyle = colour("soft");
    context.fillRect(left, 2, right - left, BARS - 2);
    context.fillStyle = colour("bar");
    for (let x = left + 2; x < right - 1; x += 4) context.fillRect(x, isStart ? BARS - 16 : BARS / 2, 2, isStart ? 14 : 2);
  }
  context.font = "11px system-ui, sans-serif";
  for (const { value, x, step } of scale.ticks()) {
    const text = !scale.isTime ? value.toLocaleString("en") : step >= 864e5 ? day(value).slice(5, 10) : clock(value).slice(0, step >= 6e4 ? 5 : step >= 1000 ? 8 : 12);
    context.fillStyle = colour("line");
    context.fillRect(x, BARS, 1, 4);
    context.fillStyle = colour("quiet");
    const wide = context.measureText(text).width;
    context.fillText(text, Math.max(0, Math.min(width - wide, x - wide / 2)), STRIP - 2);
  }
}

// A bar's height is the mean duration of its calls; the teal part changed files, the red part failed.
function drawBuckets({ context, colour, width, scale }, list, strength) {
  const { buckets, timeline } = list;
  buckets.forEach((bucket, number) => {
    const next = buckets[number + 1]?.from ?? timeline.head + 1;
    const [x, right] = [scale.x(bucket.from, bucket.at), scale.isTime ? scale.x(0, bucket.ended_at ?? bucket.at) : scale.x(next)];
    if (right < 0 || x > width) return;
    const room = BARS - 8;
    const tall = 4 + (room - 4) * share(Math.max(bucket.micros / bucket.calls, 100));
    const wide = Math.max(1, Math.min(right - x - (right - x > 3 ? 1 : 0), scale.isTime ? width : 40));
    context.globalAlpha = strength;
    context.fillStyle = colour("bar");
    context.fillRect(x, BARS - tall, wide, tall);
    const changed = tall * Math.min(1, bucket.changed / bucket.calls);
    context.fillStyle = colour("accent");
    context.fillRect(x, BARS - changed, wide, changed);
    context.fillStyle = colour("bad");
    const bad = Math.max(3, (tall * bucket.failed) / bucket.calls);
    if (bucket.failed) context.fillRect(x, BARS - bad, Math.max(2, wide), bad);
  });
  context.globalAlpha = 1;
}

function drawLane(pen, lane, y, model) {
  const { context, colour, width, scale } = pen;
  context.fillStyle = colour("line");
  context.fillRect(0, y + LANE / 2, width, 1);
  for (const call of lane.calls ?? []) {
    const started = Date.parse(call.started_at);
    const x = scale.x(call.call, started);
    const end = scale.isTime ? scale.x(0, started + (call.micros ?? 0) / 1000) : scale.x((call.finished ?? model.head) + 1);
    context.fillStyle = colour(failed(call) ? "bad" : call.paths.length ? "accent" : "quiet");
    context.fillRect(x, y + 4, Math.max(2, end - x - 1), LANE - 8);
  }
  (lane.buckets ?? []).forEach((bucket) => {
    context.fillStyle = colour(bucket.failed ? "bad" : bucket.changed ? "accent" : "quiet");
    context.fillRect(scale.x(bucket.from, bucket.at), y + 5, 1.5, LANE - 10);
  });
  if (lane.from !== undefined) drawChild(pen, lane, y, model);
  context.font = "11px system-ui, sans-serif";
  const words = visible(lane.name || "no agent").slice(0, 40);
  context.fillStyle = colour("panel");
  context.globalAlpha = 0.85;
  context.fillRect(0, y + 2, context.measureText(words).width + 8, LANE - 4);
  context.globalAlpha = 1;
  context.fillStyle = colour("text");
  context.fillText(words, 4, y + 13);
}

function drawChild({ context, colour, scale }, lane, y, model) {
  const ends = lane.merges.map(({ at }) => at);
  const end = ends.length ? Math.max(...ends) : model.head;
  context.fillStyle = colour("accent");
  context.fillRect(scale.x(lane.from), y + LANE / 2 - 1, Math.max(3, scale.x(end) - scale.x(lane.from)), 3);
  for (const { at, outcome } of lane.merges) {
    context.fillStyle = colour(outcome === "merged" ? "accent" : "bad");
    context.fillRect(scale.x(at) - 3, y + LANE / 2 - 3, 7, 7);
  }
}
