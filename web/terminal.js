// A terminal in a throw-away copy of the workspace, or in the live one.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { CommandLine, Dialog } from "./dialog.js";
import { Question } from "./questions.js";
import { BLANK, framed, Screen, textOf } from "./screen.js";
import { ofSession, post, socketOf } from "./source.js";
import { duration, quoted, visible } from "./text.js";

const NAMED = /^(Arrow\w+|Home|End|Page\w+|Insert|Delete|Enter|Tab|Escape|Backspace|F\d+)$/;

// Returns true for keys that go to the program rather than to the field or the browser.
function isTaken(event) {
  const { key, shiftKey, altKey, ctrlKey } = event;
  if (event.metaKey || event.isComposing || event.getModifierState("AltGraph") || (shiftKey && key === "Insert")) return false;
  if (NAMED.test(key)) return true;
  const copies = key === "c" && String(getSelection());
  return key.length === 1 && (altKey || (ctrlKey && !shiftKey && !copies));
}

export function Terminal({ model, onClose }) {
  const [copies, setCopies] = useState(true);
  const [command, setCommand] = useState("sh");
  const [screen, setScreen] = useState(BLANK);
  const [question, setQuestion] = useState(null);
  const [told, setTold] = useState(null);
  const [at] = useState(model.at);
  const [socket, box, cell, keys, out, size] = [useRef(null), useRef(null), useRef(null), useRef(null), useRef(null), useRef(null)];
  const runs = told?.runs;
  const send = (message) => socket.current?.readyState === 1 && socket.current.send(JSON.stringify(message));
  const measured = () => {
    const { width, height } = cell.current.getBoundingClientRect();
    const { clientWidth, clientHeight } = box.current;
    return { columns: Math.max(20, Math.floor((clientWidth - 20) / width)), rows: Math.max(4, Math.floor((clientHeight - 16) / height)) };
  };
  const resized = () => {
    // Not open yet, or already closed.
    if (!size.current || !cell.current) return;
    const { columns, rows } = measured();
    if (columns === size.current.columns && rows === size.current.rows) return;
    size.current = { columns, rows };
    send({ resize: size.current });
  };
  useEffect(() => () => socket.current?.close(), []);
  useEffect(() => {
    if (!runs) return undefined;
    const observer = new ResizeObserver(resized);
    observer.observe(box.current);
    keys.current.focus();
    return () => {
      observer.disconnect();
      out.current?.focus();
    };
  }, [runs]);
  const start = (event) => {
    event.preventDefault();
    const opened = socketOf(ofSession(model.session, "/terminal"));
    socket.current = opened;
    setTold({ runs: true, text: "Connecting…" });
    setScreen(BLANK);
    opened.onopen = () => {
      size.current = measured();
      const call = { tool: "shell_execute", params: { command, tty: true }, no_time_limit: true, auto_confirm: copies };
      send({ call, window: size.current, screen: true, ...(copies && { copy_at: at }) });
    };
    opened.onmessage = ({ data }) => {
      const { screen: frame, question: asked, progress, begun, outcome, problem } = JSON.parse(data);
      if (frame) setScreen((before) => framed(before, frame));
      if (asked) setQuestion(asked);
      if (progress || begun) setTold({ runs: true, text: progress?.text ?? (begun.call ? `Call ${begun.call}` : `A copy of event ${at}`) });
      if (outcome) setTold({ text: outcome.status === "ok" ? `Exit code ${outcome.result?.exit_code ?? 0}, ${duration(outcome.micros)}.` : outcome.text ?? outcome.status });
      if (problem) setTold({ text: `${problem.detail} ${problem.hint ?? ""}`, failed: true });
    };
    opened.onclose = () => {
      setQuestion(null);
      setTold((before) => (before.runs ? { text: "The connection was lost.", failed: true } : before));
    };
  };
  const pressed = (event) => {
    if (event.ctrlKey && event.key === "F6") return out.current.focus();
    if (!isTaken(event)) return undefined;
    event.preventDefault();
    const { key: name, shiftKey: shift, altKey: alt, ctrlKey: ctrl } = event;
    return send({ key: { name, shift, alt, ctrl } });
  };
  const entered = ({ target, isComposing }) => {
    if (isComposing || !target.value) return;
    socket.current.send(new TextEncoder().encode(target.value));
    target.value = "";
  };
  const pasted = (event) => {
    event.preventDefault();
    send({ paste: event.clipboardData.getData("text/plain") });
  };
  const answer = (call, word, reason) => {
    setQuestion(null);
    keys.current.focus();
    return post(ofSession(model.session, `/calls/${call}/answer`), { answer: word, ...(reason && { reason }) });
  };
  const words = copies ? `foldspace shell ${quoted(model.session)} --at ${at}` : `foldspace exec ${quoted(model.session)} -t --sh -- ${quoted(command)}`;
  return html`<${Dialog} title="Terminal" onClose=${onClose} wide stays=${runs}>
    ${!told && html`<form onSubmit=${start}>
      <label class="check"><input type="radio" name="place" checked=${copies} onChange=${() => setCopies(true)} /> A throw-away copy of the workspace at event ${at}: nothing is recorded, and it is removed at the end${model.document?.backend === "memory" ? ". It is on the server's machine, without a sandbox" : ""}</label>
      <label class="check"><input type="radio" name="place" checked=${!copies} onChange=${() => setCopies(false)} /> The live workspace of ${visible(model.session)}: a call with a recorded terminal; the policy may ask</label>
      <label for="terminal-command">Command</label><input id="terminal-command" class="mono" value=${command} onInput=${(event) => setCommand(event.target.value)} required autofocus autocomplete="off" spellcheck="false" />
      <${CommandLine} words=${words} /><div class="row-buttons"><button class="primary">Open</button></div></form>`}
    ${question && html`<div role="alert"><${Question} question=${question} onAnswer=${answer} /></div>`}
    ${told && html`<p class=${told.failed ? "problem" : "quiet"} role="status">${visible(told.text)}</p>
      <div class="terminal live" ref=${box} onMouseUp=${() => String(getSelection()) || keys.current?.focus()}><${Screen} screen=${screen} cell=${cell} />
        ${runs && html`<textarea class="sr" ref=${keys} aria-label="Terminal. Ctrl+F6 leaves it." autocapitalize="off" spellcheck="false" onKeyDown=${pressed} onInput=${entered} onCompositionEnd=${entered} onPaste=${pasted}></textarea>
        <p class="sr" aria-live="polite">${visible(textOf(screen.lines[screen.cursor?.[1]]))}</p>`}</div>
      <div class="row-buttons"><button ref=${out} onClick=${onClose}>${runs ? "Hang up" : "Close"}</button>${runs && html`<span class="quiet">Ctrl+F6 leaves the terminal. Ctrl+Shift+V pastes.</span>`}</div>`}
  </${Dialog}>`;
}
