// A mount: the files at the cursor as a read-only directory of the server's machine.

import { html, useState } from "./vendor/preact.js";
import { CommandLine, Copy, Dialog, Trouble, useSending } from "./dialog.js";
import { isExport, ofSession, post, remove } from "./source.js";
import { quoted, visible } from "./text.js";

export function MountButton({ model }) {
  if (isExport) return null;
  return html`<button class="small" title="Show these files as a directory on the server's machine" onClick=${() => model.dialog({ view: Mount })}>Mount</button>`;
}

function Mount({ model, onClose }) {
  const { session, at, head } = model;
  const [follows, setFollows] = useState(at === head);
  const [{ busy, problem, done }, send] = useSending();
  const mount = () => send(() => post(ofSession(session, "/mounted"), { all: true, ...(!follows && { at: `@${at}` }) }));
  const words = `foldspace mount ${quoted(session)} --all${follows ? "" : ` --at @${at}`}`;
  return html`<${Dialog} title="Mount these files" onClose=${onClose}>
    <p>A mount is a read-only directory on the server's machine. It ends with the session, with an unmount, or when that machine restarts.</p>
    ${done ? html`<${Mounted} session=${session} mount=${done} onClose=${onClose} />` : html`
      <label class="check"><input type="checkbox" checked=${follows} onChange=${() => setFollows(!follows)} /> Follow the session, instead of event ${at}</label>
      <${Trouble} problem=${problem} /><${CommandLine} words=${words} />
      <div class="row-buttons"><button class="primary" disabled=${busy} autofocus onClick=${mount}>Mount</button><button onClick=${onClose}>Cancel</button></div>`}
  <//>`;
}

// The second request unmounts a mount in use; programs keep their open files.
function Mounted({ session, mount: { directory, at, trouble }, onClose }) {
  const [{ busy, problem, done }, send] = useSending();
  const isUsed = problem?.status === 409;
  const query = new URLSearchParams({ directory, ...(isUsed && { lazy: true }) });
  const unmount = () => send(() => remove(ofSession(session, `/mounted?${query}`)).then(() => true));
  if (done) return html`<p role="status">Unmounted.</p><div class="row-buttons"><button class="primary" onClick=${onClose}>Close</button></div>`;
  return html`<div class="command-line" role="status"><span class="quiet">${at === null ? "The files now, following the session:" : `The files at event ${at}:`}</span>
      <code>${visible(directory)}</code><${Copy} text=${directory} label="Copy the path" /></div>
    <p class="quiet">Hidden directories: <code>.at/POSITION</code>, <code>.call/N/before</code>, <code>.call/N/after</code> and <code>.sessions/NAME</code>.</p>
    <${Trouble} problem=${problem ?? (trouble && { message: trouble })} />
    <div class="row-buttons"><button class="primary" onClick=${onClose}>Close</button><button disabled=${busy} onClick=${unmount}>${isUsed ? "Unmount anyway" : "Unmount"}</button></div>`;
}
