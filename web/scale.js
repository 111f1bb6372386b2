// Maps positions or times of a run to places from 0 to 1, and back. What was there at the start is one narrow block, and
// idle time is folded.

const BLOCK = 0.04;
const FOLD = 0.015;
const IDLE_SHARE = 0.05;
const IDLE_LEAST = 5000;
const TICK = 84;
const TIMES = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5];

// Linear between knots `[value, place]`.
function along(knots, value, from, to) {
  let at = knots.findIndex((knot, number) => number > 0 && value <= knot[from]);
  if (at < 0) at = knots.length - 1;
  const [before, after] = [knots[at - 1], knots[at]];
  const part = after[from] === before[from] ? 0 : (value - before[from]) / (after[from] - before[from]);
  return before[to] + part * (after[to] - before[to]);
}

// The scale of events: `folds` has the block of the entries before the first call.
export function byEvent(head, start) {
  const block = Math.min(BLOCK, start / head);
  const hasBlock = start > 1 && start / head > BLOCK / 2;
  return { knots: hasBlock ? [[0, 0], [start, block], [head, 1]] : [[0, 0], [head, 1]], folds: hasBlock ? [{ from: 0, to: start, isStart: true }] : [] };
}

// The scale of times in milliseconds: `spans` are the times of calls, `[start, end]`, in order.
export function byTime(spans) {
  const gaps = [];
  let [end, first] = [spans[0][1], spans[0][0]];
  for (const [start, stop] of spans.slice(1)) {
    if (start > end) gaps.push([end, start]);
    end = Math.max(end, stop);
  }
  const whole = Math.max(1, end - first);
  const idle = gaps.reduce((sum, [from, to]) => sum + to - from, 0);
  const least = Math.max(IDLE_LEAST, IDLE_SHARE * (whole - idle));
  const folds = gaps.filter(([from, to]) => to - from > least).map(([from, to]) => ({ from, to }));
  const shown = Math.max(1, whole - folds.reduce((sum, { from, to }) => sum + to - from, 0));
  const room = 1 - Math.min(0.5, folds.length * FOLD);
  const fold = folds.length ? (1 - room) / folds.length : 0;
  const knots = [[first, 0]];
  for (const { from, to } of folds) {
    const place = knots.at(-1)[1] + ((from - knots.at(-1)[0]) / shown) * room;
    knots.push([from, place], [to, place + fold]);
  }
  knots.push([Math.max(end, knots.at(-1)[0] + 1), 1]);
  return { knots, folds };
}

export const placeOf = ({ knots }, value) => along(knots, value, 0, 1);
export const valueAt = ({ knots }, place) => along(knots, place, 1, 0);

// Returns round values with room for their labels, from the parts that are not folded.
export function ticksOf({ knots, folds }, isTime, [from, to], width) {
  const ticks = [];
  const x = (value) => ((placeOf({ knots }, value) - from) / (to - from)) * width;
  let last = -Infinity;
  for (let at = 1; at < knots.length; at += 1) {
    const [[start, left], [end, right]] = [knots[at - 1], knots[at]];
    if (folds.some((fold) => fold.from === start && fold.to === end) || end <= start) continue;
    const pixels = ((right - left) / (to - from)) * width;
    const step = roundStep(((end - start) / Math.max(1, pixels)) * TICK, isTime);
    const visible = [Math.max(start, valueAt({ knots }, from)), Math.min(end, valueAt({ knots }, to))];
    for (let value = Math.ceil(visible[0] / step) * step; value <= visible[1]; value += step) {
      if (x(value) - last < TICK * 0.75) continue;
      last = x(value);
      ticks.push({ value, x: last, step });
    }
  }
  return ticks;
}

function roundStep(least, isTime) {
  if (isTime) return TIMES.find((step) => step >= least) ?? Math.ceil(least / 864e5) * 864e5;
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= least) ?? 10 * power;
}
