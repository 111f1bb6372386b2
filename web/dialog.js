// A dialog, and the equivalent command line.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { visible } from "./text.js";

export function Dialog({ title, onClose, children, wide = false, stays = false }) {
  const element = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    element.current.showModal();
    return () => before?.focus?.();
  }, []);
  const outside = (event) => event.target === element.current && !stays && onClose();
  return html`<dialog ref=${element} class=${wide ? "wide" : ""} aria-label=${title} onClose=${onClose} onCancel=${(event) => stays && event.preventDefault()} onMouseDown=${outside}>
    <div class="inside"><header><h2>${title}</h2><button class="plain" aria-label="Close" onClick=${onClose}>×</button></header>
    ${children}</div>
  </dialog>`;
}

export function CommandLine({ words }) {
  return html`<div class="command-line"><span class="quiet">The same on the command line:</span>
    <code>${words}</code><${Copy} text=${words} /></div>`;
}

export function Copy({ text, label = undefined }) {
  const [copied, setCopied] = useState("");
  return html`<button type="button" class="small" aria-label=${label} title=${label} onClick=${() => copy(text).then(() => setCopied(text))}>${copied && copied === text ? "Copied" : "Copy"}</button>`;
}

// Sends a request, and stores its outcome.
export function useSending() {
  const [state, setState] = useState({ busy: false, problem: null, done: null });
  const send = async (work) => {
    setState({ busy: true, problem: null, done: null });
    try {
      setState({ busy: false, problem: null, done: await work() });
    } catch (problem) {
      setState({ busy: false, problem, done: null });
    }
  };
  return [state, send];
}

export function Trouble({ problem }) {
  if (!problem) return null;
  return html`<p class="problem" role="alert">${visible(problem.message)}${problem.hint ? html`<br /><span class="hint">${visible(problem.hint)}</span>` : ""}</p>`;
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
