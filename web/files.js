// The files at the cursor: the changes, the tree, and one file.

import { html } from "./vendor/preact.js";
import { useLoaded } from "./loaded.js";
import { LETTERS } from "./patch.js";
import { exported } from "./export.js";
import { FilePane } from "./filepane.js";
import { MountButton } from "./mount.js";
import { Splitter, useWidth } from "./splitter.js";
import { bytes, count, visible } from "./text.js";
import { Tree } from "./tree.js";
import { VirtualRows } from "./virtual.js";

const ROW = 24;

export function Files({ model }) {
  const { value, error } = useLoaded(() => model.changes(), [model.session, model.before, model.at]);
  const changes = value?.to === model.at ? value.changes : value?.changes ?? [];
  const files = changes.filter(({ kind }) => kind !== "directory");
  const [width, setWidth] = useWidth("files");
  return html`<div class="files" style=${{ "--browse": width ? `${width}px` : undefined }}>
    <div class="browse" aria-busy=${value?.to !== model.at && !error}>
      <${Since} model=${model} />
      ${error && html`<p class="problem">${visible(error.message)}</p>`}
      <h3 class="part">Changed <span class="quiet">${value ? count(files.length, "file") + (value.more ? " and more" : "") : ""}</span></h3>
      <${Inside} model=${model} />
      ${value && html`<${Changes} model=${model} files=${files} />`}
      <div class="part-head"><h3 class="part">All files <span class="quiet">at ${model.at}</span></h3><${MountButton} model=${model} /></div>
      ${exported?.missing.map((what) => html`<p class="quiet none">Not in this file: ${what}.</p>`)}
      <${Tree} model=${model} changes=${changes} />
    </div>
    <${Splitter} label="Width of the list of files" width=${width} onWidth=${setWidth} />
    <div class="file">${model.path ? html`<${FilePane} model=${model} />` : html`<p class="empty quiet">Choose a file: changes are above, all files are below.</p>`}</div>
  </div>`;
}

export function Since({ model }) {
  const choose = (since) => {
    if (since === "mark" && model.mark === null) return model.say("There is no mark: go to a position, and press m and a letter.");
    model.set({ since });
    model.remember({ replace: true });
  };
  const ways = [["step", "This step", "Changes by this call, or by this event within a call"], ["mark", model.mark === null ? "Since mark" : `Since ${model.mark}`, "Changes since the last mark (m and a letter set one)"], ["start", "Since start", "Changes since before the first call"]];
  return html`<div class="segments" role="group" aria-label="Compare since">${ways.map(([name, title, hint]) => html`<button key=${name} title=${hint}
    aria-pressed=${model.since === name} onClick=${() => choose(name)}>${title}</button>`)}</div>`;
}

// At an event within a call, a step is that event alone.
function Inside({ model }) {
  const { call, at, since } = model;
  if (since !== "step" || !call?.finished || at < call.call || at >= call.finished) return null;
  return html`<p class="quiet none">Event ${at} is inside of call ${call.call}. <button class="small" onClick=${() => model.goTo(call.finished, { replace: true })}>The whole call</button></p>`;
}

function Changes({ model, files }) {
  if (!files.length) return html`<p class="quiet none">Nothing changed.</p>`;
  const render = (index, style) => {
    const { path, change, size } = files[index];
    return html`<div key=${path} role="option" aria-selected=${path === model.path} class="row ${change}" style=${style} onClick=${() => model.openFile(path)} title=${visible(path)}>
      <span class="letter ${change}" aria-label=${change}>${LETTERS[change]}</span><span class="name end"><bdi>${visible(path)}</bdi></span><span class="quiet size">${bytes(size)}</span></div>`;
  };
  const pressed = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const at = files.findIndex(({ path }) => path === model.path);
    model.openFile(files[Math.max(0, Math.min(files.length - 1, at + step))].path);
    event.preventDefault();
    event.stopPropagation();
  };
  const at = files.findIndex(({ path }) => path === model.path);
  return html`<${VirtualRows} className="changes" height=${ROW} total=${files.length} render=${render} reveal=${at} label="Changed files" role="listbox" onKeyDown=${pressed} />`;
}
