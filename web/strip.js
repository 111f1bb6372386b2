// The whole run on one line, with durations, file changes and failures; and lanes.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { get, ofSession } from "./source.js";
import { failed, visible } from "./text.js";
import { share } from "./timeline.js";

const LANES_MOST = 8;
const ROWS_DRAWN = 1500;
const STRIP = 40;
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
  const scale = scaleOf(model, axis, zoom, width);
  const scheme = useScheme();
  const { list, whole } = model;
  useEffect(() => {
    if (width && whole) draw(canvas.current, model, scale, laneRows, width, height);
  }, [list, list?.timeline, whole?.timeline, laneRows, width, height, axis, zoom, scheme, model.head]);
  const drag = useScrubber(model, canvas, scale);
  const nearer = (factor) => setZoom(zoomed(zoom, factor, scale.share(model.at, model.call?.started_at)));
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
      <i class="cursor" style=${placed(scale.x(model.at, model.call?.started_at), width)}></i></div>
    <div class="strip-tools" role="group" aria-label="The strip">
      <select aria-label="Lanes" value=${lanes} onChange=${(event) => setLanes(event.target.value)}>
        <option value="">No lanes</option><option value="agents">Agents</option><option value="tools">Tools</option><option value="children">Children</option></select>
      <select aria-label="Axis" value=${axis} onChange=${(event) => setAxis(event.target.value)}><option value="event">by event</option><option value="time">by time</option></select>
      <button aria-label="Zoom out" disabled=${zoom[0] === 0 && zoom[1] === 1} onClick=${() => nearer(2)}>−</button>
      <button aria-label="Zoom in" onClick=${() => nearer(0.5)}>+</button>
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

// Maps positions, or times, to the width of the strip, and back.
function scaleOf(model, axis, [from, to], width) {
  const timeline = model.whole?.timeline;
  const [start, end] = [timeline?.started_at, timeline?.ended_at].map((time) => Date.parse(time ?? 0));
  const byTime = axis === "time" && end > start;
  const head = Math.max(1, model.head);
  const share = (seq, time) => (byTime ? ((typeof time === "number" ? time : Date.parse(time ?? start)) - start) / (end - start) : seq / head);
  const x = (seq, time) => ((share(seq, time) - from) / (to - from)) * width;
  const seqAt = (pixels) => {
    const wanted = from + (pixels / Math.max(1, width)) * (to - from);
    if (!byTime) return Math.round(wanted * head);
    const buckets = timeline.buckets;
    const next = buckets.findIndex(({ at }) => (Date.parse(at) - start) / (end - start) > wanted);
    return buckets[(next < 0 ? buckets.length : Math.max(1, next)) - 1]?.from ?? 0;
  };
  return { x, share, seqAt, byTime, end };
}

function useScrubber(model, canvas, scale) {
  const wanted = useRef({ seq: null, isGoing: false });
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
  const to = (event) => {
    const { left } = canvas.current.getBoundingClientRect();
    wanted.current.seq = Math.max(0, Math.min(model.head, scale.seqAt(event.clientX - left)));
    go();
  };
  return {
    onPointerDown: (event) => {
      canvas.current.setPointerCapture(event.pointerId);
      model.follows = false;
      to(event);
    },
    onPointerMove: (event) => event.buttons === 1 && to(event),
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
  drawBuckets(pen, model.whole, model.list.isFiltered ? 0.25 : 1);
  if (model.list.isFiltered) drawBuckets(pen, model.list, 1);
  lanes.forEach((lane, number) => drawLane(pen, lane, STRIP + number * LANE, model));
}

function drawBuckets({ context, colour, width, scale }, list, strength) {
  const { buckets, timeline } = list;
  buckets.forEach((bucket, number) => {
    const next = buckets[number + 1];
    const end = next ?? { from: timeline.head + 1, at: timeline.ended_at ?? bucket.at };
    const [x, right] = [scale.x(bucket.from, bucket.at), scale.x(end.from, end.at)];
    if (right < 0 || x > width) return;
    const micros = ((Date.parse(end.at) - Date.parse(bucket.at)) * 1000) / bucket.calls;
    const room = STRIP - 8;
    const tall = 4 + (room - 4) * share(Math.max(micros, 100));
    const wide = Math.max(1, Math.min(right - x - (right - x > 3 ? 1 : 0), 40));
    context.globalAlpha = strength;
    context.fillStyle = colour("bar");
    context.fillRect(x, STRIP - tall, wide, tall);
    const changed = tall * Math.min(1, bucket.changed / bucket.calls);
    context.fillStyle = colour("accent");
    context.fillRect(x, STRIP - changed, wide, changed);
    context.fillStyle = colour("bad");
    if (bucket.failed) context.fillRect(x, STRIP - Math.max(3, (tall * bucket.failed) / bucket.calls), Math.max(2, wide), Math.max(3, (tall * bucket.failed) / bucket.calls));
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
    const end = scale.byTime ? scale.x(0, started + (call.micros ?? 0) / 1000) : scale.x((call.finished ?? model.head) + 1);
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
