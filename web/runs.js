// A group of runs as a tree: where they part, how each ends, and its scores.

import { html, useEffect } from "./vendor/preact.js";
import { useLoaded } from "./loaded.js";
import { get, isExport } from "./source.js";
import { count, duration, failed, oneLine, verdict, visible } from "./text.js";

// Deeper branches are not indented further.
const DEEPEST = 20;

export const addressOf = (sessions) => `#/compare/${sessions.map(encodeURIComponent).join(",")}`;

export function Runs({ sessions }) {
  const { value, error } = useLoaded(() => (isExport ? Promise.reject(new Error("An exported file has one run.")) : get("/v1/compare", { sessions })), [sessions]);
  useEffect(() => {
    document.title = "runs – foldspace";
  }, []);
  return html`<main class="sessions runs">
    <header><h1><a href="#/" title="All sessions"><span class="brand-mark" aria-hidden="true"></span>foldspace</a></h1>
      ${value && html`<span class="quiet">${count(value.runs, "run")}, ${value.branches[0].first ? `${count(value.branches[0].calls, "call")} in common` : "no call in common"}</span>`}</header>
    ${error && html`<p class="problem" role="alert">${visible(error.message)}</p>`}
    ${!value && !error && html`<p class="quiet">Comparing the runs…</p>`}
    ${value && html`<ul class="branches" role="tree" aria-label="Runs">${rowsOf(value.branches).map((row) => html`<${Row} key=${row.key} ...${row} />`)}</ul>`}
  </main>`;
}

// The branches in order, each followed by the runs that end with it while others continue.
function rowsOf(branches) {
  const depths = [];
  const next = Map.groupBy(branches.keys(), (at) => branches[at].parent ?? -1);
  const rows = [];
  const waiting = [...(next.get(-1) ?? [])];
  while (waiting.length) {
    const at = waiting.pop();
    const branch = branches[at];
    depths[at] = branch.parent === null ? 0 : depths[branch.parent] + 1;
    if (branch.runs === 1) {
      rows.push({ key: at, depth: depths[at], branch, run: branch.ended[0] });
      continue;
    }
    if (branch.first) rows.push({ key: at, depth: depths[at], branch });
    else depths[at] -= 1;
    for (const run of branch.ended) rows.push({ key: run.session, depth: depths[at] + 1, run });
    waiting.push(...(next.get(at) ?? []).reverse());
  }
  return rows;
}

const hrefOf = (session, call) => `#/s/${encodeURIComponent(session)}${call ? `@${call.finished ?? call.call}` : ""}`;

function Row({ depth, branch, run }) {
  return html`<li role="treeitem" aria-level=${depth + 1} style=${{ "--depth": Math.min(depth, DEEPEST) }}>
    ${branch ? html`<${Calls} branch=${branch} />` : html`<span class="quiet">ends here: </span>`}
    ${run ? html`<${End} run=${run} />` : html`<b>${count(branch.runs, "run")}</b><${Ranges} branch=${branch} />`}</li>`;
}

function Calls({ branch: { first, session, calls, differing } }) {
  return html`<a class="position" href=${hrefOf(session, first)}>${first.call}</a> <b>${visible(first.tool)}</b> <span class="summary">${oneLine(first.summary, 120)}</span>
    <span class="quiet">${calls > 1 ? ` and ${count(calls - 1, "more call")}` : ""}${differing ? `, ${differing} with different outcomes` : ""} · </span>`;
}

function End({ run: { name, calls, failed: failures, micros, last, scores } }) {
  return html`<a href=${hrefOf(name)}>${visible(name)}</a>
    <span class="quiet"> ${count(calls, "call")}, ${duration(micros)}${failures ? `, ${failures} failed` : ""}</span>
    ${last && html` <span class="took ${failed(last) ? "bad" : ""}">${verdict(last)}</span>`}
    ${Object.entries(scores).map(([scored, { score, note }]) => html` <span key=${scored} class="badge" title=${visible(note ?? "")}>${visible(scored)}${score === null ? "" : ` ${score}`}</span>`)}`;
}

function Ranges({ branch: { runs, scores } }) {
  return Object.entries(scores).map(([name, { mean, min, max, runs: scored }]) => html` <span key=${name} class="badge">${visible(name)} ${Math.round(mean * 1000) / 1000}${min < max ? ` (${min} to ${max})` : ""}${scored < runs ? ` in ${count(scored, "run")}` : ""}</span>`);
}
