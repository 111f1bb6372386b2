// One file: its difference, text, blame, picture, or bytes.

import { html, useEffect, useMemo } from "./vendor/preact.js";
import { fitting, InlineDiff, SplitDiff, TextView } from "./editor.js";
import { fileAt, useLoaded } from "./loaded.js";
import { bytesOf, getKept, ofFile, ofSession } from "./source.js";
import { bytes, clock, visible } from "./text.js";
import { VirtualRows } from "./virtual.js";

const HEX_MOST = 1 << 20;
const IMAGES = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", bmp: "image/bmp", ico: "image/x-icon", avif: "image/avif" };

export function FilePane({ model }) {
  const { path, session, before, at } = model;
  const { value, error, keys } = useLoaded(() => bothSides(model), [session, path, before, at]);
  const fresh = keys && keys[1] === path;
  return html`<${FileHead} model=${model} file=${fresh && value ? value[1] ?? value[0] : null} gone=${fresh && value && !value[1]} />
    <div class="file-body">
      ${error && html`<p class="problem">${visible(error.message)}</p>`}
      ${fresh && value && html`<${FileBody} model=${model} before=${value[0]} after=${value[1]} />`}
    </div>`;
}

// Loads the file before and after; an unchanged file is loaded once.
async function bothSides({ session, path, before, at }) {
  const { changes, more } = await getKept(ofSession(session, "/changes"), { from: before, to: at });
  const change = changes.find((entry) => entry.path === path);
  if (!change && !more) {
    const file = await fileAt(session, path, at);
    return [file, file];
  }
  const was = change?.change === "added" ? null : fileAt(session, path, before);
  const is = change?.change === "removed" ? null : fileAt(session, path, at);
  return Promise.all([was, is]);
}

const VIEWS = [["diff", "Changes"], ["split", "Side by side"], ["file", "File"], ["blame", "Blame"]];

