// The running servers of a container: links to them, and previews in a frame.

import { html, useEffect, useState } from "./vendor/preact.js";
import { Dialog } from "./dialog.js";
import { get, ofSession } from "./source.js";
import { visible } from "./text.js";
import { token } from "./token.js";

// The rights of a previewed page. It has another origin, so it can't reach this page.
const RIGHTS = "allow-scripts allow-forms allow-same-origin";

export function Services({ model }) {
  const shown = model.services.filter(({ running, port }) => running && port);
  if (!model.document || !token()) return null;
  return shown.map((service) => html`<${Service} key=${service.name} model=${model} ...${service} />`);
}

function Service({ model, name, port }) {
  const isHere = model.document.backend === "host";
  const [address, setAddress] = useState(isHere ? `http://127.0.0.1:${port}/` : null);
  useEffect(() => {
    if (!isHere) get(ofSession(model.session, `/ports/${port}`)).then((link) => setAddress(addressOf(link)), () => {});
  }, [port]);
  if (!address) return null;
  const preview = () => model.dialog({ view: Preview, given: { name, address } });
  return html`<span class="service"><a target="_blank" rel="noopener noreferrer" href=${address} title=${`Opens port ${port} of ${visible(name)}`}>${visible(name)} :${port}</a>${
    !isHere && html` <button class="small" aria-label=${`Preview ${visible(name)}`} onClick=${preview}>Preview</button>`}</span>`;
}

// Returns the address of a port, through the page's own server.
function addressOf({ label, token }) {
  const own = /^[\d.]+$|^\[/.test(location.hostname) ? "localhost" : location.hostname;
  return `${location.protocol}//${label}.${own}:${location.port}/?foldspace-token=${token}`;
}

function Preview({ name, address, onClose }) {
  return html`<${Dialog} title=${visible(name)} onClose=${onClose} wide>
    <iframe class="preview" title=${`Preview of ${visible(name)}`} sandbox=${RIGHTS} src=${address}></iframe>
    <p class="quiet">The page runs here without rights to this one. <a target="_blank" rel="noopener noreferrer" href=${address}>Open it in a tab</a></p>
  <//>`;
}
