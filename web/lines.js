// Differences between lines, and between three sides of a conflict.

const EDITS_MOST = 2000;

export function linesOf(text) {
  if (text === "") return [];
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

// Returns the ranges that differ, in order: `{ a, aEnd, b, bEnd }`.
export function changedRanges(one, other) {
  let start = 0;
  const least = Math.min(one.length, other.length);
  while (start < least && one[start] === other[start]) start += 1;
  let [end, otherEnd] = [one.length, other.length];
  while (end > start && otherEnd > start && one[end - 1] === other[otherEnd - 1]) [end, otherEnd] = [end - 1, otherEnd - 1];
  if (start === end && start === otherEnd) return [];
  const whole = [{ a: start, aEnd: end, b: start, bEnd: otherEnd }];
  if (start === end || start === otherEnd) return whole;
  const edits = shortest(one.slice(start, end), other.slice(start, otherEnd));
  if (!edits) return whole;
  return edits.map(({ a, aEnd, b, bEnd }) => ({ a: a + start, aEnd: aEnd + start, b: b + start, bEnd: bEnd + start }));
}

// Myers' shortest edit script; null if it is too long to find.
function shortest(one, other) {
  const most = Math.min(one.length + other.length, EDITS_MOST);
  const furthest = new Int32Array(2 * most + 3);
  const middle = most + 1;
  const trace = [];
  for (let edits = 0; edits <= most; edits += 1) {
    trace.push(furthest.slice(middle - edits - 1, middle + edits + 2));
    for (let k = -edits; k <= edits; k += 2) {
      const isDown = k === -edits || (k !== edits && furthest[middle + k - 1] < furthest[middle + k + 1]);
      let a = isDown ? furthest[middle + k + 1] : furthest[middle + k - 1] + 1;
      while (a < one.length && a - k < other.length && one[a] === other[a - k]) a += 1;
      furthest[middle + k] = a;
      if (a >= one.length && a - k >= other.length) return traced(trace, one.length, other.length);
    }
  }
  return null;
}

function traced(trace, aEnd, bEnd) {
  const ranges = [];
  let [a, b] = [aEnd, bEnd];
  for (let edits = trace.length - 1; edits > 0; edits -= 1) {
    const at = (k) => trace[edits][k + edits + 1];
    const k = a - b;
    const isDown = k === -edits || (k !== edits && at(k - 1) < at(k + 1));
    const before = isDown ? k + 1 : k - 1;
    const [fromA, fromB] = [at(before), at(before) - before];
    const [toA, toB] = isDown ? [fromA, fromB + 1] : [fromA + 1, fromB];
    const last = ranges[0];
    if (last && last.a === toA && last.b === toB) Object.assign(last, { a: fromA, b: fromB });
    else ranges.unshift({ a: fromA, aEnd: toA, b: fromB, bEnd: toB });
    [a, b] = [fromA, fromB];
  }
  return ranges;
}

// Groups ranges that are near each other into hunks of rows: `{ kind, old, now, text }`, with line numbers from 1.
export function hunksOf(before, after, context = 3) {
  const [one, other] = [linesOf(before), linesOf(after)];
  const groups = [];
  for (const range of changedRanges(one, other)) {
    const group = groups.at(-1);
    if (group && range.a - group.at(-1).aEnd <= 2 * context) group.push(range);
    else groups.push([range]);
  }
  return groups.map((ranges) => {
    const rows = [];
    const lead = Math.min(context, ranges[0].a);
    let [a, b] = [ranges[0].a - lead, ranges[0].b - lead];
    const same = (until) => {
      for (; a < until; a += 1, b += 1) rows.push({ kind: "same", old: a + 1, now: b + 1, text: one[a] });
    };
    for (const range of ranges) {
      same(range.a);
      for (; a < range.aEnd; a += 1) rows.push({ kind: "removed", old: a + 1, now: null, text: one[a] });
      for (; b < range.bEnd; b += 1) rows.push({ kind: "added", old: null, now: b + 1, text: other[b] });
    }
    same(Math.min(one.length, a + context));
    return rows;
  });
}

// Returns the rows of a patch of one file, like `hunksOf`.
export function rowsOfPatch(patch) {
  const hunks = [];
  let [old, now] = [0, 0];
  for (const line of linesOf(patch)) {
    const head = line.match(/^@@ -(\d+)(?:,\d+)? \+(\d+)/);
    if (head) {
      [old, now] = [Number(head[1]), Number(head[2])];
      hunks.push([]);
    } else if (!hunks.length || line[0] === "\\") continue;
    else if (line[0] === "-") hunks.at(-1).push({ kind: "removed", old: old++, now: null, text: line.slice(1) });
    else if (line[0] === "+") hunks.at(-1).push({ kind: "added", old: null, now: now++, text: line.slice(1) });
    else hunks.at(-1).push({ kind: "same", old: old++, now: now++, text: line.slice(1) });
  }
  return hunks;
}

// Returns the parts of a file that both sides changed differently: for each side its lines around the conflict, as
// `{ at, lines: [{ text, isChanged }] }`; and the number of parts that merge.
export function conflictsOf(base, ours, theirs, context = 2) {
  const texts = [ours, base, theirs].map(linesOf);
  const [mine, middle, other] = texts;
  const ranges = [...changedRanges(middle, mine).map((range) => ({ ...range, side: 0 })), ...changedRanges(middle, other).map((range) => ({ ...range, side: 2 }))];
  ranges.sort((one, two) => one.a - two.a || one.aEnd - two.aEnd);
  const regions = [];
  for (const range of ranges) {
    const region = regions.at(-1);
    // Changes of adjacent lines conflict, too.
    if (region && range.a <= region.end) {
      region.ranges.push(range);
      region.end = Math.max(region.end, range.aEnd);
    } else regions.push({ start: range.a, end: range.aEnd, ranges: [range] });
  }
  const hunks = [];
  let merging = 0;
  const shift = [0, 0, 0];
  for (const { start, end, ranges: own } of regions) {
    const sides = [0, 1, 2].map((side) => {
      const grown = own.filter((range) => range.side === side).reduce((sum, range) => sum + (range.bEnd - range.b) - (range.aEnd - range.a), 0);
      const [from, to] = [start + shift[side], end + shift[side] + grown];
      shift[side] += grown;
      return [from, to];
    });
    const shown = sides.map(([from, to], side) => texts[side].slice(from, to).join("\n"));
    if (own.every(({ side }) => side === own[0].side) || (shown[0] === shown[2] && sides[0][1] - sides[0][0] === sides[2][1] - sides[2][0])) {
      merging += 1;
      continue;
    }
    hunks.push(sides.map(([from, to], side) => {
      const first = Math.max(0, from - context);
      const lines = texts[side].slice(first, to + context);
      return { at: first + 1, lines: lines.map((text, number) => ({ text, isChanged: first + number >= from && first + number < to })) };
    }));
  }
  return { hunks, merging };
}