function FileHead({ model, file, gone }) {
  const { path, fileCalls, head } = model;
  useEffect(() => {
    model.changesOfFile(path).catch(() => {});
  }, [path, head]);
  const calls = fileCalls?.path === path ? fileCalls.calls : [];
  const here = calls.findIndex(({ call }) => call === model.call?.call);
  const download = async () => {
    const url = URL.createObjectURL(new Blob([await bytesOf(ofFile(model.session, path), { at: model.at })]));
    const link = Object.assign(document.createElement("a"), { href: url, download: visible(path.split("/").at(-1)) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  const show = (fileView) => {
    model.set({ fileView });
    model.remember({ replace: true });
  };
  return html`<header class="file-head">
    <h2 class="path"><bdi>${visible(path)}</bdi></h2>
    <span class="quiet">${gone ? "does not exist at this position" : file?.entry ? `${bytes(file.entry.size)}${file.entry.executable ? ", executable" : ""}` : ""}</span>
    <span class="grow"></span>
    <span class="buttons" role="group" aria-label="Changes of this file">
      <button title="Previous change of this file ([)" aria-label="Previous change of this file" onClick=${() => model.nextChange(-1)}>‹</button>
      <span class="quiet count">${here >= 0 ? `${here + 1} of ` : ""}${calls.length}${fileCalls?.more ? "+" : ""} ${calls.length === 1 ? "change" : "changes"}</span>
      <button title="Next change of this file (])" aria-label="Next change of this file" onClick=${() => model.nextChange(1)}>›</button></span>
    <span class="segments" role="group" aria-label="View of the file">${VIEWS.map(([name, title]) => html`<button key=${name} aria-pressed=${model.fileView === name} onClick=${() => show(name)}>${title}</button>`)}</span>
    <button title="Save this file" aria-label="Save this file" disabled=${gone} onClick=${download}>Save</button>
  </header>`;
}

function FileBody({ model, before, after }) {
  const { path, fileView } = model;
  if (!before && !after) return html`<p class="empty quiet">The file does not exist at this position.</p>`;
  const shown = after ?? before;
  if (shown.entry.node === "directory") return html`<p class="empty quiet">This is a directory.</p>`;
  if (shown.isLarge || before?.isLarge) return html`<p class="empty quiet">The file is too large to show here: ${bytes(shown.entry.size)}. It can be saved.</p>`;
  const type = IMAGES[path.split(".").at(-1).toLowerCase()];
  if (type && shown.bytes) return html`<${Pictures} type=${type} before=${before} after=${after} />`;
  if (shown.text === null || (before && before.text === null)) return html`<${Hex} file=${shown} />`;
  if (fileView === "blame" && after) return html`<${Blame} model=${model} text=${after.text} />`;
  const isSame = before && after && before.text === after.text;
  const [was, is] = [fitting(before?.text ?? ""), fitting(after?.text ?? "")];
  const note = notice(model, before, after, isSame, was.isCut || is.isCut);
  return html`${note && html`<p class="note quiet">${note}</p>`}
    ${fileView === "file" || isSame || !before || !after ? html`<${TextView} path=${path} text=${after ? is.text : was.text} spot=${spotOf(model)} />`
      : fileView === "split" ? html`<${SplitDiff} path=${path} before=${was.text} after=${is.text} />`
      : html`<${InlineDiff} path=${path} before=${was.text} after=${is.text} />`}`;
}

// The line that a search found, at this position.
function spotOf({ spot, path, at }) {
  return spot?.path === path && spot.at === at ? spot.line : null;
}

function notice(model, before, after, isSame, isCut) {
  const span = model.since === "step" ? "this step" : `${model.before}–${model.at}`;
  const cut = isCut ? " Long lines are cut here; Save has the whole file." : "";
  if (!after) return `Removed by ${span}.${cut}`;
  if (!before) return `Added by ${span}.${cut}`;
  if (isSame && model.fileView !== "file") return `Not changed by ${span}.${cut}`;
  return cut.trim();
}

function Pictures({ type, before, after }) {
  const isSame = before?.entry.content === after?.entry.content;
  const sides = isSame ? [["", after]] : [["Before", before], ["After", after]];
  return html`<div class="pictures">${sides.filter(([, side]) => side).map(([title, side]) => html`<figure key=${title}>
    ${title && html`<figcaption>${title}</figcaption>`}<${Picture} type=${type} file=${side} /><figcaption class="quiet">${bytes(side.entry.size)}</figcaption></figure>`)}</div>`;
}

function Picture({ type, file }) {
  const url = useMemo(() => URL.createObjectURL(new Blob([file.bytes], { type })), [file.entry.content]);
  useEffect(() => () => URL.revokeObjectURL(url), [url]);
  return html`<img src=${url} alt="The picture in this file" />`;
}

function Hex({ file }) {
  const all = file.bytes ?? new Uint8Array();
  const shown = all.subarray(0, HEX_MOST);
  const render = (index, style) => {
    const row = shown.subarray(index * 16, index * 16 + 16);
    const hex = [...row].map((byte) => byte.toString(16).padStart(2, "0"));
    const words = `${hex.slice(0, 8).join(" ")}  ${hex.slice(8).join(" ")}`.padEnd(48);
    const text = [...row].map((byte) => (byte > 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    return html`<div key=${index} role="listitem" class="row" style=${style}><span class="quiet">${(index * 16).toString(16).padStart(8, "0")}</span>  ${words}  ${text}</div>`;
  };
  return html`<p class="note quiet">Not text: ${bytes(all.length)}, as bytes${all.length > HEX_MOST ? `; the first ${bytes(HEX_MOST)}` : ""}.</p>
    <${VirtualRows} className="hex" height=${19} total=${Math.ceil(shown.length / 16)} render=${render} label="Bytes" />`;
}

function Blame({ model, text }) {
  const { path, session, at } = model;
  const { value, error } = useLoaded(() => getKept(ofFile(session, path, "blame"), { at }), [session, path, at]);
  const shown = useMemo(() => value && { words: wordsOf(value, model), text: fitting(text).text }, [value, text]);
  if (error) return html`<p class="problem">${visible(error.message)}</p>`;
  if (!value || value.at !== at) return html`<p class="empty quiet">Finding who wrote each line…</p>`;
  const lead = (line) => {
    const change = shown.words.change(line);
    if (!change) return;
    if (change.session_name && change.session !== model.document.session) location.hash = `#/s/${encodeURIComponent(change.session_name)}@${change.seq}/file/${change.path.split("/").map(encodeURIComponent).join("/")}`;
    else model.show("files", { path: change.path, fileView: "diff" }), model.goTo(change.seq);
  };
  return html`<p class="note quiet">Each line with the call that wrote it; click to go there.${value.coarse ? " Some lines may be older than shown." : ""}</p>
    <${TextView} path=${path} text=${shown.text} blame=${shown.words.blame} onLine=${lead} />`;
}

function wordsOf(document, { start, document: here }) {
  const changes = new Map(document.changes.map((change) => [`${change.session}@${change.seq}`, change]));
  const change = (line) => {
    const found = document.lines[line - 1];
    return found ? changes.get(`${found.session}@${found.seq}`) ?? null : null;
  };
  const blame = (line) => {
    const found = change(line);
    if (!found) return { text: "", title: "" };
    const isFirst = line === 1 || change(line - 1) !== found;
    const who = found.tool ?? (found.seq <= start && found.session === here.session ? "initial" : found.cause);
    const title = `${found.what ?? "written"} by ${who} at ${found.seq}${found.agent ? `, ${found.agent}` : ""}, ${clock(found.time)}`;
    return { text: isFirst ? visible(`#${found.call ?? found.seq} ${who}${found.agent ? `  ${found.agent}` : ""}`) : "│", title: visible(title) };
  };
  return { change, blame };
}
